"""A seekable, read-only raw file of a known size, over any source of bytes."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import Any


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

        Args:
            offset: number of bytes.
            whence: what they are counted from, as for `io.IOBase.seek`.
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

        Args:
            buffer: receives the bytes; not empty.
            start: position of the first byte.

        Returns:
            The number of bytes read.
        """
