"""Declarations of features and schemas: which are accepted, and which are rejected."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from recordmill.schemas.features import Feature, Missing, Schema
from recordmill.schemas.origins import ImageAttribute, Kind, Origin, Source
from recordmill.schemas.settings import ImageSettings


@pytest.mark.parametrize(
    ("text", "origin", "name"),
    [
        ("column:label", Origin.COLUMN, "label"),
        ("column:a:b", Origin.COLUMN, "a:b"),
        ("column: ", Origin.COLUMN, " "),
        ("class_name:label", Origin.CLASS_NAME, "label"),
        ("image:bytes", Origin.IMAGE, "bytes"),
        ("image:sha256", Origin.IMAGE, "sha256"),
        ("key", Origin.KEY, ""),
    ],
)
def test_sources(text, origin, name):
    source = Source.parse(text)
    assert (source.origin, source.name, str(source)) == (origin, name, text)


@pytest.mark.parametrize(
    "text", ["", "label", "column", "column:", "key:x", "image", "image:", "image:hue", "file:x"]
)
def test_invalid_sources_are_rejected(text):
    with pytest.raises(ValueError, match=r"not a source|not an image attribute"):
        Source.parse(text)


def test_sources_are_named_from_in_a_schema_file():
    feature = Feature.model_validate({"kind": "int64", "from": ["column:a", "column:b"]})
    assert [str(s) for s in feature.sources] == ["column:a", "column:b"]
    assert feature.source == Source(origin=Origin.COLUMN, name="a")
    assert (feature.missing, feature.shape, feature.separator) == (Missing.REQUIRED, None, "|")


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        pytest.param({"kind": "int32"}, "kind", id="a kind that there is not"),
        pytest.param({"kind": "int64", "from": []}, "at least 1", id="no source"),
        pytest.param({"kind": "int64", "from": "x"}, "not a source", id="an unknown source"),
        pytest.param({"kind": "int64", "from": 7}, "from", id="a source that is a number"),
        pytest.param({"kind": "int64", "shape": [0]}, "greater than 0", id="length 0"),
        pytest.param({"kind": "int64", "shape": [2, None]}, "only the first", id="the last open"),
        pytest.param({"kind": "int64", "shape": [None]}, "only the first", id="the only one open"),
        pytest.param({"kind": "int64", "from": "box:xmin", "shape": []}, "must be float", id="box"),
        pytest.param({"kind": "float", "from": "box:left"}, "not a side of a box", id="no side"),
        pytest.param({"kind": "float", "from": "box:xmin"}, r"must be \[\]", id="a box's shape"),
        pytest.param(
            {"kind": "float", "from": "box:yxyx", "shape": []}, "null, 4", id="four sides' shape"
        ),
        pytest.param({"kind": "float", "per_box": True}, r"must be \[\]", id="one for all boxes"),
        pytest.param({"kind": "int64", "from": "mask:m"}, "must be bytes", id="a mask's kind"),
        pytest.param(
            {"kind": "bytes", "from": "mask:m", "shape": []}, "must be omitted", id="masks"
        ),
        pytest.param(
            {"kind": "bytes", "from": "mask:m", "missing": "empty"}, "cannot be empty", id="no mask"
        ),
        pytest.param({"kind": "int64", "label_offset": 1}, "classes: true", id="offset of nothing"),
        pytest.param(
            {"kind": "int64", "classes": True, "label_offset": 2}, "label_offset", id="offset of 2"
        ),
        pytest.param(
            {"kind": "bytes", "single": True}, r"Add shape: \[\]", id="single without a list"
        ),
        pytest.param({"kind": "int64", "shape": [-1]}, "greater than 0", id="length -1"),
        pytest.param({"kind": "bytes", "classes": True}, "must be int64", id="classes of bytes"),
        pytest.param(
            {"kind": "float", "from": "image:height"}, "must be int64", id="attribute's kind"
        ),
        pytest.param({"kind": "int64", "from": "image:bytes"}, "must be bytes", id="image's kind"),
        pytest.param(
            {"kind": "int64", "shape": [], "default": 1}, "single value", id="list default"
        ),
        pytest.param(
            {"kind": "int64", "classes": True, "default": 1}, "must be -1", id="class default"
        ),
        pytest.param({"kind": "int64", "missing": "maybe"}, "missing", id="missing"),
        pytest.param({"kind": "int64", "separator": ""}, "at least 1", id="no separator"),
        pytest.param({"kind": "int64", "hue": "red"}, "hue", id="an option that there is not"),
        # Known before any worker starts: no row can ever be right.
        pytest.param({"kind": "int64", "default": "x"}, "default", id="a default of another kind"),
        pytest.param(
            {"kind": "int64", "default": 1.5}, "default", id="a default that is no integer"
        ),
        pytest.param({"kind": "int64", "default": 2**63}, "default", id="a default beyond 64 bits"),
        pytest.param({"kind": "bytes", "default": 7}, "default", id="a default that is no text"),
    ],
)
def test_declarations_that_are_rejected(declaration, problem):
    with pytest.raises(ValidationError, match=problem):
        Feature.model_validate({"from": "column:a", **declaration})


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int64", 7),
        ("int64", 0),
        ("float", 1.5),
        ("float", 1),
        ("bytes", "x"),
        ("bytes", ""),
        ("bytes", "7"),
        ("bytes", "007"),
        ("bytes", "1.5"),
    ],
    ids=repr,
)
def test_a_default_keeps_its_declared_type(kind, default):
    feature = Feature(kind=kind, sources="column:a", default=default)
    assert (feature.default, type(feature.default)) == (default, type(default))
    again = Feature.model_validate_json(feature.model_dump_json())
    assert (again.default, type(again.default)) == (default, type(default))


@pytest.mark.parametrize(
    ("options", "optional"),
    [
        ({}, False),
        ({"shape": [2]}, False),
        ({"shape": []}, True),
        ({"missing": "empty"}, True),
        ({"missing": "empty", "shape": [2]}, True),
        ({"missing": "empty", "default": 0}, False),
        ({"default": 0}, False),
    ],
    ids=str,
)
def test_whether_a_feature_can_be_an_empty_list(options, optional):
    assert Feature(kind="int64", sources="column:a", **options).optional is optional


@pytest.mark.parametrize(
    ("source", "kind", "column", "fact"),
    [
        ("column:a", Kind.INT64, "a", None),
        ("class_name:a", Kind.BYTES, "a", None),
        ("key", Kind.BYTES, None, None),
        ("image:height", Kind.INT64, None, ImageAttribute.HEIGHT),
        ("image:bytes", Kind.BYTES, None, ImageAttribute.BYTES),
    ],
)
def test_column_and_image_attribute(source, kind, column, fact):
    feature = Feature(kind=kind, sources=source)
    assert (feature.column, feature.image_attribute) == (column, fact)


HEIGHT = Feature(kind="int64", sources="image:height")
LABEL = Feature(kind="int64", sources="column:label", classes=True)
IMAGE = Feature(kind="bytes", sources="image:bytes")


@pytest.mark.parametrize(
    ("features", "has_image", "image_feature", "class_features"),
    [
        ({"h": HEIGHT, "l": LABEL}, True, None, ("l",)),
        ({"b": LABEL, "i": IMAGE, "a": LABEL}, True, "i", ("b", "a")),
        ({"k": Feature(kind="bytes", sources="key")}, False, None, ()),
    ],
    ids=["height", "image", "key"],
)
def test_image_and_class_features_of_a_schema(features, has_image, image_feature, class_features):
    schema = Schema(features=features)
    found = (schema.has_image, schema.image_feature, schema.class_features)
    assert found == (has_image, image_feature, class_features)


def test_a_schema_without_features_is_rejected():
    with pytest.raises(ValidationError, match="needs features"):
        Schema(name="x")
    assert Schema(every_column=True).features == {}


def test_declarations_are_immutable():
    with pytest.raises(ValidationError, match="frozen"):
        LABEL.classes = False
    with pytest.raises(ValidationError, match="frozen"):
        Schema(features={"l": LABEL}).name = "other"


def test_a_copy_has_the_properties_of_what_is_updated():
    image = Feature(kind=Kind.BYTES, sources=(Source(origin=Origin.IMAGE, name="bytes"),))
    schema = Schema(features={"i": image})
    assert schema.encoded_images == {"i": ""}
    assert schema.model_copy(update={"features": {"j": image}}).encoded_images == {"j": ""}
    assert schema.model_copy(update={"image": ImageSettings(format="raw")}).encoded_images == {}
    assert schema.encoded_images == {"i": ""}


def test_many_features_are_searched_once():
    feature = Feature(kind=Kind.BYTES, sources=(Source(origin=Origin.COLUMN, name="c"),))
    schema = Schema(features={f"f{i}": feature for i in range(5_000)})
    began = time.thread_time()
    assert {schema.encoded_image for _ in schema.features} == {None}
    assert time.thread_time() - began < 1
