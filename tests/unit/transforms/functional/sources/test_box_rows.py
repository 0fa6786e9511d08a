"""Tables with a row per box: how they are recognized, and the rows of an image as one."""

from __future__ import annotations

import pytest

from recordmill.schemas.records import MORE_BOXES, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.transforms.functional.sources.box_rows import (
    columns_of_boxes,
    grouped,
    has_row_per_box,
    header_of_boxes,
)

RACCOON = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
OPEN_IMAGES = ["ImageID", "Source", "LabelName", "Confidence", "XMin", "XMax", "YMin", "YMax"]
SIDES = ("xmin", "ymin", "xmax", "ymax")
ROI = ("Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2")
BOX = ("box_x", "box_y", "box_w", "box_h")
CELEBA = ("x_1", "y_1", "width", "height")
CORNERS = (
    ("left", "top", "right", "bottom"), ("Left", "Upper", "Right", "Lower"),
    ("xtl", "ytl", "xbr", "ybr"), ("x0", "y0", "x1", "y1"), ("startX", "startY", "endX", "endY"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (RACCOON, ("filename", "class", *SIDES)),
        (OPEN_IMAGES, ("ImageID", "LabelName", "XMin", "YMin", "XMax", "YMax")),
        (["img", "x1", "y1", "x2", "y2", "label"], ("img", "label", "x1", "y1", "x2", "y2")),
        (["image", "labels", *SIDES], ("image", "labels", *SIDES)),
        (["image_id", *"xywh", "class"], ("image_id", "class", *"xywh")),
        (["path", "label", "left", "top", "w", "h"], ("path", "label", "left", "top", "w", "h")),
        (["Path", "ClassId", *ROI, "Width", "Height"], ("Path", None, *ROI)),
        (["img", *BOX, "class", "w", "h"], ("img", "class", *BOX)),
        (["image_id", *CELEBA], ("image_id", None, *CELEBA)),
        *((["img", *four, "width", "height"], ("img", None, *four)) for four in CORNERS),
        (["img", "class", "x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4"], None),
        (["image", "a_x1", "a_y1", "a_x2", "a_y2", "b_x1", "b_y1", "b_x2", "b_y2"], None),
        ([*RACCOON, "label"], None),
        ([*RACCOON, "image_id"], None),
        ([*RACCOON, "x1", "y1", "x2", "y2"], None),
        ([*RACCOON[:3], "xmin", "ymin", "w", "h"], None),
        (RACCOON[:-1], None),
        (SIDES, None),
        ([], None),
    ],
)  # fmt: skip
def test_columns_are_known_by_their_names(columns, expected):
    roles = ("image", "labels", *SIDES)
    found = columns_of_boxes(columns)
    named = {r: name for r, name in zip(roles, expected or (), strict=bool(expected)) if name}
    assert (found and found.names) == (named or None)


@pytest.mark.parametrize(
    ("columns", "orders"),
    [
        (SIDES, ("xyxy",)),
        (("X_Min", "Y_Min", "width", "height"), ("xywh",)),
        (("x_center", "y_center", "w", "h"), ("cxcywh",)),
        (("x", "y", "width", "height"), ("xywh", "cxcywh")),
        (("bbox", "width", "height"), ("xywh", "xyxy", "cxcywh", "yxyx")),
    ],
)
def test_orders_are_those_that_the_names_allow(columns, orders):
    assert columns_of_boxes(["image", *columns]).orders == orders
    assert "labels" not in columns_of_boxes(["image", *columns]).names
    assert columns_of_boxes(["a", *columns], {"image": "a"}).names["image"] == "a"


@pytest.mark.parametrize(
    ("first", "is_known"),
    [
        (("a/1.jpg", "0", "1.5", "50", "60", "cat"), True),
        (("1.PNG", "", "", "", "", ""), True),
        (("1.jpg", "0", "0", "50", "60", "3"), False),
        (("1.jpg", "0", "0", "", "60", "cat"), False),
        (("1.jpg", "0", "0", "50", "60", ""), False),
        (("image", "xmin", "ymin", "xmax", "ymax", "label"), False),
        (("cat", "0", "0", "50", "60", "1.jpg"), False),
        (("1.jpg", "cat"), False),
        ((), False),
    ],
)
def test_a_first_row_is_a_box_of_an_image(first, is_known):
    assert header_of_boxes(first) == (("image", *SIDES, "labels") if is_known else ())


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([("1", "2", "3", "4")], True),
        ([(1, 2.5, 3, 4), (None, None, None, None)], True),
        ([("1", "2", "3", "4"), ("", "", "", "")], True),
        ([("[1]", "[2]", "[3]", "[4]")], False),
        ([([1], [2], [3], [4])], False),
        ([("1", "2", "3", "")], False),
        ([("", "", "", "")], False),
        ([], False),
    ],
)
def test_a_row_per_box_has_a_number_in_each_column(boxes, expected):
    assert has_row_per_box([dict(zip(SIDES, box, strict=True)) for box in boxes], SIDES) is expected


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        (["[1.5, 2, 3, 4]", "(1 2 3 4)", ""], True),
        ([[1, 2.5, 3, 4], None, []], True),
        (["[[1, 2, 3, 4]]"], False),
        ([[[1, 2, 3, 4]]], False),
        (["1 2 3 4|5 6 7 8"], False),
        (["1 2 3"], False),
        (["", "[]"], False),
    ],
)
def test_a_column_of_boxes_has_four_numbers_in_each_row(boxes, expected):
    assert has_row_per_box([{"bbox": box} for box in boxes], ["bbox"]) is expected


def test_the_boxes_of_an_image_are_lists_of_numbers():
    values = [("1.jpg", "[1.0, 2, 3, 4]"), ("1.jpg", "5 6 7 8"), ("2.jpg", "")]
    rows = [Row({"image": i, "bbox": b}, "t.csv", n) for n, (i, b) in enumerate(values)]
    found = [row.values for row in grouped(rows, "image", "bbox") if isinstance(row, Row)]
    assert sorted(found, key=str) == [
        {"image": "1.jpg", "bbox": [[["1.0", "2", "3", "4"]], [["5", "6", "7", "8"]]]},
        {"image": "2.jpg", "bbox": []},
    ]


def test_the_rows_of_an_image_are_one_row():
    boxes = [("1.jpg", "1"), ("2.jpg", "2"), ("1.jpg", "3"), ("", "4"), ("3.jpg", "")]
    rows = [
        Row({"image": image, "xmin": xmin}, "t.csv", line, is_text=True)
        for line, (image, xmin) in enumerate(boxes, start=2)
    ]
    damaged = Reject.of_malformed_row("t.csv", 7, "x")
    found = list(grouped([*rows, damaged], "image"))
    assert found[:2] == [rows[3], damaged]
    assert found[-1] == SkippedInput(MORE_BOXES, 1)
    assert {(row.line, row.values["image"], *row.values["xmin"]) for row in found[2:-1]} == {
        (2, "1.jpg", "1", "3"),
        (3, "2.jpg", "2"),
        (6, "3.jpg", ""),
    }
    assert all(row.is_text == {"image", "xmin"} for row in found[2:-1])


def test_many_rows_are_spooled():
    rows = (Row({"image": i % 7, "n": i}, "t", i) for i in range(20_000))
    found = [row for row in grouped(rows, "image") if isinstance(row, Row)]
    assert {row.values["image"]: row.values["n"] for row in found} == {
        i: [*range(i, 20_000, 7)] for i in range(7)
    }
