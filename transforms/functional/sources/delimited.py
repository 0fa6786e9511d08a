"""Reads CSV and TSV tables.

Invalid UTF-8 is decoded to surrogate escapes, so that it rejects only its own row. Quoting is
strict: guessing the meaning of a stray quote could drop rows silently. A malformed row on one line
becomes one reject. A malformed row over several lines contains an unknown number of rows; its
reject has the reason `lost_rows`.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import methodcaller
from typing import BinaryIO, TextIO

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.tables import Part, Probe, Projection, TableFile
from recordmill.transforms.functional.rows import batches
from recordmill.transforms.functional.values.typed import has_surrogates

# Size limit of a line, in characters or bytes; base64 images are rarely larger.
MAX_LINE = 64 * 2**20


@dataclass(frozen=True)
class DelimitedOptions:
    """The form of a CSV or TSV table."""

    delimiter: str = ""  # the character between the fields, or "" for the default
    header: tuple[str, ...] = ()  # the columns of a table without a header; () if it has one


def long_line() -> str:
    """Returns the message for a line over the size limit."""
    return f"the line is longer than {MAX_LINE:,} bytes. Check for a missing line break."


class BoundedLines:
    """The lines of a text for the csv module; a line over the limit raises and is skipped.

    `number` is the number of the last line returned, counted from 1.
    """

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self._rest: TextIO | None = None  # what was read of the text, and has to be read next
        self._split_crlf = False  # whether the last chunk ended between CR and LF
        # The lines read ahead; in place of the one after them, its error.
        self._ahead = deque[str | Exception]()
        self.number = 0
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        """Yields the next lines with their line breaks.

        Raises csv.Error if the line is too long. Iterate again for the lines after it.
        """
        while self._ahead or self._read_ahead():
            line = self._ahead.popleft()
            if isinstance(line, Exception):
                self.number += isinstance(line, csv.Error)
                raise line
            self.number += 1
            self.size += len(line)
            yield line

    def take_plain(self, delimiter: str, fields: int) -> list[str]:
        """Returns the fields of the next lines, line by line, if they can be split without quoting.

        That takes a third of the time of the csv module. Returns none, and the next line stays the
        same, if there are quotes, or lines with another number of fields.
        """
        if not self._ahead:
            self._read_ahead()
        lines = [line for line in self._ahead if isinstance(line, str)]
        text = "".join(lines)
        counts = set(map(methodcaller("count", delimiter), lines))
        is_plain = counts == {fields - 1} and not any(c in text for c in _NOT_PLAIN)
        if not is_plain or len(text) > MAX_FIELD_CHARACTERS or has_surrogates(text):
            return []
        self._ahead = deque(line for line in self._ahead if isinstance(line, Exception))
        self.number += len(lines)
        self.size += len(text)
        text = text if text.endswith(("\n", "\r")) else f"{text}\n"
        for line_break in ("\r\n", "\n", "\r"):
            text = text.replace(line_break, delimiter)
        return text.split(delimiter)[:-1]

    def skip_blank(self) -> None:
        """Skips blank lines; in a long run of them, a block at a time."""
        while self._ahead or self._read_ahead():
            while self._ahead and self._ahead[0] in _LINE_BREAKS:
                self.number += 1
                self.size += len(str(self._ahead.popleft()))
            if self._ahead or self._split_crlf:
                return
            try:
                self._skip_blocks()
            except UNREADABLE as error:
                self._ahead.append(error)

    def _skip_blocks(self) -> None:
        """Skips line breaks up to the next other character; the lines read ahead are used up."""
        last, block = "", self._rest.read() if self._rest else ""
        self._rest = None
        while block := block or self._text.read(_BLOCK_CHARACTERS):
            text = block.lstrip("\r\n")
            blank = block[: len(block) - len(text)]
            crlf = blank.count("\r\n") + (last == "\r" and block[0] == "\n")
            self.number += blank.count("\n") + blank.count("\r") - crlf
            self.size += len(blank)
            if text:
                # Completed to the end of a line, so that it does not end between CR and LF.
                self._rest = io.StringIO(text + self._text.readline(MAX_LINE), newline="")
                return
            last, block = block[-1], ""

    def _readline(self, limit: int) -> str:
        if self._rest is None:
            return self._text.readline(limit)
        line = self._rest.readline(limit)
        if len(line) < limit and not line.endswith(("\n", "\r")):
            self._rest = None
            line += self._text.readline(limit - len(line))
        return line

    def _read_ahead(self) -> bool:
        """Reads some lines ahead; returns whether there are any, or an error."""
        line_of = self._text.readline if self._rest is None else self._readline
        read = self._read_chunk if self._split_crlf else partial(line_of, MAX_LINE)
        size = 0
        try:
            for line in islice(iter(read, ""), batches.BATCH_ROWS):
                size += len(line)
                if len(line) == MAX_LINE:
                    self._split_crlf = line.endswith("\r")
                    if not line.endswith(("\n", "\r")):
                        self._skip_line()
                        raise csv.Error(long_line())
                self._ahead.append(line)
                if size >= batches.BATCH_BYTES or self._split_crlf:
                    break
        except (csv.Error, *UNREADABLE) as error:
            self._ahead.append(error)
        return bool(self._ahead)

    def _skip_line(self) -> None:
        line = self._read_chunk()
        while len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
            line = self._read_chunk()

    def _read_chunk(self) -> str:
        """Returns the next line, or the first `MAX_LINE` characters of it."""
        line = self._readline(MAX_LINE)
        # If the last chunk ended with the CR of a CRLF, this LF belongs to it, not to a new line.
        if self._split_crlf and line == "\n":
            line = self._readline(MAX_LINE)
        self._split_crlf = len(line) == MAX_LINE and line.endswith("\r")
        return line


def bounded_lines(stream: BinaryIO, first: int) -> Iterator[tuple[int, bytes | None]]:
    """Yields (number, line with its line break), with None for a line over the size limit.

    Of a long run of blank lines, only the first ones are yielded.
    """
    number, blank = first, 0
    while line := stream.readline(MAX_LINE):
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            while len(line) == MAX_LINE and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE)
            yield number, None
            blank = 0
        else:
            yield number, line
            blank = 0 if line.strip() else blank + 1
        number += 1
        if blank >= batches.BATCH_ROWS:
            number += _skip_blank(stream)


def _skip_blank(stream: BinaryIO) -> int:
    """Skips blank lines a buffer at a time; returns their number."""
    number = 0
    while block := stream.peek():  # type: ignore[attr-defined]
        end = block.rfind(b"\n", 0, len(block) - len(block.lstrip())) + 1
        if not end:
            break
        number += block.count(b"\n", 0, end)
        stream.read(end)
    return number


# Errors of damaged files, and of invalid UTF-16.
UNREADABLE = (OSError, *DAMAGED_STREAM, UnicodeError)

# Size limit of a field; the default of the csv module is 128 KiB, too little for base64 images.
MAX_FIELD_CHARACTERS = 16 * 2**20

_LINE_BREAKS = ("\n", "\r\n", "\r")
_BLOCK_CHARACTERS = 2**20

# Characters that the csv module does not return as they are: quotes, and before Python 3.11, NUL.
_NOT_PLAIN = '"\0'

_HEAD_BYTES = 4096
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

DELIMITERS = {"csv": ",", "tsv": "\t"}


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the columns of the header row.

    Raises UsageError if it is empty or repeats a name, ValueError if it is not valid CSV or UTF-8.
    """
    reject_binary(stream, file)
    with _lines(stream) as lines:
        reader = _reader(lines, delimiter_of(file))
        header = file.options_of(DelimitedOptions).header or _header(reader)
        if not any(name.strip() for name in header):
            raise UsageError(f"{file.path}:1: the header is empty; expected column names")
        if repeated := [name for name, count in Counter(header).items() if name and count > 1]:
            raise UsageError(
                f"{file.path}:1: column {repeated[0]!r} occurs twice. Rename one of the two, "
                "or set --header none if the first row is not a header."
            )
        lines.skip_blank()
        try:
            return Probe(tuple(header), has_rows=any(fields for fields in reader))
        except (csv.Error, *UNREADABLE):  # `read` reports the error as a reject
            return Probe(tuple(header), has_rows=True)


