"""Feature values of rows: the values of table columns, converted as the schema says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from recordmill.schemas.features import Feature, Missing, Origin
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import FeatureValue
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.rows.labels import class_id, label_text
from recordmill.transforms.functional.rows.row_batch import RowBatch
from recordmill.transforms.functional.values.plain import distinct, plain_column
from recordmill.transforms.functional.values.typed import (
    CONVERTERS,
    Converter,
    check_count,
    flattened,
    is_missing,
    items_of,
    row_lengths,
    single_value,
)

_WITHOUT_COLUMN = (Origin.KEY, Origin.IMAGE, Origin.BOX, Origin.MASK, Origin.SEGMENTATION)

# Returns the values of a feature, of rows, their keys, and the keys of their records.
ValueReader: TypeAlias = Callable[[RowBatch, Sequence[str], Sequence[str]], Sequence[FeatureValue]]


def value_readers(
    resolved: ResolvedSchema, columns: Mapping[str, str], image_suffix: str
) -> tuple[ValueReader, ...]:
    """Returns the reader of each feature's values, in the order of the schema.

    Decisions that depend only on the schema are made here, once, and not for each row.
    `image_suffix` is the suffix that is added to image paths without it, or "".
    """
    return tuple(
        _column_reader(name, feature, resolved, columns, image_suffix)
        if feature.source.origin not in _WITHOUT_COLUMN
        else _key_reader(feature)
        if feature.source.origin is Origin.KEY
        else _no_values  # until the image is read
        for name, feature in resolved.schema.features.items()
    )


def _no_values(
    rows: RowBatch, keys: Sequence[str], records: Sequence[str]
) -> Sequence[FeatureValue]:
    return [None] * len(rows)


def _key_reader(feature: Feature) -> ValueReader:
    if feature.per == "record":
        return lambda rows, keys, records: [key.encode("utf-8") for key in records]
    return lambda rows, keys, records: [key.encode("utf-8") for key in keys]


def _column_reader(
    name: str,
    feature: Feature,
    resolved: ResolvedSchema,
    columns: Mapping[str, str],
    image_suffix: str,
) -> ValueReader:
    column = columns.get(feature.source.name, feature.source.name)
    convert = _converter(name, feature, resolved)
    missing = _missing_value(feature)
    names_image = feature.source.name == resolved.schema.image.column
    is_plain = (
        feature.shape is None and feature.source.origin is Origin.COLUMN and not feature.classes
    )

    def read(rows: RowBatch, keys: Sequence[str], records: Sequence[str]) -> Sequence[FeatureValue]:
        values, is_text = rows.column(column), rows.untyped(column)
        if names_image:
            values = [
                key if value is None and image is not None else value
                for image, key, value in zip(rows.images, keys, values, strict=True)
            ]  # the key of an embedded image without a path
            if image_suffix:
                values = [str(v) if isinstance(v, int) else v for v in values]
        if is_plain and (plain := plain_column(values, feature.kind, is_text)) is not None:
            return plain
        if feature.shape is not None:  # a list is not shared between rows
            return [read_one(value, is_text) for value in values]
        unlike = distinct(values)
        if len(unlike) == len(values):
            return [read_one(value, is_text) for value in values]
        by_value = {value: read_one(value, is_text) for value in unlike}
        return [by_value[value] for value in values]

    def read_one(value: Any, is_text: bool) -> FeatureValue:
        try:
            value = value if feature.shape is not None else single_value(value)
            if is_missing(value, feature, is_text):
                return missing()
            return _shaped(value, feature, is_text, convert)
        except RecordError as error:
            raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None

    return read


def _shaped(value: Any, feature: Feature, is_text: bool, convert: Converter) -> FeatureValue:
    """Converts a value to a scalar, or to a list in row-major order.

    Raises RecordError if an item has the wrong type, or the value does not match the shape.
    """
    if feature.shape is None:
        single: FeatureValue = convert(value, is_text)
        return single
    items = items_of(value, feature, is_text)
    if feature.source.origin is Origin.ROW_LENGTHS:
        return row_lengths(items)
    nested = (None, None) if feature.source.origin is Origin.FLAT else feature.shape
    if nested and not (is_text and items and isinstance(items[0], str)):
        items = flattened(items, nested)
    elif nested:  # text split at its separators is flat: only the number of items can be checked
        check_count(len(items), nested)
    return [convert(item, is_text) for item in items]


def _converter(name: str, feature: Feature, resolved: ResolvedSchema) -> Converter:
    if feature.classes:
        ids = resolved.class_ids.get(name)
        offset = feature.label_offset
        return lambda value, is_text: class_id(value, is_text, ids, offset)
    if feature.source.origin is Origin.CLASS_NAME:
        return _name_converter(feature.source.name, resolved)
    return CONVERTERS[feature.kind]


def _name_converter(column: str, resolved: ResolvedSchema) -> Converter:
    labels = resolved.class_feature_of(column)
    if labels is None or not resolved.classes.get(labels):
        return label_text
    names, ids = resolved.classes[labels], resolved.class_ids[labels]
    offset = resolved.schema.features[labels].label_offset
    return lambda value, is_text: names[class_id(value, is_text, ids, offset)].encode("utf-8")


def _missing_value(feature: Feature) -> Callable[[], FeatureValue]:
    if feature.default is not None:
        default: FeatureValue = CONVERTERS[feature.kind](feature.default, False)
        return lambda: default
    if feature.missing is Missing.EMPTY:
        return lambda: []
    return _reject_missing


def _reject_missing() -> FeatureValue:
    raise RecordError(Reason.MISSING_VALUE, "empty; the schema requires a value")
