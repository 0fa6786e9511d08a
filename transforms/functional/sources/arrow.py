"""Reads Arrow tables: IPC files (Feather version 2) and IPC streams.

Images in uncompressed local files are not copied, but referenced by byte range. Format:
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Location, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Part, Probe, Projection, TableFile
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.sources import arrays
from recordmill.transforms.functional.sources.parquet import probe_of_schema
from recordmill.transforms.functional.sources.stated_sizes import (
    CONTINUATION,
    MAX_BYTES,
    MAX_BYTES_PER_BYTE,
    SIGNATURE,
    first_too_large,
)

_FEATHER_1_SIGNATURE = b"FEA1"

_MAGIC_BYTES = 8  # "ARROW1" and two bytes of padding
_END_OF_STREAM = CONTINUATION + bytes(4)  # a continuation marker and a metadata size of 0

# Errors raised for a damaged file; a damaged length can request any amount of memory.
_DAMAGE = (pa.ArrowException, EOFError, OSError, UnicodeDecodeError, MemoryError)


def recognize(head: bytes) -> bool:
    """Returns whether a file has the format, by its first bytes."""
    return head.startswith((SIGNATURE, _FEATHER_1_SIGNATURE))


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the columns of a table from its schema; UsageError if two have the same name."""
    if stream.peek(4)[:4] == _FEATHER_1_SIGNATURE:  # type: ignore[attr-defined]
        raise UsageError(
            f"{file.path}: Feather version 1 is not supported. Rewrite it as version 2."
        )
    with _opened(stream, file) as table:
        schema = arrays.plain_schema(table.reader.schema)
        first = next((batch for batch in _batches(table) if batch.num_rows), None)
        classes = dict(arrays.dictionaries(first)) if first is not None else {}
    found = probe_of_schema(schema, file, has_rows=first is not None)
    return replace(found, classes={**classes, **found.classes})


def read(stream: BinaryIO, part: Part, projection: Projection) -> Iterator[RowBatch | Row | Reject]:
    """Yields the rows in order, and after damage a `lost_rows` reject."""
    line = 1
    try:
        with _opened(stream, part.file) as table:
            for batch in _batches(table):
                _check_values(batch)
                for rows in _slices(batch):
                    for found in _rows(rows, line, part, projection, table.mapped):
                        yield found
                        line += len(found) if isinstance(found, RowBatch) else 1
            _check_end(table)
    except _DAMAGE as error:
        detail = f"the rest of the table cannot be read: {error}"
        yield Reject.of_lost_rows(part.file.path, line, detail)


class _Table(NamedTuple):
    reader: pa.RecordBatchReader | pa.RecordBatchFileReader
    source: pa.NativeFile
    mapped: pa.Buffer | None  # the whole file, memory-mapped; None for compressed and remote files
    too_large: tuple[int, str] | None  # the first batch that is not read, and why


@contextmanager
def _opened(stream: BinaryIO, file: TableFile) -> Iterator[_Table]:
    # IPC files begin with a signature; streams begin with their schema.
    is_file = stream.peek(6)[:6] == SIGNATURE  # type: ignore[attr-defined]
    # Only uncompressed local files can be memory-mapped.
    is_local = isinstance(getattr(stream, "raw", None), io.FileIO)
    _check_expansion(stream)
    source = pa.memory_map(file.path) if is_local else pa.PythonFile(stream, "r")
    open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
    with source:
        mapped = source.read_buffer(source.size()) if is_local else None
        source.seek(0)
        reader = open_reader(source)
        too_large = first_too_large(stream, reader.schema) if stream.seekable() else None
        yield _Table(reader, source, mapped, too_large)


def _check_expansion(stream: BinaryIO) -> None:
    """Raises ArrowInvalid if a compressed file is far larger when it is decompressed."""
    if (most := getattr(stream, "largest_record", 0)) and stream.seekable():
        stream.seek(most)
        if stream.read(1):
            what = f"expected at most {most:,} bytes when a file of this size is decompressed, got"
            raise pa.ArrowInvalid(f"{what} more. Decompress the file first, if that is intended")
        stream.seek(0)


def _check_values(batch: pa.RecordBatch) -> None:
    """Validates a batch, except for its UTF-8: invalid text rejects only its own row."""
    batch.validate()
    for column in batch.columns:
        arrays.text_as_bytes(column).validate(full=True)


