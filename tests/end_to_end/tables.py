"""Writes label tables in every supported format."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = Sequence[dict[str, Any]]

SEPARATOR = "|"
"""Parts the items of a list within one field of CSV or TSV."""


def write_table(path: Path, rows: Rows) -> Path:
    """Writes a table in the format of its suffix, compressed if that is .gz."""
    format_ = path.name.removesuffix(".gz").rpartition(".")[2]
    writers = {
        "csv": _delimited(","),
        "tsv": _delimited("\t"),
        "jsonl": _jsonl,
        "parquet": _parquet,
    }
    data = writers[format_](rows)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def _delimited(delimiter: str) -> Any:
    def write(rows: Rows) -> bytes:
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
        table.writeheader()
        table.writerows({name: _field(value) for name, value in row.items()} for row in rows)
        return text.getvalue().encode("utf-8")

    return write


def _field(value: Any) -> Any:
    return SEPARATOR.join(map(str, value)) if isinstance(value, list) else value


def _jsonl(rows: Rows) -> bytes:
    lines = [json.dumps(row, ensure_ascii=bool(i % 2)) + "\n" for i, row in enumerate(rows)]
    return "".join(lines).encode("utf-8")


def _parquet(rows: Rows) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink, row_group_size=max(1, len(rows) // 3))
    return sink.getvalue()
