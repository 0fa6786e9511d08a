"""Converts columns of Arrow tables to rows: also the fields of structs, and images.

A column is named by its path, `patient.id`. A path also leads through lists: `objects.bbox` is the
list of boxes both of a list of structs, as Spark and COCO-like tables have it, and of a struct of
lists, as Hugging Face Datasets has it. Columns of images contain bytes, or {bytes, path} structs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.records import Row
from recordmill.schemas.tables import DeclaredClasses, Projection
from recordmill.transforms.functional.rows import batches
from recordmill.transforms.functional.rows.batches import RowBatch

BATCH_ROWS = 4096
BATCH_BYTES = 4 * 2**20

# The largest dictionary of views, which can share bytes, that declares classes.
_DICTIONARY_BYTES = 64 * 2**20

_BYTES_OF_TEXT = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
if hasattr(pa, "string_view"):  # since pyarrow 16
    _BYTES_OF_TEXT[pa.string_view()] = pa.binary_view()

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_TIMES = (pa.types.is_date, pa.types.is_time, pa.types.is_timestamp)
_VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}  # as Polars writes
_LIST_VIEWS = ("list_view<", "large_list_view<")
_PLAIN = (
    pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating,
    pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string,
    pa.types.is_binary, pa.types.is_large_binary, *_TIMES,
)  # fmt: skip


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of the batches that `plain_batch` returns."""
    types = [_plain_type(type_) for type_ in schema.types]
    if types == schema.types:
        return schema
    fields = [field.with_type(type_) for field, type_ in zip(schema, types, strict=True)]
    return pa.schema(fields, schema.metadata)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch without views, list views and extension types, in which all readers read it.

    Views can share bytes: their size has to be checked before, by `text_bytes`.
    """
    schema = plain_schema(batch.schema)
    if schema is batch.schema:
        return batch
    return pa.RecordBatch.from_arrays(list(map(_plain_array, batch.columns)), schema=schema)


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Returns the type that has the values of a type in a plain layout.

    >>> _plain_type(pa.list_(pa.large_string())), _plain_type(pa.list_(pa.uuid()))
    (ListType(list<item: large_string>), LargeListType(large_list<item: string>))
    """
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        # The shape of a tensor is a part of its values, and is not in its storage.
        if len(getattr(type_, "shape", ())) > 1:
            return type_
        return _BY_EXTENSION.get(type_.extension_name) or _plain_type(type_.storage_type)
    if types.is_struct(type_):
        fields = [field.with_type(_plain_type(field.type)) for field in type_]
        return pa.struct(fields) if pa.struct(fields) != type_ else type_
    if types.is_dictionary(type_):
        values = _plain_type(type_.value_type)
        return pa.dictionary(type_.index_type, values, type_.ordered)
    if (is_view := _is_list_view(type_)) or is_list(type_):
        items = _plain_type(type_.value_type)
        return pa.large_list(items) if is_view or items != type_.value_type else type_
    return _VIEWS.get(str(type_), type_)


# The types of values whose storage has others: 16 bytes, and integers.
_BY_EXTENSION = {"arrow.uuid": pa.string(), "arrow.bool8": pa.bool_()}


def _plain_array(column: pa.Array) -> pa.Array:
    type_, target = column.type, _plain_type(column.type)
    if target == type_:
        return column
    if isinstance(type_, pa.BaseExtensionType):
        if type_.extension_name == "arrow.uuid":
            return pa.array([value and str(value) for value in column.to_pylist()], target)
        is_other = type_.extension_name in _BY_EXTENSION
        return column.storage.cast(target) if is_other else _plain_array(column.storage)
    if pa.types.is_struct(type_):
        children = list(map(_plain_array, column.flatten()))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=column.is_null())
    if pa.types.is_dictionary(type_):
        values = _plain_array(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values, ordered=type_.ordered)
    # Arrow 25 casts a list view of views to other values.
    is_nested = is_list(type_) or _is_list_view(type_)
    return lists(column, _plain_array(column.flatten())) if is_nested else column.cast(target)


def _is_list_view(type_: pa.DataType) -> bool:
    return str(type_).startswith(_LIST_VIEWS)


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
    columns = {f.name: Column(f.name, (f.name,), f.name, f.type) for f in schema}
    found = dict[str, Column]()
    for column in columns.values():
        found[column.name] = column
        for below in _below(column):
            # A column of the table may have a dot in its own name, and takes precedence.
            if below.name not in columns:
                found.setdefault(below.name, below)
    return found


def selected(schema: pa.Schema, names: Sequence[str] | None) -> list[Column]:
    """Returns the columns with some names; None for all, with fields in place of structs."""
    columns = columns_of(schema)
    if names is None:
        return [column for column in columns.values() if not _fields(column.type)]
    return [columns[name] for name in names if name in columns]


