"""Converts dicts of Beam pipelines to rows and back, and rows in memory to a Parquet file.

The key of a row is one of its columns, or the image path. Runners deliver elements in any order, so
a digest of the values replaces the line number, unless the row was read from a table.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Location, Row, source_of
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import Projection
from recordmill.transforms.functional.rows.columns import missing_column
from recordmill.transforms.functional.sources.arrays import BYTES, PATH
from recordmill.transforms.functional.values.typed import short_repr

_DIGEST_BYTES = 7

# The entry of a dict with the source location of the row that it was read from: its `file` and
# `line`, and the names of its columns of `untyped` text.
SOURCE = "_source"

# Row groups are read in parallel.
_GROUP_BYTES = 64 * 2**20

# The errors of values that Arrow does not represent, or PNG.
_NOT_ARROW = (pa.ArrowException, TypeError, OverflowError, OSError)

# What libraries call the conversion of their tables to Arrow, without importing them.
_ARROW_STREAM = "__arrow_c_stream__"


def row_of_dict(element: Any, projection: Projection, key_column: str | None) -> Row | Reject:
    """Converts a dict, a named tuple or a `beam.Row` to a row, with the bytes of its image.

    The image column contains a path, bytes, or a dict of `bytes` and `path`. An element without a
    key is a reject; without `key_column`, the key is the image path.
    """
    try:
        columns = _dict_of(element)
        values = {name: _plain(value) for name, value in projection.apply(columns).items()}
        for name in projection.required:
            if name not in values:
                known = [column for column in columns if column != SOURCE]
                detail = f"{missing_column(name, known, 'the row')}. Name it with columns."
                raise RecordError(Reason.MISSING_VALUE, detail)
        image, path = _image_of(values.get(projection.image)) if projection.image else (None, None)
    except RecordError as error:
        return Reject("", "", _source_of(element), error.reason, error.detail)
    if projection.image:
        values[projection.image] = path
    if stated := columns.get(SOURCE):
        return Row(values, stated["file"], stated["line"], frozenset(stated["untyped"]), image)
    key = values.get(key_column or projection.image)
    source = f"row {short_repr(values) if key is None or key == '' else key}"
    if image is not None and key_column is None and path is None:
        detail = "the image has no path to use as the key. Set key_column."
        return Reject("", "", source, Reason.MISSING_VALUE, detail)
    return Row(values, source, _number_of(values, image), image=image)


def _source_of(element: Any) -> str:
    stated = element.get(SOURCE) if isinstance(element, Mapping) else None
    return source_of(stated["file"], stated["line"]) if stated else f"row {short_repr(element)}"


def dict_of_row(row: Row, image: str) -> dict[str, Any]:
    """Returns the columns of a row, with embedded images in `image`, and its source location."""
    values = dict(row.values)
    untyped = [name for name, value in values.items() if row.untyped(name) and value is not None]
    if isinstance(row.image, bytes):
        path = values.get(image)
        values[image] = row.image if path is None else {BYTES: row.image, PATH: path}
    return {**values, SOURCE: {"file": row.file, "line": row.line, "untyped": untyped}}


def _dict_of(element: Any) -> Mapping[str, Any]:
    # Only named tuples and `beam.Row` have this method.
    if hasattr(element, "_asdict"):
        element = element._asdict()
    if not isinstance(element, Mapping) or not all(isinstance(name, str) for name in element):
        detail = f"expected a dict with a value for each column, got {type(element).__name__}"
        raise RecordError(Reason.MALFORMED_ROW, detail)
    return element


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def with_locations(row: Row, columns: Sequence[str], locate: Callable[[bytes], Location]) -> Row:
    """Returns a row with the locations of its image, and of those in columns, for their bytes."""
    if isinstance(row.image, bytes):
        row = row._replace(image=locate(row.image))
    found = dict[str, Any]()
    for column in columns:
        data, path = _image_of(row.values.get(column))
        found[column] = path if data is None else locate(data)
    return row._replace(values={**row.values, **found}) if found else row


def _image_of(value: Any) -> tuple[bytes | None, Any]:
    """Returns the bytes and the path of an image; None for the one that is missing."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bytes):
        return value, None
    if isinstance(value, Mapping):
        return value.get(BYTES), value.get(PATH) or None
    return None, value


