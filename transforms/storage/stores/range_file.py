"""A file that is read by ranges: it can be sought in, and a read fetches what it needs."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

_BUFFER_BYTES = 8 * 2**20


def open_ranges(size: int, read: Callable[[int, int], bytes]) -> BinaryIO:
    """Returns a file of `size` bytes, some megabytes of which are read at a time.

    Args:
        size: of the file.
        read: returns the bytes from the first to before the second.
    """
    return cast("BinaryIO", io.BufferedReader(_RangeFile(size, read), _BUFFER_BYTES))


class _RangeFile(io.RawIOBase):
    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self._size, self._read, self._place = size, read, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._next(self._size)

    def _next(self, most: int) -> bytes:
        data = self._read(self._place, min(self._place + most, self._size))
        self._place += len(data)
        return data
