"""Reads Parquet tables by row group, and only the projected columns.

Embedded images are read in batches of a few MiB, whatever the size of the row group.

All other modules open Parquet files through this one, which reads in the calling thread: a thread
of Arrow can hold a reference to its input after the call that started it has returned. If the input
is a Python object and the interpreter is exiting, releasing the reference aborts the process
("terminate called without an active exception").
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import accumulate
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Location, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import DeclaredClasses, Part, Probe, Projection, TableFile
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.sources import arrays, stated_sizes
from recordmill.transforms.functional.sources.data_files import (
    DataFile,
    DataFileView,
    deleted_lines,
)

_BUFFER_BYTES = 2**20

# Limit of rejects for the rows after damage; a damaged footer can state any number of rows.
MAX_DAMAGED_ROWS = 10_000_000

_Rows: TypeAlias = RowBatch | Row

# Batch size for columns of variable size: Arrow copies a dictionary value for every row that
# references it. Small batches cost a few µs more per row than batches of thousands of rows.
_FEW_ROWS = 16


# Maximum bytes of all texts in a small table, and per byte of its file: a dictionary can give each
# row the same long text.
_TEXT_BYTES, _TEXT_BYTES_PER_BYTE = 64 * 2**20, 64
_TABLE_ROWS = 65_536


class _BoundedParquet(pq.ParquetFile):
    """A Parquet file that checks its pages before it reads them, in the calling thread."""

    def __init__(self, source: BinaryIO | bytes, dictionaries: Sequence[str]) -> None:
        super().__init__(
            pa.BufferReader(source) if isinstance(source, bytes) else source,
            page_checksum_verification=True,
            read_dictionary=list(dictionaries),
            # Streams column chunks, which may be larger than memory.
            buffer_size=_BUFFER_BYTES,
            # Pre-buffering uses Arrow's I/O threads.
            pre_buffer=False,
        )
        self._stored = source
        self._reads_texts = not dictionaries

    @property
    def schema_arrow(self) -> pa.Schema:
        """The columns, in the types of the batches."""
        return arrays.plain_schema(super().schema_arrow)

    def iter_batches(
        self,
        batch_size: int,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of row groups, None for all; ArrowException if they are damaged."""
        groups = range(self.num_row_groups) if row_groups is None else row_groups
        for group in groups:
            try:
                self._check(group, batch_size, columns)
            except ValueError as error:
                raise pa.ArrowInvalid(str(error)) from error
        names = None if columns is None else list(columns)
        batches = super().iter_batches(batch_size, list(groups), names, use_threads=False)
        yield from map(arrays.plain_batch, batches)

    def _check(self, group: int, rows: int, columns: Sequence[str] | None) -> None:
        """Raises ValueError if a batch of a row group would take far more memory than its pages."""
        stored = self._stored
        stream = io.BytesIO(stored) if isinstance(stored, bytes) else stored
        pages, repeated = stated_sizes.pages_of_group(stream, group), list[str]()
        try:
            found = [(leaf, pages[leaf.path]) for leaf in self._leaves(columns)]
        except KeyError as error:
            raise ValueError("its footer is damaged") from error
        nested = [column for leaf, column in found if leaf.max_repetition_level]
        paths = [column.path for column in nested]
        stated_sizes.check_values(paths, sum(c.values for c in nested), sum(c.size for c in nested))
        limit = stated_sizes.MAX_BYTES
        for leaf, column in found:
            values = column.values if leaf.max_repetition_level else min(column.values, rows)
            has_texts = leaf.physical_type.endswith("BYTE_ARRAY")
            if values * column.check(stream) > stated_sizes.MAX_BYTES and has_texts:
                repeated.append(leaf.path)
                limit = max(limit, stated_sizes.MAX_BYTES_PER_BYTE * column.size)
        if repeated and self._reads_texts:
            texts = _BoundedParquet(stored, repeated)
            for batch in texts.iter_batches(rows, [group], repeated):
                if (size := sum(arrays.text_bytes(column) for column in batch.columns)) > limit:
                    what = f"{size:,} bytes in {batch.num_rows:,} rows"
                    raise ValueError(f"columns {repeated} have {what}; expected at most {limit:,}")

    def _leaves(self, columns: Sequence[str] | None) -> Iterator[Any]:
        names = None if columns is None else set(columns)
        for leaf in (self.schema.column(i) for i in range(len(self.schema))):
            paths = accumulate(leaf.path.split("."), "{}.{}".format)
            if names is None or not names.isdisjoint(paths):
                yield leaf


