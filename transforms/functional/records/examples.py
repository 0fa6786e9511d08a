"""Encodes and decodes `tf.train.Example` and `SequenceExample` messages without TensorFlow.

The messages of `schemas/example.proto` are serialized deterministically, with map entries sorted by
key, so that equal examples have equal bytes. The bytes are those of protobuf's own serialization,
which needs several calls for each value, and copies each image twice. Messages are lists of parts,
which are joined once. Format: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress, repeat
from operator import add
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from recordmill.schemas.example_pb2 import Example, Feature, FeatureList, SequenceExample
from recordmill.schemas.features import Feature as FeatureSpec
from recordmill.schemas.features import Schema
from recordmill.schemas.origins import ImageAttribute, Kind, Origin
from recordmill.schemas.records import (
    BuiltFrame,
    FeatureValue,
    FrameValues,
    ImageRef,
    RowBoxes,
    RowOutlines,
    SerializedExample,
    StoredImage,
)
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images import geometry, sniffing

# The fields of `SerializedExample` after its data, of a row without an image.
_NO_IMAGE = SerializedExample._field_defaults.values()


class Masks(NamedTuple):
    """The masks of a row before its objects are transformed."""

    classes: bytes | None = None  # the PNG of class ids; None for schemas without one
    segments: np.ndarray | None = None  # the ids of segments in the mask file, if it has them
    remarks: tuple[str, ...] = ()


NO_MASKS = Masks()

_FIELDS = {Kind.INT64: "int64_list", Kind.FLOAT: "float_list", Kind.BYTES: "bytes_list"}
_DTYPES = {Kind.INT64: np.int64, Kind.FLOAT: np.float32}


def build_examples(schema: Schema, refs: Sequence[ImageRef]) -> list[SerializedExample]:
    """Builds the examples of references to rows without an image."""
    columns = dict(
        zip(schema.features, zip(*(ref.values for ref in refs), strict=True), strict=True)
    )
    rows = list(map(b"".join, _encoded_rows(schema.features, columns)))
    # Copying a small message twice is cheaper than adding up the sizes of its parts.
    headers = map(partial(_field_header, _FEATURES), map(len, rows))
    fields = zip(refs, map(add, headers, rows), *map(repeat, _NO_IMAGE), strict=False)
    return list(map(SerializedExample._make, fields))


def build_example(
    schema: Schema,
    ref: ImageRef,
    image: StoredImage,
    masks: Masks = NO_MASKS,
    others: Sequence[StoredImage] = (),
) -> SerializedExample:
    """Builds the example of a reference and its images; `others` are those besides the first."""
    frame = build_frame(schema, ref, image, masks, others)
    values = dict(zip(schema.features, frame.values, strict=True))
    return SerializedExample(frame.ref, _encode_example(schema.features, values), *frame[2:])


def build_frame(
    schema: Schema,
    ref: ImageRef,
    image: StoredImage | None,
    masks: Masks = NO_MASKS,
    others: Sequence[StoredImage] = (),
) -> BuiltFrame:
    """Completes a reference with the values that depend on its image, if the schema has one."""
    if image is None:
        return BuiltFrame(ref, ref.values)
    ref, remarks, drawn = _with_objects(schema, ref, image, masks)
    pairs = zip(schema.features.values(), ref.values, strict=True)
    lists = [v for of, v in pairs if of.classes and not of.per_box and isinstance(v, list)]
    remarks += (geometry.LABELS_REPEATED,) * any(len({*labels}) < len(labels) for labels in lists)
    features = dict(zip(schema.features, ref.values, strict=True)) | drawn
    for name, found in zip(("", *schema.image_names), (image, *others), strict=bool(others)):
        remarks += _remarks_on_image(found, schema.image_settings[name])
        for key, attribute in schema.attributes[name].items():
            features[key] = _attribute(found, attribute)
    if schema.mask_feature is not None:
        features[schema.mask_feature] = masks.classes
        remarks += masks.remarks
    return BuiltFrame(
        ref,
        tuple(features.values()),
        image.sha256,
        image.treatment,
        remarks,
        image.shape,
        tuple(
            each.shape._replace(thumbnail=b"", sha256=each.sha256, image=name)
            for name, each in zip(schema.image_names, others, strict=bool(others))
        ),
    )


def _with_objects(
    schema: Schema, ref: ImageRef, image: StoredImage, masks: Masks
) -> tuple[ImageRef, tuple[str, ...], dict[str, FeatureValue]]:
    """Returns a reference with its values of objects, remarks on them, and their masks."""
    if ref.boxes is None and ref.outlines is None:
        return ref, (), {}
    placed = geometry.geometry_of(image.source_size, image.orientation, schema.image)
    outlines, boxes = RowOutlines(*(ref.outlines or ("", []))), RowBoxes(*(ref.boxes or ("", [])))
    objects = outlined = geometry.all_objects(outlines, placed, schema.masks.frame)
    if ref.boxes is not None:
        objects = geometry.transform_boxes(boxes, placed, schema.boxes)
    objects = geometry.with_shapes(schema, boxes.shapes or {}, objects)
    drawn = dict[str, FeatureValue]()
    remarks = objects.remarks + geometry.repeated(schema, ref.values, boxes, objects.kept)
    if ref.outlines is not None:
        # Needs pycocotools, which recordmill-reader does not require.
        from recordmill.transforms.functional.images.masks import drawn_values

        remarks += tuple(remark for remark in outlined.remarks if remark not in remarks)
        drawn = drawn_values(schema, outlines, objects.kept, placed, masks.segments)
    values: list[FeatureValue] = [
        geometry.object_values(feature, value, objects) if feature.of_objects else value
        for feature, value in zip(schema.features.values(), ref.values, strict=True)
    ]
    return ref._replace(values=tuple(values)), remarks, drawn


def _remarks_on_image(image: StoredImage, settings: ImageSettings) -> tuple[str, ...]:
    """Returns remarks on an image; gray of `bit_depth: 16` is read as uint16, without any loss."""
    is_deep = settings.bit_depth != 16 and sniffing.is_16_bit(image.data)
    is_first = image.frames > 1 or image.source_format == "mpo"
    remarks = (sniffing.SIXTEEN_BITS, sniffing.FIRST_FRAME, sniffing.OUTSIDE_WINDOW)
    return tuple(compress(remarks, (is_deep, is_first, image.is_clipped)))


def _encode_example(specs: Mapping[str, FeatureSpec], values: Mapping[str, FeatureValue]) -> bytes:
    return b"".join(_field(_FEATURES, _encoded_features(specs, values)))


def read_features(data: bytes) -> dict[str, list[Any]]:
    """Returns the values of each feature of an example of any schema, sorted by name.

    Those of the frames of a sequence are concatenated. Raises ValueError for any other bytes.
    """
    return _features_of(data, None)


def read_first_frame(data: bytes) -> dict[str, list[Any]]:
    """Returns the values of an example, or of the context and the first frame of a sequence."""
    return _features_of(data, 1)


def feature_kinds(data: bytes) -> tuple[tuple[str, str], ...]:
    """Returns the name and kind of each feature of an example of any schema, and of its frames.

    The kind is "bytes_list", "float_list" or "int64_list"; an empty feature has none. Raises
    ValueError if the bytes are another message, which protobuf parses as unknown fields.
    """
    message = _parsed(data)
    if len(UnknownFieldSet(message)) or len(UnknownFieldSet(message.context)):
        raise ValueError("is not a tf.train.Example or SequenceExample")
    context, lists = message.context.feature, message.feature_lists.feature_list
    # Faster than items(), which calls Python code for each feature.
    kinds = [(name, context[name].WhichOneof("kind") or "") for name in context]
    for name, listed in lists.items() if len(lists) else ():
        of_frames = {frame.WhichOneof("kind") or "" for frame in listed.feature} or {""}
        kinds += [(name, kind) for kind in of_frames]
    return tuple(kinds)


def _parsed(data: bytes) -> SequenceExample:
    # An Example parses as a SequenceExample with only a context: both use field number 1.
    try:
        return SequenceExample.FromString(data)
    except DecodeError as error:
        raise ValueError("is not a tf.train.Example") from error


def _features_of(data: bytes, frames: int | None) -> dict[str, list[Any]]:
    example = _parsed(data)
    found = {name: feature_values(feature) for name, feature in example.context.feature.items()}
    for name, listed in example.feature_lists.feature_list.items():
        values = FrameValues(v for part in listed.feature[:frames] for v in feature_values(part))
        values.frames = len(listed.feature)
        # A feature of the context may have the same name.
        found[f"{name} (frames)" if name in found else name] = values
    return {name: found[name] for name in sorted(found)}


def class_ids(data: bytes, features: Mapping[str, FeatureSpec]) -> dict[str, list[int]]:
    """Returns the class ids of a serialized record of any schema, by class feature."""
    message = _parsed(data)
    context, lists = message.context.feature, message.feature_lists.feature_list
    return {
        name: [
            value
            for part in (lists[name].feature if name in lists else (context[name],))
            for value in part.int64_list.value
            if value != feature.no_label
        ]
        for name, feature in features.items()
    }


def feature_values(feature: Feature) -> list[Any]:
    """Returns the values of a feature message of any kind; an empty list without values."""
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def _attribute(image: StoredImage, attribute: ImageAttribute) -> FeatureValue:
    if attribute is ImageAttribute.BYTES:
        return image.data
    value: str | int = getattr(image, attribute.value)
    return value.encode("ascii") if isinstance(value, str) else value


def decode_example(
    data: bytes, specs: Mapping[str, FeatureSpec], names: Iterable[str] | None = None
) -> dict[str, Any]:
    """Parses a serialized example to the features that the schema declares.

    A single value is an int, a float or bytes. Several numbers are an int64 or float32 array of the
    shape of the feature. Several texts are a list of bytes, nested by the shape. Raises ValueError
    if the example does not match the schema.
    """
    try:
        features = Example.FromString(data).features.feature
    except DecodeError as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    chosen = specs if names is None else names
    return {name: _decode_feature(name, specs[name], features) for name in chosen}


def _decode_feature(name: str, spec: FeatureSpec, features: Mapping[str, Feature]) -> Any:
    """Returns the value of one feature; raises ValueError if it does not match the schema."""
    field = _FIELDS[spec.kind]
    items: Any = getattr(features[name], field).value if name in features else ()
    # Optional features may have no value, whatever their shape.
    if not spec.optional and not _fills(len(items), spec.shape or ()):
        expected = " x ".join("any" if n is None else str(n) for n in spec.shape or (1,))
        raise ValueError(f"{name!r}: {len(items)} values in its {field}; expected {expected}")
    if spec.shape is None and not spec.optional:
        return items[0]
    shape = [-1 if n is None else n for n in spec.shape or ()] or [-1]
    # Bytes stay Python objects: NumPy's bytes type strips trailing zero bytes.
    if spec.kind is not Kind.BYTES:
        return np.array(items, _DTYPES[spec.kind]).reshape([-1] if spec.optional else shape)
    return list(items) if len(shape) == 1 else np.array(items, object).reshape(shape).tolist()


def _fills(count: int, shape: tuple[int | None, ...]) -> bool:
    """Returns whether a number of values fills a shape, in which None is any size."""
    whole = math.prod(size for size in shape if size is not None)
    return count % whole == 0 if None in shape else count == whole


def build_sequence(schema: Schema, frames: Sequence[BuiltFrame]) -> SerializedExample:
    """Builds the record of a sequence."""
    rows = [dict(zip(schema.features, frame.values, strict=True)) for frame in frames]
    for name, feature in schema.frame_features.items():
        if feature.source.origin is Origin.FRAME:
            for index, row in enumerate(rows):
                found = {"index": index, "first": not index, "last": index == len(rows) - 1}
                row[name] = int(found[feature.source.name])
    # {frame feature: [value of each frame]}
    lists = {name: [row[name] for row in rows] for name in schema.frame_features}
    context = {name: rows[0][name] for name in schema.context_features}
    first = frames[0].ref
    if schema.has_steps:
        data = _encode_example(schema.features, context | {n: _flat(v) for n, v in lists.items()})
    else:
        data = _encode_sequence(schema.features, context, lists)
    return SerializedExample(
        ref=first._replace(key=first.record_key),
        data=data,
        image_sha256=sequence_digest(frame.image_sha256 for frame in frames),
        frames=tuple(frame._replace(values=()) for frame in frames),
    )


def _flat(values: Iterable[FeatureValue]) -> Any:
    """Returns the values of all frames, one after the other."""
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def sequence_digest(digests: Iterable[str]) -> str:
    """Returns the SHA-256 of the concatenated digests of images; "" for frames without images."""
    joined = b"".join(bytes.fromhex(digest) for digest in digests)
    return hashlib.sha256(joined).hexdigest() if joined else ""


def _encode_sequence(
    specs: Mapping[str, FeatureSpec],
    context: Mapping[str, FeatureValue],
    lists: Mapping[str, Sequence[FeatureValue]],
) -> bytes:
    frames = {
        name: [_encoded_feature(specs[name].kind, value) for value in values]
        for name, values in lists.items()
    }
    parts = _field(_CONTEXT, _encoded_features(specs, context))
    return b"".join([*parts, *(_field(_FEATURE_LISTS, _encoded_lists(frames)) if frames else ())])


def decode_sequence(
    data: bytes, schema: Schema, names: Iterable[str] | None = None
) -> dict[str, Any]:
    """Parses a serialized sequence to the features that the schema declares.

    Context features are as in `decode_example`. Frame features are an array of shape (frames,) or
    (frames, …) for numbers of a fixed shape, or else a list with one item per frame. Raises
    ValueError if the sequence does not match the schema.
    """
    if schema.has_steps:
        found = decode_example(data, schema.features_of_record)
        _check_lengths({name: len(found[name]) for name in schema.frame_features})
        return {name: found[name] for name in (schema.features if names is None else names)}
    try:
        sequence = SequenceExample.FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a tf.train.SequenceExample: {error}") from error
    context, lists = sequence.context.feature, sequence.feature_lists.feature_list
    _check_lengths({name: len(lists[name].feature) for name in schema.frame_features})
    return {
        name: _frames(name, schema.features[name], lists[name])
        if name in schema.frame_features
        else _decode_feature(name, schema.features[name], context)
        for name in (schema.features if names is None else names)
    }


def _check_lengths(lengths: Mapping[str, int]) -> None:
    shortest, longest = min(lengths.values()), max(lengths.values())
    if shortest != longest or not longest:
        counts = ", ".join(f"{name!r} {count}" for name, count in lengths.items())
        raise ValueError(f"its lists do not have one item per frame: {counts}")


def _frames(name: str, spec: FeatureSpec, listed: FeatureList) -> Any:
    values = [_decode_feature(name, spec, {name: feature}) for feature in listed.feature]
    if spec.kind is Kind.BYTES or spec.optional:
        return values
    return np.array(values, np.int64 if spec.kind is Kind.INT64 else np.float32)


# The parts of a serialized message.
_Parts: TypeAlias = list[bytes]


def _tag(number: int) -> bytes:
    return bytes([number << 3 | 2])  # wire type 2: a length, and as many bytes


# The fields of Example, and of SequenceExample.
_FEATURES = _CONTEXT = _tag(1)
_FEATURE_LISTS = _tag(2)

# The fields of Feature; and the only field of its lists, and of the other messages.
_TAGS = {Kind.BYTES: _tag(1), Kind.FLOAT: _tag(2), Kind.INT64: _tag(3)}
_ITEMS = _tag(1)

# The fields of an entry of a map.
_KEY, _VALUE = _tag(1), _tag(2)

_FLOAT = struct.Struct("<f")


def _field(tag: bytes, parts: Sequence[bytes]) -> _Parts:
    """Returns a field of a message."""
    return [_field_header(tag, sum(map(len, parts))), *parts]


@lru_cache(2**14)  # as for the headers of entries below
def _field_header(tag: bytes, size: int) -> bytes:
    """Returns the bytes of a field of a message before its content."""
    return tag + _varint(size)


def _encoded_features(
    specs: Mapping[str, FeatureSpec], values: Mapping[str, FeatureValue]
) -> _Parts:
    """Returns a Features message of a value, a list, or None for an empty list, by name."""
    parts = _Parts()
    for name in _sorted(tuple(values)):
        parts += _entry(name, specs[name].kind, values[name])
    return parts


def _encoded_rows(
    specs: Mapping[str, FeatureSpec], columns: Mapping[str, Sequence[FeatureValue]]
) -> Iterator[tuple[bytes, ...]]:
    """Yields the parts of a Features message for each row: by column, in half of the time."""
    names = _sorted(tuple(columns))
    pairs = (_encoded_column(name, specs[name].kind, columns[name]) for name in names)
    return zip(*(part for pair in pairs for part in pair), strict=True)


def _encoded_column(
    name: str, kind: Kind, values: Sequence[Any]
) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Returns the two parts of the entry of each value."""
    if {list, type(None)}.isdisjoint(map(type, values)):
        tag, items = _TAGS[kind], _items(kind, values)
        sizes = list(map(len, items))
        header_of = {size: _item_header(name, tag, size) for size in set(sizes)}
        return [header_of[size] for size in sizes], items
    headers, contents = zip(*(_entry(name, kind, value) for value in values), strict=True)
    return headers, contents


