"""Rows of Arrow's batches as plain values, some at a time, and the images in their columns.

Images are columns of bytes, or of {bytes, path} as Hugging Face writes them.
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
    """Yields each row, column name to value; what is in memory at once is some MiB, or one row.

    A dictionary's values are made once for all rows that name them: a few bytes of a file may name
    a large one in each.
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
    """Yields the same rows in batches of some MiB or thousands of rows; a larger one as it is.

    What was read before an error is yielded before it is raised.
    """
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    try:
        for batch in batches:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.get_total_buffer_size()
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield from _joined(waiting)
                waiting, rows, size = [], 0, 0
    except Exception:  # whatever it is: the caller handles it, after the rows before it
        yield from _joined(waiting)
        raise
    yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    whole: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def _size(column: pa.Array) -> int:
    """Returns how many bytes a column's values take, or more."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return int(column.indices.nbytes)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        items = column.flatten()
        if pa.types.is_dictionary(items.type):  # any item may be the largest
            return len(items) * int(items.dictionary.nbytes)
    return int(column.nbytes)


def plain_values(column: pa.Array) -> list[Any]:
    """Returns a column's values; text that is not UTF-8 has lone surrogates.

    So it is its own row that is rejected, and not every row of its batch.
    """
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_decoded(value) for value in text_as_bytes(column).to_pylist()]


def text_as_bytes(column: pa.Array) -> pa.Array:
    """Returns a column with bytes in place of all its texts, whose UTF-8 is not looked at."""
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
    used = sorted({index for index in indices if index is not None})
    values = plain_values(column.dictionary.take(pa.array(used, pa.int64())))
    found = dict(zip(used, values, strict=True))
    return [found.get(index) for index in indices]


BYTES, PATH = "bytes", "path"


def embedded_columns(schema: pa.Schema) -> frozenset[str]:
    """Returns the columns that hold images themselves, or may do."""
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
    """Returns the bytes of a column of images; null where there are none."""
    return column.flatten()[column.type.get_field_index(BYTES)] if _nested(column) else column


def paths_of(column: pa.Array) -> list[Any]:
    """Returns the paths of a column of images; None where there are none."""
    if not _nested(column):
        return [None] * len(column)
    at = column.type.get_field_index(PATH)
    paths = plain_values(column.flatten()[at]) if at >= 0 else [None] * len(column)
    return [path or None for path in paths]


def spans_of(images: pa.Array) -> list[tuple[int, int] | None]:
    """Returns where in memory each value of a column of bytes is: its address, and its size."""
    if not len(images):
        return []
    _, offsets, data = images.buffers()
    width = np.dtype("<i8" if pa.types.is_large_binary(images.type) else "<i4")
    first = images.offset * width.itemsize
    ends = np.frombuffer(offsets, width, len(images) + 1, first).tolist()  # there may be more
    start = data.address if data is not None else 0
    return [
        (start + ends[at], ends[at + 1] - ends[at]) if valid else None
        for at, valid in enumerate(images.is_valid().to_pylist())
    ]


def _nested(column: pa.Array) -> bool:
    return bool(pa.types.is_struct(column.type))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))
