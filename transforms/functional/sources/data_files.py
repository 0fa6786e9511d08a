"""Reads Parquet files as the lakehouse table that they belong to: with its columns and types.

A data file can differ from its table: columns may have been added, renamed or given a wider type
after it was written, and partition columns are in the log of the table instead. The *template* of
a file is one row with the columns of the table and with the values of those that the file lacks.
Metadata of its fields state how the file names them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.sources.arrays import is_list, lists

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


def deleted_lines(file: TableFile, first: int, count: int) -> frozenset[int]:
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
        fields = list(self.schema_arrow) if columns is None else _pruned(self.schema_arrow, columns)
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


def _pruned(schema: pa.Schema, columns: Sequence[str]) -> list[pa.Field]:
    """Returns the columns of a schema that have some paths, without the other fields of structs."""
    names, requested = set(schema.names), dict[str, list[str]]()
    for path in columns:
        whole = path in names
        name = path if whole else path.partition(".")[0]
        requested.setdefault(name, []).append("" if whole else path.partition(".")[2])
    return [_without_others(schema.field(name), paths) for name, paths in requested.items()]


def _without_others(field: pa.Field, paths: Sequence[str]) -> pa.Field:
    if "" in paths or not pa.types.is_struct(field.type):
        return field
    requested = dict[str, list[str]]()
    for path in paths:
        name, _, below = path.partition(".")
        requested.setdefault(name, []).append(below)
    children = [_without_others(c, requested[c.name]) for c in field.type if c.name in requested]
    return field.with_type(pa.struct(children))
