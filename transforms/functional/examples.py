"""`tf.train.Example`s on the wire, without TensorFlow.

Written by the protobuf library from `schemas/example.proto`, deterministically: map entries are
sorted by key, so that equal examples are equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.example_pb2 import BytesList, Example, Feature, Features, FloatList, Int64List
from schemas.features import Feature as FeatureSpec
from schemas.features import ImageFact, Kind, Schema
from schemas.records import FeatureValue, ImageRef, SerializedExample, StoredImage


def build_example(schema: Schema, ref: ImageRef, image: StoredImage | None) -> SerializedExample:
    """Returns the example of a reference and its image; None for schemas without one."""
    features = {
        name: _fact(image, feature.image_fact) if image and feature.image_fact else value
        for (name, feature), value in zip(schema.features.items(), ref.values, strict=True)
    }
    data = encode_example(schema.features, features)
    return SerializedExample(ref, data, image.sha256 if image else "")


def encode_example(specs: Mapping[str, FeatureSpec], values: Mapping[str, FeatureValue]) -> bytes:
    """Returns the serialized example that holds these values.

    Args:
        specs: Example key to feature; its kind decides the list.
        values: Example key to a value, a list of values, or None for the empty list.
    """
    features = {name: _feature(specs[name].kind, value) for name, value in values.items()}
    example = Example(features=Features(feature=features))
    return example.SerializeToString(deterministic=True)


def _feature(kind: Kind, value: FeatureValue) -> Feature:
    items = value if isinstance(value, list) else [] if value is None else [value]
    if kind is Kind.BYTES:
        return Feature(bytes_list=BytesList(value=items))  # type: ignore[arg-type]
    if kind is Kind.FLOAT:
        return Feature(float_list=FloatList(value=items))  # type: ignore[arg-type]
    return Feature(int64_list=Int64List(value=items))  # type: ignore[arg-type]


def _fact(image: StoredImage, fact: ImageFact) -> FeatureValue:
    if fact is ImageFact.BYTES:
        return image.data
    value: str | int = getattr(image, fact.value)
    return value.encode("ascii") if isinstance(value, str) else value
