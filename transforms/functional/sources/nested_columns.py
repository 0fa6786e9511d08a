"""Selects the columns of Arrow tables: also the fields of structs, with values that features take.

A column is named by its path, `patient.id`. A path also leads through lists: `objects.bbox` is the
list of boxes both of a list of structs, as Spark and COCO-like tables have it, and of a struct of
lists, as Hugging Face Datasets has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.functional.sources.batches import is_embedded

# The largest precision whose integers all fit into 64 bits.
_INT64_DIGITS = 18

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_TIMES = (pa.types.is_date, pa.types.is_time, pa.types.is_timestamp)
_VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}  # as Polars writes
_PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    *_TIMES,
)


class Column(NamedTuple):
    """A column of a table, or a field of its structs."""

    name: str
    path: tuple[str, ...]  # the column of the table, and the field at each level below it
    prefix: str  # the part of the name down to the first list, which Parquet can read alone
    type: pa.DataType


def columns_of(schema: pa.Schema) -> dict[str, Column]:
    """Returns all columns by name: those of the table, each followed by the fields below it.

    The fields of images with `bytes` are left out, since their reader accesses them.
    """
    columns = {field.name: _column(field) for field in schema}
    found = dict[str, Column]()
    for column in columns.values():
        found[column.name] = column
        for below in _below(column):
            # A column of the table may have a dot in its own name, and takes precedence.
            if below.name not in columns:
                found.setdefault(below.name, below)
    return found


def selected(schema: pa.Schema, names: Sequence[str] | None) -> list[Column]:
    """Returns the columns with some names, as far as they exist.

    `names` are the names; None for all columns, with fields in place of structs.
    """
    columns = columns_of(schema)
    if names is None:
        return [column for column in columns.values() if not _fields(column.type)]
    return [columns[name] for name in names if name in columns]


def select(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Returns a batch of some columns, with dates as text and decimals as numbers.

    `batch`: rows of the table, with these columns and possibly more. `columns` are the columns, as
    `selected` returns them for the schema of the table.
    """
    if not columns:
        return batch.select([])  # keeps the number of rows
    arrays = [_plain(_child(batch.column(c.path[0]), c.path[1:])) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


def is_supported(type_: pa.DataType) -> bool:
    """Returns whether values of a type can become a feature, as scalars or nested lists."""
    if pa.types.is_dictionary(type_) or is_list(type_):
        return is_supported(type_.value_type)
    return str(type_) in _VIEWS or any(check(type_) for check in _PLAIN)


def _plain(column: pa.Array) -> pa.Array:
    """Returns a column with values that features take; other columns are returned unchanged.

    Dates, times and timestamps become ISO 8601 text: `2024-03-01T12:30:00.5`, in UTC with a final
    `Z` if the column has a time zone. Decimals become integers if their type has no decimal places,
    or else floats.
    """
    type_ = column.type
    if is_list(type_):
        items = column.flatten()
        converted = _plain(items)
        return column if converted is items else lists(column, converted)
    if pa.types.is_dictionary(type_):
        return column if _is_plain(type_.value_type) else _plain(column.dictionary_decode())
    if any(check(type_) for check in _TIMES):
        return _iso_text(column)
    if pa.types.is_decimal(type_):
        return _numbers(column)
    return column.cast(_VIEWS[str(type_)]) if str(type_) in _VIEWS else column


def _is_plain(type_: pa.DataType) -> bool:
    none = pa.array([], type_)
    return _plain(none) is none


def _column(field: pa.Field) -> Column:
    return Column(field.name, (field.name,), field.name, field.type)


def _below(column: Column) -> Iterator[Column]:
    """Yields the fields of structs below a column, each followed by those below it."""
    in_list = is_list(column.type)
    for field in _fields(column.type):
        name = f"{column.name}.{field.name}"
        prefix = column.prefix if in_list or column.prefix != column.name else name
        type_ = pa.list_(field.type) if in_list else field.type
        below = Column(name, (*column.path, field.name), prefix, type_)
        yield below
        yield from _below(below)


def _fields(type_: pa.DataType) -> list[pa.Field]:
    """Returns the fields of a struct, or of the structs in a list; none for other types."""
    while is_list(type_):
        type_ = type_.value_type
    if not pa.types.is_struct(type_) or is_embedded(type_):
        return []
    return [type_.field(i) for i in range(type_.num_fields)]


def _child(column: pa.Array, path: Sequence[str]) -> pa.Array:
    if not path:
        return column
    if is_list(column.type):
        return lists(column, _child(column.flatten(), path))
    # Unlike `field`, the function also applies the nulls of the struct.
    field = pc.struct_field(column, [column.type.get_field_index(path[0])])
    return _child(field, path[1:])


def lists(column: pa.Array, items: pa.Array) -> pa.Array:
    """Returns a column of lists with other items.

    `items` are the new items of all lists, in the order of those they replace.
    """
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))))
    return pa.LargeListArray.from_arrays(offsets, items, mask=column.is_null())


def is_list(type_: pa.DataType) -> bool:
    """Returns whether values of a type are lists."""
    return any(check(type_) for check in _LISTS)


def _iso_text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    text = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    text = pc.replace_substring_regex(text, r"(?:(\.\d*[1-9])|\.)0*(Z?)$", r"\1\2")
    # Arrow writes "<value out of range: …>" for years of more than four digits.
    return pc.if_else(pc.starts_with(text, "<"), None, text)


def _numbers(column: pa.Array) -> pa.Array:
    if column.type.scale > 0:
        return column.cast(pa.float64())
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:  # identifiers over 64 bits: as text, they can still be keys and groups
        return column.cast(pa.string())
