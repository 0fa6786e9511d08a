"""Tests of boxes and masks in every format of tables."""

from __future__ import annotations

import math

import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import Row, RowBoxes
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.columns import (
    needed_columns,
    resolve_sources,
    typed_columns,
)
from tests.binding import bind

PETS = ("cat", "dog")
SIDES = ["xmin", "ymin", "xmax", "ymax"]


def with_blocks(name, **blocks):
    """Returns a preset with other settings."""
    document = preset(name).model_dump(by_alias=True)
    return Schema.model_validate({**document, **blocks})


def resolved_schema(schema, present, **options):
    config = ConvertConfig(inputs=("t.csv",), output="out", name="d", schema=schema, **options)
    return resolve_sources(schema, present, config)


def bound(schema, values, is_text=False, classes=PETS, columns=None, **options):
    """Returns the reference of a row with some columns, and with the classes of its labels."""
    schema = resolved_schema(schema, list(values), columns=columns or {})
    resolved = ResolvedSchema(schema, dict.fromkeys(schema.named_features, classes))
    binding = Binding(resolved, columns or {}, **options)
    return bind(Row(values, "/data/t", 2, is_text), binding)


def detection(values, is_text=False, names=None, classes=PETS, **boxes):
    schema = with_blocks("object_detection", boxes={"units_column": "box_units", **boxes})
    return bound(schema, {"image": "a.jpg", **values}, is_text, classes, names)


def rejection(*arguments, **options):
    with pytest.raises(RecordError) as raised:
        detection(*arguments, **options)
    return raised.value.reason, raised.value.detail


FOUR = {"xmin": [1, 5.5], "ymin": [2, 6], "xmax": [3, 9], "ymax": [4, 8]}
CORNERS = [1.0, 2.0, 3.0, 4.0, 5.5, 6.0, 9.0, 8.0]
LABELS = {"labels": ["dog", "cat"]}


@pytest.mark.parametrize(
    ("values", "is_text", "boxes"),
    [
        pytest.param(FOUR, False, {}, id="four columns"),
        pytest.param(
            {"xmin": "1|5.5", "ymin": "[2, 6]", "xmax": " 3|9 ", "ymax": "4.0|8"},
            True,
            {},
            id="four columns of text",
        ),
        pytest.param({"bbox": [[1, 2, 3, 4], [5.5, 6, 9, 8]]}, False, {}, id="one column"),
        pytest.param({"bbox": "[[1,2,3,4],[5.5,6,9,8]]"}, True, {}, id="one column of JSON"),
        pytest.param({"bbox": "1 2 3 4|5.5, 6, 9, 8"}, True, {}, id="one column of text"),
        pytest.param(
            {"bbox": [[1, 2, 2, 2], [5.5, 6, 3.5, 2]]}, False, {"order": "xywh"}, id="xywh"
        ),
        pytest.param({"bbox": [[2, 1, 4, 3], [6, 5.5, 8, 9]]}, False, {"order": "yxyx"}, id="yxyx"),
        pytest.param(
            {"bbox": [[2, 3, 2, 2], [7.25, 7, 3.5, 2]]}, False, {"order": "cxcywh"}, id="cxcywh"
        ),
        pytest.param(
            {"x": [1, 5.5], "y": [2, 6], "w": [2, 3.5], "h": [2, 2]},
            False,
            {"columns": ["x", "y", "w", "h"], "order": "xywh"},
            id="columns of another name",
        ),
        pytest.param({**FOUR, "bbox": [[0]]}, False, {}, id="both: the four"),
        pytest.param(
            {
                "xmin": [0],
                "ymin": [0],
                "xmax": [0],
                "ymax": [0],
                "b": [[1, 2, 3, 4], [5.5, 6, 9, 8]],
            },
            False,
            {"column": "b"},
            id="both: the one that is said",
        ),
    ],
)
def test_boxes_as_tables_write_them(values, is_text, boxes):
    labels = {"labels": "dog|cat"} if is_text else LABELS
    assert detection({**values, **labels}, is_text, **boxes).boxes == ("pixel", CORNERS, None)


