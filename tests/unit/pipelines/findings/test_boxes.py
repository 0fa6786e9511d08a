"""Findings on annotations that were scaled, and on boxes that are too small."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from recordmill.pipelines.findings import Outcome, _rescaled_annotations, _tiny_boxes
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images.geometry import RESCALED, TINY

LABEL = "image/object/class/label"


def outcome(images, boxes):
    """Returns an outcome with some counts of images, and a number of boxes in two classes."""
    splits = {"train": SimpleNamespace(classes={LABEL: {0: 1, 1: boxes - 1}})}
    manifest = SimpleNamespace(
        images=images, splits=splits, dataset_schema=preset("object_detection")
    )
    return Outcome(manifest)


def test_images_of_another_size_than_annotated_are_counted():
    assert not [*_rescaled_annotations(outcome({"jpeg kept": 3}, 3))]
    (found,) = _rescaled_annotations(outcome({"jpeg kept": 3, RESCALED: 2}, 3))
    assert found.line.startswith("note: 2 images have another size than annotated")


@pytest.mark.parametrize(("tiny", "is_found"), [(0, False), (2, False), (3, True)])
def test_a_tiny_median_box_is_a_warning(tiny, is_found):
    found = [*_tiny_boxes(outcome({"jpeg kept": 3, TINY: tiny}, 4))]
    assert [f.text for f in found] == is_found * [
        "3 of 4 boxes cover less than 0.01 % of their image"
    ]