def _entry(name: str, kind: Kind, value: FeatureValue) -> tuple[bytes, bytes]:
    """Returns the entry of Features of a value, in two parts, so that no image is copied."""
    if value is None or isinstance(value, list):
        content = b"".join(_list(kind, _listed(value)))
        return _entry_header(name, _TAGS[kind], len(content)), content
    (item,) = _items(kind, [value])
    return _item_header(name, _TAGS[kind], len(item)), item


def _encoded_feature(kind: Kind, value: FeatureValue) -> _Parts:
    """Returns a Feature message."""
    return _field(_TAGS[kind], _list(kind, _listed(value)))


def _encoded_lists(lists: Mapping[str, Iterable[_Parts]]) -> _Parts:
    """Returns a FeatureLists message of the Feature messages of each name."""
    parts = _Parts()
    for name in _sorted(tuple(lists)):
        items = [part for feature in lists[name] for part in _field(_ITEMS, feature)]
        entry = [*_field(_KEY, [name.encode()]), *_field(_VALUE, items)]
        parts += _field(_ITEMS, entry)
    return parts


def _varint(number: int) -> bytes:
    """Returns an integer from 0 to 2^64 - 1 in groups of 7 bits, the lowest first."""
    if number < 0x80:
        return _LAST[number]
    groups = b""
    while number >= 0x4000:
        groups += _PAIRS[number & 0x3FFF]
        number >>= 14
    return groups + (_LAST[number] if number < 0x80 else _MORE[number & 0x7F] + _LAST[number >> 7])


