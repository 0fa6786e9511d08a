"""A file that knows what was written to it."""

from __future__ import annotations

from typing import Any

import google_crc32c


class MeteredFile:
    """Passes bytes on to a file, and keeps their number and checksum.

    Attributes:
        size: bytes written so far.
        crc32c: their checksum.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.size = 0
        self.crc32c = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Writes all of `data`."""
        chunk = bytes(data)
        self._handle.write(chunk)
        self.size += len(chunk)
        self.crc32c = google_crc32c.extend(self.crc32c, chunk)
        return len(chunk)

    def flush(self) -> None:
        """Hands on what is buffered."""
        self._handle.flush()

    def close(self) -> None:
        """Closes the file."""
        self._handle.close()
        self.closed = True
