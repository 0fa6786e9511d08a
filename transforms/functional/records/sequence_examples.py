"""`tf.train.SequenceExample`s on the wire, without TensorFlow: a context, and frames in order.

Written as Examples are: deterministically, the keys of the context and of the lists sorted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from recordmill.schemas.example_pb2 import FeatureList, SequenceExample
from recordmill.schemas.features import Feature as FeatureSpec
from recordmill.schemas.features import Kind, Schema
from recordmill.schemas.records import (
    BuiltFrame,
    FeatureValue,
    ImageRef,
    SerializedExample,
    StoredImage,
)
from recordmill.transforms.functional.records.examples import complete, fill, shape_of, value_of


def build_frame(
    schema: Schema, ref: ImageRef, image: StoredImage | None, mask: bytes | None = None
) -> BuiltFrame:
    """Returns what one frame brings to its sequence.

    Args:
        schema: which features it has.
        ref: their values, but for those that take the picture.
        image: the picture; None for schemas without one.
        mask: the PNG of its pixels' classes; None for schemas without one.

    Raises:
        RecordError: bad_box, if the schema rejects one.
    """
    ref, remarks, features = complete(schema, ref, image, mask)
    values = tuple(features.values())
    if image is None:
        return BuiltFrame(ref, values)
    return BuiltFrame(ref, values, image.sha256, image.treatment, remarks, shape_of(image))


def build_sequence(schema: Schema, frames: Sequence[BuiltFrame]) -> SerializedExample:
    """Returns the record of a sequence.

    Args:
        schema: which features its context has, and which its frames.
        frames: in order; the first tells the context, which all have in common.
    """
    rows = [dict(zip(schema.features, frame.values, strict=True)) for frame in frames]
    lists = {name: [row[name] for row in rows] for name in schema.frame_features}
    context = {name: rows[0][name] for name in schema.context_features}
    first = frames[0].ref
    return SerializedExample(
        ref=first._replace(key=first.record_key),
        data=encode_sequence(schema.features, context, lists),
        image_sha256=sequence_digest(frame.image_sha256 for frame in frames),
        frames=tuple(frame._replace(values=()) for frame in frames),
    )


def sequence_digest(digests: Iterable[str]) -> str:
    """Returns the sha256 of the sha256s of a sequence's images; "" for frames without one."""
    joined = b"".join(bytes.fromhex(digest) for digest in digests)
    return hashlib.sha256(joined).hexdigest() if joined else ""


def encode_sequence(
    specs: Mapping[str, FeatureSpec],
    context: Mapping[str, FeatureValue],
    lists: Mapping[str, Sequence[FeatureValue]],
) -> bytes:
    """Returns the serialized sequence that holds these values.

    Args:
        specs: key to feature; its kind decides the list.
        context: key to a value, a list of values, or None for the empty list.
        lists: key to the same of each frame.
    """
    sequence = SequenceExample()
    sequence.context.SetInParent()  # an empty one is there, too
    features = sequence.context.feature
    for name, value in context.items():
        fill(features[name], specs[name].kind, value)
    feature_lists = sequence.feature_lists.feature_list
    for name, values in lists.items():
        listed = feature_lists[name].feature
        for value in values:
            fill(listed.add(), specs[name].kind, value)
    return sequence.SerializeToString(deterministic=True)


def decode_sequence(
    data: bytes, schema: Schema, names: Iterable[str] | None = None
) -> dict[str, Any]:
    """Returns what a serialized sequence holds, each feature as its schema declares it.

    Of the context as `decode_example` gives it. Of the frames: one number each is an array,
    (frames,), numbers of one shape are one, (frames, …); anything else is a list, one item a frame.

    Args:
        data: the serialized message.
        schema: which features there are.
        names: which to give, or None for all.

    Raises:
        ValueError: if the sequence does not hold what the schema declares.
    """
    try:
        sequence = SequenceExample.FromString(data)
    except DecodeError as error:
        raise ValueError(f"no tf.train.SequenceExample: {error}") from error
    context, lists = sequence.context.feature, sequence.feature_lists.feature_list
    _check_lengths({name: len(lists[name].feature) for name in schema.frame_features})
    return {
        name: _frames(name, schema.features[name], lists[name])
        if name in schema.frame_features
        else value_of(name, schema.features[name], context)
        for name in (schema.features if names is None else names)
    }


def _check_lengths(lengths: Mapping[str, int]) -> None:
    shortest, longest = min(lengths.values()), max(lengths.values())
    if shortest != longest or not longest:
        told = ", ".join(f"{name!r} {count}" for name, count in lengths.items())
        raise ValueError(f"its lists do not have one item a frame: {told}")


def _frames(name: str, spec: FeatureSpec, listed: FeatureList) -> Any:
    values = [value_of(name, spec, {name: feature}) for feature in listed.feature]
    if spec.kind is Kind.BYTES or spec.optional:
        return values
    return np.array(values, np.int64 if spec.kind is Kind.INT64 else np.float32)
