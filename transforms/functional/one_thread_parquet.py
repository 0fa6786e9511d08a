"""Parquet files, read by the calling thread alone.

Arrow's own threads hold on to what they read from for a moment longer than a call takes. If that is
a Python object and the interpreter is ending, letting go of it aborts the process ("terminate
called without an active exception"). Nothing else in recordmill opens a Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

_BUFFER_BYTES = 2**20


def open_parquet(source: BinaryIO | bytes) -> pq.ParquetFile:
    """Opens a Parquet file whose pages are checked.

    Args:
        source: the file, or all its bytes.

    Raises:
        pa.ArrowException: if it is not a valid one.
    """
    return pq.ParquetFile(
        pa.BufferReader(source) if isinstance(source, bytes) else source,
        page_checksum_verification=True,
        buffer_size=_BUFFER_BYTES,  # a column chunk may be larger than memory
        pre_buffer=False,  # else threads read ahead
    )


def read_table(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads a whole table.

    Args:
        data: the bytes of the file.
        columns: the columns to read, or None for all.

    Raises:
        pa.ArrowException: if it is not a valid one.
        KeyError: if there is no such column.
    """
    parquet = open_parquet(data)
    table = parquet.read(columns and list(columns), use_threads=False)
    return table if columns is None else table.select(list(columns))


def read_batches(
    parquet: pq.ParquetFile,
    rows: int,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table in batches.

    Args:
        parquet: the open file.
        rows: how many at most are in a batch.
        columns: the columns to read, or None for all.
        row_groups: the row groups to read, or None for all.
    """
    return parquet.iter_batches(  # type: ignore[no-any-return]
        rows,
        row_groups=row_groups and list(row_groups),
        columns=None if columns is None else list(columns),
        use_threads=False,
    )
