"""Binds rows to a schema: columns become typed values, and the image path an image reference."""

from __future__ import annotations

import math
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias, TypeVar

from recordmill.schemas.config import SPLIT_NAME, SPLIT_NAME_RULE
from recordmill.schemas.features import Feature, Missing, Origin
from recordmill.schemas.layout import is_url, is_web
from recordmill.schemas.masking import bare_url
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import FeatureValue, ImageRef, Location, Row, source_of
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.removal import digest_of_key
from recordmill.transforms.functional.addresses import check_address
from recordmill.transforms.functional.rows.annotations import with_annotations
from recordmill.transforms.functional.rows.labels import class_id, label_text
from recordmill.transforms.functional.values.plain import are_plain_keys, distinct, plain_column
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
_Reader: TypeAlias = Callable[[Sequence[Row], Sequence[str]], Sequence[FeatureValue]]

_NO_IMAGE = Location("")


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
        key_prefixes: what the keys of a table that are image paths begin with.
        guard: the image root that every image address must be inside, or None.
        image_suffix: the suffix that is added to image paths without it, or "".
        removed_keys: sha256 of each key that was removed from the base version.
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
    key_prefixes: Mapping[str, str] = field(default_factory=dict)
    guard: str | None = None
    image_suffix: str = ""
    removed_keys: frozenset[str] = frozenset()

    def table_column(self, schema_column: str) -> str:
        """Returns the table column of a schema column."""
        return self.columns.get(schema_column, schema_column)

    @cached_property
    def readers(self) -> tuple[_Reader, ...]:
        """A function per feature, in the order of the schema, from rows and keys to its values."""
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
        cluster: the name of the rows with which the row is kept in one split, or "".
    """

    key: str
    uri: str
    split: str
    group: str
    start: int | None = None
    stop: int | None = None
    sequence: str = ""
    staged: bytes = b""
    cluster: str = ""

    @property
    def record(self) -> str:
        """The key of the record that contains the row."""
        return self.sequence or self.key

    @property
    def entity(self) -> str:
        """The unit that must be in one split: the cluster or group of the row, or its record."""
        return self.cluster or self.group or self.record


_T = TypeVar("_T")


def by_halves(
    function: Callable[[Sequence[Row], Binding], _T], rows: Sequence[Row], binding: Binding
) -> Iterator[tuple[Sequence[Row], _T | RecordError]]:
    """Yields the result of a function for all rows, or if it fails, for halves of them.

    So a function can work on columns in tight loops, and a row that it rejects is still found: the
    error of a single row is yielded in place of its result.

    Args:
        function: takes rows and the column mapping, and raises a RecordError if a row is invalid.
        rows: the rows, one at least.
        binding: the column mapping.
    """
    try:
        found: _T | RecordError = function(rows, binding)
    except RecordError as error:
        if len(rows) > 1:
            middle = len(rows) // 2
            yield from by_halves(function, rows[:middle], binding)
            yield from by_halves(function, rows[middle:], binding)
            return
        found = error
    yield rows, found


def bind(row: Row, binding: Binding) -> ImageRef:
    """Returns the image reference of a single row.

    Args:
        row: the row.
        binding: the column mapping.

    Raises:
        RecordError: as `bind_rows` does.
    """
    return bind_rows([row], binding)[0]


def bind_rows(rows: Sequence[Row], binding: Binding) -> list[ImageRef]:
    """Returns the image references of rows.

    Args:
        rows: the rows.
        binding: the column mapping.

    Raises:
        RecordError: if a value is missing, of the wrong type, or an unknown label or split.
    """
    identities = identities_of(rows, binding)
    keys = [identity.key for identity in identities]
    # [values of a feature] is transposed to one tuple of values per row.
    columns = [read(rows, keys) for read in binding.readers]
    values = zip(*columns, strict=True) if columns else repeat((), len(rows))
    refs = [
        ImageRef(
            key=identity.key,
            file=row.file,
            line=row.line,
            uri=identity.uri,
            start=identity.start,
            stop=identity.stop,
            values=value,
            split=identity.split,
            group=identity.group,
            frame=_frame(row, binding, identity.sequence) if identity.sequence else None,
            staged=identity.staged,
            cluster=identity.cluster,
        )
        for row, identity, value in zip(rows, identities, values, strict=True)
    ]
    if not binding.has_annotations:
        return refs
    return [
        with_annotations(
            ref,
            row,
            binding.resolved,
            binding.columns,
            partial(_resolve_mask, table=row.file, binding=binding),
        )
        for ref, row in zip(refs, rows, strict=True)
    ]


def identity_of(row: Row, binding: Binding) -> Identity:
    """Returns the identity of a single row.

    Args:
        row: the row.
        binding: the column mapping.

    Raises:
        RecordError: as `identities_of` does.
    """
    return identities_of([row], binding)[0]


def identities_of(rows: Sequence[Row], binding: Binding) -> list[Identity]:
    """Returns the identities of rows.

    Args:
        rows: the rows.
        binding: the column mapping.

    Raises:
        RecordError: if a row has no path, key or group, an unknown split, or a removed key.
    """
    schema, none = binding.resolved.schema, [""] * len(rows)
    paths = [_image_path(row, binding) for row in rows] if schema.has_image else none
    images = _images(rows, binding, paths) if schema.has_image else [_NO_IMAGE] * len(rows)
    keys = _keys(rows, binding, paths)
    splits = [_stated_split(row, binding) for row in rows] if binding.split_column else none
    groups = [_group(row, binding) for row in rows] if binding.group_column else none
    sequences = [_sequence(row, binding) for row in rows] if schema.sequence else none
    _check_removed([*keys, *sequences], binding.removed_keys)
    return [
        Identity(
            key,
            image.uri,
            split or row.cluster.split,
            group,
            image.start,
            image.stop,
            sequence,
            image.staged,
            row.cluster.name,
        )
        for row, key, image, split, group, sequence in zip(
            rows, keys, images, splits, groups, sequences, strict=True
        )
    ]


def record_key(row: Row, binding: Binding) -> str:
    """Returns the key of the record that contains a row.

    Args:
        row: the row.
        binding: the column mapping.

    Raises:
        RecordError: if the row has no key.
    """
    if sequence := _sequence(row, binding):
        return sequence
    (key,) = _keys([row], binding, [_image_path(row, binding)])
    return key


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
    split = _or_empty(_stated_split, row, binding) or row.cluster.split
    group, cluster = _or_empty(_group, row, binding), row.cluster.name
    return Identity("", "", split, group, sequence=sequence, cluster=cluster)


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
        cluster=identity.cluster,
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
        (key,) = _keys([row], binding, [path])
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


def files_of(row: Row, binding: Binding) -> Iterator[str]:
    """Yields the addresses of the image and the mask that a row names, if it names any.

    Args:
        row: the row.
        binding: the column mapping.
    """
    schema = binding.resolved.schema
    if row.image is not None:
        yield row.image.uri
    mask = schema.features[schema.mask_feature].source if schema.mask_feature else None
    suffixes = {}
    if row.image is None and schema.has_image:
        suffixes[schema.image.column] = binding.image_suffix
    if mask is not None and mask.origin is Origin.MASK:
        suffixes[mask.name] = ""
    for name, suffix in suffixes.items():
        try:
            path = _text(row, binding.table_column(name), numbers=bool(suffix))
        except RecordError:
            continue
        yield resolve_path(with_suffix(path, suffix), row.file, binding.image_root)


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
    # Names of files without a suffix may be integers.
    return _text(row, column, numbers=bool(binding.image_suffix))


def _image(row: Row, binding: Binding, path: str) -> Location:
    """Returns the location of the image from the source of the row, or else from its path."""
    if row.image is not None and binding.resolved.schema.has_image:
        return row.image
    path = with_suffix(path, binding.image_suffix)
    return Location(resolve_path(path, row.file, binding.image_root))


def with_suffix(path: str, suffix: str) -> str:
    """Returns a path with a suffix, which is added if the path does not have it.

    Args:
        path: the path of an image as written, or "".
        suffix: the suffix, or "".

    >>> with_suffix("1a2b", ".jpg"), with_suffix("1a2b.JPG", ".jpg")
    ('1a2b.jpg', '1a2b.JPG')
    """
    has_suffix = not path or path.lower().endswith(suffix.lower())
    return path if has_suffix else path + suffix


def _images(rows: Sequence[Row], binding: Binding, paths: Sequence[str]) -> list[Location]:
    images = [_image(row, binding, path) for row, path in zip(rows, paths, strict=True)]
    for image in images:
        # Staged images are outside the image root, but the run itself wrote them.
        if not image.staged:
            _check_root(image.uri, binding)
    return images


def _keys(rows: Sequence[Row], binding: Binding, paths: Sequence[str]) -> Sequence[str]:
    column = binding.key_column
    if column is None:
        prefixes = binding.key_prefixes
        named = zip(rows, paths, strict=True)
        if not prefixes:
            return [path or _key(row, binding) for row, path in named]
        return [
            prefixes.get(row.file, "") + path if path else _key(row, binding) for row, path in named
        ]
    values = [row.values.get(column) for row in rows]
    if are_plain_keys(values):
        return values
    return [_text(row, column, numbers=True) for row in rows]


def _check_removed(keys: Sequence[str], removed: frozenset[str]) -> None:
    if removed and any(digest_of_key(key) in removed for key in keys):
        raise RecordError(Reason.REMOVED_KEY, "was removed from an earlier version by forget")


def _key(row: Row, binding: Binding) -> str:
    """Returns the table and the line, the key of a row without a key column and a path."""
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
    """Returns a function from rows and their keys to the values of a feature.

    Values from images are None until the image is read.
    """
    if feature.source.origin in _FROM_THE_IMAGE:
        return lambda rows, keys: [None] * len(rows)
    if feature.source.origin is Origin.KEY:
        of_sequence = binding.resolved.schema.sequence and feature.per == "record"
        return _key_reader(binding, bool(of_sequence))
    column = binding.table_column(feature.source.name)
    convert = _converter(name, feature, binding.resolved)
    missing = _missing_value(feature)
    names_image = feature.source.name == binding.resolved.schema.image.column
    is_plain = (
        feature.shape is None and feature.source.origin is Origin.COLUMN and not feature.classes
    )

    def read(rows: Sequence[Row], keys: Sequence[str]) -> Sequence[FeatureValue]:
        values, is_text = [row.values.get(column) for row in rows], rows[0].untyped(column)
        if names_image:
            values = [
                key if value is None and row.image is not None else value
                for row, key, value in zip(rows, keys, values, strict=True)
            ]  # the key of an embedded image without a path
            if binding.image_suffix:
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


def _key_reader(binding: Binding, of_sequence: bool) -> _Reader:
    if of_sequence:
        return lambda rows, keys: [_sequence(row, binding).encode("utf-8") for row in rows]
    return lambda rows, keys: [key.encode("utf-8") for key in keys]


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
