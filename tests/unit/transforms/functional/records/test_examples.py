"""Compares examples with TensorFlow: it writes the same bytes, and reads them back."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.origins import Kind
from recordmill.schemas.records import ImageRef, ImageShape, SerializedExample, StoredImage
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images.geometry import LABELS_REPEATED
from recordmill.transforms.functional.images.sniffing import OUTSIDE_WINDOW
from recordmill.transforms.functional.records.examples import (
    _encode_example,
    build_example,
    build_examples,
    read_features,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32)
VALUES = {Kind.INT64: INT64, Kind.FLOAT: FLOAT32, Kind.BYTES: st.binary(max_size=300)}
DTYPES = {Kind.INT64: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}


def spec(kind):
    return Feature(kind=kind, sources="column:any")


def tensorflow_feature(kind, items):
    if kind is Kind.INT64:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=items))
    if kind is Kind.FLOAT:
        return tf.train.Feature(float_list=tf.train.FloatList(value=items))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=items))


def tensorflow_example(kinds, values):
    """Returns the message that TensorFlow serializes for the same values."""
    features = {}
    for name, value in values.items():
        items = value if isinstance(value, list) else [] if value is None else [value]
        features[name] = tensorflow_feature(kinds[name], items)
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def encode(kinds, values):
    return _encode_example({name: spec(kind) for name, kind in kinds.items()}, values)


@st.composite
def kinds_and_values(draw):
    names = st.text(max_size=12)  # at least one: there is no schema without features
    kinds = draw(st.dictionaries(names, st.sampled_from(Kind), min_size=1, max_size=8))
    values = {
        name: draw(st.one_of(VALUES[kind], st.lists(VALUES[kind], max_size=5), st.none()))
        for name, kind in kinds.items()
    }
    return kinds, values


@given(kinds_and_values())
@settings(max_examples=100)
def test_bytes_equal_those_of_tensorflow(drawn):
    kinds, values = drawn
    assert encode(kinds, values) == tensorflow_example(kinds, values)


@given(kinds_and_values())
@settings(max_examples=60)
def test_tensorflow_parses_every_value_back(drawn):
    kinds, values = drawn
    spec_ = {name: tf.io.VarLenFeature(DTYPES[kind]) for name, kind in kinds.items()}
    parsed = tf.io.parse_single_example(encode(kinds, values), spec_)
    for name, value in values.items():
        items = value if isinstance(value, list) else [] if value is None else [value]
        found = parsed[name].values.numpy()
        if kinds[name] is Kind.BYTES:
            assert found.tolist() == items
        else:
            np.testing.assert_array_equal(found, np.array(items, dtype=found.dtype))


NAN, INF = float("nan"), float("inf")
EDGES = [
    pytest.param(Kind.INT64, [-1, 0, 2**63 - 1, -(2**63)], id="the ends of int64"),
    pytest.param(Kind.INT64, -1, id="minus one takes ten bytes"),
    pytest.param(Kind.INT64, [], id="no integers"),
    pytest.param(Kind.FLOAT, [NAN, INF, -INF, -0.0], id="nan and the infinities"),
    pytest.param(Kind.FLOAT, [], id="no floats"),
    pytest.param(Kind.BYTES, b"", id="a string of no bytes"),
    pytest.param(Kind.BYTES, [b"", b"", b"\0"], id="strings of no bytes in a list"),
    pytest.param(Kind.BYTES, [], id="no strings"),
    pytest.param(Kind.BYTES, None, id="no value"),
    pytest.param(Kind.BYTES, bytes(range(256)) * 40_000, id="ten megabytes"),
]


@pytest.mark.parametrize(("kind", "value"), EDGES)
def test_edges_equal_tensorflow(kind, value):
    kinds = {"ключ/键 🗝": kind}
    assert encode(kinds, {"ключ/键 🗝": value}) == tensorflow_example(kinds, {"ключ/键 🗝": value})


def test_an_empty_list_keeps_its_kind():
    feature = tf.train.Example.FromString(encode({"a": Kind.FLOAT}, {"a": []})).features.feature
    assert feature["a"].WhichOneof("kind") == "float_list"


def test_bytes_do_not_depend_on_the_order_of_values():
    kinds = {"b": Kind.INT64, "a": Kind.BYTES, "c": Kind.FLOAT}
    values = {"b": 1, "a": b"x", "c": 0.5}
    turned = dict(reversed(values.items()))
    assert encode(kinds, values) == encode(kinds, turned) == tensorflow_example(kinds, values)


IMAGE = StoredImage(
    data=b"\xff\xd8pixels",
    format="jpeg",
    height=480,
    width=640,
    channels=3,
    sha256=hashlib.sha256(b"any").hexdigest(),
    source_format="mpo",
    mode="RGB",
    bit_depth=8,
    frames=2,
    orientation=6,
    transcoded=1,
    treatment="jpeg kept",
)


def reference(values):
    return ImageRef(
        key="a.jpg", uri="/d/a.jpg", start=None, stop=None, values=values, file="t.csv", line=2
    )


def test_build_example_combines_attributes_of_the_image_with_values_of_the_reference():
    schema = preset("tf_slim")
    ref = reference((None, None, 7, b"cat", None, None, b"a.jpg", None, b"a.jpg"))
    kinds = {name: feature.kind for name, feature in schema.features.items()}
    values = {
        "image/encoded": IMAGE.data,
        "image/format": b"jpeg",
        "image/class/label": 7,
        "image/class/text": b"cat",
        "image/height": 480,
        "image/width": 640,
        "image/filename": b"a.jpg",
        "image/key/sha256": IMAGE.sha256.encode(),
        "image/source_id": b"a.jpg",
    }
    data = tensorflow_example(kinds, values)
    shape = ImageShape("jpeg", 640, 480, 3, len(IMAGE.data))
    remarks = ("first of several frames",)
    expected = SerializedExample(ref, data, IMAGE.sha256, "jpeg kept", remarks, shape)
    assert build_example(schema, ref, IMAGE) == expected


@pytest.mark.parametrize(
    ("labels", "remarks"), [([7, 8, 7], (LABELS_REPEATED,)), ([7, 8], ()), (None, ())]
)
def test_a_label_that_a_list_repeats_is_a_remark(labels, remarks):
    schema = preset("multi_label")
    values = [labels if f.classes else None for f in schema.features.values()]
    ref = ImageRef("k", "t", 1, "u", None, None, tuple(values))
    image = StoredImage(b"", "png", 1, 1, 1, "", source_size=(1, 1))
    assert build_example(schema, ref, image).remarks == remarks


def test_a_clipped_image_has_a_remark():
    image = IMAGE._replace(frames=1, source_format="tiff", is_clipped=True)
    built = build_example(preset("tf_tutorial"), reference((None,) * 5), image)
    assert built.remarks == (OUTSIDE_WINDOW,)


def test_read_features_returns_the_values_written_by_tensorflow():
    kinds = {"i": Kind.INT64, "f": Kind.FLOAT, "b": Kind.BYTES, "none": Kind.FLOAT}
    values = {"i": [1, -(2**63)], "f": [0.5], "b": [b"", b"\xff"], "none": []}
    assert read_features(tensorflow_example(kinds, values)) == values
    assert read_features(tf.train.Example(features={"feature": {"x": {}}}).SerializeToString()) == {
        "x": []
    }
    with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
        read_features(b"what")


def test_build_example_states_height_width_and_channels():
    schema = preset("tf_tutorial")
    ref = reference((None, None, None, 5, None))
    kinds = {name: feature.kind for name, feature in schema.features.items()}
    values = {"height": 480, "width": 640, "depth": 3, "label": 5, "image_raw": IMAGE.data}
    assert build_example(schema, ref, IMAGE).data == tensorflow_example(kinds, values)


def test_build_example_states_the_source_format():
    attributes = {
        "source_format": b"mpo",
        "mode": b"RGB",
        "bit_depth": 8,
        "frames": 2,
        "orientation": 6,
        "transcoded": 1,
    }
    kinds = {
        name: Kind.BYTES if isinstance(v, bytes) else Kind.INT64 for name, v in attributes.items()
    }
    features = {name: Feature(kind=kinds[name], sources=f"image:{name}") for name in attributes}
    built = build_example(Schema(features=features), reference((None,) * len(attributes)), IMAGE)
    assert built.data == tensorflow_example(kinds, attributes)


def test_build_examples_without_images():
    kinds = {"n": Kind.INT64, "xs": Kind.FLOAT, "text": Kind.BYTES}
    schema = Schema(features={name: spec(kind) for name, kind in kinds.items()})
    rows = [(3, [0.5, 1.5], b"a"), (-1, None, [b"b", b""]), (2**40, 0.25, b"x" * 300)]
    refs = [reference(values) for values in rows]
    records = [tensorflow_example(kinds, dict(zip(kinds, v, strict=True))) for v in rows]
    built = [SerializedExample(*pair, "") for pair in zip(refs, records, strict=True)]
    assert build_examples(schema, refs) == built


def test_build_examples_rejects_references_bound_to_another_schema():
    schema = Schema(features={"n": spec(Kind.INT64)})
    with pytest.raises(ValueError, match="longer"):
        build_examples(schema, [reference((3, 4))])


@pytest.mark.parametrize("boxes", [None, ("pixel", [0.0, 0.0, 10.0, 10.0])])
def test_areas_of_objects_are_scaled_with_or_without_boxes(boxes):
    features = {
        "image": {"kind": "bytes", "from": "image:bytes"},
        "mask": {"kind": "bytes", "from": "instance_png:segmentation", "shape": []},
        "area": {"kind": "float", "from": "area:area", "shape": []},
    }
    xmin = {"xmin": {"kind": "float", "from": "box:xmin", "shape": []}} if boxes else {}
    document = {"features": features | xmin, "image": {"resize": "10x10 exact"}}
    schema = Schema.model_validate(document)
    image = StoredImage(b"", "png", 10, 10, 3, "", source_size=(20, 20))
    square = [[0.0, 0.0, 10.0, 0.0, 10.0, 10.0, 0.0, 10.0]]
    ref = reference((None, None, [100.0], None)[: len(schema.features)])
    ref = ref._replace(boxes=boxes, outlines=("pixel", [(0, square)], None))
    data = build_example(schema, ref, image).data
    assert read_features(data)["area"] == [25.0]
