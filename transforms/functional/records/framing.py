"""Reads the framing of TFRecord files without TensorFlow, and locates damaged records.

A record is its length (uint64), the masked CRC32C of that, the data, and the masked CRC32C of the
data, all little-endian. Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import BinaryIO, NamedTuple

import google_crc32c

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
MAX_RECORD_BYTES = 2**31 - 1
"""TensorFlow parses no message above 2 GiB: a greater length is damage, and is not read."""

_CHUNK_BYTES = 16 * 2**20
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")


class FrameError(Exception):
    """A record is damaged.

    Attributes:
        record: the record's number, from 0.
        offset: the byte offset of its frame.
        ends: whether the records after it cannot be located.
    """

    def __init__(self, record: int, offset: int, what: str, ends: bool = True) -> None:
        super().__init__(what)
        self.record = record
        self.offset = offset
        self.ends = ends


class Frame(NamedTuple):
    """One intact record.

    Attributes:
        record: the record's number, from 0.
        offset: the byte offset of its frame.
        data: the record's data.
    """

    record: int
    offset: int
    data: bytes


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC32C of some bytes, as TFRecord stores it."""
    crc: int = google_crc32c.value(data)
    # Rotated and offset, as the checksum of data that contains checksums is weak.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_frames(stream: BinaryIO) -> Iterator[Frame]:
    """Yields every record of an uncompressed TFRecord file.

    Raises:
        FrameError: at the first record that is truncated or has a checksum mismatch.
    """
    for found in read_frames_or_errors(stream):
        if isinstance(found, FrameError):
            raise found
        yield found


def read_frames_or_errors(stream: BinaryIO) -> Iterator[Frame | FrameError]:
    """Yields every record of an uncompressed TFRecord file, and an error for each damaged one.

    Continues after a record whose data is damaged; ends where the next cannot be located.
    """
    record = offset = 0
    while header := stream.read(HEADER_BYTES):
        try:
            length = _length(header)
            data, footer = _read(stream, length), stream.read(FOOTER_BYTES)
            if len(data) < length or len(footer) < FOOTER_BYTES:
                raise ValueError(f"the file ends within the record of {length} bytes")
        except ValueError as error:
            yield FrameError(record, offset, str(error))
            return
        # The length is intact, so a damaged record can be skipped.
        if _FOOTER.unpack(footer)[0] == masked_crc32c(data):
            yield Frame(record, offset, data)
        else:
            what = "the checksum of the record's data does not match"
            yield FrameError(record, offset, what, ends=False)
        record += 1
        offset += length + FRAME_BYTES


def _read(stream: BinaryIO, size: int) -> bytes:
    """Reads up to `size` bytes, in chunks: a false length must not allocate gigabytes."""
    if size <= _CHUNK_BYTES:
        return stream.read(size)
    pieces, left = list[bytes](), size
    while left and (piece := stream.read(min(left, _CHUNK_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


@lru_cache(1024)  # small records have few lengths: their headers need to be checked only once
def _length(header: bytes) -> int:
    if len(header) < HEADER_BYTES:
        raise ValueError("the file ends within the record's length")
    length, crc = _HEADER.unpack(header)
    if crc != masked_crc32c(header[:8]) or length > MAX_RECORD_BYTES:
        raise ValueError("the checksum of the record's length does not match")
    return int(length)
