"""Serializes `Example` and `SequenceExample` in protobuf's wire format.

The bytes are those of protobuf's own deterministic serialization, which needs several calls for
each value, and copies each image twice. Messages are lists of parts, which are joined once.
Format: https://protobuf.dev/programming-guides/encoding/, and `schemas/example.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from recordmill.schemas.features import Feature
from recordmill.schemas.origins import Kind
from recordmill.schemas.records import FeatureValue

# The parts of a serialized message.
Parts: TypeAlias = list[bytes]


def _tag(number: int) -> bytes:
    return bytes([number << 3 | 2])  # wire type 2: a length, and as many bytes


# The fields of Example, and of SequenceExample.
FEATURES = CONTEXT = _tag(1)
FEATURE_LISTS = _tag(2)

# The fields of Feature; and the only field of its lists, and of the other messages.
_TAGS = {Kind.BYTES: _tag(1), Kind.FLOAT: _tag(2), Kind.INT64: _tag(3)}
_ITEMS = _tag(1)

# The fields of an entry of a map.
_KEY, _VALUE = _tag(1), _tag(2)

_FLOAT = struct.Struct("<f")


def field(tag: bytes, parts: Sequence[bytes]) -> Parts:
    """Returns a field of a message."""
    return [field_header(tag, sum(map(len, parts))), *parts]


@lru_cache(2**14)  # as for the headers of entries below
def field_header(tag: bytes, size: int) -> bytes:
    """Returns the bytes of a field of a message before its content."""
    return tag + _varint(size)


def encoded_features(specs: Mapping[str, Feature], values: Mapping[str, FeatureValue]) -> Parts:
    """Returns a Features message of a value, a list, or None for an empty list, by name."""
    parts = Parts()
    for name in _sorted(tuple(values)):
        parts += _entry(name, specs[name].kind, values[name])
    return parts


def encoded_rows(
    specs: Mapping[str, Feature], columns: Mapping[str, Sequence[FeatureValue]]
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


def encoded_feature(kind: Kind, value: FeatureValue) -> Parts:
    """Returns a Feature message."""
    return field(_TAGS[kind], _list(kind, _listed(value)))


def encoded_lists(lists: Mapping[str, Iterable[Parts]]) -> Parts:
    """Returns a FeatureLists message of the Feature messages of each name."""
    parts = Parts()
    for name in _sorted(tuple(lists)):
        items = [part for feature in lists[name] for part in field(_ITEMS, feature)]
        entry = [*field(_KEY, [name.encode()]), *field(_VALUE, items)]
        parts += field(_ITEMS, entry)
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


def _list(kind: Kind, values: Sequence[Any]) -> Parts:
    items = _items(kind, values)
    if kind is Kind.BYTES:
        return [part for item in items for part in field(_ITEMS, [item])]
    return field(_ITEMS, [b"".join(items)]) if items else []  # numbers are packed


# The values of a feature have few sizes; those of images are many, but cost little in comparison.
@lru_cache(2**14)
def _entry_header(name: str, tag: bytes, size: int) -> bytes:
    """Returns the bytes of an entry of Features before the content of its list."""
    header = tag + _varint(size)
    key = b"".join(field(_KEY, [name.encode()]))
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
