"""The files of one shard: their names, checksums and streams."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import google_crc32c

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.plan import Plan
from recordmill.schemas.shard_format import DAMAGED_STREAM, format_of_file
from recordmill.transforms.functional.records.framing import Frame, read_frames, unpacker_in
from recordmill.transforms.storage.files import open_binary

if TYPE_CHECKING:
    from typing_extensions import Self

_CHUNK_BYTES = 2**18


@dataclass(frozen=True)
class ShardFiles:
    """The files of a shard."""

    directory: str
    split: str
    index: int  # the shard's number within the split
    file: str
    records: str  # the record index, relative to the folder; "" if there is none

    @classmethod
    def planned(
        cls, directory: str, config: ConvertConfig, plan: Plan, split: str, index: int
    ) -> ShardFiles:
        """Returns the files of a shard that is planned."""
        count = plan.shards[split]
        file = layout.shard_name(config.name, split, index, count, config.compression)
        return cls(directory, split, index, file, layout.records_name(split, index, count))


@dataclass(frozen=True)
class Digests:
    """Checksums and sizes of a shard file."""

    size: int  # bytes of the file
    sha256: str
    stream: int  # bytes of the records and their framing, uncompressed; -1 if they cannot be read
    crc32c: int


class MeasuredShard:
    """A shard file whose checksums are computed while its records are read, in one pass."""

    def __init__(self, path: str, by_content: bool = False) -> None:
        """Opens the file; its compression is that of its name, or by content if it is foreign."""
        # file → tap (SHA-256 of the stored bytes) → unpack, if compressed → tap (CRC-32C) → stream
        self._sha256, self._crc32c = hashlib.sha256(), 0
        self._file = open_binary(path)
        unpack = unpacker_in(self._file) if by_content else format_of_file(path).unpack
        self._stored = _Tap(self._file, self._sha256.update)
        records: Any = self._stored
        if unpack:
            buffered = io.BufferedReader(cast("io.RawIOBase", self._stored), _CHUNK_BYTES)
            records = unpack(cast("BinaryIO", buffered))
        # At damage, `GzipFile.read` loses the bytes of the chunk that precede it; `read1` does not.
        self._records = _Tap(records, self._extend, getattr(records, "read1", None))
        self.stream = cast("BinaryIO", self._records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def digests(self) -> Digests:
        """Returns the checksums of the whole file, after reading the rest of it."""
        is_damaged = False
        try:
            _exhaust(self.stream)
        except DAMAGED_STREAM:
            is_damaged = True
            _exhaust(self._stored)  # the SHA-256 includes the bytes after the damage
        of_stream = (-1, 0) if is_damaged else (self._records.size, self._crc32c)
        return Digests(self._stored.size, self._sha256.hexdigest(), *of_stream)

    def _extend(self, data: bytes) -> None:
        self._crc32c = google_crc32c.extend(self._crc32c, data)


class _Tap(io.BufferedIOBase):
    """A stream that feeds the bytes read from another stream to a checksum, and counts them."""

    def __init__(
        self,
        source: Any,
        update: Callable[[bytes], object],
        read1: Callable[[int], bytes] | None = None,
    ) -> None:
        self._source, self._update = source, update
        self._read1 = read1 or source.read
        self.size = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self._measured(self._source.read(size))

    def read1(self, size: int = -1, /) -> bytes:
        return self._measured(self._read1(_CHUNK_BYTES if size < 0 else size))

    def _measured(self, data: bytes | None) -> bytes:
        if data is None:  # a file of the kernel that has no data now, read without waiting
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._update(data)
        self.size += len(data)
        return data


def _exhaust(stream: Any) -> None:
    while stream.read(_CHUNK_BYTES):
        pass


def digests(path: str) -> Digests:
    """Returns the checksums of a shard file, computed in one pass."""
    with MeasuredShard(path) as shard:
        return shard.digests()


def uncompressed(path: str) -> BinaryIO:
    """Opens the uncompressed stream of framed records."""
    return format_of_file(path).open_stream(open_binary(path))


def frames_in(path: str) -> Iterator[Frame]:
    """Yields the frames of all records, as `read_frames` does."""
    with uncompressed(path) as stream:
        yield from read_frames(stream)
