"""JSONL tables: one JSON object a line, from bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from schemas.errors import UsageError
from schemas.records import Row
from schemas.rejects import Reject
from schemas.tables import Head, TableFile, TablePart, Wanted
from transforms.functional.bounded_json import parse_json
from transforms.functional.tables.bounded_lines import LongLine, bounded_lines
from transforms.functional.tables.delimited import refuse_binary

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD_ROWS = 1000


def look(stream: BinaryIO, file: TableFile) -> Head:
    """Returns the columns of the first rows.

    Raises:
        UsageError: if none of them is an object.
    """
    refuse_binary(stream, file)
    first = islice(read_rows(stream, file.path, None), _HEAD_ROWS)
    rows = [row for row in first if isinstance(row, Row)]
    if not rows:
        raise UsageError(f"{file.path}: none of the first lines is a JSON object")
    return Head(tuple(sorted({name for row in rows for name in row.values})), has_rows=True)


def read(stream: BinaryIO, part: TablePart, wanted: Wanted) -> Iterator[Row | Reject]:
    """Yields every row of a table."""
    return read_rows(stream, part.file.path, wanted.columns)


def read_rows(stream: BinaryIO, file: str, columns: Sequence[str] | None) -> Iterator[Row | Reject]:
    """Yields every row in order; one that cannot be read as its reject. Blank lines are no rows.

    Args:
        stream: the table's bytes, not compressed.
        file: what to call the table in sources.
        columns: the columns to keep, or None for all.
    """
    line = 0
    try:
        for line, text in enumerate(bounded_lines(stream), start=1):
            if isinstance(text, LongLine):
                yield Reject.of_malformed_row(file, line, str(text))
            elif text.strip():
                yield _row(text.removeprefix(_BYTE_ORDER_MARK), file, line, columns)
    except (EOFError, OSError, zlib.error) as error:  # a gzip stream that ends early or is damaged
        yield Reject.of_malformed_row(
            file, line + 1, f"the table cannot be read on from here: {error}"
        )


def parse_object(text: bytes) -> dict[str, Any]:
    """Returns the object that one line holds.

    Raises:
        ValueError: if it holds something else; see `parse_json`.
    """
    value = parse_json(text.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"expected an object {{…}}, got {type(value).__name__}")
    return value


def _row(text: bytes, file: str, line: int, columns: Sequence[str] | None) -> Row | Reject:
    try:
        values = parse_object(text)
    except ValueError as error:
        return Reject.of_malformed_row(file, line, f"no JSON object: {error}")
    if columns is not None:
        values = {name: values[name] for name in columns if name in values}
    return Row(values, file, line)
