"""Reads the framing of TFRecord files without TensorFlow, and locates damaged records.

A frame is the length of the data (uint64), the masked CRC32C of the length, the data, and the
masked CRC32C of the data, all little-endian. Source: tensorflow/core/lib/io/record_writer.h.
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

# TensorFlow does not parse messages above 2 GiB, so a larger length is treated as damage.
MAX_RECORD_BYTES = 2**31 - 1

_CHUNK_BYTES = 16 * 2**20
_HEADER = struct.Struct("<QI")  # length of the data, masked CRC32C of the 8 bytes of the length
_FOOTER = struct.Struct("<I")  # masked CRC32C of the data


class FrameError(Exception):
    """The error for a damaged record.

    Attributes:
        record: the number of the record, from 0.
        offset: the byte offset of its frame.
        ends: whether the records after it cannot be located.
    """

    def __init__(self, record: int, offset: int, what: str, ends: bool = True) -> None:
        super().__init__(what)
        self.record = record
        self.offset = offset
        self.ends = ends


class Frame(NamedTuple):
    """An intact record.

    Attributes:
        record: the number of the record, from 0.
        offset: the byte offset of its frame.
        data: the serialized message.
    """

    record: int
    offset: int
    data: bytes


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC32C of data."""
    crc: int = google_crc32c.value(data)
    # tensorflow/core/lib/hash/crc32c.h: rotated right by 15 bits, plus kMaskDelta, because the
    # plain CRC of a string that contains CRCs is problematic.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_frames(stream: BinaryIO) -> Iterator[Frame]:
    """Yields each record of an uncompressed TFRecord file.

    Raises:
        FrameError: at the first record that is truncated or has a checksum mismatch.
    """
    for found in read_frames_or_errors(stream):
        if isinstance(found, FrameError):
            raise found
        yield found


def read_frames_or_errors(stream: BinaryIO) -> Iterator[Frame | FrameError]:
    """Yields each record of an uncompressed TFRecord file, or its error if it is damaged.

    Continues after a record with damaged data, and ends where the next record cannot be located.
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
        # The length is verified, so the next record can be located even after damaged data.
        if _FOOTER.unpack(footer)[0] == masked_crc32c(data):
            yield Frame(record, offset, data)
        else:
            what = "the checksum of the record's data does not match"
            yield FrameError(record, offset, what, ends=False)
        record += 1
        offset += length + FRAME_BYTES


def _read(stream: BinaryIO, size: int) -> bytes:
    """Reads up to `size` bytes in chunks, so that a wrong length does not allocate gigabytes."""
    if size <= _CHUNK_BYTES:
        return stream.read(size)
    pieces, left = list[bytes](), size
    while left and (piece := stream.read(min(left, _CHUNK_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


@lru_cache(1024)  # small records have few distinct lengths, and so few distinct headers
def _length(header: bytes) -> int:
    """Returns the length of the data of a record in bytes.

    Raises:
        ValueError: if the header is truncated or its checksum does not match.
    """
    if len(header) < HEADER_BYTES:
        raise ValueError("the file ends within the record's length")
    length, crc = _HEADER.unpack(header)
    if crc != masked_crc32c(header[:8]) or length > MAX_RECORD_BYTES:
        raise ValueError("the checksum of the record's length does not match")
    return int(length)
