"""Reads CSV and TSV tables row by row.

Invalid UTF-8 is decoded to surrogate escapes, so that it rejects only its own row. Quoting is
strict: guessing the meaning of a stray quote could drop rows silently. A malformed row on one line
becomes one reject. A malformed row over several lines contains an unknown number of rows; its
reject has the reason `lost_rows`.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, TextIO, TypeAlias

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Probe, Projection, SourceSplit, TableFile
from recordmill.transforms.functional.values.typed import has_surrogates

# Returns the values of a row by column, from its fields.
_Picker: TypeAlias = Callable[[list[str]], dict[str, str]]

# Size limit of a line, in characters or bytes; base64 images are rarely larger.
MAX_LINE = 64 * 2**20


class LongLine(ValueError):
    """The error for a line over the size limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the line is longer than {limit:,} bytes. Check for a missing line break."
        )


class BoundedLines:
    """An iterator over lines for the csv module; a line over the limit raises and is skipped.

    Attributes:
        number: the number of the last line returned, counted from 1.
    """

    def __init__(self, text: TextIO, limit: int = MAX_LINE) -> None:
        self._text = text
        self._limit = limit
        self._split_crlf = False  # whether the last chunk ended between CR and LF
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        """Returns the iterator itself."""
        return self

    def __next__(self) -> str:
        """Returns the next line with its line break.

        Raises:
            csv.Error: if the line is too long.
        """
        # Most lines take this path, which is a third of the time of reading a row.
        line = self._read_chunk() if self._split_crlf else self._text.readline(self._limit)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) < self._limit:
            return line
        self._split_crlf = line.endswith("\r")
        if line.endswith(("\n", "\r")):
            return line
        while len(line) == self._limit and not line.endswith(("\n", "\r")):
            line = self._read_chunk()
        raise csv.Error(str(LongLine(self._limit)))

    def _read_chunk(self) -> str:
        """Returns the next line, or its first `limit` characters."""
        line = self._text.readline(self._limit)
        # If the last chunk ended with the CR of a CRLF, this LF belongs to it, not to a new line.
        if self._split_crlf and line == "\n":
            line = self._text.readline(self._limit)
        self._split_crlf = len(line) == self._limit and line.endswith("\r")
        return line


def bounded_lines(stream: BinaryIO, limit: int = MAX_LINE) -> Iterator[bytes | LongLine]:
    """Yields lines with their line breaks, and a `LongLine` for each line over the limit.

    Args:
        stream: the bytes of a text file.
        limit: the size limit of a line in bytes.
    """
    while line := stream.readline(limit):
        if len(line) == limit and not line.endswith(b"\n"):
            while len(line) == limit and not line.endswith(b"\n"):
                line = stream.readline(limit)
            yield LongLine(limit)
        else:
            yield line


# Errors raised by truncated or damaged gzip streams and by invalid UTF-16.
UNREADABLE = (EOFError, OSError, zlib.error, UnicodeError)

# Size limit of a field; the default of the csv module is 128 KiB, too little for base64 images.
MAX_FIELD_CHARACTERS = 16 * 2**20

_HEAD_BYTES = 4096
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

