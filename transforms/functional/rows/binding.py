"""Binds rows to a schema: columns become typed values, and the image path an image reference."""

from __future__ import annotations

import math
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

from recordmill.schemas.config import SPLIT_NAME, SPLIT_NAME_RULE
from recordmill.schemas.features import Feature, Missing, Origin
from recordmill.schemas.layout import is_url, is_web
from recordmill.schemas.masking import bare_url
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import FeatureValue, ImageRef, Location, Row, source_of
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.transforms.functional.addresses import check_address
from recordmill.transforms.functional.rows.annotations import with_annotations
from recordmill.transforms.functional.rows.labels import class_id, label_text
from recordmill.transforms.functional.values.typed import (
    CONVERTERS,
    Converter,
    check_count,
    flattened,
    is_missing,
    items_of,
    row_lengths,
    short_repr,
    single_value,
    to_bytes,
)

_FROM_THE_IMAGE = (Origin.IMAGE, Origin.BOX, Origin.MASK, Origin.SEGMENTATION)
_Reader: TypeAlias = Callable[[Row, str], FeatureValue]


@dataclass(frozen=True)
class Binding:
    """The column mapping of a table, and the columns of keys, splits and groups.

    Attributes:
        resolved: the resolved schema.
        columns: the table column of each schema column whose name differs.
        image_root: the base of relative image paths, or None for the folder of the table.
        key_column: the table column of the key, or None for the image path.
        split_column: the table column of the split, or None.
        group_column: the table column of the group, or None; rows of a group are in the same split.
        splits: the allowed splits, or None to allow any.
        key_root: the prefix of table paths that is omitted from keys of file and line; None for
            keys with the file name only.
        table_names: the name of a table in keys, where its address without secrets is not unique.
        guard: the image root that every image address must be inside, or None.
    """

    resolved: ResolvedSchema
    columns: Mapping[str, str]
    image_root: str | None = None
    key_column: str | None = None
    split_column: str | None = None
    group_column: str | None = None
    splits: frozenset[str] | None = None
    key_root: str | None = None
    table_names: Mapping[str, str] = field(default_factory=dict)
    guard: str | None = None

    def table_column(self, schema_column: str) -> str:
        """Returns the table column of a schema column."""
        return self.columns.get(schema_column, schema_column)

    @cached_property
    def readers(self) -> tuple[_Reader, ...]:
        """A function per feature, in the order of the schema, from (row, key) to its value."""
        # Decisions that depend only on the schema are made here, once, and not for each row.
        features = self.resolved.schema.features.items()
        return tuple(_reader(name, feature, self) for name, feature in features)

    @cached_property
    def has_annotations(self) -> bool:
        """Whether rows describe boxes or masks."""
        schema = self.resolved.schema
        return schema.has_boxes or schema.mask_feature is not None


class Identity(NamedTuple):
    """The fields of a row that determine its split, shard and order, and its image.

    Attributes:
        key: the key, which is the same in every run.
        uri: the address of the image; "" if the schema has no image.
        split: the split that the row states, or "".
        group: the group of the row, whose rows are in the same split, or "".
        start: the offset of the first byte of the image in its file, or None for the whole file.
        stop: the offset after its last byte, or None.
        sequence: the key of the sequence that contains the row as a frame, or "".
        staged: the hash of a staged image, as in `Location`.
    """

    key: str
    uri: str
    split: str
    group: str
    start: int | None = None
    stop: int | None = None
    sequence: str = ""
    staged: bytes = b""

    @property
    def record(self) -> str:
        """The key of the record that contains the row."""
        return self.sequence or self.key


def bind(row: Row, binding: Binding) -> ImageRef:
    """Returns the image reference of a row.

    Args:
        row: the row.
        binding: the column mapping.

    Raises:
        RecordError: if a value is missing, of the wrong type, or an unknown label or split.
    """
    identity = identity_of(row, binding)
    ref = ImageRef(
        key=identity.key,
        file=row.file,
        line=row.line,
        uri=identity.uri,
        start=identity.start,
        stop=identity.stop,
        # This runs for every value of a table, and a list is faster than a generator.
        values=tuple([read(row, identity.key) for read in binding.readers]),
        split=identity.split,
        group=identity.group,
        frame=_frame(row, binding, identity.sequence) if identity.sequence else None,
        staged=identity.staged,
    )
    if not binding.has_annotations:
        return ref
    resolve = partial(_resolve_mask, table=row.file, binding=binding)
    return with_annotations(ref, row, binding.resolved, binding.columns, resolve)


