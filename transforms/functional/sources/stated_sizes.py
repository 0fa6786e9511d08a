"""Checks the sizes that Parquet and Arrow files state before anything of that size is decoded.

Arrow reads a row and a page as a whole: a list may have a billion equal items in a few hundred
bytes, and a page of a few kB may expand to gigabytes. The metadata that pyarrow has of a column
states the numbers of the footer, too, but aborts the process if the column is damaged, and the
headers of pages may state others.

The footer of Parquet and the header of each page are structs in Thrift's compact protocol, with the
fields of `FileMetaData` and `PageHeader` in
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift. The messages of
an Arrow table are FlatBuffers tables, with fields numbered as in
https://github.com/apache/arrow/blob/main/format/Message.fbs and File.fbs beside it; each compressed
buffer begins with its uncompressed length.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

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

SIGNATURE = b"ARROW1"
CONTINUATION = b"\xff" * 4

# The maximum bytes of all buffers of a message that is compressed to few bytes.
_MESSAGE_BYTES = 4 * MAX_BYTES

_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_MESSAGE_KIND, _HEADER, _BODY_BYTES = 1, 2, 3  # fields of a message
_DICTIONARY_BATCH = 1  # field of a dictionary
_NODES, _BUFFERS, _COMPRESSION = 1, 2, 3  # fields of a batch
_DICTIONARY_BLOCKS, _BATCH_BLOCKS = 2, 3  # fields of a footer
_FOOTER_TAIL_BYTES = 4 + len(SIGNATURE)  # int32 length of the footer, "ARROW1"


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


class _Table(NamedTuple):
    """A FlatBuffers table: its bytes, and where it begins in them."""

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, *struct.unpack_from("<I", data))

    def position(self, field: int) -> int | None:
        """Returns where a field is; None if it is absent."""
        fields = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        (size,) = struct.unpack_from("<H", self.data, fields)
        slot = 4 + 2 * field
        offset = struct.unpack_from("<H", self.data, fields + slot)[0] if slot < size else 0
        return self.at + offset if offset else None

    def number(self, field: int, format_: str) -> int:
        at = self.position(field)
        return 0 if at is None else int(struct.unpack_from(format_, self.data, at)[0])

    def table(self, field: int) -> _Table:
        at = self.position(field) or 0
        return _Table(self.data, at + struct.unpack_from("<I", self.data, at)[0])

    def structs(self, field: int, format_: str) -> Iterator[tuple[Any, ...]]:
        at = self.position(field)
        if at is None:
            return iter(())
        at += struct.unpack_from("<I", self.data, at)[0]
        (count,) = struct.unpack_from("<I", self.data, at)
        size = count * struct.calcsize(format_)
        return struct.iter_unpack(format_, self.data[at + 4 : at + 4 + size])


class _Message(NamedTuple):
    kind: int
    header: _Table
    body: int  # its start in the file
    size: int  # the bytes of its body


def first_too_large(stream: BinaryIO, schema: pa.Schema) -> tuple[int, str] | None:
    """Returns the first batch that would take too much memory, and why; None before other damage.

    Dictionaries count to the batch that follows. The position of the stream does not change.
    """
    before, number = stream.tell(), 0
    nested = [found for field in schema for found in _nodes(field.type, field.name, None)]
    try:
        for message in _messages(stream):
            try:
                _check(stream, message, nested)
            except ValueError as error:
                return number, f"{error}. Write it in smaller batches."
            number += message.kind == _BATCH
    except (struct.error, IndexError, EOFError, OSError):
        pass
    finally:
        stream.seek(before)
    return None


def _messages(stream: BinaryIO) -> Iterator[_Message]:
    """Yields the messages that Arrow reads: of a stream, or those that a footer lists."""
    stream.seek(0)
    if stream.read(len(SIGNATURE)) == SIGNATURE:
        end = stream.seek(-_FOOTER_TAIL_BYTES, io.SEEK_END)
        (length,) = struct.unpack("<i", stream.read(4))
        stream.seek(max(0, end - length))
        footer = _Table.root(stream.read(max(0, length)))
        for field in (_DICTIONARY_BLOCKS, _BATCH_BLOCKS):
            for start, _, _ in footer.structs(field, "<qi4xq"):
                if start >= 0 and (message := _message(stream, start)):
                    yield message
        return
    at = 0
    while message := _message(stream, at):
        yield message
        at = message.body + message.size


def _message(stream: BinaryIO, at: int) -> _Message | None:
    """Returns the message at a position; None for the end of the stream."""
    stream.seek(at)
    head = stream.read(4)
    # Before version 0.15, messages began with their size.
    head, start = (stream.read(4), at + 8) if head == CONTINUATION else (head, at + 4)
    size = struct.unpack("<i", head)[0] if len(head) == 4 else 0
    if size <= 0:
        return None
    message = _Table.root(stream.read(size))
    kind = message.number(_MESSAGE_KIND, "<B")
    return _Message(
        kind, message.table(_HEADER), start + size, max(0, message.number(_BODY_BYTES, "<q"))
    )


def _check(stream: BinaryIO, message: _Message, nested: list[str | None]) -> None:
    """Raises ValueError if a message would take far more memory than its bytes."""
    if message.kind not in (_DICTIONARY, _BATCH):
        return
    is_batch = message.kind == _BATCH
    batch = message.header if is_batch else message.header.table(_DICTIONARY_BATCH)
    lengths = [length for length, _ in batch.structs(_NODES, "<qq")]
    if not is_batch:  # its first node is the dictionary itself
        nested = [None, *["a dictionary"] * (len(lengths) - 1)]
    found = [(name, n) for name, n in zip(nested, lengths, strict=False) if name is not None]
    names = list(dict.fromkeys(name for name, _ in found))
    check_values(names, sum(n for _, n in found), message.size)
    if batch.position(_COMPRESSION) is None:
        return
    total = 0
    for offset, stored in batch.structs(_BUFFERS, "<qq"):
        if stored < 8 or offset < 0:
            continue
        stream.seek(message.body + offset)
        (size,) = struct.unpack("<q", stream.read(8))
        total += max(0, size)
        _check_size("a buffer", size, MAX_BYTES, stored)
    _check_size("a batch", total, _MESSAGE_BYTES, message.size)


def _check_size(what: str, size: int, most: int, stored: int) -> None:
    if size > max(most, MAX_BYTES_PER_BYTE * stored):
        found = f"{what} of {size:,} bytes in {stored:,}"
        raise ValueError(f"it has {found}; expected at most {MAX_BYTES_PER_BYTE} per byte")


def _nodes(type_: pa.DataType, name: str, found: str | None) -> Iterator[str | None]:
    """Yields the column of each node of a batch that is within a list; None for other nodes."""
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    yield found
    if not pa.types.is_struct(type_):
        found = name
    for i in range(type_.num_fields):
        yield from _nodes(type_.field(i).type, name, found)
