"""`tf.train.Example`s on the wire, without TensorFlow.

Written by the protobuf library from `schemas/example.proto`, deterministically: map entries are
sorted by key, so that equal examples are equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.example_pb2 import Example, Feature
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
    if image is None:
        return SerializedExample(ref, data)
    return SerializedExample(ref, data, image.sha256, image.treatment)


def encode_example(specs: Mapping[str, FeatureSpec], values: Mapping[str, FeatureValue]) -> bytes:
    """Returns the serialized example that holds these values.

    Args:
        specs: Example key to feature; its kind decides the list.
        values: Example key to a value, a list of values, or None for the empty list.
    """
    example = Example()
    features = example.features.feature
    for name, value in values.items():
        _fill(features[name], specs[name].kind, value)
    return example.SerializeToString(deterministic=True)


def _fill(feature: Feature, kind: Kind, value: FeatureValue) -> None:
    """Puts values in their list, in place: assembling messages from parts copies the image."""
    items: Any = value if isinstance(value, list) else [] if value is None else [value]
    if kind is Kind.BYTES:
        feature.bytes_list.SetInParent()
        feature.bytes_list.value.extend(items)
    elif kind is Kind.FLOAT:
        feature.float_list.SetInParent()
        feature.float_list.value.extend(items)
    else:
        feature.int64_list.SetInParent()
        feature.int64_list.value.extend(items)


def _fact(image: StoredImage, fact: ImageFact) -> FeatureValue:
    if fact is ImageFact.BYTES:
        return image.data
    value: str | int = getattr(image, fact.value)
    return value.encode("ascii") if isinstance(value, str) else value
