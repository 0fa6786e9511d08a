"""Converts Arrow batches to rows, and accesses the images in their columns.

Image columns contain bytes, or {bytes, path} structs as written by Hugging Face Datasets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.tables import DeclaredClasses
from recordmill.transforms.functional.rows import batches
from recordmill.transforms.functional.rows.batches import RowBatch

BATCH_ROWS = 4096
BATCH_BYTES = 4 * 2**20

_BYTES_OF_TEXT = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


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
    return pa.types.is_dictionary(type_) and type_.value_type in (pa.string(), pa.large_string())


def dictionaries(batch: pa.RecordBatch) -> Iterator[tuple[str, DeclaredClasses]]:
    """Yields the values of each dictionary of text by column, in their order."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if has_dictionary(column.type):
            # Invalid UTF-8 rejects only the rows that have it.
            values = text_as_bytes(column.dictionary).to_pylist()
            names = [value.decode("utf-8", "replace") for value in values if value is not None]
            yield name, DeclaredClasses(tuple(enumerate(dict.fromkeys(names))))


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yields each row as a dict of column to value, converting at most a few MiB at a time.

    A dictionary value is converted once per slice, since every row of a small file can reference
    the same large value.
    """
    names = batch.schema.names
    if not names:
        yield from ({} for _ in range(batch.num_rows))
        return
    for part in _parts(batch, BATCH_ROWS, BATCH_BYTES):
        for values in zip(*map(_values, part.columns), strict=True):
            yield dict(zip(names, values, strict=True))


def row_batches(batch: pa.RecordBatch, file: str, first: int) -> Iterator[RowBatch]:
    """Yields the rows of a batch."""
    line = first
    for part in _parts(batch, batches.BATCH_ROWS, batches.BATCH_BYTES):
        count = part.num_rows
        columns = dict(zip(part.schema.names, map(_values, part.columns), strict=True))
        yield RowBatch(columns, [file] * count, range(line, line + count))
        line += count


def _parts(batch: pa.RecordBatch, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yields a batch in parts of a limited number of rows, and of about a number of bytes."""
    bytes_ = sum(map(_size, batch.columns))
    step = max(1, min(rows, batch.num_rows * size // max(1, bytes_)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


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
    if _is_list(type_) or pa.types.is_struct(type_):
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


def _is_list(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    )


def plain_values(column: pa.Array) -> list[Any]:
    """Returns the values of a column, with invalid UTF-8 decoded to lone surrogates.

    This rejects only the row of the invalid text, not its whole batch.
    """
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_decoded(value) for value in text_as_bytes(column).to_pylist()]


def text_as_bytes(column: pa.Array) -> pa.Array:
    """Returns a column with its text, at any depth, viewed as bytes, without UTF-8 validation."""
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
    # Only the referenced values are converted: the dictionary may be much larger than the batch.
    used = sorted({index for index in indices if index is not None})
    values = plain_values(column.dictionary.take(pa.array(used, pa.int64())))
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


def paths_of(column: pa.Array) -> list[Any]:
    """Returns the paths of an image column; None for missing or empty paths."""
    if not _is_struct(column):
        return [None] * len(column)
    at = column.type.get_field_index(PATH)
    paths = plain_values(column.flatten()[at]) if at >= 0 else [None] * len(column)
    return [path or None for path in paths]


def spans_of(images: pa.Array) -> list[tuple[int, int] | None]:
    """Returns the memory address and size in bytes of each value; None for nulls.

    The addresses are valid as long as the array exists. `images` is a binary or large binary array,
    possibly a slice.
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
