"""Findings on annotations that were scaled, and on boxes that are too small."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from recordmill.pipelines.findings import Outcome, _changed_annotations, _not_finite, _tiny_boxes
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images.geometry import (
    CLIPPED,
    CROPPED_OFF,
    DROPPED,
    IGNORED,
    ORIENTED,
    REPEATED,
    RESCALED,
    STORED_SIZE,
    TINY,
)

LABEL = "image/object/class/label"


def outcome(images, boxes):
    """Returns an outcome with some counts of images, and a number of boxes in two classes."""
    splits = {"train": SimpleNamespace(classes={LABEL: {0: 1, 1: boxes - 1}})}
    manifest = SimpleNamespace(
        images=images,
        splits=splits,
        input=SimpleNamespace(records=9),
        dataset_schema=preset("object_detection"),
    )
    return Outcome(manifest)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (RESCALED, "note: 2 images with another size than annotated; annotations are scaled to it"),
        (CLIPPED, "note: 2 images with boxes beyond the edges, which are clipped to the image"),
        (DROPPED, "note: 2 images without some boxes, which are dropped as --boxes says"),
        (
            ORIENTED,
            "note: 2 images with an EXIF orientation; annotations are read as displayed, unless "
            "frame=stored",
        ),
        (
            REPEATED,
            "warning: 2 images with the same box and class more than once, all of which are kept",
        ),
        (CROPPED_OFF, "note: 2 images without the boxes in the part that is cropped off"),
    ],
)
def test_images_whose_annotations_were_changed_are_counted(change, line):
    assert not [*_changed_annotations(outcome({"jpeg kept": 9}, 9))]
    (found,) = _changed_annotations(outcome({"jpeg kept": 9, change: 2}, 9))
    assert (found.line, found.figures) == (line, {"images": 2})


def test_boxes_beyond_the_edges_of_most_images_are_a_warning():
    (found,) = _changed_annotations(outcome({"jpeg kept": 9, CLIPPED: 5}, 9))
    assert (found.kind, found.severity) == ("boxes_clipped", "warning")
    remedy = "correct annotation files; for tables, set --boxes units=normalized,order=xywh"
    assert found.hint == remedy


def test_masks_whose_foreground_is_ignored_are_a_warning():
    (found,) = _changed_annotations(outcome({"jpeg kept": 9, IGNORED: 9}, 9))
    assert (found.kind, found.line) == (
        "masks_ignored",
        "warning: 9 images whose mask has only 0, the id that losses ignore (255; 65535 in "
        "16 bits), and edges",
    )


def test_sizes_before_exif_orientation_are_a_warning():
    (found,) = _changed_annotations(outcome({"jpeg kept": 9, STORED_SIZE: 2}, 9))
    assert found.line == (
        "warning: 2 images annotated with the size before EXIF orientation, but read as displayed"
    )
    assert found.hint == "if drawn on the image as stored, set frame=stored (--boxes, --masks)"


@pytest.mark.parametrize(("tiny", "is_found"), [(0, False), (2, False), (3, True)])
def test_a_tiny_median_box_is_a_warning(tiny, is_found):
    found = [*_tiny_boxes(outcome({"jpeg kept": 3, TINY: tiny}, 4))]
    assert [f.text for f in found] == is_found * [
        "3 of 4 boxes cover less than 0.01 % of their image"
    ]


def test_values_that_are_not_finite_are_a_warning_for_each_feature():
    counts = {"image/object/area": 1, "image/object/bbox/xmin": 2000}
    found = [*_not_finite(Outcome(SimpleNamespace(not_finite=counts)))]
    assert [(f.kind, f.severity, f.text, f.feature, f.figures) for f in found] == [
        (
            "not_finite",
            "warning",
            "1 value of 'image/object/area' is not finite (NaN or infinite)",
            "image/object/area",
            {"values": 1},
        ),
        (
            "not_finite",
            "warning",
            "2,000 values of 'image/object/bbox/xmin' are not finite (NaN or infinite)",
            "image/object/bbox/xmin",
            {"values": 2000},
        ),
    ]
