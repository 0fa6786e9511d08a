"""Binds rows to a schema: which table column is what, where a row goes, and its reference.

    RowBatch → identities_of → RefBatch without values → bind_rows → RefBatch

A row is identified by its key, its image, and what decides its split: a stated split, a group, a
cluster, or the sequence of which it is a frame. Columns are read as a whole, in tight loops; of
rows that are rejected, `by_halves` finds out which ones.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import repeat
from typing import Any, TypeVar
from urllib.parse import unquote

from recordmill.schemas import records
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Schema
from recordmill.schemas.layout import is_url, is_web
from recordmill.schemas.masking import bare_url
from recordmill.schemas.option import SPLIT_NAME, SPLIT_NAME_RULE
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.removal import digest_of_key
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.addresses import check_address
from recordmill.transforms.functional.rows.annotations import Annotations
from recordmill.transforms.functional.rows.batches import RefBatch, RowBatch, first_of, once
from recordmill.transforms.functional.rows.feature_values import ValueReader, value_readers
from recordmill.transforms.functional.values import typed

# How Spark and Java write the path of a file on this machine.
_FILE_URI = re.compile(r"file:(?://(?:localhost)?)?(?=/(?!/))", re.IGNORECASE)


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
            table_names=_table_names(paths),
            key_prefixes={file.path: file.key_prefix for file in files if file.key_prefix},
        )

    def table_column(self, schema_column: str) -> str:
        """Returns the table column of a schema column."""
        return self.columns.get(schema_column, schema_column)

    def check_image(self, uri: str) -> None:
        """Raises RecordError if the binding has a guard, and an image is outside of it."""
        if self.guard is not None and uri:
            check_address(uri, self.guard)

    def checked_address(self, path: str, table: str) -> str:
        """Returns the address of a file that a table names; raises as `check_image` does."""
        uri = resolve_path(path, table, self.image_root)
        self.check_image(uri)
        return uri

    @property
    def annotations(self) -> Annotations:
        """What reads the annotations of rows."""
        return Annotations(self.resolved, self.columns)

    @cached_property
    def readers(self) -> tuple[ValueReader, ...]:
        """The reader of each feature's values, in the order of the schema."""
        return value_readers(self.resolved, self.columns, self.image_suffix)


def common_folder(files: Sequence[str]) -> str:
    """Returns the deepest folder that contains all files, with a trailing slash, or "".

    >>> common_folder(["data/a/part.csv", "data/b/part.csv"])
    'data/'
    """
    prefix = posixpath.commonprefix(list(map(bare_url, files)))
    return prefix[: prefix.rfind("/") + 1]


