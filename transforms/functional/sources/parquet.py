"""Reads Parquet tables by row group, and only the projected columns.

Embedded images are read in batches of a few MiB, whatever the size of the row group.

A file may belong to a lakehouse table, and differ from it: columns may have been added, renamed or
given a wider type after it was written, and partition columns are in the log of the table instead.
The *template* of a file is one row with the columns of the table and with the values of those that
the file lacks. Metadata of its fields state how the file names them.

All other modules open Parquet files through this one, which reads in the calling thread: a thread
of Arrow can hold a reference to its input after the call that started it has returned. If the input
is a Python object and the interpreter is exiting, releasing the reference aborts the process
("terminate called without an active exception").
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate, repeat
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Location, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import DeclaredClasses, Part, Probe, Projection, TableFile
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.sources import arrays, stated_sizes
from recordmill.transforms.functional.sources.arrays import is_list, lists

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


def read_table(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns a whole table; raises as `table_batches` does."""
    plain = open_parquet(data).schema_arrow
    kept = plain if columns is None else pa.schema([plain.field(name) for name in columns])
    return pa.Table.from_batches(table_batches(data, columns), kept)


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
    deleted = _deleted_lines(file, 1, footer.num_rows)
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
    path, image, schema = part.file.path, projection.image, parquet.schema_arrow
    # The analyze pass does not read images: their mean size is enough to plan shards.
    sizes = parquet.metadata.row_group(part.row_group or 0)
    mean = int(max(0, sizes.total_byte_size) // max(1, sizes.num_rows))
    unread = Location(path, 0, mean)
    left_out = {image} & embedded if projection.pixels else embedded
    columns = arrays.selected(schema, projection.columns)
    kept = [column for column in columns if column.path[0] not in left_out]
    names = [column.prefix for column in kept]
    if image in embedded and projection.pixels:
        names.append(image)
    elif image in embedded and arrays.has_path(schema.field(image).type):
        names.append(f"{image}.{arrays.PATH}")

    def rows(batch: pa.RecordBatch, line: int) -> Iterator[Row]:
        if image not in embedded:
            size = {} if projection.pixels else {min(embedded): unread}
            for rows in arrays.row_batches(arrays.select(batch, kept), path, line):
                yield from (row._replace(values={**row.values, **size}) for row in rows)
            return
        images: Iterable[Any] = repeat(unread, batch.num_rows)
        if projection.pixels:
            of_image = batch.column(batch.schema.names.index(image))
            images = (data.as_py() for data in arrays.bytes_of(of_image))
        found = arrays.rows_with_paths(batch, kept, projection, path, line)
        yield from (row._replace(image=one) for row, one in zip(found, images, strict=True))

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
    deleted = _deleted_lines(file, line, count)
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


# How Arrow keeps the ids of Parquet's columns, by which Iceberg identifies them.
FIELD_ID = b"PARQUET:field_id"

_NAMES = b"recordmill:names"


@dataclass(frozen=True)
class DataFile:
    """How a table of Delta or Iceberg reads one of its Parquet files."""

    # A row with the columns of the table, and their values where the file lacks them.
    template: bytes
    deleted: bytes = b""  # the numbers of its deleted rows; b"" if there are none


def with_names(field: pa.Field, names: Sequence[str], ids: Mapping[bytes, bytes]) -> pa.Field:
    """Returns a column of a table with how data files name it; `ids` is its `FIELD_ID`, if any."""
    return field.with_metadata({**ids, _NAMES: json.dumps(list(names)).encode()})


def mapped(field: pa.Field, of: Callable[[pa.Field], pa.Field]) -> pa.Field:
    """Returns a field with a function applied to it, and to all fields below it."""
    type_ = field.type
    if pa.types.is_struct(type_):
        type_ = pa.struct([mapped(child, of) for child in type_])
    elif is_list(type_):
        type_ = pa.list_(mapped(type_.value_field, of))
    return of(field.with_type(type_).with_nullable(True))


def encoded_template(schema: pa.Schema, values: Mapping[str, Any]) -> bytes:
    """Returns the template of a data file, from the values of columns that it lacks."""
    columns = [pa.array([values.get(field.name)], field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    return zlib.compress(sink.getvalue())


def encoded_rows(rows: npt.NDArray[np.int64]) -> bytes:
    """Returns row numbers from 0, in any order, in about a byte each."""
    if not len(rows):
        return b""
    return zlib.compress(np.diff(np.unique(rows), prepend=0).astype("<u4").tobytes())


def _deleted_lines(file: TableFile, first: int, count: int) -> frozenset[int]:
    """Returns the numbers, from 1, of the deleted rows in a range of the rows of a file."""
    if not isinstance(file.options, DataFile) or not file.options.deleted:
        return frozenset()
    steps = np.frombuffer(zlib.decompress(file.options.deleted), "<u4")
    lines = 1 + np.cumsum(steps, dtype=np.int64)
    start, stop = np.searchsorted(lines, [first, first + count])
    return frozenset(lines[start:stop].tolist())


class DataFileView:
    """A Parquet file with the columns of its table, for readers of Parquet files."""

    def __init__(self, parquet: Any, data_file: DataFile, path: str) -> None:
        """Matches the columns of the table to the file; UsageError if they cannot be identified."""
        self._parquet, self._file_schema = parquet, parquet.schema_arrow
        template = pa.ipc.open_stream(zlib.decompress(data_file.template)).read_next_batch()
        self._template, self.schema_arrow = template, template.schema
        self.metadata = parquet.metadata
        self._by_id = any(FIELD_ID in (field.metadata or {}) for field in self._file_schema)
        if not self._by_id and not any(json.loads(f.metadata[_NAMES]) for f in self.schema_arrow):
            raise UsageError(
                f"{path}: its columns have no ids, and the table does not name them. Rewrite the "
                "table with its engine."
            )

    def iter_batches(
        self, batch_size: int, row_groups: Any, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the file, deleted ones too, as `pq.ParquetFile.iter_batches` does."""
        schema = self.schema_arrow
        fields = list(schema if columns is None else _pruned(schema, columns))
        found = {field.name: self._match(field, self._file_schema) for field in fields}
        paths = [
            path
            for field in fields
            if (source := found[field.name]) is not None
            for path in self._paths(field, source, source.name)
        ]
        for batch in self._parquet.iter_batches(batch_size, row_groups, paths):
            arrays = [self._column(field, found[field.name], batch) for field in fields]
            schema = pa.schema(fields)
            # Without columns, the batch of the file keeps the number of rows.
            yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch.select([])

    def _match(self, field: pa.Field, candidates: Iterable[pa.Field]) -> pa.Field | None:
        """Returns the field of the file that has the values of a field of the table, or None."""
        id_ = field.metadata.get(FIELD_ID)
        names = json.loads(field.metadata[_NAMES])
        for candidate in candidates:
            if self._by_id and id_ is not None:
                is_found = (candidate.metadata or {}).get(FIELD_ID) == id_
            else:
                is_found = candidate.name in names
            if is_found:
                return candidate
        return None

    def _paths(self, field: pa.Field, source: pa.Field, path: str) -> list[str]:
        """Returns the paths within the file of a field of the table."""
        if not (pa.types.is_struct(field.type) and pa.types.is_struct(source.type)):
            return [path]
        pairs = [(child, self._match(child, source.type)) for child in field.type]
        below = [
            inner
            for child, match in pairs
            if match is not None
            for inner in self._paths(child, match, f"{path}.{match.name}")
        ]
        return below or [path]

    def _column(self, field: pa.Field, source: pa.Field | None, batch: pa.RecordBatch) -> pa.Array:
        if source is None:
            value = self._template.column(self.schema_arrow.get_field_index(field.name))
            if not value.is_valid()[0].as_py():
                return pa.nulls(batch.num_rows, field.type)
            return pa.repeat(value[0], batch.num_rows)
        return self._conformed(batch.column(source.name), field)

    def _conformed(self, array: pa.Array, field: pa.Field) -> pa.Array:
        type_ = field.type
        if array.type == type_ and not pa.types.is_nested(type_):
            return array
        if pa.types.is_struct(type_) and pa.types.is_struct(array.type):
            children = [self._child(array, child) for child in type_]
            return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
        if is_list(type_) and is_list(array.type):
            items = self._conformed(array.flatten(), type_.value_field)
            return lists(array, items).cast(type_)
        return array.cast(type_)

    def _child(self, array: pa.Array, field: pa.Field) -> pa.Array:
        source = self._match(field, array.type)
        if source is None:
            return pa.nulls(len(array), field.type)
        # Unlike `field`, the function also applies the nulls of the struct.
        child = pc.struct_field(array, [array.type.get_field_index(source.name)])
        return self._conformed(child, field)


def _pruned(fields: Iterable[pa.Field], paths: Sequence[str]) -> Iterator[pa.Field]:
    """Yields the fields to which some paths lead, without the other fields of structs."""
    known, requested = {field.name: field for field in fields}, dict[str, list[str]]()
    for path in paths:
        name = path if path in known else path.partition(".")[0]
        requested.setdefault(name, []).append(path[len(name) + 1 :])
    for name, below in requested.items():
        type_ = known[name].type
        is_part = pa.types.is_struct(type_) and "" not in below
        yield known[name].with_type(pa.struct([*_pruned(type_, below)]) if is_part else type_)
