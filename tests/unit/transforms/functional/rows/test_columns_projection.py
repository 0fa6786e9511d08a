"""Tests of the columns that a schema needs, and of the messages for missing columns."""

from __future__ import annotations

import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.input_formats import UNREAD_TOOLS, UnreadTool
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.columns import (
    check_types,
    needed_columns,
    resolve_sources,
)


def config(schema, **options):
    return ConvertConfig(inputs=("t.csv",), output="out", name="d", schema=schema, **options)


def resolved_schema(schema, present, **options):
    """Returns the resolved source of each feature, in the syntax of a schema."""
    result = resolve_sources(schema, present, config(schema, **options))
    return {name: [str(s) for s in f.sources] for name, f in result.features.items()}


def rejection(schema, present, **options):
    with pytest.raises(UsageError) as raised:
        resolve_sources(schema, present, config(schema, **options))
    return str(raised.value)


LANDMARK = preset("landmark")
CLASSIFICATION = preset("image_classification")


@pytest.mark.parametrize(
    ("present", "label", "id_"),
    [
        (["image", "landmark_id", "id"], "column:landmark_id", "column:id"),
        (["image", "label", "id"], "column:label", "column:id"),
        (["image", "label", "landmark_id", "id"], "column:landmark_id", "column:id"),
        (["image", "label"], "column:label", "key"),
    ],
    ids=",".join,
)
def test_the_first_existing_source_is_used(present, label, id_):
    expected = {"image_raw": ["image:bytes"], "landmark_id": [label], "id": [id_]}
    assert resolved_schema(LANDMARK, present) == expected


def test_mapped_columns_are_read():
    columns = {"image": "file", "label": "class_name"}
    assert resolved_schema(CLASSIFICATION, ["file", "class_name"], columns=columns) == {
        "image": ["image:bytes"],
        "image/filename": ["column:image"],
        "label": ["column:label"],
    }


def test_only_the_sources_change():
    result = resolve_sources(LANDMARK, ["image", "label"], config(LANDMARK))
    assert (result.name, result.description, result.image) == (
        LANDMARK.name,
        LANDMARK.description,
        LANDMARK.image,
    )
    assert list(result.features) == list(LANDMARK.features)
    assert result.features["landmark_id"].classes


@pytest.mark.parametrize("without", [{"missing": "empty"}, {"default": 7}], ids=str)
def test_an_optional_feature_keeps_its_first_source(without):
    feature = Feature(kind="int64", sources=("column:x", "column:y"), **without)
    assert resolved_schema(Schema(features={"f": feature}), ["z"]) == {"f": ["column:x"]}


@pytest.mark.parametrize(
    ("schema", "present", "options", "expected"),
    [
        pytest.param(
            CLASSIFICATION,
            ["image", "lable"],
            {},
            "feature 'label': the table has no column 'label' (did you mean 'lable'?); "
            "it has: image, lable. Name it with --columns label=COLUMN.",
            id="label",
        ),
        pytest.param(
            Schema(features={"b": Feature(kind="bytes", sources="image:bytes")}),
            ["path", "label"],
            {},
            "the image path: the table has no column 'image'; it has: path, label. "
            "Name it with --columns image=COLUMN. For rows without images, set --schema tabular.",
            id="image",
        ),
        pytest.param(
            CLASSIFICATION,
            ["image", "label"],
            {"columns": {"label": "klass"}},
            "feature 'label': the table has no column 'klass'; it has: image, label. "
            "Name it with --columns label=COLUMN.",
            id="a mapped column that is not there",
        ),
        pytest.param(
            CLASSIFICATION,
            ["image", "label"],
            {"columns": {"labels": "label"}},
            "--columns labels=…: schema 'image_classification' has no such column "
            "(did you mean 'label'?); it has image, label",
            id="a mapping that no feature takes",
        ),
        pytest.param(
            CLASSIFICATION,
            ["image", "cats", "rects"],
            {"columns": {"labels": "cats", "bbox": "rects"}},
            "--columns labels=…: schema 'image_classification' has no such column (did you mean "
            "'label'?); it has image, label. For boxes, set --schema object_detection.",
            id="boxes without a schema",
        ),
        pytest.param(
            CLASSIFICATION,
            ["image", "objects.bbox", "objects.category"],
            {},
            "feature 'label': the table has no column 'label'; it has: image, objects.bbox, "
            "objects.category. Name it with --columns label=COLUMN. For boxes, set --schema "
            "object_detection --columns bbox=objects.bbox,labels=objects.category --boxes "
            "order=ORDER (xywh, xyxy, cxcywh or yxyx).",
            id="boxes in place of a label",
        ),
        pytest.param(
            CLASSIFICATION,
            ["img", "meta.label", "faces.bbox", "faces.id"],
            {},
            "the table has no columns 'image', 'label'; it has: img, meta.label, faces.bbox, "
            "faces.id. Name them with --columns image=COLUMN,label=COLUMN. For rows without "
            "images, set --schema tabular. For boxes, set --schema object_detection --columns "
            "bbox=faces.bbox,labels=COLUMN --boxes order=ORDER (xywh, xyxy, cxcywh or yxyx).",
            id="boxes without labels beside them",
        ),
        pytest.param(
            CLASSIFICATION,
            ["image", "label"],
            {"key_column": "id"},
            "--key_column id: the table has no column 'id'; it has: image, label",
            id="key",
        ),
        pytest.param(
            CLASSIFICATION,
            ["image", "label"],
            {"split_column": "spilt"},
            "--split_column spilt: the table has no column 'spilt'; it has: image, label",
            id="split",
        ),
        pytest.param(
            CLASSIFICATION,
            ["image", "label"],
            {"group_column": "patient"},
            "--group_column patient: the table has no column 'patient'; it has: image, label",
            id="group",
        ),
        pytest.param(
            Schema(features={"f": Feature(kind="int64", sources="column:x")}),
            [],
            {},
            "feature 'f': the table has no column 'x'; it has: none. "
            "Name it with --columns x=COLUMN.",
            id="no columns at all",
        ),
    ],
)
def test_a_missing_column_is_reported_with_its_remedy(schema, present, options, expected):
    assert rejection(schema, present, **options) == expected