def reject_binary(stream: BinaryIO, file: TableFile) -> None:
    """Raises UsageError if a stream begins with binary data; its position does not change."""
    head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]  # type: ignore[attr-defined]
    if b"\0" in head and not head.startswith(_UTF16):
        raise UsageError(f"{file.path}: expected a {file.format} table in UTF-8, got binary data")


def header_of(stream: BinaryIO, file: TableFile) -> tuple[str, ...]:
    """Returns the columns of a table: its first row, unless they are known."""
    if header := file.options_of(DelimitedOptions).header:
        return header
    with _lines(stream) as lines:
        return tuple(_header(_reader(lines, delimiter_of(file))))


def delimiter_of(file: TableFile) -> str:
    """Returns the character between the fields of a table."""
    return file.options_of(DelimitedOptions).delimiter or DELIMITERS[file.format]


def _header(reader: Iterator[list[str]]) -> list[str]:
    try:
        header: list[str] = next(reader, [])
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if any(has_surrogates(name) or "\0" in name for name in header):
        raise ValueError("the header is not valid UTF-8")
    return header


def read(
    stream: BinaryIO, part: Part, projection: Projection
) -> Iterator[batches.RowBatch | Reject]:
    """Yields the rows of a file, or a byte range of it, in batches, and rejects, in their order."""
    path, delimiter = part.file.path, delimiter_of(part.file)
    stated = part.file.options_of(DelimitedOptions).header
    header: Sequence[str] | None = part.header if part.start else stated or None
    with ExitStack() as opened:
        try:
            lines = opened.enter_context(_lines(stream, part.first, not part.start))
            header = next(_reader(lines, delimiter), []) if header is None else header
        except (csv.Error, *UNREADABLE) as error:
            yield Reject.of_lost_rows(path, 1, f"the table cannot be read: {error}")
            return
        table = _Table(path, header, _positions(header, projection.columns))
        while True:
            lines.skip_blank()
            if plain := table.plain_batch(lines, delimiter):
                yield plain
                continue
            records, starts, fault = _next_records(lines, delimiter)
            yield from table.batches(records, starts)
            if isinstance(fault, csv.Error):
                yield _reject_of(fault, path, starts[-1], lines.number)
            elif fault:
                detail = f"the rest of the table cannot be read: {fault}"
                yield Reject.of_lost_rows(path, starts[-1], detail)
                return
            elif not records:
                return


