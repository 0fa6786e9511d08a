"""Converts the dicts of other Beam pipelines to rows.

The key of a row is one of its columns, or the image path. Runners deliver elements in any order, so
a digest of the values replaces the line number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from recordmill.schemas.records import Embedded, Row
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import Projection
from recordmill.transforms.functional.rows.columns import missing_column
from recordmill.transforms.functional.sources.arrays import BYTES, PATH
from recordmill.transforms.functional.values.typed import short_repr

_DIGEST_BYTES = 7


def row_of_dict(
    element: Any, projection: Projection, key_column: str | None
) -> Row | Embedded | Reject:
    """Converts a dict to a row, with the bytes of its image if it contains them.

    Returns the row, or a reject if the element is not a dict or has no key. `element` is a dict of
    column to value, a named tuple, or a `beam.Row`. `projection` is the columns to keep; the image
    column contains a path, bytes, or a dict of `bytes` and `path`. `key_column` is the column of
    the key; None for the image path.
    """
    try:
        columns = _dict_of(element)
        values = {name: _plain(value) for name, value in projection.apply(columns).items()}
        for name in projection.required:
            if name not in values:
                detail = f"{missing_column(name, columns, 'the row')}. Name it with columns."
                raise RecordError(Reason.MISSING_VALUE, detail)
        image, path = _image_of(values.get(projection.image)) if projection.image else (None, None)
    except RecordError as error:
        return Reject("", "", f"row {short_repr(element)}", error.reason, error.detail)
    if projection.image:
        values[projection.image] = path
    key = values.get(key_column or projection.image)
    source = f"row {short_repr(values) if key is None or key == '' else key}"
    row = Row(values, source, _number_of(values, image))
    if image is None:
        return row
    if key_column is None and path is None:
        detail = "the image has no path to use as the key. Set key_column."
        return Reject("", "", source, Reason.MISSING_VALUE, detail)
    return Embedded(row, image)


def _dict_of(element: Any) -> Mapping[str, Any]:
    # Only named tuples and `beam.Row` have this method.
    if hasattr(element, "_asdict"):
        element = element._asdict()
    if not isinstance(element, Mapping) or not all(isinstance(name, str) for name in element):
        detail = f"expected a dict with a value for each column, got {type(element).__name__}"
        raise RecordError(Reason.MALFORMED_ROW, detail)
    return element


def _plain(value: Any) -> Any:
    """Converts a NumPy scalar or array to Python values."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _image_of(value: Any) -> tuple[bytes | None, Any]:
    """Returns the bytes and the path of an image; None for the one that is missing."""
    if isinstance(value, bytes):
        return value, None
    if isinstance(value, Mapping):
        return value.get(BYTES), value.get(PATH) or None
    return None, value


def _number_of(values: Mapping[str, Any], image: bytes | None) -> int:
    """Returns a negative number that distinguishes rows with the same key.

    It depends only on the values, so it is the same in every run and on every machine.
    """
    digest = hashlib.sha256(image or b"")
    # Sorted, so that equal rows have equal digests in any order of their columns.
    digest.update(repr(sorted(values.items())).encode("utf-8", "backslashreplace"))
    return -1 - int.from_bytes(digest.digest()[:_DIGEST_BYTES], "big")