def _check_end(table: _Table) -> None:
    """Raises EOFError if batches may be missing.

    Arrow accepts a stream that is truncated between two batches, and a footer that lists fewer
    batches than the file contains.
    """
    reader, source = table.reader, table.source
    if not isinstance(reader, pa.RecordBatchFileReader):
        end = source.tell()
        source.seek(0)
        # Streams of Arrow before 0.15 have no continuation markers and end with 4 zero bytes.
        has_markers = source.read(4) == CONTINUATION
        source.seek(max(0, end - len(_END_OF_STREAM)))
        if has_markers and source.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
            raise EOFError("the stream ends without its end-of-stream marker")
        source.seek(end)
        if source.read(1):
            raise EOFError(f"the file continues after the end of its stream, at byte {end}")
    elif table.mapped is not None and _count_batches(table.mapped) > reader.num_record_batches:
        raise EOFError("the file has more batches than its footer lists")


def _count_batches(mapped: pa.Buffer) -> int:
    """Returns the number of batches before the end-of-stream marker, or before damage."""
    count = 0
    # An IPC file is: magic, a complete stream, footer, magic.
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(mapped[_MAGIC_BYTES:]))
    with suppress(*_DAMAGE):  # the reader reports damage in the batches of the footer
        for message in messages:
            count += message.type == "record batch"
    return count


def _batches(table: _Table) -> Iterator[pa.RecordBatch]:
    """Yields the batches; raises ArrowInvalid at one that would take too much memory."""
    reader, (last, why) = table.reader, table.too_large or (None, "")
    number = 0
    while number != last:
        try:
            if isinstance(reader, pa.RecordBatchFileReader):
                if number == reader.num_record_batches:
                    return
                batch = reader.get_batch(number)
            else:
                batch = reader.read_next_batch()
        except StopIteration:
            return
        yield batch
        number += 1
    raise pa.ArrowInvalid(why)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the rows in slices of bounded memory; ArrowInvalid if they repeat long texts."""
    _check_texts(batch, max(MAX_BYTES, MAX_BYTES_PER_BYTE * batch.get_total_buffer_size()))
    waiting = [
        batch.slice(i, arrays.BATCH_ROWS) for i in range(0, batch.num_rows, arrays.BATCH_ROWS)
    ][::-1]
    while waiting:
        rows = waiting.pop()
        half = rows.num_rows // 2
        if half and _texts(rows) > MAX_BYTES:
            waiting += [rows.slice(half), rows.slice(0, half)]
        else:
            _check_texts(rows, MAX_BYTES)
            yield arrays.plain_batch(rows)


def _check_texts(batch: pa.RecordBatch, limit: int) -> None:
    if (size := _texts(batch)) > limit:
        what = f"texts of {size:,} bytes in {batch.num_rows:,} rows"
        raise pa.ArrowInvalid(f"it has {what}; expected at most {limit:,}")


def _texts(batch: pa.RecordBatch) -> int:
    # The values of a dictionary that is not within a list are converted once for all rows.
    columns = (c.dictionary if arrays.has_dictionary(c.type) else c for c in batch.columns)
    return sum(map(arrays.text_bytes, columns))


def _rows(
    batch: pa.RecordBatch, line: int, part: Part, projection: Projection, mapped: pa.Buffer | None
) -> Iterator[RowBatch | Row]:
    path, names, image = part.file.path, batch.schema.names, projection.image
    columns = arrays.selected(batch.schema, projection.columns)
    # Without embedded images, the image column contains paths, if there is one.
    if image not in names or not arrays.is_embedded(batch.schema.field(image).type):
        yield from arrays.row_batches(arrays.select(batch, columns), path, line)
        return
    images = arrays.bytes_of(batch.column(names.index(image)))
    kept = [column for column in columns if column.path[0] != image]
    found = arrays.rows_with_paths(batch, kept, projection, path, line)
    spans = arrays.spans_of(images)  # [(memory address, size in bytes) or None]
    for row, span, data in zip(found, spans, images, strict=True):
        location = _location(span, path, mapped) if span is not None else None
        # The byte range in a mapped file, or else the bytes; for the analyze pass, just the size.
        if span is None or location is not None:
            yield row._replace(image=location)
        elif projection.pixels:
            yield row._replace(image=data.as_py())
        else:
            yield row._replace(image=Location(path, 0, span[1]))


def _location(span: tuple[int, int], path: str, mapped: pa.Buffer | None) -> Location | None:
    """Returns the byte range of an image within its file; None if it is not in mapped memory."""
    address, size = span
    start = address - mapped.address if mapped is not None and size else 0
    # Compressed record batches are decompressed to memory outside the mapped file.
    if mapped is None or not 0 <= start <= mapped.size - size:
        return None
    return Location(path, start, start + size)