def _next_records(
    lines: BoundedLines, delimiter: str
) -> tuple[list[list[str]], list[int], Exception | None]:
    """Reads the fields of the next records, up to the limits of a batch, or up to an error.

    Also returns the first line of each record, and of the one after them, and the error of that
    one. After an error, the csv module starts the next record at the next line.
    """
    records, starts, end = list[list[str]](), [lines.number + 1], lines.size + batches.BATCH_BYTES
    try:
        for fields in _reader(lines, delimiter):
            records.append(fields)
            starts.append(lines.number + 1)
            if len(records) == batches.BATCH_ROWS or lines.size >= end:
                break
    except (csv.Error, *UNREADABLE) as error:
        return records, starts, error
    return records, starts, None


def _positions(header: Sequence[str], columns: Sequence[str] | None) -> dict[str, int]:
    # Reversed, so that the first of two columns with the same name is kept.
    positions = {name: i for i, name in reversed(list(enumerate(header)))}
    return {
        name: positions[name]
        for name in (header if columns is None else columns)
        if name in positions
    }


@dataclass(frozen=True)
class _Table:
    file: str  # the path that rows report as their source
    header: Sequence[str]
    positions: Mapping[str, int]

    def plain_batch(self, lines: BoundedLines, delimiter: str) -> batches.RowBatch | None:
        """Returns the rows of the next lines; None if the csv module has to read them."""
        first, number = lines.number + 1, len(self.header)
        # In a table with one column, a blank line is no row.
        if number < 2 or not (fields := lines.take_plain(delimiter, number)):
            return None
        columns = {name: fields[i::number] for name, i in self.positions.items()}
        found = range(first, lines.number + 1)
        return batches.RowBatch(columns, [self.file] * len(found), found, is_text=True)

    def batches(
        self, records: Sequence[list[str]], starts: Sequence[int]
    ) -> Iterator[batches.RowBatch | Reject]:
        """Yields the rows of records in batches, and rejects, in their order.

        `starts` is the first line of each record, and of the one after them.
        """
        # Without a header, all records are blank lines, or have too many fields.
        if self.header and set(map(len, records)) == {len(self.header)}:
            fields = list(zip(*records, strict=True))
            columns = {name: fields[i] for name, i in self.positions.items()}
            if not any(has_surrogates("".join(values)) for values in columns.values()):
                lines = starts[: len(records)]
                yield batches.RowBatch(columns, [self.file] * len(lines), lines, is_text=True)
                return
        rows = list[Row]()
        for found in map(self._row, records, starts, starts[1:]):
            if isinstance(found, Row):
                rows.append(found)
            elif found:
                yield from batches.batches_of(rows)
                rows = []
                yield found
        yield from batches.batches_of(rows)

    def _row(self, fields: list[str], line: int, after: int) -> Row | Reject | None:
        """Returns the row of a record, its reject, or None for a blank line; it may lack fields."""
        # A row over several lines with a wrong number of fields: a quoted field contains rows.
        if after > line + 1 and len(fields) != len(self.header):
            what = f"{len(fields)} fields, not {len(self.header)}"
            return _unclosed_quote(what, self.file, line, after - 1)
        if len(fields) > len(self.header):
            detail = f"{len(fields)} fields, expected {len(self.header)} as in the header"
            return Reject.of_malformed_row(
                self.file, line, f"{detail}. Quote fields that contain the delimiter."
            )
        values = {name: fields[i] for name, i in self.positions.items() if i < len(fields)}
        if bad := [name for name, value in values.items() if has_surrogates(value)]:
            return Reject.of_malformed_row(
                self.file, line, f"column {bad[0]!r} is not valid UTF-8; save the table as UTF-8"
            )
        return Row(values, self.file, line, is_text=True) if fields else None


