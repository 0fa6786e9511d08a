"""Reads the framing of TFRecord files, which may be compressed, and locates damaged records.

A frame is the length of the data (uint64), the masked CRC32C of the length, the data, and the
masked CRC32C of the data, all little-endian. Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BufferedReader, FileIO
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

import google_crc32c

from recordmill.schemas.shard_format import DAMAGED_STREAM, SHARD_FORMATS

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

# TensorFlow does not parse messages above 2 GiB, so a larger length is treated as damage.
MAX_RECORD_BYTES = 2**31 - 1

_CHUNK_BYTES = 16 * 2**20

# Records from this size on are read one by one: to cut them from a buffer takes longer.
_LARGE_BYTES = 2**14
_HEADER = struct.Struct("<QI")  # length of the data, masked CRC32C of the 8 bytes of the length
_FOOTER = struct.Struct("<I")  # masked CRC32C of the data

# The upper half of a length, which is below 2^31, is four zero bytes.
_ZEROS = re.compile(rb"\0{4,}")

# Zeros at the end of lost bytes are reported from this number on: half of the sector of a disk.
_MIN_ZEROS = 256


class FrameError(Exception):
    """The error for a damaged record; `ends` if the records after it cannot be located.

    `record` is its number from 0, and `size` the bytes up to the next; None if not searched for.
    """

    def __init__(
        self, record: int, offset: int, what: str, ends: bool = True, size: int | None = None
    ) -> None:
        super().__init__(what)
        self.record = record
        self.offset = offset
        self.ends = ends
        self.size = size


class Frame(NamedTuple):
    """An intact record."""

    record: int  # the number of the record, from 0
    offset: int
    data: bytes

    @property
    def start(self) -> int:
        """The first byte of the data."""
        return self.offset + HEADER_BYTES

    @property
    def stop(self) -> int:
        """The first byte of the next frame."""
        return self.offset + FRAME_BYTES + len(self.data)


class Run(NamedTuple):
    """Consecutive intact records."""

    record: int  # the number of the first record, from 0
    offset: int
    data: list[bytes]

    @property
    def size(self) -> int:
        """The bytes of their frames."""
        return self.location(len(self.data))[1] - self.offset

    def next(self, data: list[bytes]) -> Run:
        """Returns the run of the records that follow."""
        return Run(*self.location(len(self.data)), data)

    def location(self, number: int) -> tuple[int, int]:
        """Returns the number and the offset of one of its records, or of the next one."""
        size = sum(map(len, self.data[:number])) + FRAME_BYTES * number
        return self.record + number, self.offset + size

    def frames(self) -> Iterator[Frame]:
        """Yields each record."""
        offset = self.offset
        for record, data in enumerate(self.data, self.record):
            yield Frame(record, offset, data)
            offset += len(data) + FRAME_BYTES


def _masked_crc32c(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    # tensorflow/core/lib/hash/crc32c.h: rotated right by 15 bits, plus kMaskDelta, because the
    # plain CRC of a string that contains CRCs is problematic.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """Returns the frame of a record."""
    length = len(data).to_bytes(8, "little")
    checksums = (_FOOTER.pack(_masked_crc32c(one)) for one in (length, data))
    return b"".join((length, next(checksums), data, next(checksums)))


def frame_size(length: int) -> int:
    """Returns the size of the frame around data of a length."""
    return length + FRAME_BYTES


def frame_start(offset: int) -> int:
    """Returns the first byte of the frame around data that begins at an offset."""
    return offset - HEADER_BYTES


def data_starts(lengths: Sequence[int], first: int = 0) -> list[int]:
    """Returns the first byte of the data of each record; the first frame begins at `first`."""
    starts = accumulate(map(frame_size, lengths), initial=first)
    return [start + HEADER_BYTES for start, _ in zip(starts, lengths, strict=False)]


def is_record_header(head: bytes) -> bool:
    """Returns whether bytes begin with the length of a record and its checksum."""
    try:
        _length(head[:HEADER_BYTES])
    except (ValueError, struct.error):
        return False
    return True


def overlong_record(file: int, size: int) -> tuple[int, int, int] | None:
    """Returns (number, first byte, length) of the first data that ends beyond an open file.

    Reads only the headers. TensorFlow allocates the length that a header states, and ends the
    process if it is larger than the memory. None if there is no such record before the first
    header that TensorFlow rejects.
    """
    at = record = 0
    while at + HEADER_BYTES <= size:
        header = os.pread(file, HEADER_BYTES, at)
        length, crc = _HEADER.unpack(header)
        if at + length + FRAME_BYTES > size:
            is_valid = crc == _masked_crc32c(header[:8])
            return (record, at + HEADER_BYTES, length) if is_valid else None
        at, record = at + length + FRAME_BYTES, record + 1
    return None


def read_frames(stream: BinaryIO) -> Iterator[Frame]:
    """Yields each record of an uncompressed TFRecord; raises FrameError at the first damage."""
    for found in read_frames_or_errors(stream):
        if isinstance(found, FrameError):
            raise found
        yield found


def read_frames_or_errors(stream: BinaryIO) -> Iterator[Frame | FrameError]:
    """Yields each record of an uncompressed TFRecord file, or its error if it is damaged.

    Continues after a record with damaged data, and ends where the next record cannot be located.
    """
    for found in read_runs(stream):
        if isinstance(found, FrameError):
            yield found
        else:
            yield from found.frames()


def read_runs(stream: BinaryIO, resync: bool = False) -> Iterator[Run | FrameError]:
    """Yields the records of `read_frames_or_errors`, the intact ones in runs, as they are read.

    Cutting many small records from one buffer takes a third of the time of reading each. `resync`:
    whether to search for the next record where damage hides it; numbers of records then count each
    damaged place as one.
    """
    run, rest = Run(0, 0, []), b""
    most = getattr(stream, "largest_record", MAX_RECORD_BYTES)
    while rest := rest or cast("BufferedReader", stream).read1():
        run = run.next(_intact_records(rest))
        if run.data:
            yield run
            rest = rest[run.size :]
            continue
        try:
            size = _frame_size(rest, most)
        except ValueError as error:
            fault = FrameError(run.record, run.offset, str(error))
        else:
            if len(rest) < size and size >= _LARGE_BYTES:
                for run in _large_records(stream, run):  # noqa: B020 - goes on from there
                    yield run
                if run.data:
                    stream.seek(run.offset + run.size)
                    rest = b""
                    continue
            # Only what the frame lacks: an error of the stream must not hide records that were
            # read.
            if len(rest) < size:
                rest += _read(stream, size - len(rest))
                if len(rest) >= size:
                    continue
            fault = _fault(run, rest, size)
        if resync:
            try:
                fault, rest = _bounded(fault, rest, stream)
            except Exception:  # the error of the stream comes after the one that was found first
                yield fault
                raise
        yield fault
        if fault.size is None:
            return
        run = Run(run.record + 1, run.offset + fault.size, [])
        rest = rest if resync else rest[fault.size :]


def _fault(run: Run, rest: bytes, size: int) -> FrameError:
    """Returns the error of a frame whose length is verified."""
    if len(rest) >= size:  # so the next record can be located
        what = "the checksum of the record's data does not match"
        return FrameError(run.record, run.offset, what, ends=False, size=size)
    is_header = size == HEADER_BYTES
    part = "record's length" if is_header else f"record of {size - FRAME_BYTES} bytes"
    return FrameError(run.record, run.offset, f"the file ends within the {part}")


def _bounded(fault: FrameError, rest: bytes, stream: BinaryIO) -> tuple[FrameError, bytes]:
    """Returns the error of damage at the start of `rest` with its size, and the bytes after it.

    Bytes that are missing or too many move the next record: a frame with damaged data is followed
    by one only if its size has not changed.
    """
    what, size = str(fault), fault.size
    if size is not None:
        if len(rest) < size + HEADER_BYTES:
            rest += stream.read(size + HEADER_BYTES - len(rest))
        follows = rest[size : size + HEADER_BYTES]
        if len(follows) < HEADER_BYTES or is_record_header(follows):
            what += _zeros_at_end(_trailing_zeros(rest[:size]), size)
            return FrameError(fault.record, fault.offset, what, False, size), rest[size:]
    lost, zeros, rest = _next_header(rest, stream)
    what += _zeros_at_end(zeros, lost)
    if rest:
        what += f"; the next record begins at byte {fault.offset + lost}"
    elif fault.ends and size is None and not what.startswith("the file ends"):
        what += f"; no record follows in the {lost:,} bytes to the end of the file"
    return FrameError(fault.record, fault.offset, what, not rest, lost), rest


def _next_header(rest: bytes, stream: BinaryIO) -> tuple[int, int, bytes]:
    """Returns the bytes before the next header, how many zeros end them, and all from it on."""
    lost = zeros = 0
    first = 1
    while True:
        found = _find_header(rest, first)
        # The last bytes may be the beginning of a header.
        end = max(len(rest) - HEADER_BYTES + 1, 0) if found is None else found
        more = b"" if found is not None else cast("BufferedReader", stream).read1()
        end = end if more or found is not None else len(rest)
        ending = _trailing_zeros(rest[:end])
        zeros = zeros + ending if ending == end else ending
        lost, first, rest = lost + end, max(first - end, 0), rest[end:] + more
        if not more:
            return lost, zeros, rest


def _find_header(data: bytes, first: int) -> int | None:
    """Returns the offset of the first header of a record, from an offset on; None if none is whole.

    A checksum of 32 bits and a length with 33 zero bits occur by chance once in 2^65 bytes.
    """
    for zeros in _ZEROS.finditer(data, first):
        start, end = zeros.span()
        # The checksum is not zero, so the zeros end before it does.
        for at in range(max(first, start - 4, end - HEADER_BYTES + 1), end - 7):
            if is_record_header(data[at : at + HEADER_BYTES]):
                return at
    return None


def _trailing_zeros(data: bytes) -> int:
    return len(data) - len(data.rstrip(b"\0"))


def _zeros_at_end(zeros: int, size: int) -> str:
    """Returns the end of a message on lost bytes; "" if they do not end with many zeros."""
    if zeros < min(_MIN_ZEROS, size):
        return ""
    return f"; {'all' if zeros == size else f'the last {zeros:,}'} of its {size:,} bytes are zeros"


def _intact_records(buffer: bytes) -> list[bytes]:
    """Returns the records before the first frame that is incomplete or damaged."""
    records, start = list[bytes](), HEADER_BYTES
    with suppress(ValueError, struct.error):  # a damaged length; the end of the buffer
        while True:
            end = start + _length(buffer[start - HEADER_BYTES : start])
            (crc,) = _FOOTER.unpack_from(buffer, end)
            data = buffer[start:end]
            if _masked_crc32c(data) != crc:
                break
            records.append(data)
            start = end + FRAME_BYTES
    return records


def _large_records(stream: BinaryIO, run: Run) -> Iterator[Run]:
    """Yields the large intact records after a run without copies, and does not move the stream."""
    while type(stream) is BufferedReader:
        stream = cast("BinaryIO", stream.raw)
    if not isinstance(stream, FileIO):
        return
    record, offset = run.location(len(run.data))
    file = stream.fileno()
    size, header = os.fstat(file).st_size, os.pread(file, HEADER_BYTES, offset)
    with suppress(ValueError, struct.error):  # a damaged length; the end of the file
        while _LARGE_BYTES <= (length := _length(header)) <= size - offset - FRAME_BYTES:
            data = os.pread(file, length, offset + HEADER_BYTES)
            end = os.pread(file, FRAME_BYTES, offset + HEADER_BYTES + length)
            if len(data) < length or _FOOTER.unpack_from(end) != (_masked_crc32c(data),):
                return
            yield Run(record, offset, [data])
            record, offset, header = record + 1, offset + length + FRAME_BYTES, end[FOOTER_BYTES:]


def _frame_size(start: bytes, most: int) -> int:
    """Returns the size of a frame, or of an incomplete header; ValueError if it is damaged."""
    if len(start) < HEADER_BYTES:
        return HEADER_BYTES
    if (length := _length(start[:HEADER_BYTES])) > most:
        what = f"expected records of at most {most:,} bytes in a compressed file of this size"
        raise ValueError(f"{what}, got {length:,}. Decompress the file, if that is intended")
    return length + FRAME_BYTES


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
    """Returns the length of a record's data; ValueError for damage, struct.error if it is cut."""
    length, crc = _HEADER.unpack(header)
    if crc != _masked_crc32c(header[:8]) or length > MAX_RECORD_BYTES:
        raise ValueError("the checksum of the record's length does not match")
    return int(length)


SNIFFED_BYTES = max(found.head_bytes for found in SHARD_FORMATS.values())

_PACKED_BYTES = 2**16

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
    unpack, stream = unpacker_of(head), io.BytesIO(head)
    with suppress(*DAMAGED_STREAM):
        # Without a buffer, for which more would be decompressed, up to the end of the first bytes.
        return is_record_header((unpack(stream) if unpack else stream).read(HEADER_BYTES))
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
        size = _PACKED_BYTES if strict else io.DEFAULT_BUFFER_SIZE
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
            packed = rest or self._stream.read(_PACKED_BYTES)
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
