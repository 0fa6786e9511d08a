"""Decompresses files by their content: gzip, and the zlib streams that TensorFlow calls ZLIB."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any, BinaryIO, Literal, TypeAlias, cast

from recordmill.transforms.functional.records.framing import HEADER_BYTES, is_record_header

# Enough for the first bytes of the content, behind the name in a gzip header and Huffman tables.
HEAD_BYTES = 4096

_CHUNK_BYTES = 2**16

Compression: TypeAlias = Literal["", "gzip", "zlib"]


def compression_of(head: bytes) -> Compression:
    """Returns how a file is compressed, by its first bytes."""
    # The signatures can be the length of a record, which is followed by its checksum.
    if is_record_header(head):
        return ""
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    # RFC 1950: compression method 8, and a 16-bit header that is a multiple of 31.
    has_header = len(head) >= HEADER_BYTES and head[0] & 15 == 8
    return "zlib" if has_header and not int.from_bytes(head[:2], "big") % 31 else ""


def is_tfrecord(head: bytes) -> bool:
    """Returns whether a file begins with a record, possibly compressed, by its first bytes."""
    if not compression_of(head):
        return is_record_header(head)
    try:  # 32 + 15: with the header of gzip or zlib
        return is_record_header(zlib.decompressobj(47).decompress(head, HEADER_BYTES))
    except zlib.error:
        return False


def decompressed(stream: BinaryIO) -> BinaryIO:
    """Returns the content of a seekable stream at its start, buffered if it is compressed."""
    found = compression_in(stream)
    unpacked = unpack(stream, found)
    return cast("BinaryIO", io.BufferedReader(cast("Any", unpacked))) if found else stream


def compression_in(stream: BinaryIO) -> Compression:
    """Returns how a seekable stream at its start is compressed."""
    head = stream.read(HEADER_BYTES)
    stream.seek(0)
    return compression_of(head)


def unpack(stream: BinaryIO, compression: Compression) -> BinaryIO:
    """Returns the uncompressed content of a stream, without a buffer."""
    if not compression:
        return stream
    is_gzip = compression == "gzip"
    return cast("BinaryIO", gzip.GzipFile(fileobj=stream) if is_gzip else _Inflating(stream))


class _Inflating(io.RawIOBase):
    """The decompressed content of a zlib stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._inflate = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data and not self._inflate.eof:
            # decompress() limits its output, and keeps the unused input as unconsumed_tail.
            packed = self._inflate.unconsumed_tail or self._stream.read(_CHUNK_BYTES)
            if not packed:
                raise EOFError("the file ends within the zlib stream")
            data = self._inflate.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
