"""Reads JSONL tables: one JSON object per line.

A malformed line becomes one reject, or one per object if a damaged line break joined several lines.
A truncated last line shows that the file is truncated; its reject has the reason `lost_rows`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.tables import Part, Probe, Projection, TableFile, column_names
from recordmill.transforms.functional.sources import delimited
from recordmill.transforms.functional.values.documents import parse_json
from recordmill.transforms.functional.values.typed import has_surrogates, short_repr

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD_ROWS = 1000
_MAX_JOINED = 1000
_DECODER = json.JSONDecoder()

# Matches the text between two joined objects: at most one character, the damaged line break.
_JOINT = re.compile(r"\s*(?:[^\s{]\s*)?(?=\{)")


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the names in the first rows as columns; UsageError if no row is a JSON object."""
    delimited.reject_binary(stream, file)
    first = list(islice(_read_rows(stream, file.path, None), _HEAD_ROWS))
    rows = [row for row in first if isinstance(row, Row)]
    if first and not rows:
        raise UsageError(
            f"{file.path}: expected a JSON object per line, got none in the first rows"
        )
    names = {name for row in rows for name in column_names(row.values)}
    return Probe(tuple(sorted(names)), has_rows=bool(rows))


def read(stream: BinaryIO, part: Part, projection: Projection) -> Iterator[Row | Reject]:
    """Yields each row of a file, or a byte range of it, or its reject."""
    return _read_rows(stream, part.file.path, projection, part.first)


def _read_rows(
    stream: BinaryIO, file: str, projection: Projection | None, first: int = 1
) -> Iterator[Row | Reject]:
    """Yields each row, or its reject, in the order of the file; blank lines are ignored.

    Where an unknown number of rows is lost, the reject has the reason `lost_rows`.
    """
    line = first - 1
    try:
        for line, text in delimited.bounded_lines(stream, first):
            if text is None:
                yield Reject.of_malformed_row(file, line, delimited.long_line())
            elif text.strip():
                yield from _rows(text.removeprefix(_BYTE_ORDER_MARK), file, line, projection)
    except (OSError, *DAMAGED_STREAM) as error:
        detail = f"the rest of the table cannot be read: {error}"
        yield Reject.of_lost_rows(file, line + 1, detail)


def parse_object(text: bytes) -> dict[str, Any]:
    """Parses the JSON object of one line; raises ValueError for others, and lone surrogates."""
    value = parse_json(text.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"expected an object {{…}}, got {type(value).__name__}")
    # In UTF-8, only an escape can stand for a surrogate, and few lines have one.
    if b"\\ud" in text or b"\\uD" in text:
        for name in _names(value):
            if has_surrogates(name):
                raise ValueError(f"the name {short_repr(name)} contains a lone surrogate")
    return value


def _names(value: Any) -> Iterator[str]:
    """Yields the names in an object and in those below it; fields of these are columns, too."""
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _names(item)


def _rows(
    text: bytes, file: str, line: int, projection: Projection | None
) -> Iterator[Row | Reject]:
    try:
        values = parse_object(text)
    except ValueError as error:
        yield from _rejects_of(text, error, file, line)
        return
    yield Row(values if projection is None else projection.apply(values), file, line)


def _rejects_of(text: bytes, error: ValueError, file: str, line: int) -> Iterator[Reject]:
    """Yields one reject per object in an invalid line, or one for a line that lost rows."""
    decoded = text.decode("utf-8", "replace").lstrip()
    # Only the last line of a file can lack a line break.
    if not text.endswith(b"\n") and _is_truncated(decoded):
        detail = f"the file ends within this line, and rows after it are lost: {error}"
        yield Reject.of_lost_rows(file, line, detail)
        return
    count = _count_objects(decoded)
    if count is None:
        detail = f"contains an unknown number of objects: {error}; split the line"
        yield Reject.of_lost_rows(file, line, detail)
        return
    # One reject per object, so that the row counts are those of the undamaged file.
    for _ in range(max(1, count)):
        yield Reject.of_malformed_row(file, line, f"not a JSON object: {error}")


def _is_truncated(text: str) -> bool:
    if not text.startswith("{"):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or not text.endswith("}")
    except (ValueError, RecursionError):
        pass
    return False


def _count_objects(text: str) -> int | None:
    """Returns the number of consecutive objects in a line; None if it cannot be determined.

    Objects are consecutive if at most one character, a damaged line break, is between them. Others
    are not counted, since they may be nested in a damaged object.

    >>> [_count_objects(text) for text in ('{"a": 1}', '{"a": 1}?{"a": 2}', '{"a": 1}{"a"')]
    [1, 2, None]
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
