"""Reads Parquet files in the calling thread only; no other module opens a Parquet file.

Arrow's threads keep a reference to their input a moment longer than a call takes. If the input is a
Python object and the interpreter is exiting, its release aborts the process ("terminate called
without an active exception").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

_BUFFER_BYTES = 2**20


def open_parquet(source: BinaryIO | bytes) -> pq.ParquetFile:
    """Opens a Parquet file, with verification of its page checksums.

    Args:
        source: the file, or all its bytes.

    Raises:
        pa.ArrowException: if it is not a valid one.
    """
    return pq.ParquetFile(
        pa.BufferReader(source) if isinstance(source, bytes) else source,
        page_checksum_verification=True,
        buffer_size=_BUFFER_BYTES,  # streams column chunks, which may be larger than memory
        pre_buffer=False,  # pre-buffering would use Arrow's I/O threads
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
        rows: the maximum number of rows in a batch.
        columns: the columns to read, or None for all.
        row_groups: the row groups to read, or None for all.
    """
    # Without a list `iter_batches` reads all columns, but with an empty one, none.
    return parquet.iter_batches(  # type: ignore[no-any-return]
        rows,
        row_groups=row_groups and list(row_groups),
        columns=None if columns is None else list(columns),
        use_threads=False,
    )
