"""Compares sequences with TensorFlow: it writes the same bytes, and reads them back."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.origins import Kind
from recordmill.schemas.records import BuiltFrame, FrameLocation, ImageRef, ImageShape, StoredImage
from recordmill.transforms.functional.compare import value_digests
from recordmill.transforms.functional.records.examples import (
    _encode_example,
    _encode_sequence,
    build_frame,
    build_sequence,
    decode_sequence,
    read_features,
    read_first_frame,
    sequence_digest,
)

VALUES = {
    Kind.INT64: st.integers(-(2**63), 2**63 - 1),
    Kind.FLOAT: st.floats(width=32),
    Kind.BYTES: st.binary(max_size=100),
}
NAMES = st.text(max_size=8)


def spec(kind: Kind) -> Feature:
    return Feature(kind=kind, sources="column:any")


def items_of(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def tensorflow_feature(kind, value):
    items = items_of(value)
    if kind is Kind.INT64:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=items))
    if kind is Kind.FLOAT:
        return tf.train.Feature(float_list=tf.train.FloatList(value=items))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=items))


def tensorflow_sequence(kinds, context, lists):
    """Returns the message that TensorFlow serializes for the same values."""
    listed = {
        name: tf.train.FeatureList(feature=[tensorflow_feature(kinds[name], v) for v in values])
        for name, values in lists.items()
    }
    features = {n: tensorflow_feature(kinds[n], value) for n, value in context.items()}
    sequence = tf.train.SequenceExample(
        context=tf.train.Features(feature=features),
        feature_lists=tf.train.FeatureLists(feature_list=listed),
    )
    return sequence.SerializeToString(deterministic=True)


@st.composite
def sequences(draw):
    """Draws kinds, a context, and lists with one value per frame."""
    kinds = draw(st.dictionaries(NAMES, st.sampled_from(Kind), min_size=1, max_size=6))
    frames = draw(st.integers(1, 4))
    framed = draw(st.sets(st.sampled_from(sorted(kinds)), min_size=1))

    def value(kind):
        return st.one_of(VALUES[kind], st.lists(VALUES[kind], max_size=3), st.none())

    context = {n: draw(value(kind)) for n, kind in kinds.items() if n not in framed}
    lists = {
        n: draw(st.lists(value(kinds[n]), min_size=frames, max_size=frames)) for n in sorted(framed)
    }
    return kinds, context, lists


def encode(kinds, context, lists):
    return _encode_sequence({name: spec(kind) for name, kind in kinds.items()}, context, lists)


@given(sequences())
@settings(max_examples=60)
def test_bytes_equal_those_of_tensorflow(drawn):
    assert encode(*drawn) == tensorflow_sequence(*drawn)


@given(sequences())
@settings(max_examples=40)
def test_tensorflow_parses_every_value_back(drawn):
    kinds, context, lists = drawn
    dtypes = {Kind.INT64: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}
    found, frames = tf.io.parse_single_sequence_example(
        encode(*drawn),
        {name: tf.io.VarLenFeature(dtypes[kinds[name]]) for name in context} or None,
        {name: tf.io.RaggedFeature(dtypes[kinds[name]]) for name in lists},
    )
    for name, value in context.items():
        expected = np.array(items_of(value), dtypes[kinds[name]].as_numpy_dtype)
        np.testing.assert_array_equal(found[name].values.numpy(), expected)
    for name, values in lists.items():
        rows = [row.numpy() for row in frames[name]]
        assert len(rows) == len(values)
        for row, value in zip(rows, values, strict=True):
            expected = np.array(items_of(value), dtypes[kinds[name]].as_numpy_dtype)
            np.testing.assert_array_equal(row, expected)


@given(sequences(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_keys_does_not_matter(drawn, random):
    def shuffled(values):
        items = list(values.items())
        random.shuffle(items)
        return dict(items)

    kinds, context, lists = drawn
    assert encode(kinds, shuffled(context), shuffled(lists)) == encode(kinds, context, lists)


def test_every_value_and_the_first_frame_are_read_without_a_schema():
    kinds = {"id": Kind.BYTES, "n": Kind.INT64, "boxes": Kind.FLOAT}
    data = encode(kinds, {"id": b"a"}, {"n": [1, 2], "boxes": [[0.5, 1.0], None]})
    assert read_features(data) == {"boxes": [0.5, 1.0], "id": [b"a"], "n": [1, 2]}
    assert read_first_frame(data) == {"boxes": [0.5, 1.0], "id": [b"a"], "n": [1]}


def test_a_feature_of_frames_has_their_number_and_another_name_than_one_of_the_context():
    kinds = {"n": Kind.INT64}
    found = read_features(encode(kinds, {"n": 9}, {"n": [[1, 2], None, [3]]}))
    assert found == {"n": [9], "n (frames)": [1, 2, 3]}
    assert found["n (frames)"].frames == 3


def test_an_example_reads_as_its_own_first_frame():
    data = _encode_example({"n": spec(Kind.INT64)}, {"n": [3, 4]})
    assert read_features(data) == read_first_frame(data) == {"n": [3, 4]}


def test_digests_depend_on_frames_and_their_order():
    kinds = {"id": Kind.BYTES, "n": Kind.INT64}
    names = ("id", "n", "other")
    one, other, longer = (
        value_digests(encode(kinds, {"id": b"a"}, {"n": values}), names)
        for values in ([1, 2], [2, 1], [1, 2, 2])
    )
    assert one[:8] == other[:8] == longer[:8]
    assert len({one[8:16], other[8:16], longer[8:16]}) == 3
    assert one[16:] == bytes(8)


SCHEMA = Schema.model_validate(
    {
        "sequence": {"group": "clip", "order": "at"},
        "features": {
            "id": {"kind": "bytes", "from": "key"},
            "tags": {"kind": "bytes", "from": "column:tags", "shape": []},
            "image": {"kind": "bytes", "from": "image:bytes", "per": "frame"},
            "height": {"kind": "int64", "from": "image:height", "per": "frame"},
            "pose": {"kind": "float", "from": "column:pose", "shape": [2], "per": "frame"},
            "marks": {"kind": "int64", "from": "column:marks", "shape": [], "per": "frame"},
        },
    }
)


def stored(data: bytes, height: int) -> StoredImage:
    digest = hashlib.sha256(data).hexdigest()
    return StoredImage(data, "jpeg", height, 7, 3, digest, treatment="jpeg kept")


def frame(number: int, pose: list[float], marks: list[int]) -> BuiltFrame:
    ref = ImageRef(
        key=f"{number}.jpg",
        file="t.csv",
        line=number,
        uri=f"/{number}.jpg",
        start=None,
        stop=None,
        values=(b"clip", [b"x", b"y"], None, None, pose, marks),
        frame=FrameLocation("clip", str(number)),
    )
    return build_frame(SCHEMA, ref, stored(b"image %d" % number, number))


def test_a_sequence_is_built_from_its_frames_and_decoded_by_the_schema():
    frames = [frame(1, [0.5, 1.0], [7]), frame(2, [1.5, 2.0], [])]
    built = build_sequence(SCHEMA, frames)
    assert (built.ref.key, built.rows, built.size) == ("clip", 2, len(built.data))
    assert [f.ref.key for f in built.frames] == ["1.jpg", "2.jpg"]
    assert [f.values for f in built.frames] == [(), ()]
    assert built.frames[1].shape == ImageShape("jpeg", 7, 2, 3, 7)
    digests = [hashlib.sha256(b"image %d" % n).digest() for n in (1, 2)]
    assert built.image_sha256 == hashlib.sha256(b"".join(digests)).hexdigest()
    found = decode_sequence(built.data, SCHEMA)
    assert list(found) == list(SCHEMA.features)
    assert (found["id"], found["tags"]) == (b"clip", [b"x", b"y"])
    assert found["image"] == [b"image 1", b"image 2"]
    assert (found["height"].tolist(), found["height"].dtype) == ([1, 2], np.int64)
    assert found["pose"].tolist() == [[0.5, 1.0], [1.5, 2.0]]
    assert [marks.tolist() for marks in found["marks"]] == [[7], []]
    assert list(decode_sequence(built.data, SCHEMA, ["pose"])) == ["pose"]


def test_the_digest_of_no_images_is_empty():
    assert sequence_digest(["", ""]) == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "not a tf.train.SequenceExample"),
        (b"", "its lists do not have one item per frame: 'image' 0, 'height' 0"),
        (
            encode(
                {"image": Kind.BYTES, "height": Kind.INT64},
                {},
                {"image": [b"a", b"b"], "height": [1]},
            ),
            "its lists do not have one item per frame: 'image' 2, 'height' 1, 'pose' 0, 'marks' 0",
        ),
    ],
)
def test_invalid_sequences_are_rejected(data, message):
    with pytest.raises(ValueError, match=message):
        decode_sequence(data, SCHEMA)


def test_a_frame_of_another_shape_is_rejected():
    kinds = {name: feature.kind for name, feature in SCHEMA.features.items()}
    lists = {"image": [b"a"], "height": [1], "pose": [[1.0]], "marks": [[]]}
    with pytest.raises(ValueError, match="'pose': 1 values in its float_list; expected 2"):
        decode_sequence(encode(kinds, {"id": b"a", "tags": []}, lists), SCHEMA)
