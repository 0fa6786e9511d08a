"""Tries the images of the first rows of a table, before a run starts its workers.

A wrong `--image_root` or image column rejects every row, which a run would otherwise find out with
as many requests as there are rows. Stops at the first image that can be stored, so a good table
costs one image. Whether a run stops depends on its table and options only, not on workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RejectBudgetExceeded
from recordmill.schemas.findings import Finding
from recordmill.schemas.layout import is_web
from recordmill.schemas.masking import masked_url
from recordmill.schemas.records import MAX_CHARACTERS, Row
from recordmill.schemas.rejects import RecordError, Reject, reason_counts, reject_lines
from recordmill.schemas.tables import Projection, TableFile
from recordmill.transforms.functional.images.encoded_text import is_encoded, text_of
from recordmill.transforms.functional.images.sniffing import TRIED_SUFFIXES, has_image_suffix
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.rows.binding import (
    Binding,
    identities_of,
    reject_row,
    resolve_path,
)
from recordmill.transforms.functional.rows.columns import image_columns
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import InputTables
from recordmill.transforms.shards.build_examples import read_image
from recordmill.transforms.storage.files import exists, is_local, read_bytes
from recordmill.transforms.storage.local_files import ImageRootGuard, existing_form

# Rows whose images are read concurrently.
_BATCH = 16


def first_rejects(
    files: Sequence[TableFile], projection: Projection, binding: Binding, config: ConvertConfig
) -> list[Reject]:
    """Returns the rejects of the first rows if their images reject all of them; else none."""
    guard = ImageRootGuard(config.guard)

    def try_row(row: Row | Reject) -> Reject | None:
        return row if isinstance(row, Reject) else _image_reject(row, binding, config, guard)

    rows = islice(_rows(files, projection), config.fail_fast)
    rejects = list[Reject]()
    # The first row alone: it is a request in vain if the others are good as well.
    for batch in chain([list(islice(rows, 1))], iter(lambda: list(islice(rows, _BATCH)), [])):
        for reject in map_in_threads(try_row, batch):
            if reject is None:
                return []
            rejects.append(reject)
    return rejects if len(rejects) == config.fail_fast else []


def first_rows_error(rejects: Sequence[Reject], folder: str) -> RejectBudgetExceeded:
    """Returns the error for rows that are all rejected, with the first reject of each reason."""
    reasons = Counter(reject.reason.value for reject in rejects)
    by_reason = {reject.reason.value: reject.to_dict() for reject in reversed(rejects)}
    first = [by_reason[reason] for reason in reasons]
    shown = "\n".join(reject_lines(first))
    message = (
        f"stopped before the conversion: the images of the first {len(rejects):,} rows are all "
        f"rejected ({reason_counts(reasons)}):\n{shown}\nEach is in "
        f"{layout.join(folder, layout.REJECTS)} with its reason. Fix them, or set --fail_fast 0 to "
        "try all rows."
    )
    return RejectBudgetExceeded(message, reasons, first)


def _rows(files: Sequence[TableFile], projection: Projection) -> Iterator[Row | Reject]:
    for file in files:
        found = FORMATS[file.format].ungrouped_rows(file, projection)
        yield from (row for row in found if isinstance(row, (Row, Reject)))


def _image_reject(
    row: Row, binding: Binding, config: ConvertConfig, guard: ImageRootGuard
) -> Reject | None:
    """Returns the reject of a row without a path or with an image that cannot be stored."""
    try:
        (identity,) = identities_of([row], binding)
    except RecordError as error:
        return reject_row(row, binding, error)
    span = (identity.start, identity.stop)
    try:
        guard.check(identity.uri)
        read_image(read_bytes(identity.uri, *span), binding.resolved.schema.image, config.decode)
    except RecordError as error:
        why = (error.reason, error.detail)
        return Reject(identity.key, identity.uri, row.source, *why, start=span[0], stop=span[1])
    return None


# Enough to see whether files have several suffixes, and few requests to a store.
_ROWS = 20


def missing_suffix(config: ConvertConfig, tables: InputTables) -> str:
    """Returns the suffix of the files that the first rows of a table name; "" if there is none.

    No path may have a suffix of images or be that of a file, and all files must have one suffix.
    """
    if config.image_suffix is not None:
        return ""
    try:
        found = [_suffixes_of(address) for address in _addresses(config, tables)]
    except (OSError, ValueError, RecordError):  # reported when the images are read
        return ""
    several = {suffix for suffixes in found for suffix in suffixes}
    return several.pop() if len(several) == 1 else ""


def has_other_form(config: ConvertConfig, tables: InputTables) -> bool:
    """Returns whether a file of the first rows exists in another Unicode form than in the table."""
    if not (tables.has_rows and is_local(tables.files[0].path)):
        return False
    suffix = config.image_suffix or ""
    with suppress(OSError, ValueError, RecordError):  # reported when the images are read
        addresses = (a.removesuffix(suffix) + suffix for a in _addresses(config, tables))
        return any(is_local(a) and existing_form(a) != a for a in addresses)
    return False


def with_encoded_images(config: ConvertConfig, tables: InputTables) -> InputTables:
    """Returns the tables with a note for each column that has images as text in its first rows."""
    for column in image_columns(config.dataset_schema, config):
        if column in tables.columns:
            tables = _with_encoded(column, config, tables)
    return tables


def _with_encoded(column: str, config: ConvertConfig, tables: InputTables) -> InputTables:
    found = [file.path for file in tables.files if _has_encoded(file, column, config)]
    if not found:
        return tables
    files = tuple(
        replace(file, encoded=(*file.encoded, column)) if file.path in found else file
        for file in tables.files
    )
    text = f"{masked_url(found[0])}: the images are text in the column {column!r} (base64)"
    note = Finding(kind="encoded_images", severity="note", text=text)
    embedded = tables.embedded | {column}
    return replace(tables, files=files, embedded=embedded, findings=(*tables.findings, note))


def _has_encoded(file: TableFile, column: str, config: ConvertConfig) -> bool:
    if not file.declared.is_table:
        return False
    with suppress(OSError, ValueError):  # reported when the images are read
        found = [text for value in _values(file, column) if is_encoded(text := text_of(value))]
        short = (text for text in found if len(text) <= MAX_CHARACTERS)
        paths = (resolve_path(text, file.path, config.image_root) for text in short)
        return bool(found) and not any(is_local(path) and exists(path) for path in paths)
    return False


def _values(file: TableFile, column: str) -> Iterator[Any]:
    rows = FORMATS[file.format].first_rows(file, _ROWS, (column,))
    return (row.values.get(column) for row in rows)


def _suffixes_of(address: str) -> list[str]:
    """Returns the suffixes with which files exist; "" stands for the file without a suffix."""
    if has_image_suffix(address) or is_web(address):
        return [""]
    form = existing_form if is_local(address) else str
    return [suffix for suffix in ("", *TRIED_SUFFIXES) if exists(form(address + suffix))]


def _addresses(config: ConvertConfig, tables: InputTables) -> Iterator[str]:
    """Yields the addresses of the images of the first rows, as written; none without paths."""
    schema = config.dataset_schema
    column = config.column(schema.image.column)
    has_paths = column in tables.columns and column not in tables.embedded
    if not (schema.has_image and has_paths and tables.are_tables):
        return
    file, guard = tables.files[0], ImageRootGuard(config.guard)
    for value in _values(file, column):
        if isinstance(value, str | int) and str(value):
            address = resolve_path(str(value), file.path, config.image_root)
            guard.check(address)
            yield address
