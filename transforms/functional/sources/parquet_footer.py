"""Checks what a Parquet file states of its columns and pages before they are decoded.

Arrow reads a row and a page as a whole: a list may have a billion equal items in a few hundred
bytes, and a page of a few kB may expand to gigabytes. The metadata that pyarrow has of a column
states the numbers of the footer, too, but aborts the process if the column is damaged, and the
headers of pages may state others.

The footer and each header are structs in Thrift's compact protocol; their fields are those of
`FileMetaData` and `PageHeader` in
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

# The maximum number of values of the nested columns of a row group, and per byte of their pages.
# Images as lists of numbers, which may be compressed well, have 20 to 40 per byte.
_VALUES, _VALUES_PER_BYTE = 4_000_000, 100

# The maximum bytes of a page, and per byte that it is compressed to; larger pages hold images.
MAX_BYTES, MAX_BYTES_PER_BYTE = 64 * 2**20, 100

_TAIL_BYTES = 8  # int32 length of the footer, "PAR1"
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3  # ids of fields
_PATH, _NUM_VALUES, _COMPRESSED_BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 3, 5, 7, 9, 11
_KIND, _PAGE_BYTES, _STORED_BYTES, _DICTIONARY = 1, 2, 3, 2  # ids, and the kind of a dictionary
_MAX_LEVELS = 32

# A header contains two values of its page; Arrow reads at most 16 MiB.
_HEADER_BYTES, _MAX_HEADER_BYTES = 256, 16 * 2**20


class ColumnPages(NamedTuple):
    """The pages of a column in a row group."""

    path: str  # such as "box.list.element"
    values: int
    size: int  # compressed
    start: int

    def check(self, stream: BinaryIO) -> int:
        """Returns the bytes of the largest dictionary; raises ValueError at what is too large."""
        largest = 0
        for kind, size, stored in self._pages(stream):
            if size > max(MAX_BYTES, MAX_BYTES_PER_BYTE * stored):
                what = f"a page of {size:,} bytes in {stored:,}"
                expected = f"expected at most {MAX_BYTES_PER_BYTE} per byte"
                raise ValueError(f"column {self.path!r} has {what}; {expected}")
            largest = max(largest, size if kind == _DICTIONARY else 0)
        return largest

    def _pages(self, stream: BinaryIO) -> Iterator[tuple[int, int, int]]:
        """Yields (kind, bytes, compressed bytes) of each page before the end, or before damage."""
        at, end = self.start, self.start + self.size
        while 0 < at < end and (found := _page_header(stream, at)):
            fields, length = found
            kind, size, stored = (fields.get(i) for i in (_KIND, _PAGE_BYTES, _STORED_BYTES))
            if not (isinstance(kind, int) and isinstance(size, int) and isinstance(stored, int)):
                return  # Arrow reports it, as all other damage
            if stored < 0:
                return
            yield kind, size, stored
            at += length + stored


def check_values(columns: Sequence[str], values: int, size: int) -> None:
    """Raises ValueError if nested columns have too many values for their bytes."""
    if values > max(_VALUES, _VALUES_PER_BYTE * size):
        paths = ", ".join(map(repr, columns[:3]))
        what = f"{values:,} values in {size:,} bytes"
        raise ValueError(f"{paths}: {what}; expected at most {_VALUES_PER_BYTE} per byte")


def pages_of_group(stream: BinaryIO, group: int) -> dict[str, ColumnPages]:
    """Returns the columns of a row group by path; raises ValueError if the footer is damaged."""
    end = stream.seek(-_TAIL_BYTES, io.SEEK_END)
    (length,) = struct.unpack("<i", stream.read(4))
    stream.seek(max(0, end - length))
    try:
        return _columns_of_groups(stream.read(length))[group]
    except (LookupError, TypeError, AttributeError, UnicodeDecodeError, struct.error) as error:
        raise ValueError("its footer is damaged") from error


@lru_cache(4)  # each row group is read on its own
def _columns_of_groups(footer: bytes) -> list[dict[str, ColumnPages]]:
    groups = _fields(footer, 0, 0)[0][_ROW_GROUPS]
    return [_columns([column[_METADATA] for column in group[_COLUMNS]]) for group in groups]


def _columns(found: list[dict[int, Any]]) -> dict[str, ColumnPages]:
    columns = dict[str, ColumnPages]()
    for column in found:
        path, start = b".".join(column[_PATH]).decode(), column[_DATA_OFFSET]
        # As Arrow does: some writers state 0 for no dictionary. Arrow states 0 for no data.
        if 0 < (dictionary := column.get(_DICTIONARY_OFFSET, 0)) < (start or dictionary + 1):
            start = dictionary
        columns[path] = ColumnPages(path, column[_NUM_VALUES], column[_COMPRESSED_BYTES], start)
    return columns


def _page_header(stream: BinaryIO, at: int) -> tuple[dict[int, Any], int] | None:
    """Returns the fields of the header at a position, and its length; None if it is damaged."""
    size = _HEADER_BYTES
    while size <= _MAX_HEADER_BYTES:
        stream.seek(at)
        data = stream.read(size)
        try:
            return _fields(data, 0, 0)
        except (IndexError, struct.error):
            if len(data) < size:
                return None
            size *= 16
    return None


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
        raise ValueError("its metadata is nested too deeply")
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
    raise ValueError(f"its metadata has a value of the unknown type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError("its metadata has a number of more than 64 bits")
