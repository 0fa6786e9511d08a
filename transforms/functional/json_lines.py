"""JSONL tables: one JSON object a line, from bytes."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from schemas.records import Row
from schemas.rejects import Reject

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_rows(stream: BinaryIO, file: str, columns: Sequence[str] | None) -> Iterator[Row | Reject]:
    """Yields every row in order; one that cannot be read as its reject. Blank lines are no rows.

    Args:
        stream: the table's bytes, not compressed.
        file: what to call the table in sources.
        columns: the columns to keep, or None for all.
    """
    line = 0
    try:
        for line, text in enumerate(stream, start=1):
            if text.strip():
                yield _row(text.removeprefix(_BYTE_ORDER_MARK), file, line, columns)
    except (EOFError, OSError, zlib.error) as error:  # a gzip stream that ends early or is damaged
        yield Reject.of_malformed_row(
            file, line + 1, f"the table cannot be read on from here: {error}"
        )


def parse_object(text: bytes) -> dict[str, Any]:
    """Returns the object that one line holds.

    Raises:
        ValueError: if it holds something else, or names a column twice.
    """
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
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


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is beyond the range of floats")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {repeated!r} stands twice")
    return values
