"""A text table, read from a store in byte ranges as workers read it, and at once."""

from __future__ import annotations

import io
from itertools import chain
from typing import BinaryIO, cast

from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import delimited
from recordmill.transforms.functional.sources.text_ranges import align
from recordmill.transforms.inputs.formats import FORMATS, cut_text, scan_text
from recordmill.transforms.storage.files import ranged_size

TABLE = b"id,text\n" + b"".join(
    b'%d,"two\nlines"x\n' % n if n % 50 == 7 else b'%d,"two\nlines, ""%d"""\n' % (n, n)
    for n in range(300)
)
"""Rows of two lines, some of them damaged."""


def in_ranges(path: str, range_bytes: int) -> list[str]:
    """Returns the rows and rejects of a table that is read in ranges, without its path."""
    file = TableFile(path, "csv", size=ranged_size(path))
    parts = align((part, scan_text(part)) for part in cut_text(file, range_bytes))
    assert len(parts) == -(-len(TABLE) // range_bytes)
    read = (FORMATS["csv"].read(part, Projection()) for part in parts)
    rows = list(one_by_one(chain.from_iterable(read)))
    return [repr(row).replace(path, "") for row in rows]


def read_at_once(data: bytes) -> list[str]:
    """Returns the rows and rejects of a table, read by one reader."""
    stream = cast("BinaryIO", io.BufferedReader(io.BytesIO(data)))  # type: ignore[arg-type]
    found = delimited.read(stream, Part(TableFile("", "csv")), Projection())
    return [repr(row) for row in one_by_one(found)]