DELIMITERS = {"csv": ",", "tsv": "\t"}


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the columns of the header row.

    Args:
        stream: the decompressed file.
        file: the path and format of the file.

    Raises:
        UsageError: if the header is empty, or a column name occurs twice.
        ValueError: if the header is not valid CSV or UTF-8.
    """
    reject_binary(stream, file)
    reader, _ = _reader(stream, delimiter_of(file))
    header = file.header or _header(reader)
    if not any(name.strip() for name in header):
        raise UsageError(f"{file.path}:1: the header is empty; expected column names")
    if repeated := [name for name, count in Counter(header).items() if name and count > 1]:
        raise UsageError(
            f"{file.path}:1: column {repeated[0]!r} occurs twice. Rename one of the two, "
            "or set --header none if the first row is not a header."
        )
    try:
        return Probe(tuple(header), has_rows=any(fields for fields in reader))
    except (csv.Error, *UNREADABLE):  # `read` reports the error as a reject
        return Probe(tuple(header), has_rows=True)


def read(stream: BinaryIO, split: SourceSplit, projection: Projection) -> Iterator[Row | Reject]:
    """Yields each row of a table, or its reject.

    Args:
        stream: the decompressed file.
        split: the source split: the file, or a byte range of it.
        projection: the columns to keep, and how to read images.
    """
    file, columns = split.file, projection.columns
    header = split.header if split.start else file.header or None
    is_start = not split.start
    return read_rows(stream, delimiter_of(file), file.path, columns, split.first, header, is_start)


def reject_binary(stream: BinaryIO, file: TableFile) -> None:
    """Raises an error for a binary file.

    Args:
        stream: the decompressed file; its position does not change.
        file: the path and format of the file.

    Raises:
        UsageError: if the first 4 KiB contain a NUL byte and are not UTF-16.
    """
    head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]  # type: ignore[attr-defined]
    if b"\0" in head and not head.startswith(_UTF16):
        raise UsageError(f"{file.path}: expected a {file.format} table in UTF-8, got binary data")


def header_of(stream: BinaryIO, file: TableFile) -> tuple[str, ...]:
    """Returns the columns of a table: its first row, unless they are known.

    Args:
        stream: the decompressed file.
        file: the file.

    Raises:
        ValueError: if it is not valid CSV or UTF-8.
    """
    reader, _ = _reader(stream, delimiter_of(file))
    return file.header or tuple(_header(reader))


def delimiter_of(file: TableFile) -> str:
    """Returns the character between the fields of a table."""
    return file.delimiter or DELIMITERS[file.format]


def _header(reader: Any) -> list[str]:
    try:
        header: list[str] = next(reader, [])
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if any(has_surrogates(name) or "\0" in name for name in header):
        raise ValueError("the header is not valid UTF-8")
    return header


def read_rows(
    stream: BinaryIO,
    delimiter: str,
    file: str,
    columns: Sequence[str] | None,
    first: int = 1,
    header: Sequence[str] | None = None,
    is_start: bool = True,
) -> Iterator[Row | Reject]:
    """Yields each row below the header, or its reject, in the order of the file.

    Where an unknown number of rows is lost, the reject has the reason `lost_rows`.

    Args:
        stream: the decompressed table.
        delimiter: the character between fields.
        file: the path that rows report as their source.
        columns: the columns to keep, or None for all.
        first: the number of the first line of the stream.
        header: the columns of the table if the stream begins below its header; None otherwise.
        is_start: whether the stream begins at the start of the file.
    """
    try:
        reader, lines = _reader(stream, delimiter, first, is_start)
        header = next(reader, []) if header is None else header
    except (csv.Error, *UNREADABLE) as error:
        yield Reject.of_lost_rows(file, 1, f"the table cannot be read: {error}")
        return
    values_of = _picker(header, columns)
    while True:
        line = lines.number + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield _reject_of(error, file, line, lines.number)
            continue  # the csv module starts the next row at the next line
        except UNREADABLE as error:
            detail = f"the rest of the table cannot be read: {error}"
            yield Reject.of_lost_rows(file, line, detail)
            return
        if fields is None:
            return
        # A row over several lines with a wrong number of fields: a quoted field contains rows.
        if lines.number > line and len(fields) != len(header):
            what = f"{len(fields)} fields, not {len(header)}"
            yield _unclosed_quote(what, file, line, lines.number)
        elif fields:  # blank lines are not rows
            yield _row(fields, header, values_of, file, line)


def _picker(header: Sequence[str], columns: Sequence[str] | None) -> _Picker:
    """Returns a function from the fields of a row to the values of the columns to keep."""
    # Reversed, so that the first of two columns with the same name is kept.
    positions = {name: i for i, name in reversed(list(enumerate(header)))}
    names = header if columns is None else columns
    kept = [(name, positions[name]) for name in names if name in positions]
    if [i for _, i in kept] == list(range(len(header))):
        return lambda fields: dict(zip(header, fields, strict=False))  # three times as fast
    return lambda fields: {name: fields[i] for name, i in kept if i < len(fields)}


def _reader(
    stream: BinaryIO, delimiter: str, first: int = 1, is_start: bool = True
) -> tuple[Any, BoundedLines]:
    # The limit is global to the process, and other code may change it: set it for each table.
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    # Only the start of a file has a byte order mark; elsewhere, its bytes belong to the text.
    encoding = _encoding(stream) if is_start else "utf-8"
    text = io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="")
    lines = BoundedLines(text)
    lines.number = first - 1
    return csv.reader(lines, delimiter=delimiter, strict=True), lines


def _encoding(stream: BinaryIO) -> str:
    """Returns the encoding that the byte order mark indicates; spreadsheets also save UTF-16."""
    return "utf-16" if is_utf16(stream) else "utf-8-sig"


def is_utf16(stream: BinaryIO) -> bool:
    """Returns whether the stream begins with a byte order mark of UTF-16."""
    return isinstance(stream, io.BufferedReader) and stream.peek(2)[:2] in _UTF16


def _row(
    fields: list[str], header: Sequence[str], values_of: _Picker, file: str, line: int
) -> Row | Reject:
    """Returns the row or its reject; trailing fields may be missing, extra fields are an error."""
    if len(fields) > len(header):
        detail = f"{len(fields)} fields, expected {len(header)} as in the header"
        return Reject.of_malformed_row(
            file, line, f"{detail}. Quote fields that contain the delimiter."
        )
    values = values_of(fields)
    if has_surrogates("".join(values.values())):
        bad = next(name for name, value in values.items() if has_surrogates(value))
        return Reject.of_malformed_row(
            file, line, f"column {bad!r} is not valid UTF-8; save the table as UTF-8"
        )
    return Row(values, file, line, is_text=True)


def _reject_of(error: csv.Error, file: str, line: int, last: int) -> Reject:
    """Returns the reject for an error of the csv module.

    Args:
        error: the error.
        file: the path of the table.
        line: the first line of the row.
        last: the last line that was read.
    """
    if "unexpected end" in str(error):
        detail = "the quote that opens here is not closed, and the rest of the table is lost"
        return Reject.of_lost_rows(file, line, f"{detail}. Close it.")
    if last > line:
        return _unclosed_quote(str(error), file, line, last)
    if "longer than" in str(error) or "field larger" in str(error):
        return Reject.of_malformed_row(file, line, str(error))
    return Reject.of_malformed_row(file, line, f"{error}. Double the quotes within a field.")


def _unclosed_quote(what: str, file: str, line: int, last: int) -> Reject:
    """Returns the reject for rows that are lost inside a quoted field.

    Args:
        what: what is wrong with the row.
        file: the path of the table.
        line: the line of the opening quote.
        last: the last line that was read.
    """
    detail = (
        f"the quoted field that begins here contains the rows up to line {last}, which are lost "
        f"({what}). Close the quote, and double the quotes within a field"
    )
    return Reject.of_lost_rows(file, line, detail)
