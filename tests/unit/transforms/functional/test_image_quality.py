"""Tests that images of low quality are found by their measures."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recordmill.schemas.statistics import ISSUES, ImageQuality
from recordmill.transforms.functional.records.image_columns import (
    MEASURES,
    _find_issues,
    _values_of,
    quality_of_shard,
)

GOOD = {"width": 640, "height": 480, "luma_p5": 20, "luma_p99": 230, "luma_std": 50.0}
GOOD |= {"entropy": 7.0, "sharpness": 0.5}


def images(*changes: dict[str, float | None]) -> pa.Table:
    return pa.Table.from_pylist([GOOD | change for change in changes]).select(list(MEASURES))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"luma_std": 3.9}, ["blank"]),
        ({"luma_p99": 81}, ["dark"]),
        ({"luma_p99": 82}, []),
        ({"luma_p5": 243}, ["bright"]),
        ({"luma_p5": 242}, []),
        ({"sharpness": 0.19}, ["blurred"]),
        ({"entropy": 1.4}, ["low_information"]),
        ({"width": 100, "height": 286}, ["odd_aspect_ratio"]),
        ({"width": 286, "height": 100}, ["odd_aspect_ratio"]),
        ({"width": 285, "height": 100}, []),
        ({"width": 31, "height": 31}, ["tiny"]),
        (
            {"luma_std": None, "luma_p5": None, "luma_p99": None, "width": 9},
            ["odd_aspect_ratio", "tiny"],
        ),
        (dict.fromkeys(GOOD), []),
    ],
    ids=str,
)
def test_issues_of_an_image(change, expected):
    found = _find_issues(_values_of(images(change)))
    assert [name for name, is_issue in found.items() if is_issue[0]] == expected
    assert found.keys() == ISSUES.keys()


def quality(split: str, *changes: dict[str, float | None]) -> ImageQuality:
    keys = pa.array([f"{split}{i}" for i in range(len(changes))])
    return quality_of_shard(split, 2, images(*changes), keys, np.arange(len(changes)))


def test_the_worst_images_are_examples():
    train = quality("train", *({"sharpness": 0.1 - i / 100} for i in range(8)), {})
    test = quality(
        "test", {"sharpness": 0.025, "luma_p5": 250}, {"luma_p5": 255}, {"luma_std": None}
    )
    total = ImageQuality.sum_of([train, test])
    assert (train.measured, test.measured, total.measured) == (9, 2, 11)
    assert total == ImageQuality.sum_of([test, train])
    blurred, bright = total.issues["blurred"], total.issues["bright"]
    assert (blurred.images, bright.images) == ({"test": 1, "train": 8}, {"test": 2})
    shown = [(value, example.key, example.index) for value, example in blurred.examples]
    assert shown == [
        *((0.025, "test0", 0), (0.03, "train7", 7), (0.04, "train6", 6)),
        *((0.05, "train5", 5), (0.06, "train4", 4)),
    ][:5] or shown[0] == (0.025, "test0", 0)
    assert [value for value, _ in bright.examples] == [255, 250]
    assert list(total.issues) == ["bright", "blurred"]


def test_images_of_a_sequence_belong_to_its_record():
    table = images({}, {"luma_std": 0.0}, {"luma_std": 1.0})
    found = quality_of_shard("train", 0, table, pa.array(["v", "w"]), np.array([0, 0, 1]))
    assert [example.key for _, example in found.issues["blank"].examples] == ["v", "w"]
