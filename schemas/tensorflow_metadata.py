"""Writes schema.pbtxt, features.json and dataset_info.json for TensorFlow's tools.

TFX, TFDV and TensorFlow Transform read schema.pbtxt of TensorFlow Metadata. TensorFlow Datasets
reads the other two, which it can write itself only in a builder class and with TensorFlow loaded.
Source: tensorflow_datasets/core/proto/{feature,dataset_info}.proto, in proto3's JSON form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.origins import Kind, Origin
from recordmill.schemas.plan import ResolvedSchema

_TYPES = {
    Kind.INT64: schema_pb2.FeatureType.INT,
    Kind.FLOAT: schema_pb2.FeatureType.FLOAT,
    Kind.BYTES: schema_pb2.FeatureType.BYTES,
}

# The name that TFX gives to the feature with the feature lists of a SequenceExample.
_SEQUENCE = "##SEQUENCE##"


def schema_text(resolved: ResolvedSchema) -> str:
    """Returns schema.pbtxt."""
    schema, has_steps = schema_pb2.Schema(), resolved.schema.has_steps
    found = resolved.schema
    context = found.features_of_record if has_steps else found.context_features
    schema.feature.extend(_protos_of(resolved, context))
    if found.message == "SequenceExample":
        frames = schema.feature.add(name=_SEQUENCE, type=schema_pb2.FeatureType.STRUCT)
        frames.struct_domain.feature.extend(_protos_of(resolved, resolved.schema.frame_features))
    text: str = text_format.MessageToString(schema)
    return text


def _protos_of(
    resolved: ResolvedSchema, features: Mapping[str, Feature]
) -> Iterator[schema_pb2.Feature]:
    for name, feature in sorted(features.items()):
        stated = _proto_of(name, feature, len(resolved.classes.get(name, ())))
        if name in resolved.schema.encoded_images or feature.is_encoded_mask:
            stated.image_domain.SetInParent()
        yield stated


def _proto_of(name: str, feature: Feature, num_classes: int) -> schema_pb2.Feature:
    stated = schema_pb2.Feature(name=name, type=_TYPES[feature.kind])
    if feature.optional or feature.has_open_rows:
        stated.value_count.min = 0
    elif feature.per == "frame":  # a shape would apply to all frames together
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
            schema_pb2.IntDomain(
                min=feature.no_label or 0, max=num_classes - 1, is_categorical=True
            )
        )
    return stated


_CORE = "tensorflow_datasets.core.features"
_DTYPES = {Kind.INT64: "int64", Kind.FLOAT: "float32", Kind.BYTES: "string"}
_FLAT_VALUES, _ROW_LENGTHS = "/ragged_flat_values", "/ragged_row_lengths_0"
FILE_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def features_document(resolved: ResolvedSchema) -> dict[str, Any]:
    """Returns features.json, with a feature type of TFDS for each feature."""
    schema = resolved.schema
    features: dict[str, Any] = {}
    for name, feature in schema.features.items():
        num_classes = len(resolved.classes.get(name, ()))
        if name in schema.encoded_images:
            features[name] = _gray(16, 0) if schema.is_deep(name) else _image()
        elif feature.is_encoded_mask:
            features[name] = _gray(schema.masks.bit_depth, num_classes)
        else:
            features[name] = _feature(feature, num_classes)
            if schema.has_steps and _is_flag(name, feature):
                features[name]["tensor"]["dtype"] = "bool"
    if schema.has_steps:
        # TFDS joins the names of nested features with slashes.
        steps = {n: features.pop(n) for n in schema.frame_features}
        nested = _nested({n.removeprefix(f"{schema.steps}/"): f for n, f in steps.items()})
        content = {"sequence": {"feature": nested, "length": "-1"}}
        features[schema.steps] = _typed("dataset_feature.Dataset", content)
    return _features_dict(_joined(features))


# Booleans of https://github.com/google-research/rlds#dataset-format, stored as int64.
_RLDS_FLAGS = ("is_first", "is_last", "is_terminal")


def _is_flag(name: str, feature: Feature) -> bool:
    is_number = feature.kind is Kind.INT64 and not feature.classes and not feature.optional
    return is_number and name.rpartition("/")[2] in _RLDS_FLAGS


def _nested(features: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a dict of features whose names are paths.

    Beside a feature whose name is that of their group, they keep their paths as names.
    """
    groups = dict[str, dict[str, Any]]()
    for name, feature in features.items():
        group, slash, rest = name.partition("/")
        groups.setdefault(group, {})[rest if slash else ""] = feature
    found = dict[str, Any]()
    for group, below in groups.items():
        if "" in below:
            found |= {f"{group}/{rest}" if rest else group: f for rest, f in below.items()}
        else:
            found[group] = _nested(below)
    return _features_dict(found)


