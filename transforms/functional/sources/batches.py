"""Conversion of Arrow batches to rows, and access to the images in their columns.

Image columns hold bytes, or {bytes, path} structs as Hugging Face Datasets writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

BATCH_ROWS = 4096
BATCH_BYTES = 4 * 2**20

_BYTES_OF_TEXT = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yields each row as a dict of column to value, converting at most a few MiB at a time.

    Each dictionary value is converted once per slice: a small file can reference a large value from
    every row.
    """
    names = batch.schema.names
    if not names:
        yield from ({} for _ in range(batch.num_rows))
        return
    size = sum(map(_size, batch.columns))
    step = max(1, min(BATCH_ROWS, batch.num_rows * BATCH_BYTES // max(1, size)))
    for start in range(0, batch.num_rows, step):
        columns = [_values(column) for column in batch.slice(start, step).columns]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def joined_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in batches of several MiB or thousands of rows.

    Rows read before an error are yielded before it is raised.
    """
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    try:
        for batch in batches:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.get_total_buffer_size()
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield from _joined(waiting)
                waiting, rows, size = [], 0, 0
    except Exception:  # any error: the caller handles it after the rows read before it
        yield from _joined(waiting)
        raise
    yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    whole: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def _size(column: pa.Array) -> int:
    """Returns an upper bound of the bytes that the values of a column take."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return int(column.indices.nbytes)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        items = column.flatten()
        if pa.types.is_dictionary(items.type):  # any item may reference the largest value
            return len(items) * int(items.dictionary.nbytes)
    return int(column.nbytes)


def plain_values(column: pa.Array) -> list[Any]:
    """Returns the values of a column; invalid UTF-8 becomes lone surrogates.

    So only the row with the invalid text is rejected, not its whole batch.
    """
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_decoded(value) for value in text_as_bytes(column).to_pylist()]


def text_as_bytes(column: pa.Array) -> pa.Array:
    """Returns a column with all text types viewed as bytes, without UTF-8 validation."""
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
        return plain_values(column)
    indices = column.indices.to_pylist()
    # Only the values in use are converted: the dictionary may be much larger than the batch.
    used = sorted({index for index in indices if index is not None})
    values = plain_values(column.dictionary.take(pa.array(used, pa.int64())))
    found = dict(zip(used, values, strict=True))
    return [found.get(index) for index in indices]


BYTES, PATH = "bytes", "path"


def embedded_columns(schema: pa.Schema) -> frozenset[str]:
    """Returns the columns that may contain image bytes."""
    return frozenset(field.name for field in schema if is_embedded(field.type))


def is_embedded(type_: pa.DataType) -> bool:
    """Returns whether values of a type can be images.

    >>> is_embedded(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    True
    """
    if pa.types.is_struct(type_):
        at = type_.get_field_index(BYTES)
        return at >= 0 and _is_bytes(type_.field(at).type)
    return _is_bytes(type_)


def has_path(type_: pa.DataType) -> bool:
    """Returns whether images of a type have paths beside their bytes."""
    return bool(pa.types.is_struct(type_) and type_.get_field_index(PATH) >= 0)


def bytes_of(column: pa.Array) -> pa.Array:
    """Returns the bytes of an image column; null for missing images."""
    return column.flatten()[column.type.get_field_index(BYTES)] if _nested(column) else column


def paths_of(column: pa.Array) -> list[Any]:
    """Returns the paths of an image column; None for missing paths."""
    if not _nested(column):
        return [None] * len(column)
    at = column.type.get_field_index(PATH)
    paths = plain_values(column.flatten()[at]) if at >= 0 else [None] * len(column)
    return [path or None for path in paths]


def spans_of(images: pa.Array) -> list[tuple[int, int] | None]:
    """Returns the memory address and size of each value of a bytes column; None for nulls."""
    if not len(images):
        return []
    _, offsets, data = images.buffers()
    width = np.dtype("<i8" if pa.types.is_large_binary(images.type) else "<i4")
    first = images.offset * width.itemsize
    ends = np.frombuffer(
        offsets, width, len(images) + 1, first
    ).tolist()  # the buffer may be longer
    start = data.address if data is not None else 0
    return [
        (start + ends[at], ends[at + 1] - ends[at]) if valid else None
        for at, valid in enumerate(images.is_valid().to_pylist())
    ]


def _nested(column: pa.Array) -> bool:
    return bool(pa.types.is_struct(column.type))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))
