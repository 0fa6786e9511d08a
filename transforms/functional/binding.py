"""A row of a table, bound to a schema: columns become typed values, the path a reference."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from schemas.config import SPLIT_NAME
from schemas.features import Feature, Missing, Origin
from schemas.layout import is_url
from schemas.plan import ResolvedSchema
from schemas.records import FeatureValue, ImageRef, Row
from schemas.rejects import Reason, RecordError, Reject
from transforms.functional.labels import class_id, label_text
from transforms.functional.values import CONVERTERS, Converter, is_missing, items_of, to_bytes

_Reader: TypeAlias = Callable[[Row, str], FeatureValue]


@dataclass(frozen=True)
class Binding:
    """Which table columns mean what.

    Attributes:
        resolved: the settled schema.
        columns: schema column to table column, where the names differ.
        image_root: base of relative image paths, or None for the table's folder.
        key_column: the table column of the key, or None for the image's path.
        split_column: the table column of a row's own split, or None.
        group_column: the table column that keeps rows together, or None.
        splits: the splits there are, or None if those found make the list.
        key_root: what of a table's path is left out where file and line make the key; None for all
            but its name.
    """

    resolved: ResolvedSchema
    columns: Mapping[str, str]
    image_root: str | None = None
    key_column: str | None = None
    split_column: str | None = None
    group_column: str | None = None
    splits: frozenset[str] | None = None
    key_root: str | None = None

    def table_column(self, schema_column: str) -> str:
        """Returns the table's name of a schema's column."""
        return self.columns.get(schema_column, schema_column)

    @cached_property
    def readers(self) -> tuple[_Reader, ...]:
        """What takes each feature's value from a row and its key, in the schema's order."""
        features = self.resolved.schema.features.items()
        return tuple(_reader(name, feature, self) for name, feature in features)


class Identity(NamedTuple):
    """What tells a row from others and decides its place.

    Attributes:
        key: its stable identity.
        uri: where its image is; "" if the schema needs none.
        split: its own split, or "".
        group: the value that keeps rows together in one split, or "".
    """

    key: str
    uri: str
    split: str
    group: str


def bind(row: Row, binding: Binding) -> ImageRef:
    """Returns the reference that a row stands for.

    Raises:
        RecordError: if a value is missing, of the wrong type, or an unknown label or split.
    """
    identity = identity_of(row, binding)
    return ImageRef(
        key=identity.key,
        file=row.file,
        line=row.line,
        uri=identity.uri,
        start=None,
        stop=None,
        values=tuple([read(row, identity.key) for read in binding.readers]),
        split=identity.split,
        group=identity.group,
    )


def identity_of(row: Row, binding: Binding) -> Identity:
    """Returns what tells a row from others and decides its place.

    Raises:
        RecordError: if it has no path, key or group, or an unknown split.
    """
    path = _image_path(row, binding)
    return Identity(
        key=_key(row, binding, path),
        uri=resolve_path(path, row.file, binding.image_root),
        split=_own_split(row, binding),
        group=_group(row, binding),
    )


def refuse(row: Row, binding: Binding, error: RecordError) -> Reject:
    """Returns the reject of a row that cannot be bound, with as much of it as can be told."""
    key = uri = ""
    try:
        path = _image_path(row, binding)
        uri = resolve_path(path, row.file, binding.image_root)
        key = _key(row, binding, path)
    except RecordError:
        pass  # the row is too broken to have a path or a key: `error` says so
    return Reject(key, uri, row.source, error.reason, error.detail)


def resolve_path(path: str, table: str, image_root: str | None) -> str:
    """Returns where an image is: its path joined to the root, by default the table's folder.

    >>> resolve_path("photos/1.jpg", "s3://bucket/birds/labels.csv", None)
    's3://bucket/birds/photos/1.jpg'
    """
    if not path or path.startswith("/") or is_url(path):
        return path
    if image_root is None:
        return table[: table.rfind("/") + 1] + path
    return posixpath.join(image_root, path)


def common_folder(files: Sequence[str]) -> str:
    """Returns the folder that all files are below, with its slash; "" if there is none.

    >>> common_folder(["data/a/part.csv", "data/b/part.csv"])
    'data/'
    """
    prefix = posixpath.commonprefix(list(files))
    return prefix[: prefix.rfind("/") + 1]


def _image_path(row: Row, binding: Binding) -> str:
    schema = binding.resolved.schema
    return _text(row, binding.table_column(schema.image.column)) if schema.has_image else ""


def _key(row: Row, binding: Binding, path: str) -> str:
    if binding.key_column is not None:
        return _text(row, binding.key_column, numbers=True)
    if path:
        return path
    root = binding.key_root
    name = posixpath.basename(row.file) if root is None else row.file.removeprefix(root)
    return f"{name}:{row.line}"


def _text(row: Row, column: str, numbers: bool = False) -> str:
    value = row.values.get(column)
    if value is None or value == "":
        raise RecordError(Reason.MISSING_VALUE, f"column {column!r}: empty; expected text")
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise RecordError(Reason.WRONG_TYPE, f"column {column!r}: expected text, got {value!r}")
    to_bytes(value, is_text=True)
    return value


def _own_split(row: Row, binding: Binding) -> str:
    value = row.values.get(binding.split_column) if binding.split_column is not None else None
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not SPLIT_NAME.fullmatch(value):
        raise _unknown_split(binding, value, "letters, digits and _")
    if binding.splits is not None and value not in binding.splits:
        raise _unknown_split(binding, value, "one of " + ", ".join(sorted(binding.splits)))
    return value


def _unknown_split(binding: Binding, value: Any, expected: str) -> RecordError:
    detail = f"column {binding.split_column!r}: expected {expected}, got {value!r}"
    return RecordError(Reason.UNKNOWN_SPLIT, detail)


def _group(row: Row, binding: Binding) -> str:
    return "" if binding.group_column is None else _text(row, binding.group_column, numbers=True)


def _reader(name: str, feature: Feature, binding: Binding) -> _Reader:
    """Returns what takes one feature's value from a row, with all that is known beforehand done."""
    if feature.source.origin is Origin.IMAGE:
        return lambda row, key: None
    if feature.source.origin is Origin.KEY:
        return lambda row, key: key.encode("utf-8")
    column = binding.table_column(feature.source.name)
    convert = _converter(name, feature, binding.resolved)
    missing = _missing_value(feature)

    def read(row: Row, key: str) -> FeatureValue:
        value = row.values.get(column)
        try:
            if is_missing(value, feature, row.is_text):
                return missing()
            return _shaped(value, feature, row.is_text, convert)
        except RecordError as error:
            raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None

    return read


