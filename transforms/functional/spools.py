"""Groups elements by a key, where those of one key may be anywhere in a source, in spool files.

The elements of a large source may not fit in memory: they are distributed over temporary files by a
hash of their key, and those of one file are grouped at a time.
"""

from __future__ import annotations

import pickle
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

_FILES, _MEMORY_BYTES = 128, 2**18  # of each file before it is on disk


class Spools(ExitStack):
    """Temporary files, each with all elements of some keys; deleted at the end of the context."""

    def __init__(self) -> None:
        super().__init__()
        opened = (tempfile.SpooledTemporaryFile(_MEMORY_BYTES) for _ in range(_FILES))  # noqa: SIM115 - closed with this
        self._files = [self.enter_context(file) for file in opened]

    def add(self, key: str, element: Any) -> None:
        """Adds an element."""
        number = zlib.crc32(key.encode("utf-8", "surrogatepass")) % _FILES
        pickle.dump((key, element), self._files[number], pickle.HIGHEST_PROTOCOL)

    def groups(self) -> Iterator[list[Any]]:
        """Yields the elements of each key in the order in which they were added."""
        for file in self._files:
            file.seek(0)
            found = dict[str, list[Any]]()
            with suppress(EOFError):
                while True:
                    key, element = pickle.load(file)  # noqa: S301 - a file that `add` wrote
                    found.setdefault(key, []).append(element)
            yield from found.values()