def select(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Returns a batch of some columns, with dates as text and decimals as numbers."""
    if not columns:
        return batch.select([])  # keeps the number of rows
    arrays = [_plain(_child(batch.column(c.path[0]), c.path[1:])) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


def is_supported(type_: pa.DataType) -> bool:
    """Returns whether values of a type can become a feature, as scalars or nested lists."""
    if pa.types.is_dictionary(type_) or is_list(type_):
        return is_supported(type_.value_type)
    return any(check(type_) for check in _PLAIN)


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
    return _numbers(column) if pa.types.is_decimal(type_) else column


def _is_plain(type_: pa.DataType) -> bool:
    none = pa.array([], type_)
    return _plain(none) is none


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
    """Returns a column of lists with the items of all lists replaced, in their order."""
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


def class_labels(metadata: Mapping[bytes, bytes]) -> dict[str, DeclaredClasses]:
    """Returns Hugging Face Datasets' `ClassLabel`s by column, from the metadata of a schema."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        return dict(_class_labels(features, ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # metadata of another tool under this name


def _class_labels(features: Any, above: str) -> Iterator[tuple[str, DeclaredClasses]]:
    for name, feature in features.items():
        # Lists are {"feature": …, "_type": "List"}, or [feature] in datasets before 4.
        while isinstance(feature, list) or "feature" in feature:
            feature = feature[0] if isinstance(feature, list) else feature["feature"]
        if feature.get("_type") == "ClassLabel":
            names = [str(name) for name in feature["names"]]
            yield f"{above}{name}", DeclaredClasses(tuple(enumerate(names)), by_id=True)
        elif "_type" not in feature:  # a struct
            yield from _class_labels(feature, f"{above}{name}.")


def has_dictionary(type_: pa.DataType) -> bool:
    """Returns whether a column has a dictionary of text, such as the categories of pandas."""
    return pa.types.is_dictionary(type_) and type_.value_type in _BYTES_OF_TEXT


def dictionaries(batch: pa.RecordBatch) -> Iterator[tuple[str, DeclaredClasses]]:
    """Yields the values of each dictionary of text by column, in their order."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if has_dictionary(column.type) and text_bytes(column.dictionary) <= _DICTIONARY_BYTES:
            # Invalid UTF-8 rejects only the rows that have it.
            values = text_as_bytes(column.dictionary).to_pylist()
            names = [value.decode("utf-8", "replace") for value in values if value is not None]
            yield name, DeclaredClasses(tuple(enumerate(dict.fromkeys(names))))


def row_batches(batch: pa.RecordBatch, file: str, first: int) -> Iterator[RowBatch]:
    """Yields the rows of a batch, of which the first has the number `first`.

    A dictionary value is converted once per part, since every row of a small file can reference
    the same large value.
    """
    size = max(1, sum(map(_size, batch.columns)))
    step = max(1, min(batches.BATCH_ROWS, batch.num_rows * batches.BATCH_BYTES // size))
    for start in range(0, batch.num_rows, step):
        part = batch.slice(start, step)
        columns = dict(zip(part.schema.names, map(_values, part.columns), strict=True))
        lines = range(first + start, first + start + part.num_rows)
        yield RowBatch(columns, [file] * part.num_rows, lines)


def rows_with_paths(
    batch: pa.RecordBatch, columns: Sequence[Column], projection: Projection, file: str, first: int
) -> Iterator[Row]:
    """Yields the rows of a batch, with the paths of images in place of the images."""
    image, names = projection.image, batch.schema.names
    paths = _paths_of(batch.column(names.index(image))) if image in names else repeat(None)
    rows = chain.from_iterable(row_batches(select(batch, columns), file, first))
    for row, path in zip(rows, paths, strict=False):
        yield row._replace(values=projection.apply({**row.values, image: path}))


def joined_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Concatenates small batches to batches of about `BATCH_ROWS` rows or `BATCH_BYTES` bytes.

    The rows that precede an error are yielded before it is raised.
    """
    pending, rows, size = list[pa.RecordBatch](), 0, 0
    try:
        for batch in batches:
            pending.append(batch)
            rows, size = rows + batch.num_rows, size + batch.get_total_buffer_size()
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield from _concatenated(pending)
                pending, rows, size = [], 0, 0
    except Exception:  # of any type: Arrow raises several, and the caller handles them
        yield from _concatenated(pending)
        raise
    yield from _concatenated(pending)


def _concatenated(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


def _size(column: pa.Array) -> int:
    """Returns an upper bound of the converted size of a column in bytes."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return int(column.indices.nbytes)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        items = column.flatten()
        # Any item may reference the largest value of the dictionary.
        if pa.types.is_dictionary(items.type):
            return len(items) * int(items.dictionary.nbytes)
    return int(column.nbytes)


def text_bytes(column: pa.Array) -> int:
    """Returns the bytes of the texts that a column refers to: those of dictionaries and views."""
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        return text_bytes(column.storage)
    if _is_list_view(type_):  # lists can share items
        items, number = column.values, int(pc.sum(pc.list_value_length(column)).as_py() or 0)
        return number * (text_bytes(items) + int(items.nbytes)) // max(1, len(items))
    if is_list(type_) or pa.types.is_struct(type_):
        parts = column.flatten()
        return sum(map(text_bytes, parts if pa.types.is_struct(type_) else [parts]))
    if str(type_) in ("string_view", "binary_view"):
        return int(pc.sum(_view_lengths(column)).as_py() or 0)
    if not pa.types.is_dictionary(type_):
        return 0
    values = column.dictionary
    is_view = str(values.type) in ("string_view", "binary_view")
    if not is_view and values.type not in (*_BYTES_OF_TEXT, *_BYTES_OF_TEXT.values()):
        return 0
    lengths = _view_lengths(values) if is_view else pc.binary_length(values)
    return int(pc.sum(pc.take(lengths, column.indices).cast(pa.int64())).as_py() or 0)


def _view_lengths(column: pa.Array) -> pa.Array:
    # Arrow columnar format, "Variable-size Binary View Layout": 16 bytes that begin with a length.
    views = np.frombuffer(column.buffers()[1], "<i4")[4 * column.offset :: 4][: len(column)]
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(views.astype(np.int64), mask=missing)


def _plain_values(column: pa.Array) -> list[Any]:
    """Returns values; invalid UTF-8 becomes lone surrogates, which reject a row, not the batch."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_decoded(value) for value in text_as_bytes(column).to_pylist()]


def text_as_bytes(column: pa.Array) -> pa.Array:
    """Returns a column with its text, at any depth, viewed as bytes, without UTF-8 validation."""
    if isinstance(column.type, pa.BaseExtensionType):
        return text_as_bytes(column.storage)
    type_ = _without_text(column.type)
    return column if type_ == column.type else column.view(type_)


def _without_text(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _without_text(type_.value_type), type_.ordered)
    if types.is_struct(type_):
        return pa.struct([field.with_type(_without_text(field.type)) for field in type_])
    if types.is_fixed_size_list(type_):
        return pa.list_(_without_text(type_.value_type), type_.list_size)
    if types.is_list(type_):
        return pa.list_(_without_text(type_.value_type))
    if types.is_large_list(type_):
        return pa.large_list(_without_text(type_.value_type))
    return _BYTES_OF_TEXT.get(type_, type_)


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _values(column: pa.Array) -> list[Any]:
    if not pa.types.is_dictionary(column.type):
        return _plain_values(column)
    indices = column.indices.to_pylist()
    # Only the referenced values are converted: the dictionary may be much larger than the batch.
    used = sorted({index for index in indices if index is not None})
    values = _plain_values(column.dictionary.take(pa.array(used, pa.int64())))
    by_index = dict(zip(used, values, strict=True))
    return [by_index.get(index) for index in indices]


BYTES, PATH = "bytes", "path"


def embedded_columns(schema: pa.Schema) -> frozenset[str]:
    """Returns the columns that may contain image bytes."""
    return frozenset(field.name for field in schema if is_embedded(field.type))


def is_embedded(type_: pa.DataType) -> bool:
    """Returns whether values of a type can contain image bytes.

    >>> is_embedded(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    True
    """
    if pa.types.is_struct(type_):
        at = type_.get_field_index(BYTES)
        return at >= 0 and _is_bytes(type_.field(at).type)
    return _is_bytes(type_)


def has_path(type_: pa.DataType) -> bool:
    """Returns whether an image type is a struct with a path field."""
    return bool(pa.types.is_struct(type_) and type_.get_field_index(PATH) >= 0)


def bytes_of(column: pa.Array) -> pa.Array:
    """Returns the bytes of an image column as a binary array; null for missing images."""
    return column.flatten()[column.type.get_field_index(BYTES)] if _is_struct(column) else column


def _paths_of(column: pa.Array) -> list[Any]:
    """Returns the paths of an image column; None for missing or empty paths."""
    if not _is_struct(column):
        return [None] * len(column)
    at = column.type.get_field_index(PATH)
    paths = _plain_values(column.flatten()[at]) if at >= 0 else [None] * len(column)
    return [path or None for path in paths]


def spans_of(images: pa.Array) -> list[tuple[int, int] | None]:
    """Returns the memory address and size in bytes of each value; None for nulls.

    The addresses are valid as long as the array exists, which is of (large) binary values.
    """
    if not len(images):
        return []
    # Arrow columnar format, "Variable-size Binary Layout": value i is data[offsets[i]:offsets[i+1]]
    # and offsets has one item more than the array. Both buffers are those of the unsliced array.
    _, offsets, data = images.buffers()
    width = np.dtype("<i8" if pa.types.is_large_binary(images.type) else "<i4")
    ends = np.frombuffer(
        offsets, width, len(images) + 1, offset=images.offset * width.itemsize
    ).tolist()
    start = data.address if data is not None else 0
    return [
        (start + ends[i], ends[i + 1] - ends[i]) if valid else None
        for i, valid in enumerate(images.is_valid().to_pylist())
    ]


def _is_struct(column: pa.Array) -> bool:
    return bool(pa.types.is_struct(column.type))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))