def test_mapped_columns_are_read():
    names = {"bbox": "rects", "labels": "names"}
    values = {"rects": [[1, 2, 3, 4]], "names": ["cat"]}
    assert detection(values, names=names).boxes == ("pixel", [1.0, 2.0, 3.0, 4.0], None)


@pytest.mark.parametrize("box", [[], None, "x", [1, 2, 3, "x"]])
def test_invalid_boxes_of_a_table_may_be_dropped(box):
    values = {"bbox": [[1, 2, 3, 4], box], "labels": ["cat", "dog"]}
    corners = detection(values, invalid="drop").boxes[1]
    assert corners[:4] == [1.0, 2.0, 3.0, 4.0]
    assert all(map(math.isnan, corners[4:]))
    with pytest.raises(RecordError):
        detection(values)


def test_units_of_the_row_take_precedence():
    values = {**FOUR, **LABELS}
    assert detection({**values, "box_units": "normalized"}).boxes == ("normalized", CORNERS, None)
    assert detection({**values, "box_units": None}, units="normalized").boxes[0] == "normalized"
    assert detection(values, units="normalized").boxes[0] == "normalized"
    assert rejection({**values, "box_units": "yards"}) == (
        Reason.WRONG_TYPE,
        "column 'box_units': expected one of pixel, normalized, got 'yards'",
    )


@pytest.mark.parametrize(
    ("values", "is_text"),
    [
        ({**{side: [] for side in SIDES}, "labels": []}, False),
        ({**dict.fromkeys(SIDES, ""), "labels": ""}, True),
        ({"bbox": [], "labels": []}, False),
        ({"bbox": "[]", "labels": ""}, True),
    ],
)
def test_an_image_without_boxes(values, is_text):
    ref = detection(values, is_text)
    assert ref.boxes == ("pixel", [], None)
    assert ref.values[-5:] == ([], [], [], [], [])


@pytest.mark.parametrize(
    ("values", "reason", "part"),
    [
        ({**FOUR, "xmin": None}, Reason.MISSING_VALUE, "column 'xmin': empty; expected a list"),
        ({**FOUR, "xmin": [1]}, Reason.WRONG_TYPE, "got 1 in 'xmin', 2 in 'ymin', 2 in"),
        ({**FOUR, "xmin": 1}, Reason.WRONG_TYPE, "column 'xmin': expected a list, got 1"),
        ({**FOUR, "xmin": [1, "2"]}, Reason.WRONG_TYPE, "box 1: expected a float"),
        ({**FOUR, "xmin": [1, None]}, Reason.WRONG_TYPE, "box 1: expected a float"),
        ({"bbox": [[1, 2, 3, 4], [1, 2, 3]]}, Reason.WRONG_TYPE, "box 1: expected a list of 4"),
        ({"bbox": [1, 2, 3, 4]}, Reason.WRONG_TYPE, "box 0: expected a list of 4 numbers, got 1"),
        ({"bbox": None}, Reason.MISSING_VALUE, "column 'bbox': empty"),
    ],
)
def test_invalid_boxes_are_rejected(values, reason, part):
    found, detail = rejection({**values, **LABELS})
    assert found is reason
    assert part in detail


def test_lists_must_have_one_item_per_box():
    labels = {"labels": ["cat"]}
    assert rejection({**FOUR, **labels}) == (
        Reason.WRONG_TYPE,
        "column 'labels': expected 2 items, one per box, got 1",
    )
    assert rejection({**FOUR, "labels": []})[0] is Reason.WRONG_TYPE
    area = {**FOUR, **LABELS, "area": [1.0]}
    assert rejection(area)[1] == "column 'area': expected 2 items, one per box, got 1"
    assert detection({**FOUR, **LABELS, "area": [], "is_crowd": None}).values[-3:] == ([], [], [])


def points_of(values):
    """Returns the keypoints of a row with two boxes and labels, unless it has others."""
    row = {"image": "a.jpg", **FOUR, **LABELS, **values}
    return RowBoxes(*bound(preset("keypoints"), row).boxes).shapes


NOSE_AND_EAR = [1.0, 2.0, 2.0, 3.0, 4.0, 1.0]
NO_BOXES = {side: [] for side in SIDES}


