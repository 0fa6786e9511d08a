"""Tests of feature values of rows."""

from __future__ import annotations

import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.columns import resolve_sources
from tests.binding import bind


def text_row(**values):
    return Row(values, "/data/t.csv", 17, is_text=True)


def typed_row(**values):
    return Row(values, "/data/t.parquet", 17)


def binding(schema, classes=None, columns=None, **options):
    return Binding(ResolvedSchema(schema, classes or {}), columns or {}, **options)


def one_feature(**options):
    """Returns the binding of a schema with one feature, from the column x."""
    return binding(Schema(features={"f": Feature(**{"sources": "column:x", **options})}))


def value(bound, row):
    """Returns the value of the only feature, or the reason of the reject."""
    try:
        (found,) = bind(row, bound).values
    except RecordError as error:
        return error.reason
    return found


def test_tf_slim_takes_text_and_id_of_the_same_label():
    schema = schema_of("tf_slim", ["image", "label"])
    bound = binding(schema, {"image/class/label": ("cat", "dog")})
    for label in ("dog", "1"):
        values = bind(text_row(image="a.jpg", label=label), bound).values
        assert values == (None, None, 1, b"dog", None, None, b"a.jpg", None, b"a.jpg")


def test_tf_slim_without_class_names_writes_the_integer_as_text():
    schema = schema_of("tf_slim", ["image", "label", "id"])
    bound = binding(schema, {"image/class/label": ()})
    values = bind(typed_row(image="a.jpg", label=-7, id="n1"), bound).values
    assert values == (None, None, -7, b"-7", None, None, b"a.jpg", None, b"n1")


def schema_of(name, present):
    schema = preset(name)
    config = ConvertConfig(inputs=("t.csv",), output="out", name="d", schema=schema)
    return resolve_sources(schema, present, config)


@pytest.mark.parametrize(
    ("feature", "row", "expected"),
    [
        pytest.param({"kind": "int64"}, text_row(x="0"), 0, id="0 is a value"),
        pytest.param({"kind": "int64"}, typed_row(x=False), 0, id="False is a value"),
        pytest.param({"kind": "bytes"}, text_row(x=""), b"", id="empty text is a value"),
        pytest.param({"kind": "bytes"}, typed_row(x=""), b"", id="typed, too"),
        pytest.param({"kind": "int64"}, text_row(x=""), Reason.MISSING_VALUE, id="no number"),
        pytest.param({"kind": "int64"}, typed_row(x=""), Reason.WRONG_TYPE, id="typed text"),
        pytest.param({"kind": "int64"}, text_row(), Reason.MISSING_VALUE, id="absent"),
        pytest.param({"kind": "bytes"}, typed_row(x=None), Reason.MISSING_VALUE, id="null"),
        pytest.param({"kind": "int64"}, text_row(x="1.5"), Reason.WRONG_TYPE, id="1.5 no int64"),
        pytest.param({"kind": "int64", "default": 7}, text_row(x=""), 7, id="default"),
        pytest.param({"kind": "int64", "default": 0}, text_row(), 0, id="default 0"),
        pytest.param(
            {"kind": "float", "default": 0.1}, text_row(), 0.10000000149011612, id="float32"
        ),
        pytest.param(
            {"kind": "bytes", "default": "ä"}, typed_row(), b"\xc3\xa4", id="default text"
        ),
        pytest.param({"kind": "bytes", "default": ""}, typed_row(), b"", id="default empty text"),
        pytest.param({"kind": "bytes", "default": "7"}, typed_row(), b"7", id="default numeral"),
        pytest.param({"kind": "int64", "missing": "empty"}, text_row(x=""), [], id="empty list"),
        pytest.param({"kind": "bytes", "missing": "empty"}, text_row(x=""), b"", id="empty text"),
        pytest.param({"kind": "int64", "shape": ()}, text_row(x="1|2"), [1, 2], id="list"),
        pytest.param({"kind": "int64", "shape": ()}, text_row(x="[1, 2]"), [1, 2], id="JSON list"),
        pytest.param({"kind": "int64", "shape": ()}, text_row(x=""), [], id="list of none"),
        pytest.param(
            {"kind": "int64", "shape": ()}, text_row(x="1|x"), Reason.WRONG_TYPE, id="item"
        ),
        pytest.param({"kind": "int64", "shape": ()}, typed_row(x=[0, 1]), [0, 1], id="typed list"),
        pytest.param(
            {"kind": "int64", "shape": ()}, typed_row(x=1), Reason.WRONG_TYPE, id="no list"
        ),
        pytest.param(
            {"kind": "int64", "shape": ()},
            typed_row(x=[1, None]),
            Reason.WRONG_TYPE,
            id="null item",
        ),
        pytest.param(
            {"kind": "int64", "shape": ()}, typed_row(), Reason.MISSING_VALUE, id="no field"
        ),
        pytest.param({"kind": "float", "shape": (2,)}, text_row(x="1|2"), [1.0, 2.0], id="pair"),
        pytest.param(
            {"kind": "float", "shape": (2,)}, text_row(x="1|2|3"), Reason.WRONG_TYPE, id="too many"
        ),
        pytest.param(
            {"kind": "float", "shape": (2,)}, typed_row(x=[1.0]), Reason.WRONG_TYPE, id="too few"
        ),
        pytest.param(
            {"kind": "float", "shape": (2,), "missing": "empty"}, typed_row(), [], id="pair or none"
        ),
        # A CSV field cannot be null: an empty one is how a table says that there is no pair.
        pytest.param(
            {"kind": "float", "shape": (2,), "missing": "empty"}, text_row(x=""), [], id="in text"
        ),
        pytest.param(
            {"kind": "int64", "classes": True}, text_row(x=""), Reason.MISSING_VALUE, id="no class"
        ),
        pytest.param({"kind": "bytes", "sources": "key"}, text_row(), b"t.csv:17", id="key"),
    ],
)
def test_values(feature, row, expected):
    assert value(one_feature(**feature), row) == expected


def test_an_empty_label_is_missing_for_its_text_as_for_its_id():
    features = {
        "id": Feature(kind="int64", sources="column:label", classes=True, missing="empty"),
        "text": Feature(kind="bytes", sources="class_name:label", missing="empty"),
    }
    bound = binding(Schema(features=features), {"id": ("cat", "dog")})
    assert bind(text_row(label=""), bound).values == ([], [])
    assert bind(typed_row(label=None), bound).values == ([], [])
    assert bind(text_row(label="dog"), bound).values == (1, b"dog")


def test_class_names_of_a_list():
    features = {
        "ids": Feature(kind="int64", sources="column:labels", shape=(), classes=True),
        "texts": Feature(kind="bytes", sources="class_name:labels", shape=()),
    }
    bound = binding(Schema(features=features), {"ids": ("cat", "dog", "owl")})
    assert bind(text_row(labels="owl|cat"), bound).values == ([2, 0], [b"owl", b"cat"])
    assert bind(typed_row(labels=[]), bound).values == ([], [])