def _shaped(value: Any, feature: Feature, is_text: bool, convert: Converter) -> FeatureValue:
    if feature.shape is None:
        single: FeatureValue = convert(value, is_text)
        return single
    items = [convert(item, is_text) for item in items_of(value, feature, is_text)]
    if feature.shape and len(items) != feature.shape[0]:
        detail = f"expected {feature.shape[0]} items, got {len(items)}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    return items


def _converter(name: str, feature: Feature, resolved: ResolvedSchema) -> Converter:
    if feature.classes:
        ids = resolved.class_ids.get(name)
        return lambda value, is_text: class_id(value, is_text, ids)
    if feature.source.origin is Origin.CLASS_NAME:
        return _name_converter(feature.source.name, resolved)
    return CONVERTERS[feature.kind]


def _name_converter(column: str, resolved: ResolvedSchema) -> Converter:
    labels = resolved.class_feature_of(column)
    if labels is None or not resolved.classes.get(labels):
        return label_text
    names, ids = resolved.classes[labels], resolved.class_ids[labels]
    return lambda value, is_text: names[class_id(value, is_text, ids)].encode("utf-8")


def _missing_value(feature: Feature) -> Callable[[], FeatureValue]:
    if feature.default is not None:
        default: FeatureValue = CONVERTERS[feature.kind](feature.default, False)
        return lambda: default
    if feature.missing is Missing.EMPTY:
        return lambda: []
    return _refuse_missing


def _refuse_missing() -> FeatureValue:
    raise RecordError(Reason.MISSING_VALUE, "empty; the schema requires a value")
