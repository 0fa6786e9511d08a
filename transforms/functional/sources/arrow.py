"""Arrow tables: IPC files, which Feather 2 files are, and IPC streams.

Images in a file that lies on this machine, uncompressed, have addresses: they are not copied.
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
"""Memory: a damaged length asks for any amount of it."""


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns a table's columns, and whether its first batches have rows.

    Raises:
        UsageError: if two columns have one name, or the file is of Feather's first version.
    """
    if stream.peek(4)[:4] == FEATHER_1_SIGNATURE:  # type: ignore[attr-defined]
        raise UsageError(f"{file.path}: is of Feather's version 1; write it again as version 2")
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
    """Yields every row, in order; from where a file is damaged, that the others are lost."""
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
        detail = f"the table cannot be read on from here: {error}"
        yield Reject.of_lost_rows(split.file.path, line, detail)


class _Table(NamedTuple):
    """An open table.

    Attributes:
        reader: of its batches.
        source: what they are read from.
        whole: the whole file as memory, if it lies on this machine.
    """

    reader: pa.RecordBatchReader | pa.RecordBatchFileReader
    source: pa.NativeFile
    whole: pa.Buffer | None


@contextmanager
def _opened(stream: BinaryIO, file: TableFile) -> Iterator[_Table]:
    """Opens a table."""
    is_file = stream.peek(6)[:6] == FILE_SIGNATURE  # type: ignore[attr-defined]
    mapped = isinstance(getattr(stream, "raw", None), io.FileIO)
    source = pa.memory_map(file.path) if mapped else pa.PythonFile(stream, "r")
    open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
    with source:
        whole = source.read_buffer(source.size()) if mapped else None
        source.seek(0)
        yield _Table(open_reader(source), source, whole)


def _check_values(batch: pa.RecordBatch) -> None:
    """Sees that a batch is whole; text that is not UTF-8 is left to its own row.

    Raises:
        pa.ArrowException: if it is damaged.
    """
    batch.validate()
    for column in batch.columns:
        text_as_bytes(column).validate(full=True)


def _check_end(table: _Table) -> None:
    """Sees that the batches that were read are all that the file has.

    Arrow takes a stream that ends between two batches for a whole one, and believes a footer that
    names fewer batches than there are. What precedes it is a stream, too.

    Raises:
        EOFError: if there may be more.
    """
    reader, source = table.reader, table.source
    if not isinstance(reader, pa.RecordBatchFileReader):
        end = source.tell()
        source.seek(0)
        modern = source.read(4) == _CONTINUATION
        source.seek(max(0, end - len(_END_OF_STREAM)))
        if modern and source.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
            raise EOFError("the stream ends without its end-of-stream marker")
        source.seek(end)
        if source.read(1):
            raise EOFError(f"the file goes on after the end of its stream, at byte {end}")
    elif table.whole is not None and _batches_before_footer(table.whole) > len(_numbers(reader)):
        raise EOFError("the file holds more batches than its footer names")


def _batches_before_footer(whole: pa.Buffer) -> int:
    """Returns how many batches a file has up to its end-of-stream marker, or to what is damaged."""
    count = 0
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(whole[_MAGIC_BYTES:]))
    with suppress(*_DAMAGE):  # what the footer names is read, and its damage found, without this
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
        if span is None or place is not None:
            yield replace(row, image=place)
        elif projection.pixels:
            yield Embedded(row, images[at].as_py())
        else:
            yield replace(row, image=Location(path, 0, span[1]))


def _place(span: tuple[int, int], path: str, whole: pa.Buffer | None) -> Location | None:
    """Returns the place of an image in its file; None for one that was decompressed from it."""
    address, size = span
    start = address - whole.address if whole is not None and size else 0
    if whole is None or not 0 <= start <= whole.size - size:
        return None
    return Location(path, start, start + size)