@pytest.mark.parametrize(
    ("values", "detail"),
    [
        (
            {"keypoints": [NOSE_AND_EAR] * 3, "labels": ["cat"] * 3},
            "column 'keypoints': expected 2 items, one per object, got 3",
        ),
        (
            {**NO_BOXES, "keypoints": [NOSE_AND_EAR] * 3, "labels": ["cat"] * 3},
            "column 'keypoints': expected 0 items, one per object, got 3",
        ),
        ({"keypoints": []}, "column 'keypoints': expected 2 items, one per object, got 0"),
        (
            {"keypoints": [NOSE_AND_EAR] * 2, "keypoint_names": [["nose", "ear"]] * 3},
            "column 'keypoint_names': expected 2 items, one per object, got 3",
        ),
        (
            {"keypoints": [NOSE_AND_EAR] * 2, "keypoint_names": [["nose", "ear"], ["nose"]]},
            "column 'keypoint_names': expected a name for each keypoint, [2, 2] per object, got "
            "[2, 1]",
        ),
        (
            {"keypoints": [NOSE_AND_EAR, None], "keypoint_names": [["nose", "ear"], None]},
            "column 'keypoint_names': expected a name for each keypoint, [2, 2] per object, got "
            "[2, 0]",
        ),
        (
            {
                **{side: [*FOUR[side], FOUR[side][1]] for side in SIDES},
                "labels": ["cat"] * 3,
                "keypoints": [NOSE_AND_EAR, [5, 6, 2], []],
            },
            "column 'keypoints': object 2: expected keypoints, got none. Write 0, 0, 0 for each "
            "one not labeled.",
        ),
    ],
)
def test_keypoints_and_names_must_fit_the_boxes(values, detail):
    with pytest.raises(RecordError) as raised:
        points_of(values)
    assert (raised.value.reason, raised.value.detail) == (Reason.WRONG_TYPE, detail)


@pytest.mark.parametrize("empty", [None, [], ""])
def test_keypoints_of_an_object_without_any_are_zeros_as_in_coco(empty):
    found = points_of({"keypoints": [empty, NOSE_AND_EAR]})
    assert found == {"keypoints": [[0.0] * 6, NOSE_AND_EAR]}
    assert points_of({"keypoints": [empty, empty]}) == {"keypoints": [[], []]}
    named = {"keypoints": [empty, NOSE_AND_EAR], "keypoint_names": [["nose", "ear"]] * 2}
    assert points_of(named)["keypoint_names"] == [[b"nose", b"ear"]] * 2


def test_a_row_without_objects_has_no_keypoints():
    assert points_of({**NO_BOXES, "keypoints": [], "labels": [], "keypoint_names": []}) is None


def test_labels_offset_for_the_background():
    document = preset("object_detection").model_dump(by_alias=True)
    document["features"]["image/object/class/label"]["label_offset"] = 1
    offset = Schema.model_validate(document)
    keys = list(offset.features)
    text, label = keys.index("image/object/class/text"), keys.index("image/object/class/label")

    def labels(values, classes):
        ref = bound(offset, {"image": "a", **FOUR, "labels": values}, classes=classes)
        return ref.values[text], ref.values[label]

    names = ("background", *PETS)
    assert labels(["dog", "cat"], names) == ([b"dog", b"cat"], [2, 1])
    assert labels([0, 1], names) == ([b"cat", b"dog"], [1, 2])  # ids as the table counts them
    assert labels([0, 90], ()) == ([b"0", b"90"], [1, 91])
    with pytest.raises(RecordError, match="id 2 is not within 0 to 1; ids count from 0: where"):
        labels([0, 2], names)
    with pytest.raises(RecordError, match="is not a label from 0 on with an offset of 1"):
        labels([0, 2**63 - 1], ())


