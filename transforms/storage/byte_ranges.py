"""Reads byte ranges of shards: close ones with one request, and several requests concurrently."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

from recordmill.schemas import layout
from recordmill.schemas.errors import VerificationFailed
from recordmill.transforms.storage.local_files import open_regular
from recordmill.transforms.storage.shard_files import remote_files

# A gap between two ranges that takes less time to read than another request.
_MAX_GAP = 2**20

_CONCURRENT_REQUESTS = 16

# Shards that stay open: far below the usual limit of 1,024 file descriptors.
_OPEN_FILES = 256


class ByteRange(NamedTuple):
    """A range of bytes of a shard."""

    path: str
    sha256: str  # its checksum, so that a replaced file is opened again
    start: int
    stop: int


def read_ranges(ranges: Sequence[ByteRange]) -> list[bytes]:
    """Returns the bytes of each range; fewer where a file ends.

    `ranges`: ranges of one or more shards, in any order. Raises VerificationFailed if a shard is
    missing, or cannot be read.
    """
    if not ranges or not layout.is_url(ranges[0].path):
        return list(map(_read, ranges))  # local reads cost too little to join them
    requests = list(_coalesced(ranges))
    # A pool of its own, because threads do not survive a fork of the process.
    with ThreadPoolExecutor(min(_CONCURRENT_REQUESTS, len(requests))) as pool:
        contents = list(pool.map(_read, (request for request, _ in requests)))
    found = [b""] * len(ranges)
    for (request, numbers), data in zip(requests, contents, strict=True):
        for number in numbers:
            first = ranges[number].start - request.start
            found[number] = data[first : ranges[number].stop - request.start]
    return found


def _coalesced(
    ranges: Sequence[ByteRange], max_gap: int = _MAX_GAP
) -> Iterator[tuple[ByteRange, list[int]]]:
    """Yields ranges that cover the given ones, each with the numbers of those that it covers.

    `ranges`: ranges of one or more shards, in any order. `max_gap`: bytes between two ranges of a
    shard up to which they become one.

    >>> ranges = [ByteRange("s3://b/x", "", *span) for span in ((90, 95), (0, 10), (12, 20))]
    >>> [(span.start, span.stop, numbers) for span, numbers in _coalesced(ranges, max_gap=5)]
    [(0, 20, [1, 2]), (90, 95, [0])]
    """
    whole, numbers = None, list[int]()
    for number in sorted(range(len(ranges)), key=ranges.__getitem__):
        part = ranges[number]
        if whole and whole.path == part.path and part.start <= whole.stop + max_gap:
            whole = whole._replace(stop=max(whole.stop, part.stop))
            numbers.append(number)
            continue
        if whole:
            yield whole, numbers
        whole, numbers = part, [number]
    if whole:
        yield whole, numbers


def unreadable(path: str, error: OSError) -> VerificationFailed:
    """Returns the error for a file of a dataset that is missing, or cannot be read.

    `error` is the error of the file system or store.
    """
    if isinstance(error, FileNotFoundError):
        return VerificationFailed(f"{path}: is missing. Restore it from a backup.")
    what = str(error.strerror or error).rstrip(".")
    return VerificationFailed(f"{path}: cannot be read: {what}. Restore it from a backup.")


def _read(requested: ByteRange) -> bytes:
    try:
        if not layout.is_url(requested.path):
            # The common case: one pread of a file that stays open, safe for threads and forks.
            return _open_file(requested.path, requested.sha256).read(
                requested.start, requested.stop
            )
        data: bytes = remote_files(requested.path).read_range(
            requested.path, requested.start, requested.stop
        )
        return data
    except OSError as error:
        raise unreadable(requested.path, error) from error


class _OpenFile:
    """A file for concurrent reads by threads and forked processes: each read states its offset."""

    def __init__(self, path: str) -> None:
        self._handle = open_regular(path)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.close()

    def read(self, start: int, stop: int) -> bytes:
        return os.pread(self._handle.fileno(), stop - start, start)


@lru_cache(_OPEN_FILES)
def _open_file(path: str, sha256: str) -> _OpenFile:
    """Opens a shard; the checksum is a cache key, so that a replaced shard is opened again."""
    return _OpenFile(path)
