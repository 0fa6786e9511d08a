"""Checks what the messages of an Arrow table state of their buffers before they are decoded.

Each compressed buffer begins with its uncompressed length, which zstd can reach from a few bytes.
Metadata is a FlatBuffers table; fields are numbered as in
https://github.com/apache/arrow/blob/main/format/Message.fbs and File.fbs beside it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from recordmill.transforms.functional.sources.parquet_footer import (
    MAX_BYTES,
    MAX_BYTES_PER_BYTE,
    check_values,
)

SIGNATURE = b"ARROW1"
CONTINUATION = b"\xff" * 4

# The maximum bytes of all buffers of a message that is compressed to few bytes.
_MESSAGE_BYTES = 4 * MAX_BYTES

_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_KIND, _HEADER, _BODY_BYTES = 1, 2, 3  # fields of a message
_DICTIONARY_BATCH = 1  # field of a dictionary
_NODES, _BUFFERS, _COMPRESSION = 1, 2, 3  # fields of a batch
_DICTIONARY_BLOCKS, _BATCH_BLOCKS = 2, 3  # fields of a footer
_TAIL_BYTES = 4 + len(SIGNATURE)  # int32 length of the footer, "ARROW1"


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
    """Returns the number of the first batch that would take too much memory, and why.

    Returns None if there is none before damage, which Arrow reports. Dictionaries count to the
    batch that follows. The position of the stream does not change.
    """
    before, number = stream.tell(), 0
    nested = list(_nested(schema))
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
        end = stream.seek(-_TAIL_BYTES, io.SEEK_END)
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
    kind = message.number(_KIND, "<B")
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


def _nested(schema: pa.Schema) -> Iterator[str | None]:
    """Yields the column of each node of a batch that is within a list; None for other nodes."""
    for field in schema:
        yield from _nodes(field.type, field.name, None)


def _nodes(type_: pa.DataType, name: str, found: str | None) -> Iterator[str | None]:
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    yield found
    if not pa.types.is_struct(type_):
        found = name
    for i in range(type_.num_fields):
        yield from _nodes(type_.field(i).type, name, found)
