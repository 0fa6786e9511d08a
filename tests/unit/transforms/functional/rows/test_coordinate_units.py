"""Boxes equal those of an independent computation, whatever their units, layout and stated size.

Coordinates without units are not taken for pixels if they are fractions.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef, Row, RowBoxes, RowOutlines, StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images.geometry import (
    ORIENTED,
    RESCALED,
    STORED_SIZE,
    geometry_of,
    transform_boxes,
)
from recordmill.transforms.functional.images.masks import mask_from_outlines
from recordmill.transforms.functional.records.examples import build_frame
from recordmill.transforms.functional.rows.annotations import (
    CoordinateCounts,
    with_units,
)
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.columns import resolve_sources, uncompared_sizes
from tests.annotations import Case, expected_box
from tests.binding import bind

PETS = ("cat", "dog")


def resolved(name, present, columns=None, **blocks):
    """Returns a preset with other settings, resolved to the columns of a table."""
    document = preset(name).model_dump(by_alias=True)
    schema = Schema.model_validate({**document, **blocks})
    config = ConvertConfig(
        inputs=("t.csv",), output="out", name="d", schema=schema, columns=columns or {}
    )
    return resolve_sources(schema, list(present), config)


def binding_of(schema, columns=None):
    names = ("background", *PETS) if schema.has_outlines else PETS
    classes = dict.fromkeys(schema.named_features, names)
    return Binding(ResolvedSchema(schema, classes), columns or {})


def written(layout, box):
    """Returns the four numbers of a box in a layout, by plain arithmetic."""
    x0, y0, x1, y1 = box
    return {
        "xyxy": [x0, y0, x1, y1],
        "yxyx": [y0, x0, y1, x1],
        "xywh": [x0, y0, x1 - x0, y1 - y0],
        "cxcywh": [(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0],
    }[layout]


def scaled(box, by):
    return box[0] * by[0], box[1] * by[1], box[2] * by[0], box[3] * by[1]


@st.composite
def annotated(draw):
    """Returns the case of an image, its boxes as fractions, and the size that was annotated."""
    width, height = draw(st.integers(20, 4000)), draw(st.integers(20, 4000))
    turning = draw(st.sampled_from(["apply", "record"]))
    frame = draw(st.sampled_from(["displayed", "stored"]))
    orientation = draw(st.integers(1, 8))
    case = Case(width, height, orientation, {"orientation": turning}, frame)
    part = st.floats(0, 0.9)
    boxes = [
        (x, y, x + draw(st.floats(0.01, 1 - x)), y + draw(st.floats(0.01, 1 - y)))
        for x, y in draw(st.lists(st.tuples(part, part), min_size=1, max_size=3))
    ]
    return case, boxes


SCALES = st.floats(1.2, 12)
ROUNDINGS = st.sampled_from([math.floor, round, math.ceil])


@given(
    annotated(),
    st.sampled_from(["absent", "zero", "equal", "swapped", "larger", "other"]),
    SCALES,
    ROUNDINGS,
    st.sampled_from(["xyxy", "yxyx", "xywh", "cxcywh"]),
    st.sampled_from(["pixel", "normalized"]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_boxes_equal_an_independent_computation(
    drawn, stated, scale, rounding, layout, units, in_rows
):
    case, fractions = drawn
    width, height = case.annotated
    turned = case.orientation >= 5
    if stated == "larger":  # the file has the annotated image, scaled down and rounded
        drawn_on = rounding(width * scale), rounding(height * scale)
    elif stated == "other":  # neither upright nor turned has the aspect ratio
        drawn_on = (300 * max(width, height), max(width, height))
    else:
        drawn_on = (width, height)
    sides = {"absent": (None, None), "zero": (0, height)}.get(stated, drawn_on)
    sides = sides[::-1] if stated == "swapped" and turned else sides
    by = drawn_on if units == "pixel" else (1, 1)
    boxes = [written(layout, scaled(box, by)) for box in fractions]
    values = {"image": "a.jpg", "bbox": boxes, "labels": ["cat"] * len(boxes)}
    values |= {"width": sides[0], "height": sides[1]}
    values |= {"box_units": units} if in_rows else {}
    block = {"column": "bbox", "order": layout, "frame": case.frame}
    block |= {} if in_rows else {"units": units}
    schema = resolved("object_detection", values, boxes=block, image=case.image)
    ref = bind(Row(values, "/t", 1), binding_of(schema))
    geometry = geometry_of((case.width, case.height), case.orientation, schema.image)
    if stated == "other":
        with pytest.raises(RecordError) as raised:
            transform_boxes(RowBoxes(*ref.boxes), geometry, schema.boxes)
        assert raised.value.reason is Reason.INVALID_DIMENSIONS
        return
    found = transform_boxes(RowBoxes(*ref.boxes), geometry, schema.boxes)
    expected = [expected_box(scaled(box, case.annotated), case) for box in fractions]
    assert np.array(found.boxes) == pytest.approx(np.array(expected), abs=1e-6)
    assert (RESCALED in found.remarks) == (stated == "larger" and drawn_on != (width, height))


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ({"width": "100", "height": "80"}, (100.0, 80.0)),
        ({"width": [100, 100], "height": [80, 80]}, (100.0, 80.0)),  # a row per box, joined
        ({"width": [100, 90], "height": [80, 80]}, None),  # of boxes
        ({"width": "unknown", "height": 80}, None),
        ({"width": -100, "height": 80}, None),
        ({"image_width": 100, "image_height": 80}, (100.0, 80.0)),
        ({"ImageWidth": 100, "ImageHeight": 80}, (100.0, 80.0)),
        ({"img_w": 100, "img_h": 80}, (100.0, 80.0)),
        ({"Width": 100, "Height": 80, "IMG WIDTH": 9, "IMG HEIGHT": 9}, (100.0, 80.0)),
        ({"orig-width": "100", "orig-height": "80"}, (100.0, 80.0)),
        ({"w": 100, "h": 80}, None),  # of boxes
        ({"img_w": 100, "img_height": 80}, None),
        ({"width": 100}, None),
    ],
)
def test_stated_sizes(sides, expected):
    values = {"image": "a.jpg", "bbox": [[1, 2, 30, 40]], "labels": ["cat"], **sides}
    schema = resolved("object_detection", values)
    assert (
        bind(
            Row(values, "/t", 1, is_text=frozenset({"width", "height"})), binding_of(schema)
        ).boxes[2]
        == expected
    )


def test_sizes_are_not_read_from_columns_of_boxes():
    values = {"image": "a", "x": [1], "y": [2], "width": [30], "height": [40], "labels": ["cat"]}
    block = {"columns": ["x", "y", "width", "height"], "order": "xywh"}
    assert resolved("object_detection", values, boxes=block).boxes.size_columns is None


def test_sizes_can_be_mapped_and_ignored():
    values = {"image": "a", "bbox": [[1, 2, 3, 4]], "labels": ["cat"], "w": 9, "h": 9}
    names = {"width": "w", "height": "h"}
    schema = resolved("object_detection", values, names)
    assert bind(Row(values, "/t", 1), binding_of(schema, names)).boxes[2] == (9, 9)
    ignored = resolved(
        "object_detection", {**values, "width": 9, "height": 9}, boxes={"size_columns": "none"}
    )
    assert ignored.boxes.size_columns is None
    with pytest.raises(UsageError, match="no column 'x'"):
        resolved("object_detection", values, {"width": "x"})


def stored(size, orientation=1):
    return StoredImage(
        b"", "png", size[1], size[0], 3, "", orientation=orientation, source_size=size
    )


@pytest.mark.parametrize(
    ("units", "size", "polygon"),
    [
        ("pixel", None, [2, 2, 8, 2, 8, 6, 2, 6]),
        ("pixel", (40, 20), [4, 4, 16, 4, 16, 12, 4, 12]),
        ("normalized", None, [0.1, 0.2, 0.4, 0.2, 0.4, 0.6, 0.1, 0.6]),
    ],
)
def test_outlines_are_scaled_as_boxes_are(units, size, polygon):
    schema = resolved("segmentation", ["image", "segmentation", "labels"])
    outlines = RowOutlines(units, [(1, [[float(n) for n in polygon]])], size)
    plain = RowOutlines("pixel", [(1, [[2.0, 2.0, 8.0, 2.0, 8.0, 6.0, 2.0, 6.0]])])
    image = stored((20, 10))
    assert mask_from_outlines(outlines, image, schema) == mask_from_outlines(plain, image, schema)
    ref = ImageRef("k", "t", 1, "u", None, None, (None,) * len(schema.features), outlines=outlines)
    assert build_frame(schema, ref, image).remarks == ((RESCALED,) if size else ())


@pytest.mark.parametrize(
    ("size", "frame", "remarks"),
    [
        ((20, 10), "displayed", (STORED_SIZE,)),
        ((40, 20), "displayed", (RESCALED, STORED_SIZE)),
        ((10, 20), "displayed", ()),
        ((20, 10), "stored", ()),
        (None, "displayed", (ORIENTED,)),
        (None, "stored", ()),
    ],
)
def test_a_size_before_exif_orientation_is_a_remark(size, frame, remarks):
    names = ["image", "segmentation", "labels"]
    schema = resolved("segmentation", names, masks={"frame": frame})
    outlines = RowOutlines("pixel", [(1, [[2.0, 2.0, 8.0, 2.0, 8.0, 6.0]])], size)
    ref = ImageRef("k", "t", 1, "u", None, None, (None,) * len(schema.features), outlines=outlines)
    assert build_frame(schema, ref, stored((20, 10), orientation=6)).remarks == remarks


def test_outlines_of_an_image_of_another_aspect_ratio_are_rejected():
    schema = resolved("segmentation", ["image", "segmentation", "labels"])
    outlines = RowOutlines("pixel", [(1, [[0.0, 0.0, 9.0, 0.0, 9.0, 9.0]])], (40, 40))
    with pytest.raises(RecordError, match="states 40 x 40 pixels, and the image as displayed has"):
        mask_from_outlines(outlines, stored((20, 10)), schema)


def units_of(rows, name="object_detection", columns=None, **blocks):
    """Returns the units that are decided for a table, and the notes on them, not on the order."""
    schema = resolved(name, rows[0], columns, **blocks)
    binding, counts = binding_of(schema, columns), {}
    for row in rows:  # parts may be merged in any order
        part: dict[str, CoordinateCounts] = {}
        binding.annotations.count(RowBatch.of([Row(row, "/t", 1)]), part)
        for block, found in part.items():
            counts[block] = CoordinateCounts.sum_of([counts.get(block, CoordinateCounts()), found])
    schema, notes = with_units(schema, binding.columns, counts)
    notes = [note for note in notes if note.kind != "order_of_boxes"]
    return schema.boxes.units if name == "object_detection" else schema.masks.units, notes


@pytest.mark.parametrize(
    ("boxes", "columns", "name"),
    [
        ([[1, 2, 30, 40]], {}, "bbox"),
        ([[1, 2, 30, 40]], {"bbox": "objects.bbox"}, "objects.bbox"),
        ([], {}, ""),
        (None, {}, ""),
    ],
)
@pytest.mark.parametrize("order", [None, "xyxy"])
def test_a_column_of_boxes_without_an_order_is_a_warning(boxes, columns, name, order):
    row = {"image": "a", "labels": ["cat"] * len(boxes or "1"), columns.get("bbox", "bbox"): boxes}
    if boxes is None:
        row |= {side: [at * 10] for at, side in enumerate(("xmin", "ymin", "xmax", "ymax"))}
    schema = resolved("object_detection", row, columns, boxes={"order": order} if order else {})
    binding, counts = binding_of(schema, columns), {}
    binding.annotations.count(RowBatch.of([Row(row, "/t", 1)]), counts)
    _, notes = with_units(schema, binding.columns, counts)
    text = f"{name!r} is read as two corners, xmin, ymin, xmax, ymax"
    hint = "set --boxes order=xywh for left, top, width, height; or order=xyxy"
    expected = [("warning", text, hint)] * (bool(name) and not order)
    assert [(n.severity, n.text, n.hint) for n in notes] == expected


def table(*boxes):
    return [{"image": "a", "bbox": [box], "labels": ["cat"]} for box in boxes]


def test_coordinates_that_are_all_fractions_need_units():
    for rows in (table([0, 0, 0.5, 1]), table([0.1, 0.1, 1.02, 0.9], [0, 0, 0, 0])):
        with pytest.raises(UsageError, match=r"1 of 1 boxes .*Set --boxes units=normalized"):
            units_of(rows)
        assert units_of(rows, boxes={"units": "pixel"}) == ("pixel", [])
        assert units_of(rows, boxes={"units": "normalized"}) == ("normalized", [])


def test_boxes_that_are_no_corners_need_an_order():
    one = {"column": "bbox"}
    inverted, corners = [[90, 80, 30, 20]] * 3, [[1, 2, 30, 40]] * 9
    for boxes in (inverted, inverted + corners):
        with pytest.raises(UsageError, match=rf"3 of {len(boxes)} boxes are inv.* order=xywh"):
            units_of(table(*boxes), boxes=one)
    with pytest.raises(UsageError, match="3 of 3"):
        units_of(table(*inverted), boxes={**one, "units": "normalized"})
    assert units_of(table(*inverted), boxes={**one, "order": "xywh"})[0] == "pixel"
    few = (inverted[1:], [*inverted, *corners, corners[0]])
    assert [units_of(table(*boxes), boxes=one)[0] for boxes in few] == ["pixel"] * 2
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), zip(*inverted, strict=True), strict=True))
    rows = [{"image": "a", "labels": ["cat"] * 3, **{n: list(v) for n, v in sides.items()}}]
    assert units_of(rows, boxes={"columns": [*sides]})[0] == "pixel"  # as their names say
    mapped = {"xmin": "left", "ymin": "top", "xmax": "right", "ymax": "low"}
    rows = [{mapped.get(name, name): value for name, value in rows[0].items()}]
    with pytest.raises(UsageError, match="3 of 3 boxes are inv"):
        units_of(rows, columns=mapped, boxes={"columns": [*sides]})
    assert units_of(table(corners[0]), columns={"bbox": "bbox"}, boxes=one)[0] == "pixel"
    mapped |= {"xmax": "Box_W", "ymax": "h"}
    rows = [{mapped.get(name, name): [9] * 3 for name in ("image", "labels", *sides)}]
    with pytest.raises(UsageError, match="not stated, and 'Box_W' is named like a size"):
        units_of(rows, columns=mapped, boxes={"columns": [*sides]})
    stated = {"columns": [*sides], "order": "xywh"}
    assert units_of(rows, columns=mapped, boxes=stated)[0] == "pixel"


def test_keypoints_of_which_one_is_labeled_have_no_order():
    features = {
        "image": {"kind": "bytes", "from": "image:bytes"},
        "x": {"kind": "float", "from": "keypoint_x:keypoints", "shape": []},
    }
    schema = Schema.model_validate({"name": "own", "features": features})
    counts = {}
    row = Row({"image": "a", "keypoints": [[90, 80, 2]]}, "/t", 1)
    Binding(ResolvedSchema(schema, {}), {}).annotations.count(RowBatch.of([row]), counts)
    assert (counts["boxes"].total, counts["boxes"].inverted) == (1, 0)


def test_rows_that_state_their_units_need_no_decision():
    rows = [{**row, "box_units": "normalized"} for row in table([0, 0, 0.5, 1])]
    assert units_of(rows) == ("pixel", [])  # of rows without units: there is none
    mixed = [*rows, {**rows[0], "box_units": None}]
    with pytest.raises(UsageError, match="1 of 1 boxes"):
        units_of(mixed)


def test_a_few_fractions_among_pixels_are_noted():
    units, (note,) = units_of(table([0, 0, 0.5, 1], [1, 2, 30, 40], [5, 5, 9, 9]))
    assert units == "pixel"
    assert note.text == "the coordinates of 1 of 3 boxes are from 0 to 1, and are read as pixels"
    assert units_of(table([1, 2, 30, 40])) == ("pixel", [])
    assert units_of(table([0, 0, 0, 0])) == ("pixel", [])


@pytest.mark.parametrize(
    ("size", "boxes", "severity"),
    [
        ({"width": 640, "height": 480}, 4, "warning"),
        ({"width": 640, "height": 480}, 1, "note"),
        ({"width": 140, "height": 480}, 20, None),
        ({}, 20, "note"),
        ({}, 1, "note"),
    ],
    ids=["larger images", "few of them", "a small image", "no stated size", "few boxes"],
)
def test_coordinates_that_may_be_percentages_are_a_finding(size, boxes, severity):
    rows = [{**row, **size} for row in table(*[[10, 5, 97.5, 60]] * boxes)]
    units, found = units_of(rows)
    assert (units, [one.severity for one in found]) == ("pixel", [severity] * bool(severity))
    if severity:
        assert found[0].text.endswith("; they are read as pixels, not as percentages")
        assert ("in larger images" in found[0].text) == bool(size)
        assert "divide them by 100" in found[0].hint
    # A larger coordinate, a smaller maximum, and stated units all say that it is not so.
    others = [{**row, "bbox": [[10, 5, largest, 60]]} for row in rows for largest in (97, 101)]
    assert units_of(others) == ("pixel", [])
    _, small = units_of([{**row, "bbox": [[10, 5, 79, 60]]} for row in rows])
    assert bool(small) == (bool(severity) and bool(size))
    assert units_of(rows, boxes={"units": "pixel"}) == ("pixel", [])


def test_keys_of_the_object_detection_api_are_fractions_by_convention():
    names = {side: f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")}

    def rows(*corners):
        return [
            {
                "image": "a",
                "labels": ["cat"],
                **{n: [c] for n, c in zip(names.values(), corners, strict=True)},
            }
        ]

    units, (note,) = units_of(rows(0.1, 0.1, 0.5, 0.5), columns=names)
    assert units == "normalized"
    assert note.text == "image/object/bbox/* are read as fractions of the image"
    with pytest.raises(UsageError, match="1 of 1 boxes have larger ones"):
        units_of(rows(10, 10, 50, 50), columns=names)
    assert units_of(rows(10, 10, 50, 50), columns=names, boxes={"units": "pixel"})[0] == "pixel"


def test_outlines_that_are_fractions_need_units():
    rows = [{"image": "a", "labels": ["cat"], "segmentation": [[[0, 0, 0.5, 0, 0.5, 0.5]]]}]
    with pytest.raises(UsageError, match=r"1 of 1 outlines .*Set --masks units=normalized"):
        units_of(rows, "segmentation")
    assert units_of(rows, "segmentation", masks={"units": "normalized"})[0] == "normalized"


@pytest.mark.parametrize(
    ("present", "columns", "found", "remedy"),
    [
        (("w", "h", "bbox"), {}, ("w", "h"), "--columns width=w,height=h"),
        (("bbox", "Size"), {}, ("Size",), "--columns width=W,height=H"),
        (("bbox", "image_size"), {}, ("image_size",), "--columns width=W,height=H"),
        (("w", "h", "width", "height", "bbox"), {}, (), ""),
        (("w", "h", "bbox"), {"width": "w", "height": "h"}, (), ""),
        (("xmin", "ymin", "w", "h"), {"xmax": "w", "ymax": "h"}, (), ""),
        (("size.width", "size.height", "size", "bbox"), {}, (), ""),
        (("w", "bbox", "font_size"), {}, (), ""),
    ],
)
def test_columns_that_may_be_image_sizes_are_a_warning(present, columns, found, remedy):
    schema = preset("object_detection")
    arguments = {"inputs": ("t.csv",), "output": "out", "name": "d", "columns": columns}
    present = ("image", "labels", *present)
    config = ConvertConfig(**arguments, schema=schema)
    warnings = [*uncompared_sizes(resolve_sources(schema, present, config), present, config)]
    assert [one.examples for one in warnings] == [found] * bool(found)
    assert all(remedy in one.hint for one in warnings)
    boxes = schema.boxes.model_copy(update={"size_columns": None})
    config = ConvertConfig(**arguments, schema=schema.model_copy(update={"boxes": boxes}))
    if not columns:
        unsized = resolve_sources(config.dataset_schema, present, config)
        assert [*uncompared_sizes(unsized, present, config)] == []
