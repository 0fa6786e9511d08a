"""schema.pbtxt, read by TensorFlow Metadata's own parser."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.presets import preset
from recordmill.schemas.tensorflow_metadata import schema_text

REQUIRED = "presence { min_fraction: 1.0 min_count: 1 }"


def parsed(text):
    return text_format.Parse(text, schema_pb2.Schema())


def written(features, classes=None):
    return parsed(schema_text(ResolvedSchema(Schema(features=features), classes or {})))


@pytest.mark.parametrize(
    ("options", "classes", "expected"),
    [
        pytest.param({"kind": "int64"}, {}, f"type: INT {REQUIRED} shape {{}}", id="integer"),
        pytest.param({"kind": "float"}, {}, f"type: FLOAT {REQUIRED} shape {{}}", id="float"),
        pytest.param({"kind": "bytes"}, {}, f"type: BYTES {REQUIRED} shape {{}}", id="bytes"),
        pytest.param(
            {"kind": "float", "shape": [4]},
            {},
            f"type: FLOAT {REQUIRED} shape {{ dim {{ size: 4 }} }}",
            id="four floats",
        ),
        pytest.param(
            {"kind": "bytes", "shape": []}, {}, "type: BYTES value_count { min: 0 }", id="list"
        ),
        pytest.param(
            {"kind": "int64", "missing": "empty"},
            {},
            "type: INT value_count { min: 0 }",
            id="one or none",
        ),
        pytest.param(
            {"kind": "int64", "default": 7}, {}, f"type: INT {REQUIRED} shape {{}}", id="default"
        ),
        pytest.param(
            {"kind": "int64", "classes": True},
            {"f": ("cat", "dog", "owl")},
            f"type: INT {REQUIRED} shape {{}} int_domain {{ min: 0 max: 2 is_categorical: true }}",
            id="classes",
        ),
        pytest.param(
            {"kind": "int64", "classes": True},
            {"f": ("cat",)},
            f"type: INT {REQUIRED} shape {{}} int_domain {{ min: 0 max: 0 is_categorical: true }}",
            id="one class",
        ),
        pytest.param(
            {"kind": "int64", "classes": True},
            {"f": ()},
            f"type: INT {REQUIRED} shape {{}}",
            id="classes without names",
        ),
        pytest.param(
            {"kind": "bytes", "sources": "image:bytes"},
            {},
            f"type: BYTES {REQUIRED} shape {{}} image_domain {{}}",
            id="image",
        ),
    ],
)
def test_features(options, classes, expected):
    feature = Feature(**{"sources": "column:f", **options})
    assert written({"f": feature}, classes) == parsed(f'feature {{ name: "f" {expected} }}')


def test_features_are_sorted_by_name():
    feature = Feature(kind="int64", sources="column:f")
    names = ["label", "image/ü", "Z", "a"]
    found = written(dict.fromkeys(names, feature))
    assert [f.name for f in found.feature] == sorted(names)


def test_a_whole_preset():
    text = schema_text(ResolvedSchema(preset("image_classification"), {"label": ("cat", "dog")}))
    assert parsed(text) == parsed(
        f"""
        feature {{ name: "image" type: BYTES {REQUIRED} shape {{}} image_domain {{}} }}
        feature {{ name: "image/filename" type: BYTES {REQUIRED} shape {{}} }}
        feature {{
          name: "label" type: INT {REQUIRED} shape {{}}
          int_domain {{ min: 0 max: 1 is_categorical: true }}
        }}
        """
    )
