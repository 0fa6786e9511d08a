"""Decompresses files by their content: as shards are, or the zlib streams of TensorFlow's ZLIB."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, TypeAlias, cast

from recordmill.schemas.shard_format import DAMAGED_STREAM, SHARD_FORMATS
from recordmill.transforms.functional.records.framing import HEADER_BYTES, is_record_header

# Enough for the first bytes of the content, behind the name in a gzip header and Huffman tables.
HEAD_BYTES = 4096

_CHUNK_BYTES = 2**16

# The maximum bytes of a record in a compressed file, and per byte of the file: one of numbers may
# take eight times as much when it is parsed.
_RECORD_BYTES, _RECORD_BYTES_PER_BYTE = 64 * 2**20, 100

# The window bits for gzip, and its first bytes.
_GZIP, _SIGNATURE = 16 + zlib.MAX_WBITS, SHARD_FORMATS["gzip"].signature

_Unpack: TypeAlias = Callable[[BinaryIO], BinaryIO]


def unpacker_of(head: bytes) -> _Unpack | None:
    """Returns the decompressor of a file by its first bytes; None if it is not compressed."""
    # The signatures can be the length of a record, which is followed by its checksum.
    if is_record_header(head):
        return None
    for found in SHARD_FORMATS.values():
        if found.signature and head.startswith(found.signature):
            return found.unpack
    # RFC 1950: compression method 8, and a 16-bit header that is a multiple of 31.
    is_long = len(head) >= HEADER_BYTES or head[2:] == zlib.compress(b"")[2:]  # without records
    is_zlib = is_long and head[0] & 15 == 8 and not int.from_bytes(head[:2], "big") % 31
    return cast("_Unpack", _Inflating) if is_zlib else None


def is_tfrecord(head: bytes) -> bool:
    """Returns whether a file begins with a record, possibly compressed, by its first bytes."""
    with suppress(*DAMAGED_STREAM):
        return is_record_header(decompressed(io.BytesIO(head)).read(HEADER_BYTES))
    return False


class _Unpacked(io.BufferedReader):
    """The content of a compressed file."""


def decompressed(stream: BinaryIO, strict: bool = False) -> BinaryIO:
    """Returns the content of a seekable stream at its start, buffered if it is compressed.

    A compressed stream has the attribute `largest_record`, the maximum bytes of a record in it.
    If `strict`, all bytes before damage are read, and zeros after gzip are damage, as they are for
    TensorFlow; other tools pad tables with them.
    """
    if (unpack := unpacker_in(stream)) is None:
        return stream
    stored = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    is_gzip = unpack is SHARD_FORMATS["gzip"].unpack
    unpacked: Any = _Inflating(stream, _GZIP) if strict and is_gzip else unpack(stream)
    if not (strict and hasattr(unpacked, "read1")):
        size = _CHUNK_BYTES if strict else io.DEFAULT_BUFFER_SIZE
        unpacked = _Unpacked(unpacked, size)
    unpacked.largest_record = max(_RECORD_BYTES, _RECORD_BYTES_PER_BYTE * stored)
    return cast("BinaryIO", unpacked)


def unpacker_in(stream: BinaryIO) -> _Unpack | None:
    """Returns the decompressor of a seekable stream at its start; None if it is not compressed."""
    head = stream.read(HEADER_BYTES)
    stream.seek(0)
    return unpacker_of(head)


class _Inflating(io.RawIOBase):
    """The decompressed content of a zlib stream, or of the members of a gzip file."""

    def __init__(self, stream: BinaryIO, window_bits: int = zlib.MAX_WBITS) -> None:
        self._stream, self._window_bits = stream, window_bits
        self._inflate = zlib.decompressobj(window_bits)
        self._error: zlib.error | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            if self._error:
                raise self._error
            # decompress() limits its output, and keeps the unused input.
            rest = self._inflate.unconsumed_tail or self._inflate.unused_data
            packed = rest or self._stream.read(_CHUNK_BYTES)
            if self._inflate.eof:
                if not packed:
                    return 0
                self._begin_member(packed)
            elif not packed:
                raise EOFError("the file ends within the compressed stream")
            data = self._inflated(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _begin_member(self, packed: bytes) -> None:
        # TensorFlow reads the members of a gzip file, but nothing after a zlib stream.
        if self._window_bits != _GZIP or packed[0] != _SIGNATURE[0]:
            kind = "other bytes" if packed.strip(b"\0") else "zeros"
            raise zlib.error(f"{kind} follow the end of the stream")
        self._inflate = zlib.decompressobj(self._window_bits)

    def _inflated(self, packed: bytes, size: int) -> bytes:
        before = self._inflate.copy()
        try:
            return self._inflate.decompress(packed, size)
        except zlib.error as error:
            # The error is raised after all that precedes it, which zlib drops.
            self._error, data = error, bytearray()
            with suppress(zlib.error):
                for byte in packed:
                    data += before.decompress(bytes([byte]))
            return bytes(data[:size])

    def close(self) -> None:
        self._stream.close()
        super().close()
