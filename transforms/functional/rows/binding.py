"""The column mapping of a table."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Feature, Missing, Origin, Schema
from recordmill.schemas.masking import bare_url
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import FeatureValue
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.addresses import check_address
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.labels import class_id, label_text
from recordmill.transforms.functional.values.typed import (
    CONVERTERS,
    Converter,
    check_count,
    distinct,
    flattened,
    is_missing,
    items_of,
    plain_column,
    row_lengths,
    single_value,
)

_WITHOUT_COLUMN = (Origin.KEY, Origin.IMAGE, Origin.BOX, Origin.MASK, Origin.SEGMENTATION)

# Returns the values of a feature, of rows, their keys, and the keys of their records.
ValueReader: TypeAlias = Callable[[RowBatch, Sequence[str], Sequence[str]], Sequence[FeatureValue]]


def _value_readers(
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


@dataclass(frozen=True)
class Binding:
    """The column mapping of a table, and the columns of keys, splits and groups."""

    resolved: ResolvedSchema
    columns: Mapping[str, str]  # the table column of each schema column whose name differs
    # The base of relative image paths, or None for the folder of the table.
    image_root: str | None = None
    key_column: str | None = None  # the table column of the key, or None for the image path
    split_column: str | None = None
    # The table column of the group, or None; rows of a group are in the same split.
    group_column: str | None = None
    splits: frozenset[str] | None = None  # the allowed splits, or None to allow any
    # The prefix of table paths that is omitted from keys of file and line; None for keys with the
    # file name only.
    key_root: str | None = None
    # The name of a table in keys, where its address without secrets is not unique.
    table_names: Mapping[str, str] = field(default_factory=dict)
    # What the keys of a table that are image paths begin with.
    key_prefixes: Mapping[str, str] = field(default_factory=dict)
    guard: str | None = None  # the image root that every image address must be inside, or None
    image_suffix: str = ""  # the suffix that is added to image paths without it, or ""
    # sha256 of each key that was removed from the base version.
    removed_keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: ConvertConfig, schema: Schema, files: Sequence[TableFile] = ()) -> Binding:
        """Returns the column mapping, without class names, which the analyze pass finds.

        `files` are the input files, whose common folder is left out of keys.
        """
        paths = [file.path for file in files]
        return cls(
            resolved=ResolvedSchema(schema),
            columns=config.columns,
            image_root=config.image_root,
            image_suffix=config.image_suffix or "",
            guard=config.guard,
            key_column=config.key_column,
            split_column=config.split_column,
            group_column=config.group_column,
            splits=frozenset(config.splits) if config.splits is not None else None,
            key_root=common_folder(paths),
            table_names=table_names(paths),
            key_prefixes={file.path: file.key_prefix for file in files if file.key_prefix},
        )

    def table_column(self, schema_column: str) -> str:
        """Returns the table column of a schema column."""
        return self.columns.get(schema_column, schema_column)

    def check_image(self, uri: str) -> None:
        """Checks that an image or mask is inside the image root, if the binding has a guard.

        Raises RecordError if it is elsewhere.
        """
        if self.guard is not None and uri:
            check_address(uri, self.guard)

    @cached_property
    def readers(self) -> tuple[ValueReader, ...]:
        """The reader of each feature's values, in the order of the schema."""
        return _value_readers(self.resolved, self.columns, self.image_suffix)

    @cached_property
    def has_annotations(self) -> bool:
        """Whether rows describe boxes or masks."""
        schema = self.resolved.schema
        return schema.has_boxes or schema.mask_feature is not None


def common_folder(files: Sequence[str]) -> str:
    """Returns the deepest folder that contains all files, with a trailing slash, or "".

    >>> common_folder(["data/a/part.csv", "data/b/part.csv"])
    'data/'
    """
    prefix = posixpath.commonprefix(list(map(bare_url, files)))
    return prefix[: prefix.rfind("/") + 1]


def table_names(files: Sequence[str]) -> dict[str, str]:
    """Returns unique names for tables whose addresses differ only in parts that may be secret.

    Keys are published with the dataset, so they must not contain a signature or its digest.

    >>> table_names(["https://host/a.csv?token=b", "https://host/a.csv?token=c", "a.csv"])
    {'https://host/a.csv?token=c': 'https://host/a.csv;2'}
    """
    seen = Counter[str]()
    names = {}
    for file in files:
        bare = bare_url(file)
        seen[bare] += 1
        if seen[bare] > 1:
            names[file] = f"{bare};{seen[bare]}"
    return names