def test_the_path_of_a_mask_is_resolved_like_the_image_path():
    schema = preset("segmentation")
    found = bound(schema, {"image": "a.jpg", "mask": "m/a.png"})
    assert found.others == (("/data/m/a.png", None, None, b""),)
    rooted = bound(schema, {"image": "a.jpg", "mask": "m/a.png"}, image_root="s3://b/c")
    assert rooted.others == (("s3://b/c/m/a.png", None, None, b""),)
    for wrong, reason in (
        (None, Reason.MISSING_VALUE),
        ("", Reason.MISSING_VALUE),
        (7, Reason.WRONG_TYPE),
    ):
        with pytest.raises(RecordError) as raised:
            bound(schema, {"image": "a.jpg", "mask": wrong})
        assert raised.value.reason is reason


def test_outlines_are_returned_with_their_classes():
    schema = preset("segmentation")
    runs = {"size": [2, 2], "counts": "04"}
    values = {
        "image": "a.jpg",
        "segmentation": [runs, [[0, 0, 1, 1, 1, 0]]],
        "labels": ["dog", "cat"],
    }
    names = ("background", *PETS)
    ref = bound(schema, values, classes=names)
    assert (ref.others, ref.outlines) == (
        None,
        ("pixel", [(2, {**runs, "counts": b"04"}), (1, [[0, 0, 1, 1, 1, 0]])], None),
    )
    as_text = {
        "image": "a.jpg",
        "segmentation": '[{"size": [2, 2], "counts": "04"}, [[0, 0, 1, 1, 1, 0]]]',
        "labels": "dog|cat",
    }
    assert bound(schema, as_text, True, names).outlines == ref.outlines
    with pytest.raises(
        RecordError, match="column 'labels': expected 2 items, one per outline, got 1"
    ):
        bound(schema, {**values, "labels": ["dog"]}, classes=names)
    with pytest.raises(RecordError, match="column 'labels': 'owl' is not one of the 3 classes"):
        bound(schema, {**values, "labels": ["dog", "owl"]}, classes=names)
    with pytest.raises(RecordError, match="column 'segmentation': empty"):
        bound(schema, {**values, "segmentation": None}, classes=names)


def test_needed_columns_of_annotations():
    def needed(schema, present):
        config = ConvertConfig(inputs=("t.csv",), output="out", name="d", schema=schema)
        found = resolve_sources(schema, present, config)
        return needed_columns(found, config), typed_columns(found, config)

    detection = preset("object_detection")
    optional = ("area", "difficult")
    columns = ("bbox", "image", "is_crowd", "labels")
    assert needed(detection, ["image", "bbox", "labels"])[0] == tuple(sorted({*optional, *columns}))
    masks = preset("segmentation")
    assert needed(masks, ["image", "mask"])[0] == ("image", "mask")
    read, typed = needed(masks, ["image", "segmentation", "labels"])
    assert read == ("image", "labels", "segmentation")
    assert typed == ("image", "labels")  # outlines may be of any type


@pytest.mark.parametrize(
    ("name", "present", "message"),
    [
        (
            "object_detection",
            ["image", "labels", "xmin", "ymin", "xmax"],
            "the boxes: the table has no column 'ymax' (did you mean 'xmax'?); it has: image, "
            "labels, xmin, ymin, xmax. Name them with --columns ymax=COLUMN, and --boxes "
            "order=xywh if they are left, top, width, height; or a column of four numbers "
            "bbox=COLUMN.",
        ),
        (
            "segmentation",
            ["image", "segmentation"],
            "the labels of outlines: the table has no column 'labels'; it has: image, "
            "segmentation. Name it with --columns labels=COLUMN.",
        ),
    ],
)
def test_missing_columns_are_reported(name, present, message):
    with pytest.raises(UsageError) as raised:
        resolved_schema(preset(name), present)
    assert str(raised.value) == message


def test_invalid_schemas_are_rejected():
    image = {"image": {"kind": "bytes", "from": "image:bytes"}}
    box = {"box": {"kind": "float", "from": "box:xmin", "shape": []}}
    crowd = {"crowd": {"kind": "int64", "from": "column:crowd", "shape": [], "per_box": True}}
    mask = {"kind": "bytes", "from": "mask:mask"}
    Schema.model_validate({"features": {**image, **box, **crowd, "mask": mask}})
    for features, why in (
        (box, "boxes and masks need an image"),
        ({**image, **crowd}, "a feature per box needs boxes"),
        ({"mask": mask}, "boxes and masks need an image"),
        ({**image, "mask": mask, "other": mask}, "can have only one mask"),
    ):
        with pytest.raises(ValueError, match=why):
            Schema.model_validate({"features": features})


