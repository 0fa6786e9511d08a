"""Reads from the footer of a Parquet file how many values its nested columns have.

A list may have a billion equal items in a few hundred bytes, and a row is read as a whole. The
metadata that pyarrow has of a column states their number, too, but aborts the process if the column
is damaged.

The footer is a struct in Thrift's compact protocol; its fields are those of `FileMetaData` in
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

import io
import struct
from typing import Any, BinaryIO

# The maximum number of values of a nested column of a row group, and per byte of its pages. Images
# as lists of numbers, which may be compressed well, have 20 to 40 per byte.
_VALUES, _VALUES_PER_BYTE = 4_000_000, 100

_TAIL_BYTES = 8  # int32 length of the footer, "PAR1"
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3  # ids of fields
_PATH, _NUM_VALUES, _COMPRESSED_BYTES = 3, 5, 7
_MAX_LEVELS = 32


def check_nested_values(stream: BinaryIO, group: int, nested: frozenset[str]) -> None:
    """Raises ValueError if a nested column of a row group has too many values for its bytes.

    `nested` has the paths of nested columns, such as "box.list.element".
    """
    if not nested:
        return
    try:
        columns = [column[_METADATA] for column in _footer(stream)[_ROW_GROUPS][group][_COLUMNS]]
        found = [
            (b".".join(column[_PATH]).decode(), column[_NUM_VALUES], column[_COMPRESSED_BYTES])
            for column in columns
        ]
        many = [c for c in found if c[0] in nested and c[1] > max(_VALUES, _VALUES_PER_BYTE * c[2])]
    except (LookupError, TypeError, AttributeError, struct.error) as error:
        raise ValueError("its footer is damaged") from error
    for path, values, size in many:
        what = f"{values:,} values in {size:,} bytes"
        expected = f"expected at most {_VALUES_PER_BYTE} per byte"
        raise ValueError(f"column {path!r} has {what}; {expected}")


def _footer(stream: BinaryIO) -> dict[int, Any]:
    end = stream.seek(-_TAIL_BYTES, io.SEEK_END)
    (length,) = struct.unpack("<i", stream.read(4))
    stream.seek(max(0, end - length))
    return _fields(stream.read(length), 0, 0)[0]


def _fields(data: bytes, at: int, level: int) -> tuple[dict[int, Any], int]:
    """Returns the fields of a struct by id, and the position after it."""
    found, field = dict[int, Any](), 0
    while header := data[at]:
        at += 1
        if header >> 4:
            field += header >> 4
        else:
            number, at = _varint(data, at)
            field = (number >> 1) ^ -(number & 1)
        kind = header & 15
        found[field], at = (kind == 1, at) if kind in (1, 2) else _value(kind, data, at, level)
    return found, at + 1


def _value(kind: int, data: bytes, at: int, level: int) -> tuple[Any, int]:
    """Returns a value of one of Thrift's compact types, and the position after it."""
    if level > _MAX_LEVELS:
        raise ValueError("its footer is nested too deeply")
    if kind in (1, 2, 3):  # booleans in lists, bytes
        return data[at], at + 1
    if kind in (4, 5, 6):  # integers
        number, at = _varint(data, at)
        return (number >> 1) ^ -(number & 1), at
    if kind == 7:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind == 8:  # bytes and text
        size, at = _varint(data, at)
        return data[at : at + size], at + size
    if kind in (9, 10):  # lists and sets
        size, item = data[at] >> 4, data[at] & 15
        size, at = _varint(data, at + 1) if size == 15 else (size, at + 1)
        items = []
        for _ in range(size):
            value, at = _value(item, data, at, level + 1)
            items.append(value)
        return items, at
    if kind == 12:
        return _fields(data, at, level + 1)
    raise ValueError(f"its footer has a value of the unknown type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError("its footer has a number of more than 64 bits")
