"""Parquet tables: one row group at a time, only the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.records import Row
from schemas.rejects import Reject

BATCH_ROWS = 4096


def first_rows(metadata: Any) -> list[int]:
    """Returns the number of the first row of each row group, from 1, from a file's metadata."""
    counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    return [1 + sum(counts[:i]) for i in range(len(counts))]


def unsupported_columns(schema: pa.Schema) -> dict[str, str]:
    """Returns the columns whose type makes no feature, with that type."""
    return {field.name: str(field.type) for field in schema if not _supported(field.type)}


def _supported(type_: pa.DataType) -> bool:
    types = pa.types
    nesting = (types.is_dictionary, types.is_list, types.is_large_list, types.is_fixed_size_list)
    if any(nests(type_) for nests in nesting):
        return _supported(type_.value_type)
    checks = (
        types.is_null,
        types.is_boolean,
        types.is_integer,
        types.is_floating,
        types.is_string,
        types.is_large_string,
        types.is_binary,
        types.is_large_binary,
    )
    return any(check(type_) for check in checks)


def read_row_group(
    parquet: pq.ParquetFile, group: int, first: int, file: str, columns: Sequence[str] | None
) -> Iterator[Row | Reject]:
    """Yields every row of a row group, in order; what is damaged as rejects, one a row.

    Args:
        parquet: the open file.
        group: which row group.
        first: the number of its first row within the file, from 1.
        file: what to call the table in sources.
        columns: the columns to keep, or None for all.
    """
    end = first + parquet.metadata.row_group(group).num_rows
    line, damage = first, "it gives fewer rows than it should"
    present = parquet.schema_arrow.names
    kept = present if columns is None else [name for name in columns if name in present]
    try:
        for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=kept):
            for values in batch.to_pylist():
                yield Row(values, file, line)
                line += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        damage = str(error)
    detail = f"row group {group} cannot be read on from here: {damage}"
    for damaged in range(line, end):  # damage can end a row group without an error, too
        yield Reject.of_malformed_row(file, damaged, detail)