def _features_dict(features: dict[str, Any]) -> dict[str, Any]:
    return _typed("features_dict.FeaturesDict", {"featuresDict": {"features": features}})


def _joined(features: Mapping[str, Any]) -> dict[str, Any]:
    """Joins each pair of features with the flat values and row lengths of a list of lists.

    TFDS declares such a list as one feature, and stores it as these two.
    """
    joined = dict(features)
    for name in features:
        whole = name.removesuffix(_FLAT_VALUES)
        if name != whole and whole + _ROW_LENGTHS in features and whole not in features:
            del joined[whole + _ROW_LENGTHS]
            joined[whole] = _sequence(joined.pop(name), -1)
    return joined


def dataset_info_document(
    config: ConvertConfig, schema: Schema, splits: Mapping[str, Sequence[tuple[int, int]]]
) -> dict[str, Any]:
    """Returns dataset_info.json, from (records, bytes of data) of each shard, by split."""
    document: dict[str, Any] = {
        "name": config.name,
        "version": config.version,
        "description": config.description or schema.description,
        "fileFormat": "tfrecord",
        "splits": [_split(split, shards) for split, shards in splits.items()],
    }
    if schema.supervised and not schema.has_steps:  # what tfds.load(…, as_supervised=True) returns
        keys = [{"featureKey": name} for name in schema.supervised]
        document["supervisedKeys"] = {"tuple": {"items": keys}}
    if config.citation:
        document["citation"] = config.citation
    if config.license:
        document["redistributionInfo"] = {"license": config.license}
    if config.homepage:
        document["location"] = {"urls": [config.homepage]}
    return document


def _split(name: str, shards: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {
        "name": name,
        "filepathTemplate": FILE_TEMPLATE,
        "shardLengths": [str(records) for records, _ in shards],
        "numBytes": str(sum(size for _, size in shards)),
    }


def _feature(feature: Feature, num_classes: int) -> dict[str, Any]:
    if feature.source.origin is Origin.BOX and feature.source.name == "yxyx":
        return _sequence(_box(), -1)
    is_masks = feature.source.origin is Origin.INSTANCE_PNG
    item = _gray(8, 0) if is_masks else _scalar(feature, num_classes)
    if feature.optional:
        return _sequence(item, -1)
    if feature.shape is None:
        return item
    # Tensors of TFDS have neither class names nor text, so these are nested sequences.
    if num_classes or (feature.kind is Kind.BYTES and len(feature.shape) == 1):
        for size in reversed(feature.shape):
            item = _sequence(item, size or -1)
        return item
    return _typed("tensor_feature.Tensor", {"tensor": _tensor(feature.kind, feature.shape)})


def _scalar(feature: Feature, num_classes: int) -> dict[str, Any]:
    if num_classes:
        return _typed(
            "class_label_feature.ClassLabel", {"classLabel": {"numClasses": str(num_classes)}}
        )
    if feature.kind is Kind.BYTES:
        return _typed("text_feature.Text", {"text": {}})
    return _typed("scalar.Scalar", {"tensor": _tensor(feature.kind, ())})


def _image() -> dict[str, Any]:
    shape = {"dimensions": ["-1", "-1", "3"]}
    return _typed("image_feature.Image", {"image": {"dtype": "uint8", "shape": shape}})


def _gray(bit_depth: int, num_classes: int) -> dict[str, Any]:
    """Returns the feature of a mask or of depth; a `LabeledImage` if its ids have names."""
    shape = {"dimensions": ["-1", "-1", "1"]}
    image = {"dtype": f"uint{bit_depth}", "shape": shape, "encodingFormat": "png"}
    if not num_classes:
        return _typed("image_feature.Image", {"image": image})
    named = {**image, "label": {"numClasses": str(num_classes)}, "useColormap": True}
    return _typed("labeled_image.LabeledImage", {"image": named})


def _box() -> dict[str, Any]:
    box = {"bboxFormat": "REL_YXYX", "dtype": "float32", "shape": {"dimensions": ["4"]}}
    return _typed("bounding_boxes.BBoxFeature", {"boundingBox": box})


def _sequence(item: dict[str, Any], length: int) -> dict[str, Any]:
    return _typed(
        "sequence_feature.Sequence", {"sequence": {"feature": item, "length": str(length)}}
    )


def _tensor(kind: Kind, shape: tuple[int | None, ...]) -> dict[str, Any]:
    dimensions = {"dimensions": [str(n or -1) for n in shape]} if shape else {}
    return {"dtype": _DTYPES[kind], "encoding": "none", "shape": dimensions}


def _typed(class_: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"pythonClassName": f"{_CORE}.{class_}", **content}
