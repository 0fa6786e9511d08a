"""Reads the annotations of rows: boxes, and either the path or the outlines of a mask."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from recordmill.schemas.features import Feature, Missing, Origin, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef, Row, RowBoxes
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import BoxSettings
from recordmill.transforms.functional.images.masks import Outline, checked_outlines
from recordmill.transforms.functional.rows.labels import class_id
from recordmill.transforms.functional.values.boxes import TO_CORNERS, UNITS
from recordmill.transforms.functional.values.typed import (
    is_missing,
    items_of,
    short_repr,
    single_value,
    to_bytes,
    to_number,
)

_SEPARATOR = re.compile(r"[,\s]+")


def read_boxes(
    row: Row, settings: BoxSettings, columns: Mapping[str, str], feature: Feature
) -> RowBoxes:
    """Reads the boxes of a row as xmin, ymin, xmax and ymax in the units of the row.

    Args:
        row: the row.
        settings: the resolved box settings, with either one column or four.
        columns: the table column of each schema column whose name differs.
        feature: a feature from boxes, whose `missing` and `separator` apply to the columns.

    Raises:
        RecordError: missing_value or wrong_type. Boxes outside the image are detected when the
            image is read.
    """
    names = settings.columns or (settings.column or "",)
    used = [columns.get(name, name) for name in names]
    # Four columns with one list of numbers each, or one column with a list of four numbers per box.
    lists = [_box_items(row, column, feature) for column in used]
    fours = _zipped(lists, used) if settings.columns else _lists_of_four(lists[0], used[0], row)
    corners = TO_CORNERS[settings.order]
    is_text = any(row.untyped(column) for column in used)
    numbers = [_numbers(four, i, is_text) for i, four in enumerate(fours)]
    return RowBoxes(_units(row, settings, columns), [x for four in numbers for x in corners(*four)])


def _box_items(row: Row, column: str, feature: Feature) -> list[Any]:
    """Returns the items of a column of boxes: numbers, or lists of four."""
    value, is_text = row.values.get(column), row.untyped(column)
    if is_missing(value, feature, is_text):
        if feature.missing is Missing.EMPTY:
            return []
        detail = f"column {column!r}: empty; expected a list, which may be empty: []"
        raise RecordError(Reason.MISSING_VALUE, detail)
    try:
        return items_of(value, feature, is_text)
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None


def _zipped(lists: list[list[Any]], columns: list[str]) -> list[tuple[Any, ...]]:
    """Transposes four lists of numbers to one tuple of four per box."""
    counts = [len(items) for items in lists]
    if len(set(counts)) > 1:
        found = ", ".join(f"{n} in {column!r}" for n, column in zip(counts, columns, strict=True))
        detail = f"expected the same number of items in each column, got {found}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    return list(zip(*lists, strict=True))


def _lists_of_four(items: list[Any], column: str, row: Row) -> list[list[Any]]:
    boxes, is_text = [], row.untyped(column)
    for i, item in enumerate(items):
        four = _SEPARATOR.split(item.strip()) if is_text and isinstance(item, str) else item
        if not isinstance(four, list | tuple) or len(four) != 4:
            detail = f"column {column!r}: box {i}: expected a list of 4 numbers, got {item!r}"
            raise RecordError(Reason.WRONG_TYPE, detail)
        boxes.append(list(four))
    return boxes


def _numbers(four: Any, index: int, is_text: bool) -> tuple[float, float, float, float]:
    try:
        one, two, three, four_ = (to_number(value, is_text) for value in four)
    except RecordError as error:
        raise RecordError(error.reason, f"box {index}: {error.detail}") from None
    return one, two, three, four_


def _units(row: Row, settings: BoxSettings, columns: Mapping[str, str]) -> str:
    """Returns the units that a row states in its units column, or else those of the settings."""
    if settings.units_column is None:
        return settings.units
    column = columns.get(settings.units_column, settings.units_column)
    units = single_value(row.values.get(column))
    if units is None or units == "":
        return settings.units
    if units not in UNITS:
        detail = f"column {column!r}: expected one of {', '.join(UNITS)}, got {units!r}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    return str(units)


def with_annotations(
    ref: ImageRef,
    row: Row,
    resolved: ResolvedSchema,
    columns: Mapping[str, str],
    resolve: Callable[[str], str],
) -> ImageRef:
    """Adds the boxes of a row, and the address or the outlines of its mask, to its reference.

    Args:
        ref: the reference, with bound values.
        row: the row.
        resolved: the resolved schema.
        columns: the table column of each schema column whose name differs.
        resolve: returns the address of a path in the table.

    Raises:
        RecordError: if a value is missing or of the wrong type, or a list of the wrong length.
    """
    schema = resolved.schema
    if schema.has_boxes:
        feature = next(f for f in schema.features.values() if f.source.origin is Origin.BOX)
        boxes = read_boxes(row, schema.boxes, columns, feature)
        _check_lengths(schema, ref, columns, len(boxes.corners) // 4)
        ref = ref._replace(boxes=(boxes.units, boxes.corners))
    if schema.mask_feature is not None:
        mask = schema.features[schema.mask_feature]
        # The mask is an image file, or is drawn from outlines.
        if mask.source.origin is Origin.MASK:
            return ref._replace(
                mask_uri=_mask_uri(row, _column(mask.source.name, columns), resolve)
            )
        return ref._replace(segments=_segments(row, mask, resolved, columns))
    return ref


def _check_lengths(schema: Schema, ref: ImageRef, columns: Mapping[str, str], number: int) -> None:
    """Checks that lists of box features have one item per box; a missing value may be empty.

    Args:
        schema: the schema.
        ref: the reference, with bound values.
        columns: the table column of each schema column whose name differs.
        number: the number of boxes.

    Raises:
        RecordError: wrong_type for a list of another length.
    """
    for feature, values in zip(schema.features.values(), ref.values, strict=True):
        if not isinstance(values, list) or not feature.of_boxes or len(values) == number:
            continue
        if values or feature.missing is not Missing.EMPTY:
            column = _column(feature.source.name, columns)
            what = f"expected {number} items, one per box, got {len(values)}"
            detail = f"column {column!r}: {what}"
            raise RecordError(Reason.WRONG_TYPE, detail)


def _mask_uri(row: Row, column: str, resolve: Callable[[str], str]) -> str:
    value = single_value(row.values.get(column))
    if value is None or value == "":
        detail = f"column {column!r}: empty; expected the path of a mask"
        raise RecordError(Reason.MISSING_VALUE, detail)
    if not isinstance(value, str):
        detail = f"column {column!r}: expected a path, got {short_repr(value)}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    to_bytes(value, is_text=True)
    return resolve(value)


def _segments(
    row: Row, mask: Feature, resolved: ResolvedSchema, columns: Mapping[str, str]
) -> list[tuple[int, Outline]]:
    """Returns the class id and the outline of each object, in drawing order."""
    name = resolved.schema.mask_feature or ""
    ids = resolved.class_ids.get(name)
    labels_column = _column(resolved.schema.masks.labels, columns)
    outlines_column = _column(mask.source.name, columns)
    labels = _items(row, labels_column)
    outlines = _items(row, outlines_column)
    if len(labels) != len(outlines):
        detail = f"expected {len(outlines)} items, one per outline, got {len(labels)}"
        raise RecordError(Reason.WRONG_TYPE, f"column {labels_column!r}: {detail}")
    try:
        is_text = row.untyped(labels_column)
        classes = [class_id(label, is_text, ids, mask.label_offset) for label in labels]
    except RecordError as error:
        raise RecordError(error.reason, f"column {labels_column!r}: {error.detail}") from None
    # [(class id, outline)], drawn in this order: later objects cover earlier ones.
    try:
        return list(zip(classes, checked_outlines(outlines), strict=True))
    except RecordError as error:
        raise RecordError(error.reason, f"column {outlines_column!r}: {error.detail}") from None


def _items(row: Row, column: str) -> list[Any]:
    value = row.values.get(column)
    if value is None:
        raise RecordError(Reason.MISSING_VALUE, f"column {column!r}: empty; expected a list")
    try:
        return items_of(value, _ANY_LIST, row.untyped(column))
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None


def _column(name: str, columns: Mapping[str, str]) -> str:
    return columns.get(name, name)


_ANY_LIST = Feature.model_validate({"kind": "bytes", "from": "column:any", "shape": []})
