"""The schema as TensorFlow Metadata states it, for TFX, TFDV and Transform: schema.pbtxt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from recordmill.schemas.features import Feature, Kind
from recordmill.schemas.plan import ResolvedSchema

_TYPES = {
    Kind.INT64: schema_pb2.FeatureType.INT,
    Kind.FLOAT: schema_pb2.FeatureType.FLOAT,
    Kind.BYTES: schema_pb2.FeatureType.BYTES,
}


_SEQUENCE = "##SEQUENCE##"
"""The feature whose parts are the feature lists of a SequenceExample, as TFX names it."""


def schema_text(resolved: ResolvedSchema) -> str:
    """Returns schema.pbtxt."""
    schema = schema_pb2.Schema()
    schema.feature.extend(_features(resolved, resolved.schema.context_features))
    if resolved.schema.sequence is not None:
        frames = schema.feature.add(name=_SEQUENCE, type=schema_pb2.FeatureType.STRUCT)
        frames.struct_domain.feature.extend(_features(resolved, resolved.schema.frame_features))
    text: str = text_format.MessageToString(schema)
    return text


def _features(
    resolved: ResolvedSchema, features: Mapping[str, Feature]
) -> Iterator[schema_pb2.Feature]:
    for name, feature in sorted(features.items()):
        stated = _feature(name, feature, len(resolved.classes.get(name, ())))
        if name == resolved.schema.encoded_image or feature.is_mask:
            stated.image_domain.SetInParent()
        yield stated


def _feature(name: str, feature: Feature, num_classes: int) -> schema_pb2.Feature:
    stated = schema_pb2.Feature(name=name, type=_TYPES[feature.kind])
    if feature.optional or feature.has_open_rows:
        stated.value_count.min = 0
    elif feature.per == "frame":  # a shape would be that of all frames
        stated.value_count.min = stated.value_count.max = math.prod(
            size for size in feature.shape or () if size is not None
        )
    else:
        stated.presence.min_fraction = 1.0
        stated.presence.min_count = 1
        stated.shape.SetInParent()
        for size in feature.shape or ():
            stated.shape.dim.add(size=size)
    if num_classes and not feature.is_mask:
        stated.int_domain.CopyFrom(
            schema_pb2.IntDomain(min=0, max=num_classes - 1, is_categorical=True)
        )
    return stated
