"""The identity of a row: its key, image, split and group, which decide where its record is."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from recordmill.schemas.features import Origin
from recordmill.schemas.masking import bare_url
from recordmill.schemas.option import SPLIT_NAME, SPLIT_NAME_RULE
from recordmill.schemas.records import MAX_CHARACTERS, Location, Row, source_of
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.removal import digest_of_key
from recordmill.transforms.functional.rows.batches import (
    Column,
    ColumnBatch,
    RowBatch,
    first_of,
    once,
)
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.image_paths import resolve_path, with_suffix
from recordmill.transforms.functional.values.typed import (
    are_plain_keys,
    short_repr,
    single_value,
    to_bytes,
)


def text_cell(row: Row, column: str, numbers: bool = False) -> str:
    """Returns a key, path or other short text; raises RecordError if it is missing or no such text.

    With `numbers`, integers are accepted as their decimal digits.
    """
    value = single_cell(row, column)
    if value is None or value == "":
        raise RecordError(Reason.MISSING_VALUE, f"column {column!r}: empty; expected text")
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise RecordError(
            Reason.WRONG_TYPE, f"column {column!r}: expected text, got {short_repr(value)}"
        )
    if len(value) > MAX_CHARACTERS:
        what = f"expected at most {MAX_CHARACTERS:,} characters, got {len(value):,}"
        raise RecordError(Reason.MALFORMED_ROW, f"column {column!r}: {what}")
    to_bytes(value, is_text=True)
    return value


def single_cell(row: Row, column: str) -> Any:
    """Returns the value in a column of a row, or of the equal items of a list.

    Raises RecordError if the items differ.
    """
    try:
        return single_value(row.values.get(column))
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None


_NO_IMAGE = Location("")


class Identity(NamedTuple):
    """The fields of a row that determine its split, shard and order, and its image."""

    key: str
    uri: str  # the address of the image; "" if the schema has no image
    split: str
    group: str
    # The offset of the first byte of the image in its file, or None for the whole file.
    start: int | None = None
    stop: int | None = None  # the offset after its last byte, or None
    sequence: str = ""  # the key of the sequence that contains the row as a frame, or ""
    staged: bytes = b""  # the hash of a staged image, as in `Location`
    cluster: str = ""  # the name of the rows with which the row is kept in one split, or ""

    @property
    def record(self) -> str:
        """The key of the record that contains the row."""
        return self.sequence or self.key

    @property
    def entity(self) -> str:
        """The unit that must be in one split: the cluster or group of the row, or its record."""
        return self.cluster or self.group or self.record


class Identities(ColumnBatch[Identity]):
    """The identities of rows."""

    row_class, fields = Identity, Identity._fields

    @property
    def records(self) -> Column:
        """The key of the record of each row."""
        return first_of(self.column("sequence"), self.column("key"))

    @property
    def entities(self) -> Column:
        """The unit of each row that must be in one split."""
        return first_of(self.column("cluster"), first_of(self.column("group"), self.records))


def identity_of(row: Row, binding: Binding) -> Identity:
    """Returns the identity of a single row.

    Raises RecordError (as) `identities_of` does.
    """
    (identity,) = identities_of([row], binding)
    return identity


def identities_of(rows: Sequence[Row], binding: Binding) -> Identities:
    """Returns the identities of rows.

    Raises RecordError if a row has no path, key or group, an unknown split, or a removed key.
    """
    rows = RowBatch.of(rows)
    schema, none = binding.resolved.schema, ("",)
    paths = [_image_path(row, binding) for row in rows] if schema.has_image else none * len(rows)
    images = _images(rows, binding, paths) if schema.has_image else [_NO_IMAGE]
    keys = _keys(rows, binding, paths)
    splits = [_stated_split(row, binding) for row in rows] if binding.split_column else none
    groups = [_group(row, binding) for row in rows] if binding.group_column else none
    sequences = [_sequence(row, binding) for row in rows] if schema.sequence else none
    _check_removed([*keys, *sequences], binding.removed_keys)
    uris, starts, stops, staged = map(once, zip(*images, strict=True))
    clusters, fixed = map(once, zip(*rows.clusters, strict=True))
    stated = first_of(tuple(splits), tuple(fixed))
    return Identities([keys, uris, stated, groups, starts, stops, sequences, staged, clusters])


def record_key(row: Row, binding: Binding) -> str:
    """Returns the key of the record that contains a row.

    Raises RecordError if the row has no key.
    """
    if sequence := _sequence(row, binding):
        return sequence
    (key,) = _keys(RowBatch.of([row]), binding, [_image_path(row, binding)])
    return key


def broken_identity(row: Row, binding: Binding) -> Identity | None:
    """Returns the identity of a frame that cannot be bound.

    Returns the identity with the key of the sequence; None for rows that are not frames, and for
    frames whose sequence key cannot be read.
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


