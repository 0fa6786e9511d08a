"""The schema as TensorFlow Metadata states it, for TFX, TFDV and Transform: schema.pbtxt."""

from __future__ import annotations

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from schemas.features import Feature, Kind
from schemas.plan import ResolvedSchema

_TYPES = {
    Kind.INT64: schema_pb2.FeatureType.INT,
    Kind.FLOAT: schema_pb2.FeatureType.FLOAT,
    Kind.BYTES: schema_pb2.FeatureType.BYTES,
}


def schema_text(resolved: ResolvedSchema) -> str:
    """Returns schema.pbtxt."""
    schema = schema_pb2.Schema()
    for name, feature in sorted(resolved.schema.features.items()):
        stated = _feature(name, feature, len(resolved.classes.get(name, ())))
        if name == resolved.schema.encoded_image:
            stated.image_domain.SetInParent()
        schema.feature.append(stated)
    text: str = text_format.MessageToString(schema)
    return text


def _feature(name: str, feature: Feature, num_classes: int) -> schema_pb2.Feature:
    stated = schema_pb2.Feature(name=name, type=_TYPES[feature.kind])
    if feature.optional:
        stated.value_count.min = 0
    else:
        stated.presence.min_fraction = 1.0
        stated.presence.min_count = 1
        stated.shape.SetInParent()
        for size in feature.shape or ():
            stated.shape.dim.add(size=size)
    if num_classes:
        stated.int_domain.CopyFrom(
            schema_pb2.IntDomain(min=0, max=num_classes - 1, is_categorical=True)
        )
    return stated