# A last group, a group that is followed by more, and two of them.
_LAST = [bytes([group]) for group in range(0x80)]
_MORE = [bytes([group | 0x80]) for group in range(0x80)]
_PAIRS = [low + high for high in _MORE for low in _MORE]


def _listed(value: FeatureValue) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _items(kind: Kind, values: Sequence[Any]) -> Sequence[bytes]:
    if kind is Kind.BYTES:
        return values
    if kind is Kind.FLOAT:
        return list(map(_FLOAT.pack, values))
    # Negative numbers are encoded as their two's complement of 64 bits.
    return [_varint(value & 0xFFFFFFFFFFFFFFFF) for value in values]


def _list(kind: Kind, values: Sequence[Any]) -> _Parts:
    items = _items(kind, values)
    if kind is Kind.BYTES:
        return [part for item in items for part in _field(_ITEMS, [item])]
    return _field(_ITEMS, [b"".join(items)]) if items else []  # numbers are packed


# The values of a feature have few sizes; those of images are many, but cost little in comparison.
@lru_cache(2**14)
def _entry_header(name: str, tag: bytes, size: int) -> bytes:
    """Returns the bytes of an entry of Features before the content of its list."""
    header = tag + _varint(size)
    key = b"".join(_field(_KEY, [name.encode()]))
    value = _VALUE + _varint(len(header) + size)
    return _ITEMS + _varint(len(key) + len(value) + len(header) + size) + key + value + header


@lru_cache(2**14)
def _item_header(name: str, tag: bytes, size: int) -> bytes:
    """Returns the bytes of an entry of Features before the only item of its list."""
    header = _ITEMS + _varint(size)
    return _entry_header(name, tag, len(header) + size) + header


@lru_cache
def _sorted(names: tuple[str, ...]) -> list[str]:
    """Returns the keys of a map in protobuf's order: "image/format" precedes "image"."""
    return sorted(names, key=lambda name: name.encode() + b"\xff")  # a byte that is not in UTF-8
