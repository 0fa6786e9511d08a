"""CSV and TSV tables, read row by row.

Text is decoded with surrogate escapes, so that invalid UTF-8 affects only its own row. Quotes are
strict, since a guess at a stray quote would lose rows silently. A malformed row on one line is one
reject. One that spans lines has swallowed an unknown number of rows, which are lost.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, TextIO

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Probe, Projection, SourceSplit, TableFile
from recordmill.transforms.functional.values.typed import has_surrogates

MAX_LINE = 64 * 2**20
"""The longest line in characters or bytes; base64 images are rarely longer."""


class LongLine(ValueError):
    """A line that exceeds the size limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the line is longer than {limit:,} bytes; is a line break missing?")


class BoundedLines:
    """Lines of text for the csv module. A line over the limit raises an error and is skipped.

    Attributes:
        number: the number of the last line returned, from 1.
    """

    def __init__(self, text: TextIO, limit: int = MAX_LINE) -> None:
        self._text = text
        self._limit = limit
        self._half = False  # whether the last piece ended between CR and LF
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        """Returns itself."""
        return self

    def __next__(self) -> str:
        """Returns the next line with its line break.

        Raises:
            csv.Error: if the line is too long.
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
        # The limit fell between CR and LF: this is not an empty line.
        if self._half and line == "\n":
            line = self._text.readline(self._limit)
        self._half = len(line) == self._limit and line.endswith("\r")
        return line


def bounded_lines(stream: BinaryIO, limit: int = MAX_LINE) -> Iterator[bytes | LongLine]:
    """Yields lines with their line breaks; `LongLine` errors replace lines over the limit.

    Args:
        stream: the bytes of a text file.
        limit: the largest line in bytes.
    """
    while line := stream.readline(limit):
        if len(line) == limit and not line.endswith(b"\n"):
            while len(line) == limit and not line.endswith(b"\n"):
                line = stream.readline(limit)
            yield LongLine(limit)
        else:
            yield line


UNREADABLE = (EOFError, OSError, zlib.error, UnicodeError)
"""Errors of truncated or damaged gzip streams, and of invalid UTF-16."""

MAX_FIELD_CHARACTERS = 16 * 2**20

_HEAD_BYTES = 4096
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

DELIMITERS = {"csv": ",", "tsv": "\t"}


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the columns of the header row.

    Args:
        stream: the bytes of the file, decompressed.
        file: the file.

    Raises:
        UsageError: if the header is empty, or a column occurs twice.
        ValueError: if the header is not valid CSV or UTF-8.
    """
    reject_binary(stream, file)
    reader, _ = _reader(stream, DELIMITERS[file.format])
    header = _header(reader)
    if not any(name.strip() for name in header):
        raise UsageError(f"{file.path}: has no header; expected column names in row 1")
    if repeated := [name for name, count in Counter(header).items() if name and count > 1]:
        raise UsageError(f"{file.path}:1: the header has {repeated[0]!r} twice; rename one of them")
    try:
        return Probe(tuple(header), has_rows=any(fields for fields in reader))
    except (csv.Error, *UNREADABLE):  # reported as rejects when they are read
        return Probe(tuple(header), has_rows=True)


def read(stream: BinaryIO, split: SourceSplit, projection: Projection) -> Iterator[Row | Reject]:
    """Yields every row of a table.

    Args:
        stream: the bytes of the file, decompressed.
        split: the split to read.
        projection: the columns to keep, and how to read images.
    """
    return read_rows(stream, DELIMITERS[split.file.format], split.file.path, projection.columns)


def reject_binary(stream: BinaryIO, file: TableFile) -> None:
    """Rejects binary files.

    Args:
        stream: the bytes of the file, decompressed.
        file: the file.

    Raises:
        UsageError: if the file begins with a NUL byte and is not UTF-16.
    """
    head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]  # type: ignore[attr-defined]
    if b"\0" in head and not head.startswith(_UTF16):
        raise UsageError(f"{file.path}: is binary, not a {file.format} table; expected UTF-8 text")


