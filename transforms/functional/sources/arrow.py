"""Arrow tables: IPC files (Feather 2) and IPC streams.

Images in uncompressed local files are referenced by byte range and not copied.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Embedded, Location, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Probe, Projection, SourceSplit, TableFile
from recordmill.transforms.functional.sources import batches
from recordmill.transforms.functional.sources.batches import BATCH_ROWS, rows_of, text_as_bytes
from recordmill.transforms.functional.sources.parquet import distinct, present, unsupported_columns

FILE_SIGNATURE = b"ARROW1"
FEATHER_1_SIGNATURE = b"FEA1"

_MAGIC_BYTES = 8
_CONTINUATION = b"\xff" * 4
_END_OF_STREAM = _CONTINUATION + bytes(4)

_DAMAGE = (pa.ArrowException, EOFError, OSError, UnicodeDecodeError, MemoryError)
"""Errors of a damaged file; a damaged length can request any amount of memory."""


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the columns of a table, and whether it has rows.

    Args:
        stream: the bytes of the file, decompressed.
        file: the file.

    Raises:
        UsageError: if two columns share a name, or the file is Feather version 1.
    """
    if stream.peek(4)[:4] == FEATHER_1_SIGNATURE:  # type: ignore[attr-defined]
        raise UsageError(
            f"{file.path}: Feather version 1 is not supported; rewrite it as version 2"
        )
    with _opened(stream, file) as table:
        schema = table.reader.schema
        has_rows = any(batch.num_rows for batch in _batches(table.reader))
    return Probe(
        distinct(schema.names, file),
        has_rows,
        unsupported_columns(schema),
        batches.embedded_columns(schema),
    )


def read(
    stream: BinaryIO, split: SourceSplit, projection: Projection
) -> Iterator[Row | Embedded | Reject]:
    """Yields every row in order; damage is reported as one reject for the rows lost after it.

    Args:
        stream: the bytes of the file, decompressed.
        split: the split to read.
        projection: the columns to keep, and how to read images.
    """
    line = 1
    try:
        with _opened(stream, split.file) as table:
            for batch in _batches(table.reader):
                _check_values(batch)
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    some = batch.slice(start, BATCH_ROWS)
                    for row in _rows(some, line, split, projection, table.whole):
                        yield row
                        line += 1
            _check_end(table)
    except _DAMAGE as error:
        detail = f"the rest of the table cannot be read: {error}"
        yield Reject.of_lost_rows(split.file.path, line, detail)


class _Table(NamedTuple):
    """An open table.

    Attributes:
        reader: of the record batches.
        source: the bytes below the reader.
        whole: the memory-mapped file; None for compressed and remote files.
    """

    reader: pa.RecordBatchReader | pa.RecordBatchFileReader
    source: pa.NativeFile
    whole: pa.Buffer | None


@contextmanager
def _opened(stream: BinaryIO, file: TableFile) -> Iterator[_Table]:
    """Opens a table."""
    # IPC files begin with a signature; streams begin with their schema.
    is_file = stream.peek(6)[:6] == FILE_SIGNATURE  # type: ignore[attr-defined]
    # Only plain local files can be mapped; others are decompressed or remote.
    mapped = isinstance(getattr(stream, "raw", None), io.FileIO)
    source = pa.memory_map(file.path) if mapped else pa.PythonFile(stream, "r")
    open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
    with source:
        whole = source.read_buffer(source.size()) if mapped else None
        source.seek(0)
        yield _Table(open_reader(source), source, whole)


def _check_values(batch: pa.RecordBatch) -> None:
    """Validates a batch, except for UTF-8: a row with invalid text is rejected on its own.

    Raises:
        pa.ArrowException: if the batch is damaged.
    """
    batch.validate()
    for column in batch.columns:
        text_as_bytes(column).validate(full=True)


def _check_end(table: _Table) -> None:
    """Checks that no record batch follows those that were read.

    Arrow accepts a stream that is cut between two batches, and a footer that lists fewer batches
    than the file has. The batches before the footer are a stream of their own.

    Raises:
        EOFError: if batches may be missing.
    """
    reader, source = table.reader, table.source
    if not isinstance(reader, pa.RecordBatchFileReader):
        end = source.tell()
        source.seek(0)
        # Streams before Arrow 0.15 have no continuation marker, and end with 4 zero bytes.
        modern = source.read(4) == _CONTINUATION
        source.seek(max(0, end - len(_END_OF_STREAM)))
        if modern and source.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
            raise EOFError("the stream ends without its end-of-stream marker")
        source.seek(end)
        if source.read(1):
            raise EOFError(f"the file continues after the end of its stream, at byte {end}")
    elif table.whole is not None and _batches_before_footer(table.whole) > len(_numbers(reader)):
        raise EOFError("the file has more batches than its footer lists")


def _batches_before_footer(whole: pa.Buffer) -> int:
    """Returns the number of batches before the end-of-stream marker, or before damage."""
    count = 0
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(whole[_MAGIC_BYTES:]))
    with suppress(*_DAMAGE):  # damage in listed batches is reported by the reader
        for message in messages:
            count += message.type == "record batch"
    return count


def _numbers(reader: pa.RecordBatchFileReader) -> range:
    return range(reader.num_record_batches)


def _batches(reader: pa.RecordBatchReader | pa.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        return (reader.get_batch(i) for i in _numbers(reader))
    return iter(reader)


def _rows(
    batch: pa.RecordBatch,
    line: int,
    split: SourceSplit,
    projection: Projection,
    whole: pa.Buffer | None,
) -> Iterator[Row | Embedded]:
    path, names, image = split.file.path, batch.schema.names, projection.image
    # Tables without embedded images: the image column, if any, holds paths.
    if image not in names or not batches.is_embedded(batch.schema.field(image).type):
        kept = present(names, projection.columns)
        for number, values in enumerate(rows_of(batch.select(kept)), start=line):
            yield Row(values, path, number)
        return
    column = batch.column(names.index(image))
    images, paths = batches.bytes_of(column), batches.paths_of(column)
    kept = [name for name in present(names, projection.columns) if name != image]
    spans = batches.spans_of(images)
    for at, (span, others) in enumerate(zip(spans, rows_of(batch.select(kept)), strict=True)):
        row = Row(projection.apply({**others, image: paths[at]}), path, line + at)
        place = _place(span, path, whole) if span is not None else None
        # A byte range of a mapped file; else the bytes, or just their size in the analyze pass.
        if span is None or place is not None:
            yield replace(row, image=place)
        elif projection.pixels:
            yield Embedded(row, images[at].as_py())
        else:
            yield replace(row, image=Location(path, 0, span[1]))


def _place(span: tuple[int, int], path: str, whole: pa.Buffer | None) -> Location | None:
    """Returns the byte range of an image in its file; None for an image in decompressed memory."""
    address, size = span
    start = address - whole.address if whole is not None and size else 0
    if whole is None or not 0 <= start <= whole.size - size:
        return None
    return Location(path, start, start + size)
