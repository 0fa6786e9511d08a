"""Tests of boxes that are invalid, out of bounds or cropped off."""

from __future__ import annotations

import math

import pytest

from recordmill.schemas.features import Feature
from recordmill.schemas.records import RowBoxes
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import BoxSettings, ImageSettings
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images.geometry import (
    REPEATED,
    geometry_of,
    object_values,
    repeated,
    transform_boxes,
)

SIZE = (40, 20)
WHOLE = geometry_of(SIZE, 1, ImageSettings())
GOOD = (10.0, 5.0, 20.0, 10.0)


def placed(*boxes, geometry=WHOLE, units="pixel", **settings):
    corners = [float(side) for box in boxes for side in box]
    return transform_boxes(RowBoxes(units, corners), geometry, BoxSettings(**settings))


def rejection(*boxes, **settings):
    with pytest.raises(RecordError) as raised:
        placed(*boxes, **settings)
    assert raised.value.reason is Reason.BAD_BOX
    return raised.value.detail


def test_a_box_as_fractions_of_its_image():
    found = placed(GOOD)
    assert (found.boxes, found.kept, found.remarks) == ([(0.25, 0.25, 0.5, 0.5)], [0], ())
    assert found.area_scale == 1.0


def test_a_row_may_have_no_boxes():
    assert placed().boxes == []


INVALID = [
    pytest.param((10, 5, 10, 10), "has no area", id="no width"),
    pytest.param((10, 5, 20, 5), "has no area", id="no height"),
    pytest.param((20, 5, 10, 10), "is inverted", id="inverted across"),
    pytest.param((10, 10, 20, 5), "is inverted", id="inverted down"),
    pytest.param((math.nan, 5, 20, 10), "not finite", id="NaN"),
    pytest.param((10, 5, math.inf, 10), "not finite", id="infinite"),
    pytest.param((41, 5, 50, 10), "lies outside the image of 40 x 20", id="outside"),
    pytest.param((-9, 5, 0, 10), "lies outside the image of 40 x 20", id="touching the edge"),
]


@pytest.mark.parametrize(("box", "problem"), INVALID)
def test_invalid_boxes_reject_their_row(box, problem):
    detail = rejection(GOOD, box)
    assert detail.startswith("box 1 of (")
    assert problem in detail


@pytest.mark.parametrize(("box", "problem"), INVALID)
def test_invalid_boxes_are_dropped_on_demand(box, problem):
    found = placed(GOOD, box, GOOD, invalid="drop")
    assert (len(found.boxes), found.kept, found.remarks[-1:]) == (2, [0, 2], ("boxes dropped",))


def test_out_of_bounds():
    over = (-4, 5, 20, 30)
    clipped = placed(over)
    assert clipped.boxes == [(0.0, 0.25, 0.5, 1.0)]
    assert clipped.remarks == ("boxes clipped",)
    assert placed(GOOD, over, out_of_bounds="drop").kept == [0]
    assert rejection(over, out_of_bounds="reject") == (
        "box 0 of (-4, 5, 20, 30) in pixels extends beyond the image of 40 x 20"
    )


@pytest.mark.parametrize("policy", ["clip", "reject", "drop"])
@pytest.mark.parametrize("box", [(0.0, 0.0, 1.0000009, 1.0), (-0.0125, 0.0, 1.0, 1.025)], ids=str)
def test_rounding_is_not_out_of_bounds(policy, box):
    found = placed(box, units="normalized", out_of_bounds=policy)
    assert (found.boxes, found.remarks) == ([(0.0, 0.0, 1.0, 1.0)], ())
    assert placed((0, 0, 40.51, 20)).remarks == ("boxes clipped",)
    assert found.area_scale == 800.0


def test_boxes_outside_a_crop_are_dropped():
    geometry = geometry_of(SIZE, 1, ImageSettings(resize="20x20 crop"))  # the middle: 10 to 30
    found = placed((0, 0, 10, 20), (5, 5, 15, 10), GOOD, geometry=geometry)
    assert found.boxes == [(0.0, 0.25, 0.25, 0.5), (0.0, 0.25, 0.5, 0.5)]
    assert (found.kept, found.remarks) == ([1, 2], ("boxes cropped off",))


@pytest.mark.parametrize(
    ("row", "labels", "kept", "is_repeated"),
    [
        (RowBoxes("pixel", [*GOOD, *GOOD]), [7, 7], [0, 1], True),
        (RowBoxes("pixel", [*GOOD, *GOOD]), None, [0, 1], True),
        (RowBoxes("pixel", [*GOOD, *GOOD]), [7, 8], [0, 1], False),
        (RowBoxes("pixel", [*GOOD, *GOOD]), [7, 7], [0], False),
        (RowBoxes("pixel", [*GOOD, *map(float, range(4))]), [7, 7], [0, 1], False),
        (RowBoxes("pixel", [*GOOD, *GOOD], None, {"a": [[1.0], [2.0]]}), [7, 7], [0, 1], False),
        (RowBoxes("pixel", [*GOOD, *GOOD], None, {"a": [[1.0], [1.0]]}), [7, 7], [0, 1], True),
        (RowBoxes("pixel", [], None, {"a": [[1.0], [1.0]]}), [7, 7], [0, 1], False),
    ],
)
def test_objects_with_the_same_box_and_class_are_a_remark(row, labels, kept, is_repeated):
    schema = preset("object_detection")
    values = [labels if f.per_box and f.classes else None for f in schema.features.values()]
    assert repeated(schema, values, row, kept) == (REPEATED,) * is_repeated


def test_areas_scale_with_the_image():
    half = geometry_of(SIZE, 1, ImageSettings(max_side=20))
    assert placed(GOOD, geometry=half).area_scale == 0.25
    whole = placed((0, 0, 1, 1), geometry=half, units="normalized")
    assert whole.area_scale == 200.0  # pixels of the image of the record


def feature(source, kind="float", shape=(), **options):
    return Feature(**{"kind": kind, "sources": source, "shape": shape, **options})


def test_values_of_box_features():
    found = placed(GOOD, (1, 1, 1, 1), (0, 0, 40, 20), invalid="drop")
    assert object_values(feature("box:ymax"), None, found) == [0.5, 1.0]
    four = object_values(feature("box:yxyx", shape=(None, 4)), None, found)
    assert four == [0.25, 0.25, 0.5, 0.5, 0.0, 0.0, 1.0, 1.0]
    labels = feature("column:labels", "int64", per_box=True)
    assert object_values(labels, [7, 8, 9], found) == [7, 9]
    assert object_values(labels, [], found) == []
    assert object_values(feature("area:area", per_box=True), [1.0, 2.0, 3.0], found) == [1.0, 3.0]