def identity_of(row: Row, binding: Binding) -> Identity:
    """Returns the identity of a row.

    Args:
        row: the row.
        binding: the column mapping.

    Raises:
        RecordError: if the row has no path, key or group, or an unknown split.
    """
    path = _image_path(row, binding)
    image = _image(row, binding, path)
    # Staged images are outside the image root, but the run itself wrote them.
    if not image.staged:
        _check_root(image.uri, binding)
    return Identity(
        key=_key(row, binding, path),
        uri=image.uri,
        split=_stated_split(row, binding),
        group=_group(row, binding),
        start=image.start,
        stop=image.stop,
        sequence=_sequence(row, binding),
        staged=image.staged,
    )


def broken_identity(row: Row, binding: Binding) -> Identity | None:
    """Returns the identity of a frame that cannot be bound.

    Args:
        row: the row.
        binding: the column mapping.

    Returns:
        The identity with the key of the sequence; None for rows that are not frames, and for frames
        whose sequence key cannot be read.
    """
    try:
        sequence = _sequence(row, binding)
    except RecordError:
        return None  # without a sequence key, no sequence can be rejected along with the frame
    if not sequence:
        return None
    split = _or_empty(_stated_split, row, binding)
    return Identity("", "", split, _or_empty(_group, row, binding), sequence=sequence)


def broken_frame(row: Row, binding: Binding, error: RecordError) -> ImageRef | None:
    """Returns a reference that marks the sequence of a row as broken.

    The reference replaces the frame in its shard, where all rows of the sequence are rejected.

    Args:
        row: the row.
        binding: the column mapping.
        error: the error of the row.

    Returns:
        The reference; None if the row has no readable sequence key.
    """
    identity = broken_identity(row, binding)
    if identity is None:
        return None
    reject = reject_row(row, binding, error)
    return ImageRef(
        key=reject.key,
        file=row.file,
        line=row.line,
        uri=reject.uri,
        start=None,
        stop=None,
        values=(),
        split=identity.split,
        group=identity.group,
        frame=(identity.sequence, "", error.reason.value, error.detail),
    )


def _or_empty(read: Callable[[Row, Binding], str], row: Row, binding: Binding) -> str:
    try:
        return read(row, binding)
    except RecordError:
        return ""


def _sequence(row: Row, binding: Binding) -> str:
    """Returns the key of the sequence of a row; "" for schemas without sequences."""
    settings = binding.resolved.schema.sequence
    if settings is None:
        return ""
    return _text(row, binding.table_column(settings.group), numbers=True)


def _frame(row: Row, binding: Binding, sequence: str) -> tuple[str, str, str, str]:
    """Returns the fields of `FrameLocation` as a tuple, which is cheaper to shuffle."""
    settings = binding.resolved.schema.sequence
    column = binding.table_column(settings.order if settings else "")
    value = _single(row, column)
    if isinstance(value, float) and math.isfinite(value):
        return sequence, repr(value), "", ""
    return sequence, _text(row, column, numbers=True).strip(), "", ""


def reject_row(row: Row, binding: Binding, error: RecordError) -> Reject:
    """Returns the reject of a row that cannot be bound, with its key and image if they are valid.

    Args:
        row: the row.
        binding: the column mapping.
        error: the error of the row.
    """
    key, image = "", Location("")
    try:
        path = _image_path(row, binding)
        image = _image(row, binding, path)
        # The file of a staged image is deleted at the end of the run: report the table instead.
        image = Location(row.file) if image.staged else image
        key = _key(row, binding, path)
    except RecordError:
        pass  # `error` already reports the invalid path or key
    why = (error.reason, error.detail)
    return Reject(key, image.uri, row.source, *why, start=image.start, stop=image.stop)


def resolve_path(path: str, table: str, image_root: str | None) -> str:
    """Joins the path of an image to the image root.

    Args:
        path: the path or address in the table.
        table: the path or address of the table.
        image_root: the base of relative paths; None for the folder of the table.

    >>> resolve_path("photos/1.jpg", "s3://bucket/birds/labels.csv", None)
    's3://bucket/birds/photos/1.jpg'
    >>> resolve_path("photo #1.jpg", "https://host/birds/labels.csv?page=a/b", None)
    'https://host/birds/photo %231.jpg'
    """
    if not path or path.startswith("/") or is_url(path):
        return path
    root = _folder_of(table) if image_root is None else image_root
    if is_web(root):
        path = path.replace("#", "%23")  # valid in a file name; in a URL it begins a fragment
    return posixpath.join(root, path)


def _resolve_mask(path: str, table: str, binding: Binding) -> str:
    uri = resolve_path(path, table, binding.image_root)
    _check_root(uri, binding)
    return uri