def test_columns_of_unused_sources_can_be_mapped():
    columns = {"label": "klass", "landmark_id": "place"}
    assert resolved_schema(LANDMARK, ["image", "place"], columns=columns)["landmark_id"] == [
        "column:landmark_id"
    ]


@pytest.mark.parametrize(
    ("schema", "options", "expected"),
    [
        pytest.param(CLASSIFICATION, {}, ("image", "label"), id="those of the features"),
        pytest.param(
            CLASSIFICATION,
            {"columns": {"image": "file"}, "key_column": "id", "group_column": "who"},
            ("file", "id", "label", "who"),
            id="by the table's names, with those of the options",
        ),
        pytest.param(CLASSIFICATION, {"split_column": "label"}, ("image", "label"), id="each once"),
        pytest.param(
            Schema(features={"h": Feature(kind="int64", sources="image:height")}),
            {},
            ("image",),
            id="the image's path even if it is no feature",
        ),
        pytest.param(
            Schema(
                features={"k": Feature(kind="bytes", sources="key")},
            ),
            {},
            (),
            id="none",
        ),
        pytest.param(preset("tabular"), {"key_column": "id"}, None, id="all"),
    ],
)
def test_needed_columns(schema, options, expected):
    assert needed_columns(schema, config(schema, **options)) == expected


UNSUPPORTED = {"when": "timestamp[us]"}


def test_needed_columns_of_unsupported_types_are_rejected():
    for columns in (None, ("label", "when")):
        with pytest.raises(UsageError, match=r"^column 'when': expected .*, got timestamp\[us\]\."):
            check_types(UNSUPPORTED, columns)


def test_all_columns_of_unsupported_types_are_named():
    unsupported = {"took": "duration[s]", "patient": "struct<id: int64>", "tags": "map<…>"}
    with pytest.raises(UsageError) as error:
        check_types(unsupported, None, structs={"patient": ["patient.id"]})
    assert str(error.value) == (
        "columns 'took', 'tags': expected numbers, booleans, text, dates, bytes, or lists of "
        "these, got duration[s], map<…>. Cast or drop the columns."
    )
    with pytest.raises(UsageError) as error:
        check_types(unsupported, ("took", "patient"), structs={"patient": ["patient.id"]})
    assert str(error.value) == (
        "columns 'took', 'patient': expected numbers, booleans, text, dates, bytes, or lists of "
        "these, got duration[s], struct<id: int64>. Name one of patient.id. "
        "Cast or drop the others."
    )


def test_with_every_column_the_fields_of_structs_replace_them():
    check_types({"patient": "struct<id: int64>"}, None, structs={"patient": ["patient.id"]})


def test_other_columns_can_have_any_type():
    check_types(UNSUPPORTED, ("label",))
    check_types({}, None)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (
            ("file", "class"),
            "t.csv has no columns 'image', 'label'; it has: file, class. "
            "Name them with --columns image=COLUMN,label=COLUMN. "
            "For rows without images, set --schema tabular.",
        ),
        (
            ("file;class",),
            "t.csv has no columns 'image', 'label'; it has: file;class (if ';' separates its "
            "fields, add --delimiter ';'). Name them with --columns image=COLUMN,label=COLUMN. "
            "For rows without images, set --schema tabular.",
        ),
        (
            ("a.jpg", "cat"),
            "t.csv has no columns 'image', 'label'; it has: a.jpg, cat (if its first row is not a "
            "header, set --header none). Name them with --columns image=COLUMN,label=COLUMN. "
            "For rows without images, set --schema tabular.",
        ),
        (
            ("filename", "sketch_shape"),
            "t.csv has no columns 'image', 'label'; it has: filename, sketch_shape "
            "(annotations of Sketcher. Export them as COCO, Pascal VOC or "
            "YOLO.). Name them with --columns image=COLUMN,label=COLUMN. "
            "For rows without images, set --schema tabular.",
        ),
        (
            ("version https://git-lfs.github.com/spec/v1",),
            "t.csv has no columns 'image', 'label'; it has: version "
            "https://git-lfs.github.com/spec/v1 (Git LFS pointer. Fetch the file with git lfs "
            "pull.). Name them with --columns image=COLUMN,label=COLUMN. "
            "For rows without images, set --schema tabular.",
        ),
    ],
)
def test_all_missing_columns_are_named(present, expected, monkeypatch):
    monkeypatch.setitem(UNREAD_TOOLS, "Sketcher", UnreadTool((b"sketch_shape",)))
    schema = preset("image_classification")
    with pytest.raises(UsageError) as error:
        resolve_sources(schema, present, config(schema), "t.csv")
    assert str(error.value) == expected
