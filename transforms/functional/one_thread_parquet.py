"""Reads Parquet files in the calling thread; all other modules open Parquet files through this one.

A thread of Arrow can hold a reference to its input after the call that started it has returned. If
the input is a Python object and the interpreter is exiting, releasing the reference aborts the
process ("terminate called without an active exception").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

_BUFFER_BYTES = 2**20


def open_parquet(source: BinaryIO | bytes) -> pq.ParquetFile:
    """Opens a Parquet file; reading it verifies the page checksums.

    Args:
        source: the file, or its content.

    Raises:
        pa.ArrowException: if the file is not valid Parquet.
    """
    return pq.ParquetFile(
        pa.BufferReader(source) if isinstance(source, bytes) else source,
        page_checksum_verification=True,
        # Streams column chunks, which may be larger than memory.
        buffer_size=_BUFFER_BYTES,
        # Pre-buffering uses Arrow's I/O threads.
        pre_buffer=False,
    )


def read_table(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads a whole table.

    Args:
        data: the content of the file.
        columns: the columns to read, or None for all.

    Raises:
        pa.ArrowException: if the file is not valid Parquet.
        KeyError: if a column does not exist.
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
        rows: the maximum number of rows in a batch.
        columns: the columns to read, or None for all.
        row_groups: the row groups to read, or None for all.
    """
    # `iter_batches` reads all columns for None, and no column for an empty list.
    return parquet.iter_batches(  # type: ignore[no-any-return]
        rows,
        row_groups=row_groups and list(row_groups),
        columns=None if columns is None else list(columns),
        use_threads=False,
    )