def _number_of(values: Mapping[str, Any], image: bytes | None) -> int:
    """Returns a negative number that distinguishes rows with one key, by their values only."""
    digest = hashlib.sha256(image or b"")
    # Sorted, so that equal rows have equal digests in any order of their columns.
    digest.update(repr(sorted(values.items())).encode("utf-8", "backslashreplace"))
    return -1 - int.from_bytes(digest.digest()[:_DIGEST_BYTES], "big")


def is_rows(value: Any) -> bool:
    """Returns whether an input is rows, not the path of a table or a list of paths."""
    if isinstance(value, str | os.PathLike):
        return False
    if isinstance(value, Sequence):
        return any(not isinstance(one, str | os.PathLike) for one in value)
    return True


def parquet_of(rows: Any) -> bytes:
    """Returns a Parquet file of rows in memory, which is the same for equal rows."""
    table = _table_of(rows)
    stream = io.BytesIO()
    rows = max(table.num_rows * _GROUP_BYTES // max(table.nbytes, 1), 1)
    pq.write_table(table, stream, row_group_size=min(rows, 2**20))
    return stream.getvalue()


def _table_of(rows: Any) -> pa.Table:
    """Returns rows as a table; images of Pillow and arrays of pixels become PNG."""
    if hasattr(rows, "with_format"):  # a dataset of Hugging Face, with its selection of rows
        rows = rows.with_format("arrow")[:]
    if hasattr(rows, "to_dict") and hasattr(rows, "dtypes") and hasattr(rows, "iloc"):
        # Columns of pandas may hold images, which Arrow does not know.
        columns = {str(name): rows[name] for name in rows.columns}
        if len(columns) != len(rows.columns):
            raise UsageError("rows: two columns of the DataFrame have the same name")
        objects = {name for name, one in columns.items() if one.dtype == object}
        return pa.table(
            {
                name: _array(name, one.tolist()) if name in objects else pa.Array.from_pandas(one)
                for name, one in columns.items()
            }
        )
    if isinstance(rows, pa.Table):
        return rows
    return pa.table(rows) if hasattr(rows, _ARROW_STREAM) else _table_of_dicts(rows)


def _table_of_dicts(rows: Any) -> pa.Table:
    try:
        listed = list(rows)
    except TypeError:
        listed = [rows]
    for number, row in enumerate(listed, 1):
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            raise UsageError(
                f"row {number}: expected a dict with a value for each column, got "
                f"{short_repr(row)}. Pass paths of tables, a DataFrame, or a list of dicts"
            )
    # All rows are asked: Arrow takes the columns of the first one.
    names = dict.fromkeys(name for row in listed for name in row)
    return pa.table({name: _array(name, [row.get(name) for row in listed]) for name in names})


def _array(name: str, values: Sequence[Any]) -> pa.Array:
    plain, has_lists = list[Any](), False

    def is_array(end: int) -> bool:
        with suppress(*_NOT_ARROW):
            return pa.array(plain[:end], from_pandas=not has_lists) is not None
        return False

    try:
        plain += map(_as_arrow, values)
        # NaN is how pandas writes that a row has no value; within a list, it is a value.
        if has_lists := any(isinstance(value, list) for value in plain):
            plain = [None if isinstance(v, float) and math.isnan(v) else v for v in plain]
        return pa.array(plain, from_pandas=not has_lists)
    except _NOT_ARROW as error:
        row = bisect_left(range(1, len(plain) + 1), True, key=lambda end: not is_array(end)) + 1
        raise UsageError(f"row {row}: column {name!r}: {error}") from error


def _as_arrow(value: Any) -> Any:
    """Returns a value as Arrow represents it: images as files, other arrays as lists."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3):
        value = Image.fromarray(value.squeeze(-1) if value.shape[2:] == (1,) else value)
    if isinstance(value, Image.Image):
        # In PNG, Pillow clips integers to 16 bits, and has no floats.
        if value.mode == "I" and not np.any(np.asarray(value) >> 16):
            value = value.convert("I;16")
        stream = io.BytesIO()
        value.save(stream, "TIFF" if value.mode in ("I", "F", "CMYK", "YCbCr", "LAB") else "PNG")
        return stream.getvalue()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
