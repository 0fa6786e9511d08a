"""CSV and TSV tables, as people really write them: one row at a time, from bytes.

The text is decoded with surrogate escapes, so that bytes that are no UTF-8 spoil their own row and
no other. Quotes are strict: a guess at what a stray quote meant would lose rows in silence. A
malformed row within one line is one row: the next line begins another. One that spans lines has
taken in others, and how many nobody knows: these rows are lost.
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
"""Characters, or bytes, of one line; an image in base64 is seldom longer."""


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


UNREADABLE = (EOFError, OSError, zlib.error, UnicodeError)
"""What a gzip stream raises that ends early or is damaged, and text that is no UTF-16."""

MAX_FIELD_CHARACTERS = 16 * 2**20

_HEAD_BYTES = 4096
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

DELIMITERS = {"csv": ",", "tsv": "\t"}


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns a table's columns.

    Raises:
        UsageError: if it has none, or two of one name.
        ValueError: if its first row is no row of text.
    """
    refuse_binary(stream, file)
    reader, _ = _reader(stream, DELIMITERS[file.format])
    header = _header(reader)
    if not any(name.strip() for name in header):
        raise UsageError(f"{file.path}: has no header; expected column names in row 1")
    if repeated := [name for name, count in Counter(header).items() if name and count > 1]:
        raise UsageError(
            f"{file.path}:1: the header has {repeated[0]!r} twice; "
            "which one is meant cannot be known: rename one"
        )
    try:
        return Probe(tuple(header), has_rows=any(fields for fields in reader))
    except (csv.Error, *UNREADABLE):  # told as rejects, once they are read
        return Probe(tuple(header), has_rows=True)


def read(stream: BinaryIO, split: SourceSplit, projection: Projection) -> Iterator[Row | Reject]:
    """Yields every row of a table."""
    return read_rows(stream, DELIMITERS[split.file.format], split.file.path, projection.columns)


def refuse_binary(stream: BinaryIO, file: TableFile) -> None:
    """Rejects what is no text.

    Raises:
        UsageError: if there is a zero byte at the beginning, and no UTF-16.
    """
    head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]  # type: ignore[attr-defined]
    if b"\0" in head and not head.startswith(_UTF16):
        raise UsageError(
            f"{file.path}: holds binary data, and is no {file.format} table; expected text in UTF-8"
        )


def _header(reader: Any) -> list[str]:
    try:
        header: list[str] = next(reader, [])
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if any(has_surrogates(name) or "\0" in name for name in header):
        raise ValueError("the first row is not text in UTF-8")
    return header


def read_rows(
    stream: BinaryIO, delimiter: str, file: str, columns: Sequence[str] | None
) -> Iterator[Row | Reject]:
    """Yields every row below the header, in order; one that cannot be read as its reject.

    Where rows are lost whose number is not known, a reject of `lost_rows` says so.

    Args:
        stream: the table's bytes, not compressed.
        delimiter: what parts the fields.
        file: what to call the table in sources.
        columns: the columns to keep, or None for all.
    """
    try:
        reader, lines = _reader(stream, delimiter)
        header: list[str] = next(reader, [])
    except (csv.Error, *UNREADABLE) as error:
        yield Reject.of_lost_rows(file, 1, f"the table cannot be read: {error}")
        return
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
            detail = f"the table cannot be read on from here: {error}"
            yield Reject.of_lost_rows(file, line, detail)
            return
        if fields is None:
            return
        if lines.number > line and len(fields) != len(header):
            yield _swallowed(f"{len(fields)} fields, not {len(header)}", file, line, lines.number)
        elif fields:  # a blank line is no row
            yield _row(fields, header, kept, file, line)


def _reader(stream: BinaryIO, delimiter: str) -> tuple[Any, BoundedLines]:
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    text = io.TextIOWrapper(
        stream, encoding=_encoding(stream), errors="surrogateescape", newline=""
    )
    lines = BoundedLines(text)
    return csv.reader(lines, delimiter=delimiter, strict=True), lines


def _encoding(stream: BinaryIO) -> str:
    """Returns the encoding that the byte order mark tells: spreadsheets save UTF-16, too."""
    head = stream.peek(2)[:2] if isinstance(stream, io.BufferedReader) else b""
    return "utf-16" if head in _UTF16 else "utf-8-sig"


def _row(
    fields: list[str], header: list[str], kept: list[tuple[str, int]], file: str, line: int
) -> Row | Reject:
    """Returns the row; trailing fields may be missing, but none may be too many."""
    if len(fields) > len(header):
        detail = f"{len(fields)} fields, expected {len(header)} as in the header"
        return Reject.of_malformed_row(
            file, line, f"{detail}; quote a field that holds the delimiter"
        )
    present = len(fields)
    values = {name: fields[i] for name, i in kept if i < present}
    if bad := [name for name, value in values.items() if has_surrogates(value)]:
        return Reject.of_malformed_row(file, line, f"column {bad[0]!r} is not text in UTF-8")
    return Row(values, file, line, is_text=True)


def _unread(error: csv.Error, file: str, line: int, last: int) -> Reject:
    """Returns the reject of a row that the csv module cannot read, which spans some lines."""
    if "unexpected end" in str(error):
        detail = "the quote that opens here is never closed: the rest of the table is lost in it"
        return Reject.of_lost_rows(file, line, f"{detail}; close it")
    if last > line:
        return _swallowed(str(error), file, line, last)
    if "longer than" in str(error) or "field larger" in str(error):
        return Reject.of_malformed_row(file, line, str(error))
    return Reject.of_malformed_row(file, line, f"{error}; write a quote within a field as two")


def _swallowed(what: str, file: str, line: int, last: int) -> Reject:
    """Returns the reject of rows that are lost in a quoted field, up to some line at least."""
    detail = (
        f"a quote that opens here goes on to line {last} and leaves no row ({what}): the rows "
        "between are lost in it; close it, and write a quote within a field as two"
    )
    return Reject.of_lost_rows(file, line, detail)
