"""What a row tells of its picture beside the path: boxes, a mask, or outlines to draw one from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from recordmill.schemas.features import Feature, Missing, Origin, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.masks import Outline, checked_outlines
from recordmill.transforms.functional.rows.box_columns import boxes_of
from recordmill.transforms.functional.rows.labels import class_id
from recordmill.transforms.functional.values.typed import items_of, one_of, shown, to_bytes


def annotated(
    ref: ImageRef,
    row: Row,
    resolved: ResolvedSchema,
    columns: Mapping[str, str],
    resolve: Callable[[str], str],
) -> ImageRef:
    """Returns a reference with its row's boxes, and with what its mask is read or drawn from.

    Args:
        ref: the reference, its values bound.
        row: the row.
        resolved: the settled schema.
        columns: schema column to table column, where the names differ.
        resolve: gives where a file is by its path as the table writes it.

    Raises:
        RecordError: if a value is missing or of the wrong type, or a list of the wrong length.
    """
    schema = resolved.schema
    if schema.has_boxes:
        feature = next(f for f in schema.features.values() if f.source.origin is Origin.BOX)
        boxes = boxes_of(row, schema.boxes, columns, feature)
        _check_lengths(schema, ref, columns, len(boxes.corners) // 4)
        ref = ref._replace(boxes=(boxes.units, boxes.corners))
    if schema.mask_feature is not None:
        mask = schema.features[schema.mask_feature]
        if mask.source.origin is Origin.MASK:
            return ref._replace(
                mask_uri=_mask_uri(row, _column(mask.source.name, columns), resolve)
            )
        return ref._replace(segments=_segments(row, mask, resolved, columns))
    return ref


def _check_lengths(schema: Schema, ref: ImageRef, columns: Mapping[str, str], number: int) -> None:
    """Refuses lists that have not one item a box; an empty one passes where it may miss."""
    for feature, values in zip(schema.features.values(), ref.values, strict=True):
        if not isinstance(values, list) or not feature.of_boxes or len(values) == number:
            continue
        if values or feature.missing is not Missing.EMPTY:
            column = _column(feature.source.name, columns)
            detail = f"column {column!r}: expected {number} items, one a box, got {len(values)}"
            raise RecordError(Reason.WRONG_TYPE, detail)


def _mask_uri(row: Row, column: str, resolve: Callable[[str], str]) -> str:
    value = one_of(row.values.get(column))
    if value is None or value == "":
        raise RecordError(Reason.MISSING_VALUE, f"column {column!r}: empty; expected a mask's path")
    if not isinstance(value, str):
        detail = f"column {column!r}: expected a path, got {shown(value)}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    to_bytes(value, is_text=True)
    return resolve(value)


def _segments(
    row: Row, mask: Feature, resolved: ResolvedSchema, columns: Mapping[str, str]
) -> list[tuple[int, Outline]]:
    """Returns class id and outline of each object."""
    name = resolved.schema.mask_feature or ""
    ids = resolved.class_ids.get(name)
    labels_column = _column(resolved.schema.masks.labels, columns)
    outlines_column = _column(mask.source.name, columns)
    labels = _items(row, labels_column)
    outlines = _items(row, outlines_column)
    if len(labels) != len(outlines):
        detail = f"expected {len(outlines)} items, one an outline, got {len(labels)}"
        raise RecordError(Reason.WRONG_TYPE, f"column {labels_column!r}: {detail}")
    try:
        is_text = row.untyped(labels_column)
        classes = [class_id(label, is_text, ids, mask.label_offset) for label in labels]
    except RecordError as error:
        raise RecordError(error.reason, f"column {labels_column!r}: {error.detail}") from None
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