@pytest.mark.parametrize(
    ("options", "row", "expected"),
    [
        pytest.param(
            {"kind": "int64", "shape": [2, 3]},
            [[1, 2, 3], [4, 5, 6]],
            [1, 2, 3, 4, 5, 6],
            id="2 x 3",
        ),
        pytest.param(
            {"kind": "int64", "shape": [2, 3]}, "[[1,2,3],[4,5,6]]", [1, 2, 3, 4, 5, 6], id="JSON"
        ),
        pytest.param(
            {"kind": "int64", "shape": [2, 3]}, "1|2|3|4|5|6", [1, 2, 3, 4, 5, 6], id="flat text"
        ),
        pytest.param(
            {"kind": "int64", "shape": [None, 2]}, [[1, 2], [3, 4]], [1, 2, 3, 4], id="open"
        ),
        pytest.param({"kind": "int64", "shape": [None, 2]}, "", [], id="open and empty"),
        pytest.param(
            {"kind": "int64", "shape": [1, 2, 1]}, [[[1], [2]]], [1, 2], id="three levels"
        ),
        pytest.param(
            {"kind": "int64", "shape": [2, 3]}, [[1, 2, 3]], Reason.WRONG_TYPE, id="too few"
        ),
        pytest.param(
            {"kind": "int64", "shape": [2, 3]},
            [[1, 2], [3, 4, 5, 6]],
            Reason.WRONG_TYPE,
            id="ragged",
        ),
        pytest.param(
            {"kind": "int64", "shape": [2, 3]}, [1, 2, 3, 4, 5, 6], Reason.WRONG_TYPE, id="flat"
        ),
        pytest.param(
            {"kind": "int64", "shape": [2, 3]},
            "1|2|3|4|5",
            Reason.WRONG_TYPE,
            id="flat text, too few",
        ),
        pytest.param(
            {"kind": "int64", "shape": [None, 2]}, "1|2|3", Reason.WRONG_TYPE, id="half a pair"
        ),
        pytest.param(
            {"kind": "int64", "shape": [2, 1]}, [[[1]], [[2]]], Reason.WRONG_TYPE, id="too deep"
        ),
        pytest.param(
            {"kind": "bytes", "shape": [], "single": True}, ["a", "b"], [b"a", b"b"], id="a list"
        ),
        pytest.param(
            {"kind": "int64", "from": "flat:x", "shape": []},
            [[1], [], [2, 3]],
            [1, 2, 3],
            id="flat values",
        ),
        pytest.param(
            {"kind": "int64", "from": "row_lengths:x", "shape": []},
            [[1], [], [2, 3]],
            [1, 0, 2],
            id="row lengths",
        ),
        pytest.param(
            {"kind": "int64", "from": "row_lengths:x", "shape": []},
            "[[1],[],[2,3]]",
            [1, 0, 2],
            id="of JSON",
        ),
        pytest.param(
            {"kind": "int64", "from": "row_lengths:x", "shape": []},
            [1],
            Reason.WRONG_TYPE,
            id="no lists",
        ),
    ],
)
def test_nested_lists(options, row, expected):
    schema = Schema.model_validate({"features": {"f": {"from": "column:x", **options}}})
    resolved = ResolvedSchema(schema)
    try:
        (found,) = bind(Row({"x": row}, "t", 2, isinstance(row, str)), Binding(resolved, {})).values
    except RecordError as error:
        found = error.reason
    assert found == expected


def test_a_single_text_is_not_a_list():
    schema = preset("captioning")
    assert bound(schema, {"image": "a", "caption": "a|b"}).values[-1] == [b"a|b"]
    assert bound(schema, {"image": "a", "caption": ["a", "b"]}).values[-1] == [b"a", b"b"]
    assert bound(schema, {"image": "a", "caption": "a|b"}, is_text=True).values[-1] == [b"a", b"b"]