# The remedy for a value that a row of a folder of images lacks: nothing can be filled in there.
_OF_FOLDERS = (
    ". Move the image to the folder of its class; or, if it has no class, declare default: -1 for "
    "the label in a schema."
)


def reject_row(row: Row, binding: Binding, error: RecordError) -> Reject:
    """Returns the reject of a row that cannot be bound, with its key and image if valid."""
    key, image = "", Location("")
    try:
        path = _image_path(row, binding)
        image = _image(row, binding, path)
        # The file of a staged image is deleted at the end of the run: report the table instead.
        image = Location(row.file) if image.staged else image
        (key,) = _keys(RowBatch.of([row]), binding, [path])
    except RecordError:
        pass  # `error` already reports the invalid path or key
    detail = error.detail
    if error.reason is Reason.MISSING_VALUE and row.line == 0 and row.own_uri == row.file:
        detail += _OF_FOLDERS
    why = (error.reason, detail)
    return Reject(key, image.uri, row.source, *why, start=image.start, stop=image.stop)


def files_of(row: Row, binding: Binding) -> Iterator[str]:
    """Yields the addresses of the image and the mask that a row names, if it names any."""
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
            path = text_cell(row, binding.table_column(name), numbers=bool(suffix))
        except RecordError:
            continue
        yield resolve_path(with_suffix(path, suffix), row.file, binding.image_root)


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
    return text_cell(row, binding.table_column(settings.group), numbers=True)


def _image_path(row: Row, binding: Binding) -> str:
    """Returns the image path as written; "" for schemas without images and for embedded images."""
    schema = binding.resolved.schema
    column = binding.table_column(schema.image.column)
    if not schema.has_image or (row.image is not None and row.values.get(column) is None):
        return ""
    # Names of files without a suffix may be integers.
    return text_cell(row, column, numbers=bool(binding.image_suffix))


def _image(row: Row, binding: Binding, path: str) -> Location:
    """Returns the location of the image from the source of the row, or else from its path."""
    if row.image is not None and binding.resolved.schema.has_image:
        return row.image
    path = with_suffix(path, binding.image_suffix)
    return Location(resolve_path(path, row.file, binding.image_root))


def _images(rows: RowBatch, binding: Binding, paths: Sequence[str]) -> list[Location]:
    images = [_image(row, binding, path) for row, path in zip(rows, paths, strict=True)]
    for image in images:
        # Staged images are outside the image root, but the run itself wrote them.
        if not image.staged:
            binding.check_image(image.uri)
    return images


def _keys(rows: RowBatch, binding: Binding, paths: Sequence[str]) -> Sequence[str]:
    column = binding.key_column
    if column is None:
        return [_own_key(row, path, binding) for row, path in zip(rows, paths, strict=True)]
    values = rows.column(column)
    if are_plain_keys(values) and max(map(len, values)) <= MAX_CHARACTERS:
        return values
    return [text_cell(row, column, numbers=True) for row in rows]


def _check_removed(keys: Sequence[str], removed: frozenset[str]) -> None:
    if removed and any(digest_of_key(key) in removed for key in keys):
        raise RecordError(Reason.REMOVED_KEY, "was removed from an earlier version by forget")


def _own_key(row: Row, path: str, binding: Binding) -> str:
    """Returns the key of a row without a key column: of its record, its path, or its line."""
    key = path if row.key is None else row.key
    if not key:
        return _key(row, binding)
    return binding.key_prefixes.get(row.file, "") + key if binding.key_prefixes else key


def _key(row: Row, binding: Binding) -> str:
    """Returns the table and the line, the key of a row without a key column and a path."""
    file, root = binding.table_names.get(row.file) or bare_url(row.file), binding.key_root
    name = posixpath.basename(file) if root is None else file.removeprefix(root)
    return source_of(name, row.line)


def _stated_split(row: Row, binding: Binding) -> str:
    """Returns the split in the split column; "" if there is no value or no such column."""
    if binding.split_column is None:
        return ""
    value = single_cell(row, binding.split_column)
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
    if binding.group_column is None:
        return ""
    try:
        return text_cell(row, binding.group_column, numbers=True)
    except RecordError as error:
        if error.reason is not Reason.MISSING_VALUE:
            raise
        detail = f"--group_column {binding.group_column}: empty; a row alone needs its own value"
        raise RecordError(error.reason, f"{detail}, such as its key") from None
