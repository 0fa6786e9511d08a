"""Pictures within a table: columns of bytes, or of {bytes, path} as Hugging Face writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.transforms.functional.sources.batches import plain_values

BYTES, PATH = "bytes", "path"


def embedded_columns(schema: pa.Schema) -> frozenset[str]:
    """Returns the columns that hold pictures themselves, or may do."""
    return frozenset(field.name for field in schema if is_embedded(field.type))


def is_embedded(type_: pa.DataType) -> bool:
    """Returns whether values of a type can be pictures.

    >>> is_embedded(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    True
    """
    if pa.types.is_struct(type_):
        at = type_.get_field_index(BYTES)
        return at >= 0 and _is_bytes(type_.field(at).type)
    return _is_bytes(type_)


def has_path(type_: pa.DataType) -> bool:
    """Returns whether pictures of a type have paths beside their bytes."""
    return bool(pa.types.is_struct(type_) and type_.get_field_index(PATH) >= 0)


def bytes_of(column: pa.Array) -> pa.Array:
    """Returns the bytes of a column of pictures; null where there are none."""
    return column.flatten()[column.type.get_field_index(BYTES)] if _nested(column) else column


def paths_of(column: pa.Array) -> list[Any]:
    """Returns the paths of a column of pictures; None where there are none."""
    if not _nested(column):
        return [None] * len(column)
    at = column.type.get_field_index(PATH)
    paths = plain_values(column.flatten()[at]) if at >= 0 else [None] * len(column)
    return [path or None for path in paths]


def spans_of(pictures: pa.Array) -> list[tuple[int, int] | None]:
    """Returns where in memory each value of a column of bytes is: its address, and its size."""
    if not len(pictures):
        return []
    _, offsets, data = pictures.buffers()
    width = np.dtype("<i8" if pa.types.is_large_binary(pictures.type) else "<i4")
    first = pictures.offset * width.itemsize
    ends = np.frombuffer(offsets, width, len(pictures) + 1, first).tolist()  # there may be more
    start = data.address if data is not None else 0
    return [
        (start + ends[at], ends[at + 1] - ends[at]) if valid else None
        for at, valid in enumerate(pictures.is_valid().to_pylist())
    ]


def _nested(column: pa.Array) -> bool:
    return bool(pa.types.is_struct(column.type))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))