def _header(reader: Any) -> list[str]:
    try:
        header: list[str] = next(reader, [])
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if any(has_surrogates(name) or "\0" in name for name in header):
        raise ValueError("the first row is not valid UTF-8")
    return header


def read_rows(
    stream: BinaryIO, delimiter: str, file: str, columns: Sequence[str] | None
) -> Iterator[Row | Reject]:
    """Yields every row below the header in order, or its reject.

    If an unknown number of rows is lost, one reject has the reason `lost_rows`.

    Args:
        stream: the bytes of the table, decompressed.
        delimiter: the character between fields.
        file: the path that rows report as their source.
        columns: the columns to keep, or None for all.
    """
    try:
        reader, lines = _reader(stream, delimiter)
        header: list[str] = next(reader, [])
    except (csv.Error, *UNREADABLE) as error:
        yield Reject.of_lost_rows(file, 1, f"the table cannot be read: {error}")
        return
    # Reversed, so that the first of two columns with one name is kept.
    places = {name: i for i, name in reversed(list(enumerate(header)))}
    names = header if columns is None else columns
    kept = [(name, places[name]) for name in names if name in places]
    while True:
        line = lines.number + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield _unread(error, file, line, lines.number)
            continue
        except UNREADABLE as error:
            detail = f"the rest of the table cannot be read: {error}"
            yield Reject.of_lost_rows(file, line, detail)
            return
        if fields is None:
            return
        # Too few or too many fields over several lines: the quoted field has swallowed rows.
        if lines.number > line and len(fields) != len(header):
            yield _swallowed(f"{len(fields)} fields, not {len(header)}", file, line, lines.number)
        elif fields:  # blank lines are not rows
            yield _row(fields, header, kept, file, line)


def _reader(stream: BinaryIO, delimiter: str) -> tuple[Any, BoundedLines]:
    # A setting of the process, which Python keeps globally: set before each table.
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    text = io.TextIOWrapper(
        stream, encoding=_encoding(stream), errors="surrogateescape", newline=""
    )
    lines = BoundedLines(text)
    return csv.reader(lines, delimiter=delimiter, strict=True), lines


def _encoding(stream: BinaryIO) -> str:
    """Returns the encoding by the byte order mark; spreadsheets also save UTF-16."""
    head = stream.peek(2)[:2] if isinstance(stream, io.BufferedReader) else b""
    return "utf-16" if head in _UTF16 else "utf-8-sig"


def _row(
    fields: list[str], header: list[str], kept: list[tuple[str, int]], file: str, line: int
) -> Row | Reject:
    """Returns the row. Trailing fields may be missing; extra fields are an error."""
    if len(fields) > len(header):
        detail = f"{len(fields)} fields, expected {len(header)} as in the header"
        return Reject.of_malformed_row(
            file, line, f"{detail}; quote fields that contain the delimiter"
        )
    present = len(fields)
    values = {name: fields[i] for name, i in kept if i < present}
    if bad := [name for name, value in values.items() if has_surrogates(value)]:
        return Reject.of_malformed_row(file, line, f"column {bad[0]!r} is not valid UTF-8")
    return Row(values, file, line, is_text=True)


def _unread(error: csv.Error, file: str, line: int, last: int) -> Reject:
    """Returns the reject for an error of the csv module; the row may span several lines."""
    if "unexpected end" in str(error):
        detail = "the quote that opens here is never closed, and the rest of the table is lost"
        return Reject.of_lost_rows(file, line, f"{detail}; close it")
    if last > line:
        return _swallowed(str(error), file, line, last)
    if "longer than" in str(error) or "field larger" in str(error):
        return Reject.of_malformed_row(file, line, str(error))
    return Reject.of_malformed_row(file, line, f"{error}; double the quotes within a field")


def _swallowed(what: str, file: str, line: int, last: int) -> Reject:
    """Returns the reject for rows inside a quoted field, which ends at the last line or later."""
    detail = (
        f"a quote that opens here extends to line {last} without a valid row ({what}); the "
        "rows in it are lost. Close it, and double the quotes within a field"
    )
    return Reject.of_lost_rows(file, line, detail)
