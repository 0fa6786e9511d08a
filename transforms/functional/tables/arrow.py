"""Arrow tables: IPC files, which Feather 2 files are, and IPC streams.

Pictures in a file that lies on this machine, uncompressed, have addresses: they are not copied.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa

from schemas.errors import UsageError
from schemas.records import Embedded, Location, Row
from schemas.rejects import Reject
from schemas.tables import Head, TableFile, TablePart, Wanted
from transforms.functional.tables import embedded
from transforms.functional.tables.parquet import BATCH_ROWS, distinct, unsupported_columns

FILE_SIGNATURE = b"ARROW1"
FEATHER_1_SIGNATURE = b"FEA1"

_DAMAGE = (pa.ArrowException, EOFError, OSError, UnicodeDecodeError, MemoryError)
"""Memory: a damaged length asks for any amount of it."""


def look(stream: BinaryIO, file: TableFile) -> Head:
    """Returns a table's columns, and whether its first batches have rows.

    Raises:
        UsageError: if two columns have one name, or the file is of Feather's first version.
    """
    if stream.peek(4)[:4] == FEATHER_1_SIGNATURE:  # type: ignore[attr-defined]
        raise UsageError(f"{file.path}: is of Feather's version 1; write it anew as version 2")
    with _opened(stream, file) as (reader, _):
        schema = reader.schema
        has_rows = any(batch.num_rows for batch in _batches(reader))
    return Head(
        distinct(schema.names, file),
        has_rows,
        unsupported_columns(schema),
        embedded.embedded_columns(schema),
    )


def read(stream: BinaryIO, part: TablePart, wanted: Wanted) -> Iterator[Row | Embedded | Reject]:
    """Yields every row, in order; from where a file is damaged one reject."""
    line = 1
    try:
        with _opened(stream, part.file) as (reader, whole):
            for batch in _batches(reader):
                batch.validate(full=True)
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    for row in _rows(batch.slice(start, BATCH_ROWS), line, part, wanted, whole):
                        yield row
                        line += 1
    except _DAMAGE as error:
        detail = f"the table cannot be read on from here: {error}"
        yield Reject.of_malformed_row(part.file.path, line, detail)


@contextmanager
def _opened(
    stream: BinaryIO, file: TableFile
) -> Iterator[tuple[pa.RecordBatchReader | pa.RecordBatchFileReader, pa.Buffer | None]]:
    """Opens a table; yields its reader, and the whole file as memory if it lies on this machine."""
    is_file = stream.peek(6)[:6] == FILE_SIGNATURE  # type: ignore[attr-defined]
    mapped = isinstance(getattr(stream, "raw", None), io.FileIO)
    source = pa.memory_map(file.path) if mapped else pa.PythonFile(stream, "r")
    open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
    with source:
        whole = source.read_buffer(source.size()) if mapped else None
        source.seek(0)
        yield open_reader(source), whole


def _batches(reader: pa.RecordBatchReader | pa.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return iter(reader)


def _rows(
    batch: pa.RecordBatch, line: int, part: TablePart, wanted: Wanted, whole: pa.Buffer | None
) -> Iterator[Row | Embedded]:
    path, names, image = part.file.path, batch.schema.names, wanted.image
    if image not in names or not embedded.is_embedded(batch.schema.field(image).type):
        kept = names if wanted.columns is None else [n for n in wanted.columns if n in names]
        for number, values in enumerate(batch.select(kept).to_pylist(), start=line):
            yield Row(values, path, number)
        return
    column = batch.column(names.index(image))
    pictures, paths = embedded.bytes_of(column), embedded.paths_of(column)
    kept = [n for n in names if n != image and (wanted.columns is None or n in wanted.columns)]
    others = batch.select(kept).to_pylist() if kept else [{}] * batch.num_rows
    for at, span in enumerate(embedded.spans_of(pictures)):
        row = Row(wanted.of({**others[at], image: paths[at]}), path, line + at)
        place = _place(span, path, whole) if span is not None else None
        if span is None or place is not None:
            yield replace(row, image=place)
        elif wanted.pixels:
            yield Embedded(row, pictures[at].as_py())
        else:
            yield replace(row, image=Location(path, 0, span[1]))


def _place(span: tuple[int, int], path: str, whole: pa.Buffer | None) -> Location | None:
    """Returns the place of a picture in its file; None for one that was decompressed from it."""
    address, size = span
    start = address - whole.address if whole is not None and size else 0
    if whole is None or not 0 <= start <= whole.size - size:
        return None
    return Location(path, start, start + size)