def _table_names(files: Sequence[str]) -> dict[str, str]:
    """Returns unique names for tables whose addresses differ only in parts that may be secret.

    Keys are published with the dataset, so they must not contain a signature or its digest.

    >>> _table_names(["https://host/a.csv?token=b", "https://host/a.csv?token=c", "a.csv"])
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


# The image of rows without images.
_NO_IMAGE = records.Location("")


def identities_of(rows: Sequence[records.Row], binding: Binding) -> RefBatch:
    """Returns references without values: the keys of rows, their images, and what decides splits.

    Raises RecordError if a row has no path, key or group, an unknown split, or a removed key.
    """
    rows = RowBatch.of(rows)
    schema = binding.resolved.schema
    paths = _image_paths(rows, binding)
    uris, starts, stops, staged = _images(rows, binding, paths)
    keys = _keys(rows, binding, paths)
    splits, groups = _stated_splits(rows, binding), _groups(rows, binding)
    sequences = _sequences(rows, binding)
    removed = binding.removed_keys
    if removed and any(digest_of_key(key) in removed for key in (*keys, *sequences)):
        raise RecordError(Reason.REMOVED_KEY, "was removed from an earlier version by forget")
    clusters, fixed = map(once, zip(*rows.clusters, strict=True))
    stated = first_of(tuple(splits), tuple(fixed))
    frames = [(key, "", "", "") for key in sequences] if schema.sequence else (None,)
    # In the order of the fields of `ImageRef`.
    located = (keys, once(rows.files), rows.lines, uris, starts, stops)
    no_annotations = ((None,), (None,), (None,))
    return RefBatch((*located, ((),), stated, groups, *no_annotations, frames, staged, clusters))


def record_key(row: records.Row, binding: Binding) -> str:
    """Returns the key of the record that contains a row; raises RecordError if it has none."""
    rows = RowBatch.of([row])
    sequences = _sequences(rows, binding)
    (key,) = sequences if all(sequences) else _keys(rows, binding, _image_paths(rows, binding))
    return key


def bind_rows(rows: Sequence[records.Row], binding: Binding) -> RefBatch:
    """Returns the image references of rows; raises RecordError if one of them is invalid."""
    rows = RowBatch.of(rows)
    found = identities_of(rows, binding)
    # [values of a feature] is transposed to one tuple of values per row.
    columns = [read(rows, found.column("key"), found.records) for read in binding.readers]
    values = zip(*columns, strict=True) if columns else repeat((), len(rows))
    frames, others = _frames(rows, binding, found), _other_files(rows, binding)
    refs = found.replaced(values=values, frame=frames, others=others)
    schema = binding.resolved.schema
    if not schema.has_annotations:
        return refs
    annotations, address = binding.annotations, binding.checked_address
    return RefBatch.of(
        annotations.added_to(ref, row, partial(address, table=records.table_of(row.file, row.line)))
        for ref, row in zip(refs, rows, strict=True)
    )


_T = TypeVar("_T")


def by_halves(
    function: Callable[[RowBatch, Binding], _T], rows: RowBatch, binding: Binding
) -> Iterator[tuple[RowBatch, _T | RecordError]]:
    """Yields the result of a function for all rows, or if it fails, for halves of them.

    So a function can work on columns in tight loops, and a row that it rejects is still found: the
    error of a single row is yielded in place of its result.
    """
    try:
        found: _T | RecordError = function(rows, binding)
    except RecordError as error:
        if len(rows) > 1:
            middle = len(rows) // 2
            yield from by_halves(function, rows[:middle], binding)
            yield from by_halves(function, rows[middle:], binding)
            return
        # The traceback refers to this frame, and thus to itself: a cycle that keeps the row.
        found = error.with_traceback(None)
    yield rows, found


# The remedy for a value that a row of a folder of images lacks: nothing can be filled in there.
_OF_FOLDERS = (
    ". Move the image to the folder of its class; or, if it has no class, declare default: -1 for "
    "the label in a schema."
)


def reject_row(row: records.Row, binding: Binding, error: RecordError) -> Reject:
    """Returns the reject of a row that cannot be bound, with its key and image if valid."""
    rows, key, image = RowBatch.of([row]), "", records.Location("")
    # `error` already reports a path, a key or an image outside of the root that is not valid.
    with suppress(RecordError):
        paths = _image_paths(rows, binding)
        with suppress(RecordError):
            (image,) = map(records.Location._make, zip(*_images(rows, binding, paths), strict=True))
            # The file of a staged image is deleted at the end of the run: report the table instead.
            image = records.Location(row.file) if image.staged else image
        (key,) = _keys(rows, binding, paths)
    detail = error.detail
    if error.reason is Reason.MISSING_VALUE and row.line == 0 and row.own_uri == row.file:
        detail += _OF_FOLDERS
    why = (error.reason, detail)
    return Reject(key, image.uri, row.source, *why, start=image.start, stop=image.stop)


def broken_frame(row: records.Row, binding: Binding, error: RecordError) -> records.ImageRef | None:
    """Returns a reference that marks the sequence of a row as broken; None without a readable one.

    The reference replaces the frame in its shard, where all rows of the sequence are rejected.
    """
    rows = RowBatch.of([row])
    (sequence,) = _or_empty(_sequences, rows, binding)
    if not sequence:
        return None  # without a sequence key, no sequence can be rejected along with the frame
    (split,), (group,) = (_or_empty(read, rows, binding) for read in (_stated_splits, _groups))
    reject = reject_row(row, binding, error)
    return records.ImageRef(
        key=reject.key,
        file=row.file,
        line=row.line,
        uri=reject.uri,
        start=None,
        stop=None,
        values=(),
        split=split or row.cluster.split,
        group=group,
        frame=(sequence, "", error.reason.value, error.detail),
        cluster=row.cluster.name,
    )


def _or_empty(
    read: Callable[[RowBatch, Binding], Sequence[str]], rows: RowBatch, binding: Binding
) -> Sequence[str]:
    with suppress(RecordError):
        return read(rows, binding)
    return ("",)


def files_of(row: records.Row, binding: Binding) -> Iterator[str]:
    """Yields the addresses of the images and the mask that a row names, if it names any."""
    schema = binding.resolved.schema
    if isinstance(row.image, records.Location):
        yield row.image.uri
    suffixes = dict.fromkeys(schema.other_columns.values(), "")
    if row.image is None and schema.has_image:
        suffixes = {schema.image.column: binding.image_suffix, **suffixes}
    for name, suffix in suffixes.items():
        column = binding.table_column(name)
        value = row.values.get(column)
        if isinstance(value, records.Location):
            yield value.uri
            continue
        try:
            path = _text_of(value, column, numbers=bool(suffix))
        except RecordError:
            continue
        table = records.table_of(row.file, row.line)
        yield resolve_path(_with_suffix(path, suffix), table, binding.image_root)


def _texts(rows: RowBatch, column: str, numbers: bool = True) -> Sequence[str]:
    """Returns the keys, paths or other short texts in a column; with `numbers`, also integers."""
    values = rows.column(column)
    if typed.are_plain_keys(values) and max(map(len, values)) <= records.MAX_CHARACTERS:
        return values
    return [_text_of(value, column, numbers) for value in values]


def _text_of(value: Any, column: str, numbers: bool) -> str:
    value = _single(value, column)
    if value is None or value == "":
        raise RecordError(Reason.MISSING_VALUE, f"column {column!r}: empty; expected text")
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        are_pixels = isinstance(value, list) and any(isinstance(item, list) for item in value)
        hint = "; encode an array of pixels, as with PIL.Image.fromarray" * are_pixels
        detail = f"column {column!r}: expected text, got {typed.short_repr(value)}{hint}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    if len(value) > records.MAX_CHARACTERS:
        what = f"expected at most {records.MAX_CHARACTERS:,} characters, got {len(value):,}"
        raise RecordError(Reason.MALFORMED_ROW, f"column {column!r}: {what}")
    typed.to_bytes(value, is_text=True)
    return value


def _single(value: Any, column: str) -> Any:
    """Returns a value, or that of the equal items of a list."""
    try:
        return typed.single_value(value)
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None


def _image_paths(rows: RowBatch, binding: Binding) -> Sequence[str]:
    """Returns image paths as written; "" for schemas without images and for embedded images."""
    schema = binding.resolved.schema
    if not schema.has_image:
        return ("",) * len(rows)
    column = binding.table_column(schema.image.column)
    # Names of files without a suffix may be integers.
    numbers = bool(binding.image_suffix)
    if not any(rows.images):
        return _texts(rows, column, numbers)
    return [
        "" if value is None and image is not None else _text_of(value, column, numbers)
        for value, image in zip(rows.column(column), rows.images, strict=True)
    ]


def _images(rows: RowBatch, binding: Binding, paths: Sequence[str]) -> list[Sequence[Any]]:
    """Returns the columns of the locations of images: those of the source, or else of the paths."""
    if not binding.resolved.schema.has_image:
        return [[field] for field in _NO_IMAGE]
    suffix, root = binding.image_suffix, binding.image_root
    tables = map(records.table_of, rows.files, rows.lines)
    images = [
        image or records.Location(resolve_path(_with_suffix(path, suffix), table, root))
        for path, table, image in zip(paths, tables, rows.images, strict=True)
    ]
    for image in images if binding.guard is not None else ():
        # Staged images are outside the image root, but the run itself wrote them.
        if not image.staged:
            binding.check_image(image.uri)
    return [once(column) for column in zip(*images, strict=True)]


def _other_files(rows: RowBatch, binding: Binding) -> Sequence[tuple[records.Place, ...] | None]:
    columns = map(binding.table_column, binding.resolved.schema.other_columns.values())
    found = [_locations(rows, column, binding) for column in columns]
    return list(zip(*found, strict=True)) or (None,)


def _locations(rows: RowBatch, column: str, binding: Binding) -> Iterator[records.Place]:
    tables = map(records.table_of, rows.files, rows.lines)
    for value, table in zip(rows.column(column), tables, strict=True):
        if not isinstance(value, records.Location):
            path = _text_of(value, column, numbers=False)
            value = records.Location(resolve_path(path, table, binding.image_root))
        if not value.staged:
            binding.check_image(value.uri)
        yield (value.uri, value.start, value.stop, value.staged)


def _keys(rows: RowBatch, binding: Binding, paths: Sequence[str]) -> Sequence[str]:
    """Returns the keys of rows: of a column, or else of its record, its path, or its line."""
    if binding.key_column is not None:
        return _texts(rows, binding.key_column)
    prefixes = binding.key_prefixes
    if not prefixes and all(paths) and not any(key is not None for key in rows.keys):
        return paths
    own = (path if key is None else key for key, path in zip(rows.keys, paths, strict=True))
    return [
        prefixes.get(file, "") + key if key else _line_key(file, line, binding)
        for key, file, line in zip(own, rows.files, rows.lines, strict=True)
    ]


def _line_key(file: str, line: int, binding: Binding) -> str:
    """Returns the table and the line, the key of a row without a key column and a path."""
    table, root = binding.table_names.get(file) or bare_url(file), binding.key_root
    name = posixpath.basename(table) if root is None else table.removeprefix(root)
    return records.source_of(name, line)


def _stated_splits(rows: RowBatch, binding: Binding) -> Sequence[str]:
    """Returns the splits in the split column; "" if there is no value or no such column."""
    column = binding.split_column
    if column is None:
        return ("",)
    stated = partial(_stated_split, column=column, binding=binding)
    return typed.by_value(stated, rows.column(column))


def _stated_split(value: Any, column: str, binding: Binding) -> str:
    value, expected = _single(value, column), SPLIT_NAME_RULE
    if value is None or value == "":
        return ""
    is_flag = isinstance(value, str) and typed.looks_boolean(value)
    if isinstance(value, str) and SPLIT_NAME.fullmatch(value) and not is_flag:
        if binding.splits is None or value in binding.splits:
            return value
        expected = "one of " + ", ".join(sorted(binding.splits))
    detail = f"column {column!r}: expected {expected}, got {typed.short_repr(value)}"
    if is_flag or typed.looks_integer(value, is_text=True):
        if binding.splits is not None and f"fold{value}" in binding.splits:
            return f"fold{value}"
        detail += ". Name splits as train and valid; for folds from 0 on, add --folds N."
    raise RecordError(Reason.UNKNOWN_SPLIT, detail)


def _groups(rows: RowBatch, binding: Binding) -> Sequence[str]:
    if binding.group_column is None:
        return ("",)
    try:
        return _texts(rows, binding.group_column)
    except RecordError as error:
        if error.reason is not Reason.MISSING_VALUE:
            raise
        what = "empty; a row alone needs its own value, such as its key, whatever its default"
        raise RecordError(error.reason, f"--group_column {binding.group_column}: {what}") from None


def _sequences(rows: RowBatch, binding: Binding) -> Sequence[str]:
    """Returns the keys of the sequences of rows; "" for schemas without sequences."""
    settings = binding.resolved.schema.sequence
    return ("",) if settings is None else _texts(rows, binding.table_column(settings.group))


def _frames(
    rows: RowBatch, binding: Binding, found: RefBatch
) -> Sequence[tuple[str, str, str, str] | None]:
    """Returns the fields of the `FrameLocation` of each row, which are cheaper to shuffle."""
    settings = binding.resolved.schema.sequence
    if settings is None:
        return (None,)
    column = binding.table_column(settings.order)
    orders = (_order_in_sequence(value, column) for value in rows.column(column))
    return [(key, order, "", "") for key, order in zip(found.records, orders, strict=True)]


def _order_in_sequence(value: Any, column: str) -> str:
    value = _single(value, column)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return _text_of(value, column, numbers=True).strip()


def resolve_path(path: str, table: str, image_root: str | None) -> str:
    """Joins the path of an image to the image root; None for the folder of the table.

    >>> resolve_path("photos/1.jpg", "s3://bucket/birds/labels.csv", None)
    's3://bucket/birds/photos/1.jpg'
    >>> resolve_path("photo #1.jpg", "https://host/birds/labels.csv?page=a/b", None)
    'https://host/birds/photo %231.jpg'
    >>> resolve_path("file:///mnt/photos/photo%201.jpg", "labels.csv", None)
    '/mnt/photos/photo 1.jpg'
    """
    if found := _FILE_URI.match(path):
        return unquote(path[found.end() :])
    if not path or path.startswith("/") or is_url(path):
        return path
    root = _folder_of(table) if image_root is None else image_root
    if is_web(root):
        path = path.replace("#", "%23")  # valid in a file name; in a URL it begins a fragment
    return posixpath.join(root, path)


def _with_suffix(path: str, suffix: str) -> str:
    """Adds a suffix to a path that does not have it, in any case."""
    has_suffix = not path or path.lower().endswith(suffix.lower())
    return path if has_suffix else path + suffix


def _folder_of(table: str) -> str:
    path = table.partition("?")[0] if is_web(table) else table  # a query may contain slashes
    return path[: path.rfind("/") + 1]
