"""JSONL tables: one JSON object per line.

A malformed line is one reject. Lines joined by a damaged line break are as many rejects as objects.
A truncated last line means that the file is truncated, and rows are lost.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Probe, Projection, SourceSplit, TableFile
from recordmill.transforms.functional.sources.delimited import (
    LongLine,
    bounded_lines,
    reject_binary,
)
from recordmill.transforms.functional.values.bounded_json import parse_json
from recordmill.transforms.functional.values.typed import has_surrogates, shown

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD_ROWS = 1000
_MAX_JOINED = 1000
_DECODER = json.JSONDecoder()
_JOINT = re.compile(r"\s*(?:[^\s{]\s*)?(?=\{)")
"""The text between two joined objects: at most one character, a damaged line break."""


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the columns of the first rows.

    Args:
        stream: the bytes of the file, decompressed.
        file: the file.

    Raises:
        UsageError: if none of them is a JSON object.
    """
    reject_binary(stream, file)
    first = islice(read_rows(stream, file.path, None), _HEAD_ROWS)
    rows = [row for row in first if isinstance(row, Row)]
    if not rows:
        raise UsageError(f"{file.path}: none of the first lines is a JSON object")
    return Probe(tuple(sorted({name for row in rows for name in row.values})), has_rows=True)


def read(stream: BinaryIO, split: SourceSplit, projection: Projection) -> Iterator[Row | Reject]:
    """Yields every row of a table.

    Args:
        stream: the bytes of the file, decompressed.
        split: the split to read.
        projection: the columns to keep, and how to read images.
    """
    return read_rows(stream, split.file.path, projection.columns)


def read_rows(stream: BinaryIO, file: str, columns: Sequence[str] | None) -> Iterator[Row | Reject]:
    """Yields every row in order, or its reject; blank lines are ignored.

    If an unknown number of rows is lost, one reject has the reason `lost_rows`.

    Args:
        stream: the bytes of the table, decompressed.
        file: the path that rows report as their source.
        columns: the columns to keep, or None for all.
    """
    line = 0
    try:
        for line, text in enumerate(bounded_lines(stream), start=1):
            if isinstance(text, LongLine):
                yield Reject.of_malformed_row(file, line, str(text))
            elif text.strip():
                yield from _rows(text.removeprefix(_BYTE_ORDER_MARK), file, line, columns)
    except (EOFError, OSError, zlib.error) as error:  # a truncated or damaged gzip stream
        detail = f"the rest of the table cannot be read: {error}"
        yield Reject.of_lost_rows(file, line + 1, detail)


def parse_object(text: bytes) -> dict[str, Any]:
    """Returns the JSON object of one line.

    Raises:
        ValueError: if the line is not an object, see `parse_json`, or a name is not valid Unicode.
    """
    value = parse_json(text.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"expected an object {{…}}, got {type(value).__name__}")
    if bad := [name for name in value if has_surrogates(name)]:
        raise ValueError(f"the name {shown(bad[0])} contains a lone surrogate")
    return value


def _rows(
    text: bytes, file: str, line: int, columns: Sequence[str] | None
) -> Iterator[Row | Reject]:
    """Yields the row of one line, or its rejects."""
    try:
        values = parse_object(text)
    except ValueError as error:
        yield from _unread(text, error, file, line)
        return
    if columns is not None:
        values = {name: values[name] for name in columns if name in values}
    yield Row(values, file, line)


def _unread(text: bytes, error: ValueError, file: str, line: int) -> Iterator[Reject]:
    shown = text.decode("utf-8", "replace").lstrip()
    # Only the last line has no line break.
    if not text.endswith(b"\n") and _is_cut(shown):
        detail = f"the file ends within this line, and rows after it are lost: {error}"
        yield Reject.of_lost_rows(file, line, detail)
        return
    count = _objects_in(shown)
    if count is None:
        detail = f"contains an unknown number of objects: {error}; split the line"
        yield Reject.of_lost_rows(file, line, detail)
        return
    # One reject per object, so that row counts match the intended file.
    for _ in range(max(1, count)):
        yield Reject.of_malformed_row(file, line, f"not a JSON object: {error}")


def _is_cut(text: str) -> bool:
    """Returns whether a text is a truncated JSON object."""
    if not text.startswith("{"):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or not text.endswith("}")
    except (ValueError, RecursionError):
        pass
    return False


def _objects_in(text: str) -> int | None:
    """Returns the number of consecutive objects in a line; None if it cannot be determined.

    Only objects that directly follow each other count, with at most one character in between where
    a line break was damaged: a damaged object can contain others.

    >>> _objects_in('{"a": 1}'), _objects_in('{"a": 1}?{"a": 2}'), _objects_in('{"a": 1}{"a"')
    (1, 2, None)
    """
    count, joint = 0, _JOINT.match(text)
    while joint:
        try:
            _, end = _DECODER.raw_decode(text, joint.end())
        except (ValueError, RecursionError):
            return None if count else 0
        count += 1
        if count > _MAX_JOINED:
            return None
        joint = _JOINT.match(text, end)
    return count