def _reader(lines: BoundedLines, delimiter: str) -> Iterator[list[str]]:
    # The limit is global to the process, and other code may change it: set it for each reader.
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    return csv.reader(lines, delimiter=delimiter, strict=True)


@contextmanager
def _lines(stream: BinaryIO, first: int = 1, is_start: bool = True) -> Iterator[BoundedLines]:
    # Only the start of a file has a byte order mark; elsewhere, its bytes belong to the text.
    encoding = ("utf-16" if is_utf16(stream) else "utf-8-sig") if is_start else "utf-8"
    with io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="") as text:
        lines = BoundedLines(text)
        lines.number = first - 1
        yield lines


def is_utf16(stream: BinaryIO) -> bool:
    """Returns whether the stream begins with a byte order mark of UTF-16."""
    return isinstance(stream, io.BufferedReader) and stream.peek(2)[:2] in _UTF16


def _reject_of(error: csv.Error, file: str, line: int, last: int) -> Reject:
    if "unexpected end" in str(error):
        detail = "the quote that opens here is not closed, and the rest of the table is lost"
        return Reject.of_lost_rows(file, line, f"{detail}. Close it.")
    if last > line:
        return _unclosed_quote(str(error), file, line, last)
    if "longer than" in str(error) or "field larger" in str(error):
        return Reject.of_malformed_row(file, line, str(error))
    return Reject.of_malformed_row(file, line, f"{error}. Double the quotes within a field.")


def _unclosed_quote(what: str, file: str, line: int, last: int) -> Reject:
    detail = (
        f"the quoted field that begins here contains the rows up to line {last}, which are lost "
        f"({what}). Close the quote, and double the quotes within a field"
    )
    return Reject.of_lost_rows(file, line, detail)