def open_parquet(
    source: BinaryIO | bytes, dictionaries: Sequence[str] | None = None
) -> pq.ParquetFile:
    """Opens a Parquet file; reading it verifies the page checksums and bounds the memory.

    Columns whose paths are in `dictionaries` are read as dictionaries.
    """
    return _BoundedParquet(source, dictionaries or ())


def read_table(
    data: bytes, columns: Sequence[str] | None = None, rows: int | None = None
) -> pa.Table:
    """Returns a whole table; raises as `table_batches` does."""
    plain = open_parquet(data).schema_arrow
    kept = plain if columns is None else pa.schema([plain.field(name) for name in columns])
    return pa.Table.from_batches(table_batches(data, columns, rows), kept)


def table_batches(
    data: bytes, columns: Sequence[str] | None = None, rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields a table whose size is in proportion to that of its file, in bounded memory.

    Raises ArrowException if it is not valid Parquet, KeyError for an unknown column, and ValueError
    if its texts are much larger than the file, or, before any are read, for another number of rows.
    """
    plain = open_parquet(data)
    count, schema = plain.metadata.num_rows, plain.schema_arrow
    if rows is not None and count != rows:
        raise ValueError(f"expected {rows:,} rows, got {count:,}")
    kept = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    paths = [plain.schema.column(i) for i in range(len(plain.schema))]
    texts = [column.path for column in paths if column.physical_type == "BYTE_ARRAY"]
    size, limit = 0, max(_TEXT_BYTES, _TEXT_BYTES_PER_BYTE * len(data))
    for batch in open_parquet(data, texts).iter_batches(_TABLE_ROWS, columns=columns):
        size += sum(arrays.text_bytes(column) for column in batch.columns)
        if size > limit:
            raise ValueError(f"the texts of a table of {len(data):,} bytes exceed {limit:,} bytes")
        yield from pa.Table.from_batches([batch]).select(kept.names).cast(kept).to_batches()
    if not count:
        yield pa.RecordBatch.from_pylist([], kept)


def recognize(head: bytes) -> bool:
    """Returns whether a file has the format, by its first bytes."""
    return head.startswith(b"PAR1")


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the columns of a table from its footer; UsageError if that is inconsistent."""
    table = _opened(stream, file)
    schema, footer = table.schema_arrow, table.metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    counts = [group.num_rows for group in groups]
    if sum(counts) != footer.num_rows or min(counts, default=0) < 0:
        raise UsageError(
            f"{file.path}: the footer states {footer.num_rows:,} rows, but its row groups have "
            f"{sum(counts):,}. Write the file again: it is damaged."
        )
    deleted = deleted_lines(file, 1, footer.num_rows)
    found = probe_of_schema(schema, file, has_rows=footer.num_rows > len(deleted))
    classes = {} if isinstance(file.options, DataFile) else _dictionaries(table, counts)
    return replace(found, classes={**classes, **found.classes})


def _dictionaries(parquet: pq.ParquetFile, counts: Sequence[int]) -> dict[str, DeclaredClasses]:
    """Returns the classes by column that the categories of pandas declare, absent ones included.

    pandas writes the same categories to each row group. Other tools write the values of each row
    group in any order, which declares nothing.
    """
    schema = parquet.schema_arrow
    columns = [name for name in schema.names if arrays.has_dictionary(schema.field(name).type)]
    groups = [group for group, count in enumerate(counts) if count]
    if not columns or not groups:
        return {}
    try:
        # The first and the last row group stand for all: each may take a request.
        ends = dict.fromkeys((groups[0], groups[-1]))
        read = (parquet.iter_batches(1, [group], columns) for group in ends)
        found = [dict(arrays.dictionaries(next(iter(rows)))) for rows in read]
    except (pa.ArrowException, OSError, StopIteration, UnicodeDecodeError, MemoryError):
        return {}  # the rows are rejected when they are read
    return {name: classes for name, classes in found[0].items() if found[-1].get(name) == classes}


def probe_of_schema(schema: pa.Schema, file: TableFile, has_rows: bool) -> Probe:
    """Returns the metadata of a table; raises UsageError if two columns have the same name."""
    if repeated := [name for name, count in Counter(schema.names).items() if count > 1]:
        raise UsageError(
            f"{file.path}: column {repeated[0]!r} occurs twice. Rename one of the two."
        )
    columns = arrays.columns_of(schema)
    unsupported = {c.name: str(c.type) for c in columns.values() if not arrays.is_supported(c.type)}
    structs = frozenset(columns) - {column.name for column in arrays.selected(schema, None)}
    return Probe(
        tuple(columns),
        has_rows,
        unsupported,
        arrays.embedded_columns(schema),
        structs,
        classes=arrays.class_labels(schema.metadata or {}),
    )


def parts(stream: BinaryIO, file: TableFile) -> Iterator[Part]:
    """Yields one part per row group."""
    for group, first in enumerate(_first_rows(open_parquet(stream).metadata)):
        yield Part(file, group, first)


def read(stream: BinaryIO, part: Part, projection: Projection) -> Iterator[RowBatch | Row | Reject]:
    """Yields the rows of a row group, and rejects for the rows after damage."""
    table = _opened(stream, part.file)
    columns = {projection.image, *projection.other_images}
    if images := columns & arrays.embedded_columns(table.schema_arrow):
        yield from _read_images(table, part, projection, images)
    else:
        yield from _read_values(table, part, projection.columns)


def _first_rows(metadata: Any) -> list[int]:
    """Returns the number of the first row of each row group, counted from 1."""
    counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    return [1 + before for before in accumulate(counts, initial=0)][: len(counts)]


def _opened(stream: BinaryIO, file: TableFile) -> Any:
    parquet = open_parquet(stream)
    if isinstance(file.options, DataFile):
        return DataFileView(parquet, file.options, file.path)
    return parquet


def _read_values(
    parquet: Any, part: Part, columns: Sequence[str] | None
) -> Iterator[_Rows | Reject]:
    """Yields the rows of a row group in batches, and a reject for each row after damage."""
    kept = arrays.selected(parquet.schema_arrow, columns)

    def rows(batch: pa.RecordBatch, line: int) -> Iterator[RowBatch]:
        return arrays.row_batches(arrays.select(batch, kept), part.file.path, line)

    return _read_batches(parquet, part, [column.prefix for column in kept], rows)


def _read_images(
    parquet: Any, part: Part, projection: Projection, embedded: Set[str]
) -> Iterator[_Rows | Reject]:
    """Yields the rows of a row group with their images, or with the mean size of these.

    The bytes of other images than the first are values of their columns.
    """
    group, path, image = part.row_group or 0, part.file.path, projection.image
    # The analyze pass does not read images: their mean size is enough to plan shards.
    sizes = parquet.metadata.row_group(group)
    mean = int(max(0, sizes.total_byte_size) // max(1, sizes.num_rows))
    columns = arrays.selected(parquet.schema_arrow, projection.columns)
    left_out = {image} & embedded if projection.pixels else embedded
    kept = [column for column in columns if column.path[0] not in left_out]
    names = [column.prefix for column in kept]
    if image not in embedded:
        pass
    elif projection.pixels:
        names.append(image)
    elif arrays.has_path(parquet.schema_arrow.field(image).type):
        names.append(f"{image}.{arrays.PATH}")

    def rows(batch: pa.RecordBatch, line: int) -> Iterator[Row]:
        if image not in embedded:
            size = {} if projection.pixels else {min(embedded): Location(path, 0, mean)}
            for rows in arrays.row_batches(arrays.select(batch, kept), path, line):
                yield from (row._replace(values={**row.values, **size}) for row in rows)
            return
        found = arrays.rows_with_paths(batch, kept, projection, path, line)
        if not projection.pixels:
            yield from (row._replace(image=Location(path, 0, mean)) for row in found)
            return
        images = arrays.bytes_of(batch.column(batch.schema.names.index(image)))
        for row, data in zip(found, images, strict=True):
            yield row._replace(image=data.as_py())

    # As many rows as have about arrays.BATCH_BYTES of images.
    most = max(1, arrays.BATCH_BYTES // max(1, mean)) if projection.pixels else arrays.BATCH_ROWS
    return _read_batches(parquet, part, names, rows, most)


def _read_batches(
    parquet: Any,
    part: Part,
    columns: list[str],
    rows: Callable[[pa.RecordBatch, int], Iterator[_Rows]],
    max_rows: int = arrays.BATCH_ROWS,
) -> Iterator[_Rows | Reject]:
    """Yields the rows of a row group, and rejects for the rows after damage.

    `rows`: converts a batch to rows, or batches of rows, given the number of its first row.
    """
    group, file, line = part.row_group or 0, part.file, part.first
    count = parquet.metadata.row_group(group).num_rows
    end, damage = line + count, "it has fewer rows than its footer states"
    deleted = deleted_lines(file, line, count)
    batch_rows = min(max_rows, _batch_rows(parquet.schema_arrow, columns))
    try:
        batches = parquet.iter_batches(batch_rows, [group], columns)
        for batch in arrays.joined_batches(batches):
            for found in rows(batch, line):
                yield from _live(found, line, deleted)
                line += len(found) if isinstance(found, RowBatch) else 1
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError) as error:
        damage = str(error) or "it requests more memory than available"
    # Even without an error, Arrow can stop before the last row. After a complete read, line == end.
    detail = f"the rest of row group {group} cannot be read: {damage}"
    yield from _damaged_rows(line, end, file.path, deleted, detail)


def _live(found: _Rows, line: int, deleted: frozenset[int]) -> Iterator[_Rows]:
    """Yields the rows that are not deleted; the first one has the number `line`."""
    if not isinstance(found, RowBatch):
        if line not in deleted:
            yield found
    elif deleted.isdisjoint(found.lines):
        yield found
    elif kept := [i for i, number in enumerate(found.lines) if number not in deleted]:
        yield found.take(kept)


def _batch_rows(schema: pa.Schema, columns: Sequence[str]) -> int:
    """Returns the number of rows per batch: few if a column has values of variable size."""
    # "image.path" is the field `path` of the struct `image`, unless a column has that very name.
    names = set(schema.names)
    kinds = (pa.types.is_primitive, pa.types.is_null, pa.types.is_dictionary)
    types = [schema.field(name).type for name in columns if name in names]
    is_fixed = len(types) == len(columns) and all(any(kind(t) for kind in kinds) for t in types)
    return arrays.BATCH_ROWS if is_fixed else _FEW_ROWS


def _damaged_rows(
    line: int, end: int, file: str, deleted: frozenset[int], detail: str
) -> Iterator[Reject]:
    """Yields a reject for each remaining row, or a single `lost_rows` reject over the limit."""
    if end - line > MAX_DAMAGED_ROWS:
        why = f"its footer states {end - line:,} more rows, too many to report one by one"
        yield Reject.of_lost_rows(file, line, f"{detail}; {why}")
        return
    # The footer states the number of rows, so the row counts can include every damaged row.
    for damaged in range(line, end):
        if damaged not in deleted:
            yield Reject.of_malformed_row(file, damaged, detail)