def _check_root(uri: str, binding: Binding) -> None:
    if binding.guard is not None and uri:
        check_address(uri, binding.guard)


def _folder_of(table: str) -> str:
    path = table.partition("?")[0] if is_web(table) else table  # a query may contain slashes
    return path[: path.rfind("/") + 1]


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


def _image_path(row: Row, binding: Binding) -> str:
    """Returns the image path as written; "" for schemas without images and for embedded images."""
    schema = binding.resolved.schema
    column = binding.table_column(schema.image.column)
    if not schema.has_image or (row.image is not None and row.values.get(column) is None):
        return ""
    return _text(row, column)


def _image(row: Row, binding: Binding, path: str) -> Location:
    """Returns the location of the image from the source of the row, or else from its path."""
    if row.image is not None and binding.resolved.schema.has_image:
        return row.image
    return Location(resolve_path(path, row.file, binding.image_root))


def _key(row: Row, binding: Binding, path: str) -> str:
    if binding.key_column is not None:
        return _text(row, binding.key_column, numbers=True)
    if path:
        return path
    # Without a key column and a path, the key is the table and the line.
    file, root = binding.table_names.get(row.file) or bare_url(row.file), binding.key_root
    name = posixpath.basename(file) if root is None else file.removeprefix(root)
    return source_of(name, row.line)


def _text(row: Row, column: str, numbers: bool = False) -> str:
    """Returns the text in a column of a row.

    Args:
        row: the row.
        column: the table column.
        numbers: whether to accept integers, as their decimal digits.

    Raises:
        RecordError: if the value is missing or of another type.
    """
    value = _single(row, column)
    if value is None or value == "":
        raise RecordError(Reason.MISSING_VALUE, f"column {column!r}: empty; expected text")
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise RecordError(
            Reason.WRONG_TYPE, f"column {column!r}: expected text, got {short_repr(value)}"
        )
    to_bytes(value, is_text=True)
    return value


def _single(row: Row, column: str) -> Any:
    try:
        return single_value(row.values.get(column))
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None


def _stated_split(row: Row, binding: Binding) -> str:
    """Returns the split in the split column; "" if there is no value or no such column."""
    if binding.split_column is None:
        return ""
    value = _single(row, binding.split_column)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not SPLIT_NAME.fullmatch(value):
        raise _unknown_split(binding, value, SPLIT_NAME_RULE)
    if binding.splits is not None and value not in binding.splits:
        raise _unknown_split(binding, value, "one of " + ", ".join(sorted(binding.splits)))
    return value


def _unknown_split(binding: Binding, value: Any, expected: str) -> RecordError:
    detail = f"column {binding.split_column!r}: expected {expected}, got {short_repr(value)}"
    return RecordError(Reason.UNKNOWN_SPLIT, detail)


def _group(row: Row, binding: Binding) -> str:
    return "" if binding.group_column is None else _text(row, binding.group_column, numbers=True)


def _reader(name: str, feature: Feature, binding: Binding) -> _Reader:
    """Returns a function from (row, key) to the value of a feature.

    Values from images are None until the image is read.
    """
    if feature.source.origin in _FROM_THE_IMAGE:
        return lambda row, key: None
    if feature.source.origin is Origin.KEY:
        of_sequence = binding.resolved.schema.sequence and feature.per == "record"
        return _key_reader(binding, bool(of_sequence))
    column = binding.table_column(feature.source.name)
    convert = _converter(name, feature, binding.resolved)
    missing = _missing_value(feature)
    names_image = feature.source.name == binding.resolved.schema.image.column

    def read(row: Row, key: str) -> FeatureValue:
        value, is_text = row.values.get(column), row.untyped(column)
        if value is None and names_image and row.image is not None:
            value = key  # an embedded image without a path
        try:
            value = value if feature.shape is not None else single_value(value)
            if is_missing(value, feature, is_text):
                return missing()
            return _shaped(value, feature, is_text, convert)
        except RecordError as error:
            raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None

    return read


def _key_reader(binding: Binding, of_sequence: bool) -> _Reader:
    if of_sequence:
        return lambda row, key: _sequence(row, binding).encode("utf-8")
    return lambda row, key: key.encode("utf-8")


def _shaped(value: Any, feature: Feature, is_text: bool, convert: Converter) -> FeatureValue:
    """Converts a value to a scalar, or to a list in row-major order.

    Args:
        value: the value in a row.
        feature: the feature, with its shape.
        is_text: whether the value is untyped text.
        convert: converts a single item.

    Raises:
        RecordError: if an item has the wrong type, or the value does not match the shape.
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
