"""Seekable files of a known size: byte ranges of local files, and files read by requests."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, BinaryIO, cast

SHORTER = "the file has become shorter since it was listed"

_BUFFER_BYTES = 8 * 2**20


class BoundedFile(io.RawIOBase):
    """A raw file that never reads past its size; a subclass fills buffers with its bytes."""

    def __init__(self, size: int) -> None:
        self._size, self._position = size, 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position of the next byte to read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets and returns the position, which may be past the end; reads there are empty.

        `offset` is number of bytes. `whence`: what they are counted from, as for `io.IOBase.seek`.
        """
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer with the next bytes; returns their number, 0 at the end."""
        most = min(len(buffer), self._size - self._position)
        if most <= 0:  # at the end of the file, without a read
            return 0
        number = self.fill(memoryview(buffer)[:most], self._position)
        self._position += number
        return number

    @abstractmethod
    def fill(self, buffer: memoryview, start: int) -> int:
        """Fills a buffer with the bytes from `start`, all of which are within the size.

        Returns the number of bytes read. `buffer`: receives the bytes; not empty.
        """


def open_ranges(size: int, read: Callable[[int, int], bytes]) -> BinaryIO:
    """Opens a seekable file over range requests; reads raise `EOFError` if the file is shorter.

    `size`: bytes of the file. `read`: returns the bytes of a range: (first byte, byte after the
    last).
    """
    return cast("BinaryIO", _BufferedRanges(_RangeFile(size, read), _BUFFER_BYTES))


class _BufferedRanges(io.BufferedReader):
    """A buffer that is filled by each request.

    `TextIOWrapper` calls `read1`, which would send a request for the 8 KiB that it asks for.
    """

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size if size >= 0 else io.DEFAULT_BUFFER_SIZE)


class _RangeFile(BoundedFile):
    """A file whose reads are range requests."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        super().__init__(size)
        self._read = read

    def fill(self, buffer: memoryview, start: int) -> int:
        data = self._whole(start, start + len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        if self._position >= self._size:
            return b""
        data = self._whole(self._position, self._size)  # one request, and no copy of a large file
        self._position += len(data)
        return data

    def _whole(self, start: int, stop: int) -> bytes:
        data = self._read(start, stop)
        if len(data) < stop - start:  # never taken for the end of the file
            raise EOFError(SHORTER)
        return data
