"""Lines of a text, none of which is longer than memory bears: one that is costs itself alone."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import BinaryIO, TextIO

MAX_LINE = 64 * 2**20
"""Characters, or bytes, of one line; a picture in base64 is seldom longer."""


class LongLine(ValueError):
    """A line is too long to be held."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the line is longer than {limit:,} bytes; is a line break missing?")


class BoundedLines:
    """The lines of a text for the csv module; one that is too long is its error, and goes on after.

    Attributes:
        number: of the line that was given last, from 1.
    """

    def __init__(self, text: TextIO, limit: int = MAX_LINE) -> None:
        self._text = text
        self._limit = limit
        self._half = False  # whether the last piece ended within CR LF
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        """Returns itself."""
        return self

    def __next__(self) -> str:
        """Returns the next line, with its break.

        Raises:
            csv.Error: in place of one that is too long.
        """
        line = self._piece()
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) < self._limit or line.endswith(("\n", "\r")):
            return line
        while len(line) == self._limit and not line.endswith(("\n", "\r")):
            line = self._piece()
        raise csv.Error(str(LongLine(self._limit)))

    def _piece(self) -> str:
        line = self._text.readline(self._limit)
        if self._half and line == "\n":
            line = self._text.readline(self._limit)
        self._half = len(line) == self._limit and line.endswith("\r")
        return line


def bounded_lines(stream: BinaryIO, limit: int = MAX_LINE) -> Iterator[bytes | LongLine]:
    """Yields lines of bytes, with their breaks; in place of one that is too long, its error."""
    while line := stream.readline(limit):
        if len(line) == limit and not line.endswith(b"\n"):
            while len(line) == limit and not line.endswith(b"\n"):
                line = stream.readline(limit)
            yield LongLine(limit)
        else:
            yield line
