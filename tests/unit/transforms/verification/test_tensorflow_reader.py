"""Records are parsed as by TensorFlow's Python package, and mismatches are its errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.yaml_files import parse_schema
from recordmill.transforms.verification import tensorflow_reader
from recordmill.transforms.verification.tensorflow_reader import (
    OpError,
    ParsedBatch,
    UnequalLengthsError,
    parse_batch,
)


@pytest.fixture(autouse=True, scope="module", params=["library", "package"])
def tensorflow(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "package":
            loaded = {"library": None, "package": tf}
            patch.setattr(tensorflow_reader, "_loaded", loaded)
        yield


EXAMPLES = """
name: any
features:
  text: {kind: bytes, from: "column:text"}
  label: {kind: int64, from: "column:label", classes: true}
  tags: {kind: int64, from: "column:tags", classes: true, shape: []}
  pair: {kind: float, from: "column:pair", shape: [2]}
  matrix: {kind: float, from: "column:matrix", shape: [2, 2]}
  boxes: {kind: float, from: "column:boxes", shape: [null, 4]}
"""
SEQUENCES = """
name: any
sequence: {group: clip, order: frame}
features:
  id: {kind: bytes, from: key}
  words: {kind: bytes, from: "column:words", shape: []}
  step: {kind: int64, from: "column:step", per: frame, classes: true}
  tags: {kind: int64, from: "column:tags", per: frame, classes: true, shape: []}
  pair: {kind: float, from: "column:pair", per: frame, shape: [2]}
"""
ONE_EXAMPLE = ResolvedSchema(parse_schema(EXAMPLES, "here"))
ONE_SEQUENCE = ResolvedSchema(parse_schema(SEQUENCES, "here"))
SPEC = {
    "text": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "tags": tf.io.VarLenFeature(tf.int64),
    "pair": tf.io.FixedLenFeature([2], tf.float32),
    "matrix": tf.io.FixedLenFeature([2, 2], tf.float32),
    "boxes": tf.io.FixedLenSequenceFeature([4], tf.float32, allow_missing=True),
}
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(width=32, allow_nan=False)
VALUES = st.fixed_dictionaries(
    {
        "text": st.binary(max_size=40).map(lambda value: [value]),
        "label": st.lists(INT64, min_size=1, max_size=1),
        "tags": st.lists(INT64, max_size=3),
        "pair": st.lists(FLOAT, min_size=2, max_size=2),
        "matrix": st.lists(FLOAT, min_size=4, max_size=4),
        "boxes": st.lists(FLOAT, max_size=3).map(lambda rows: rows * 4),
    }
)


def feature(values: list[Any]) -> tf.train.Feature:
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return (
        tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        if values
        else tf.train.Feature()
    )


def example(**values: list[Any]) -> bytes:
    features = {name: feature(items) for name, items in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def sequence(context: dict[str, list[Any]], **frames: list[list[Any]]) -> bytes:
    lists = {
        name: tf.train.FeatureList(feature=[feature(items) for items in frame])
        for name, frame in frames.items()
    }
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={n: feature(v) for n, v in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list=lists),
    ).SerializeToString()


def values_of(parsed: ParsedBatch) -> dict[str, Any]:
    return {name: tensor.numpy().tolist() for name, tensor in parsed.context.items()}


def plain(tensor: Any) -> Any:
    return (tensor.values if isinstance(tensor, tf.SparseTensor) else tensor).numpy().tolist()


@given(st.lists(VALUES, min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_examples_have_the_values_that_the_package_finds(rows: list[dict[str, list[Any]]]) -> None:
    records = [example(**row) for row in rows]
    parsed = parse_batch(records, ONE_EXAMPLE)
    expected = tf.io.parse_example(records, SPEC)
    assert values_of(parsed) == {name: plain(tensor) for name, tensor in expected.items()}
    assert parsed.labels("label") == [label for row in rows for label in row["label"]]
    assert parsed.labels("tags") == [tag for row in rows for tag in row["tags"]]


GOOD = {"text": [b"a"], "label": [1], "pair": [1.0, 2.0], "matrix": [1.0] * 4, "boxes": [0.5] * 8}


@pytest.mark.parametrize(
    "change",
    [
        {"text": []},
        {"text": [b"a", b"b"]},
        {"text": [1]},
        {"label": [0.5]},
        {"tags": [b"\xff"]},
        {"pair": [1.0]},
        {"matrix": [1.0] * 5},
        {"boxes": [1.0] * 3},
    ],
)
def test_what_does_not_fit_is_the_error_of_the_package(change: dict[str, list[Any]]) -> None:
    records = [example(**GOOD), example(**{**GOOD, **change})]
    with pytest.raises(tf.errors.OpError) as expected:
        tf.io.parse_example(records, SPEC)
    with pytest.raises(OpError) as raised:
        parse_batch(records, ONE_EXAMPLE)
    assert str(raised.value).strip() in expected.value.message


@pytest.mark.parametrize("record", [b"\x0a\xff", b"\xff" * 9, example(**GOOD)[:-1]])
def test_bytes_that_are_no_example_are_an_error(record: bytes) -> None:
    with pytest.raises(OpError, match="Could not parse example input"):
        parse_batch([record], ONE_EXAMPLE)


def test_sequences_have_the_values_of_their_frames() -> None:
    short = sequence(
        {"id": [b"a"], "words": [b"x", b"y"]}, step=[[7]], tags=[[1, 2]], pair=[[1.0, 2.0]]
    )
    long = sequence({"id": [b"b"]}, step=[[8], [9]], tags=[[], [3]], pair=[[3.0, 4.0], [5.0, 6.0]])
    parsed = parse_batch([short, long], ONE_SEQUENCE)
    assert values_of(parsed) == {"id": [b"a", b"b"], "words": [b"x", b"y"]}
    assert parsed.lengths == [1, 2]
    assert parsed.labels("step") == [7, 8, 9]
    assert parsed.labels("tags") == [1, 2, 3]
    pairs = parsed.frames["pair"].numpy()
    np.testing.assert_array_equal(pairs[1], [[3.0, 4.0], [5.0, 6.0]])


def test_lists_of_a_sequence_have_one_item_per_frame() -> None:
    record = sequence({"id": [b"a"]}, step=[[7]], tags=[[1], [2]], pair=[[1.0, 2.0]])
    with pytest.raises(UnequalLengthsError, match="'tags' 2"):
        parse_batch([record], ONE_SEQUENCE)


@pytest.mark.parametrize("frames", [{"step": [[7]], "tags": [[1]]}, {"step": [[b"x"]]}])
def test_frames_that_do_not_fit_are_an_error(frames: dict[str, Any]) -> None:
    with pytest.raises((OpError, UnequalLengthsError)):
        parse_batch([sequence({"id": [b"a"]}, **frames)], ONE_SEQUENCE)
