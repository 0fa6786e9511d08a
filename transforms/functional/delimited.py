"""CSV and TSV tables, as people really write them: one row at a time, from bytes.

The text is decoded with surrogate escapes, so that bytes that are no UTF-8 spoil their own row and
no other. Quotes are strict: a guess at what a stray quote meant would lose rows in silence.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from schemas.records import Row
from schemas.rejects import Reject
from transforms.functional.values import has_surrogates

UNREADABLE = (EOFError, OSError, zlib.error, UnicodeError)
"""What a gzip stream raises that ends early or is damaged, and text that is no UTF-16."""

MAX_FIELD_CHARACTERS = 16 * 2**20


def read_header(stream: BinaryIO, delimiter: str) -> list[str]:
    """Returns the column names of a table: the fields of its first row; [] if it has none.

    Raises:
        ValueError: if the first row is no row of text.
    """
    try:
        header: list[str] = next(_reader(stream, delimiter), [])
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if any(has_surrogates(name) or "\0" in name for name in header):
        raise ValueError("the first row is not text in UTF-8")
    return header


def read_rows(
    stream: BinaryIO, delimiter: str, file: str, columns: Sequence[str] | None
) -> Iterator[Row | Reject]:
    """Yields every row below the header, in order; one that cannot be read as its reject.

    Args:
        stream: the table's bytes, not compressed.
        delimiter: what parts the fields.
        file: what to call the table in sources.
        columns: the columns to keep, or None for all.
    """
    try:
        reader = _reader(stream, delimiter)
        header: list[str] = next(reader, [])
    except (csv.Error, *UNREADABLE) as error:
        yield Reject.of_malformed_row(file, 1, f"the table cannot be read: {error}")
        return
    wanted = [
        (name, header.index(name))
        for name in (header if columns is None else columns)
        if name in header
    ]
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield Reject.of_malformed_row(file, line, _explain(error))
            continue
        except UNREADABLE as error:
            yield Reject.of_malformed_row(
                file, line, f"the table cannot be read on from here: {error}"
            )
            return
        if fields is None:
            return
        if fields:  # a blank line is no row
            yield _row(fields, header, wanted, file, line)


def _reader(stream: BinaryIO, delimiter: str) -> Any:
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    text = io.TextIOWrapper(
        stream, encoding=_encoding(stream), errors="surrogateescape", newline=""
    )
    return csv.reader(text, delimiter=delimiter, strict=True)


def _encoding(stream: BinaryIO) -> str:
    """Returns the encoding that the byte order mark tells: spreadsheets save UTF-16, too."""
    head = stream.peek(2)[:2] if isinstance(stream, io.BufferedReader) else b""
    return "utf-16" if head in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _row(
    fields: list[str], header: list[str], wanted: list[tuple[str, int]], file: str, line: int
) -> Row | Reject:
    """Returns the row; trailing fields may be missing, but none may be too many."""
    if len(fields) > len(header):
        detail = f"{len(fields)} fields, expected {len(header)} as in the header"
        return Reject.of_malformed_row(
            file, line, f"{detail}; quote a field that holds the delimiter"
        )
    present = len(fields)
    values = {name: fields[i] for name, i in wanted if i < present}
    if bad := [name for name, value in values.items() if has_surrogates(value)]:
        return Reject.of_malformed_row(file, line, f"column {bad[0]!r} is not text in UTF-8")
    return Row(values, file, line, is_text=True)


def _explain(error: csv.Error) -> str:
    """Returns what the csv module says, with the remedy."""
    if "unexpected end" in str(error):
        return "the quote that opens here is never closed: the rest of the table is lost in it"
    return f"{error}; write a quote within a field as two quotes"
