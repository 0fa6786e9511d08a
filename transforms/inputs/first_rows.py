"""Finds out what the first rows of tables show, before a run starts its workers.

A wrong `--image_root` or image column rejects every row, which a run would otherwise find out with
as many requests as there are rows. So the images of the first rows are tried, up to the first one
that can be stored: a good table costs one image. Whether a run stops depends on its table and
options only, not on workers. The rows also show which suffix their images have, whether these are
text, and whether each row is a box.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RejectBudgetExceeded, UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding, finding
from recordmill.schemas.layout import is_web
from recordmill.schemas.masking import masked_url
from recordmill.schemas.origins import BOX_SIDES, OUTLINES
from recordmill.schemas.records import MAX_CHARACTERS, Row, source_of
from recordmill.schemas.rejects import RecordError, Reject, reason_counts, reject_lines
from recordmill.schemas.settings import Order
from recordmill.schemas.tables import Projection, TableFile
from recordmill.transforms.functional.images import sniffing
from recordmill.transforms.functional.images.masks import are_runs
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.rows.binding import (
    Binding,
    identities_of,
    reject_row,
    resolve_path,
)
from recordmill.transforms.functional.rows.columns import image_columns
from recordmill.transforms.functional.sources import box_rows
from recordmill.transforms.functional.sources.delimited import DelimitedOptions
from recordmill.transforms.functional.values.boxes import BOX_COLUMNS
from recordmill.transforms.functional.values.typed import short_repr
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
_TRIED_ROWS = 20


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
        found = [
            text
            for value in _values(file, column)
            if sniffing.is_encoded(text := sniffing.text_of(value))
        ]
        short = (text for text in found if len(text) <= MAX_CHARACTERS)
        paths = (resolve_path(text, file.path, config.image_root) for text in short)
        return bool(found) and not any(is_local(path) and exists(path) for path in paths)
    return False


def _values(file: TableFile, column: str, number: int = _TRIED_ROWS) -> list[Any]:
    rows = FORMATS[file.format].first_rows(file, number, (column,))
    return [row.values.get(column) for row in rows]


def _suffixes_of(address: str) -> list[str]:
    """Returns the suffixes with which files exist; "" stands for the file without a suffix."""
    if sniffing.has_image_suffix(address) or is_web(address):
        return [""]
    form = existing_form if is_local(address) else str
    return [suffix for suffix in ("", *sniffing.TRIED_SUFFIXES) if exists(form(address + suffix))]


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


# Rows in which a table with a row per box has the same image twice.
_ROWS = 10_000
_ID = "id"
_MEANINGS: dict[Order, str] = {
    "xywh": "left, top, width, height",
    "xyxy": "two corners",
    "cxcywh": "center, width, height",
    "yxyx": "two corners, y first",
}


def columns_of_detection(
    tables: InputTables, stated: Mapping[str, str]
) -> box_rows.BoxColumns | None:
    """Returns the columns of object detection in tables with a row per box; None for others."""
    columns = tables.columns if tables.are_tables else ()
    found = box_rows.columns_of_boxes(columns, stated)
    if found is None and box_rows.columns_of_boxes(columns, {"image": "", **stated}):
        # The column of images has another name, but names of files.
        images = [
            c for c in columns if all(map(sniffing.has_image_suffix, _texts(tables, c) or [""]))
        ]
        if len(images) == 1:
            found = box_rows.columns_of_boxes(columns, {**stated, "image": images[0]})
    if found is None or not _has_row_per_box(tables, found.sides):
        return None
    # A table of labels has them in these columns, and no image twice.
    if "labels" in stated or not {"image", "label"} <= {*tables.columns}:
        return found
    images = _texts(tables, found.names["image"])
    return found if len(images) > len(set(images)) else None


def check_order(schema: Schema, tables: InputTables, found: box_rows.BoxColumns) -> None:
    """Raises UsageError if the names of the sides leave open an order that is not stated."""
    if len(found.orders) == 1 or schema.boxes.states_order:
        return
    where, sides = masked_url(tables.files[0].path), ", ".join(map(repr, found.sides))
    values = [_first(tables.files[0], found.sides)[0].values.get(side) for side in found.sides]
    shown = short_repr(values[0] if len(values) == 1 else values)
    choices = [f"--boxes order={order} for {_MEANINGS[order]}" for order in found.orders]
    raise UsageError(
        f"{where}: has a row per box, and does not state what the numbers in {sides} are, as in "
        f"{shown}. Set {', or '.join(choices)}."
    )


def _check_corners(schema: Schema, tables: InputTables) -> None:
    """Checks that no order is stated for annotations, which are read as corners."""
    formats = [file.format for file in tables.files if not file.declared.is_table]
    sides, order = schema.boxes.columns or (), schema.boxes.order
    is_read = formats and BOX_COLUMNS[-1] in tables.columns and {*sides} == {*BOX_SIDES}
    if is_read and order != ("yxyx" if sides[:1] == ("ymin",) else "xyxy"):
        what = f"boxes of {formats[0]} are read as corners, whatever their order in the files"
        raise UsageError(f"--boxes order={order}: {what}. Leave out the order.")


def check_labels(tables: InputTables, found: box_rows.BoxColumns) -> None:
    """Checks that one of the columns is named like one of classes; raises UsageError if not."""
    if "labels" not in found.names:
        where, sides = masked_url(tables.files[0].path), ", ".join(found.sides)
        what = f"has a row per box ({sides}), and no column that is named like one of classes"
        raise UsageError(
            f"{where}: {what}; it has: {', '.join(tables.columns)}. Name it with --columns "
            "labels=COLUMN, or add one if all are of one class; or name an image's class with "
            "--columns label=COLUMN."
        )


def unread_boxes(config: ConvertConfig, tables: InputTables) -> Iterator[Finding]:
    """Yields a warning on boxes in a table of which only labels are read."""
    roles = {"image": config.column("image"), "labels": config.column("label")}
    is_read = tables.preset or tables.schemas or config.dataset_schema.has_boxes
    found = None if is_read else box_rows.columns_of_boxes(tables.columns, roles)
    values = _texts(tables, found.sides[0]) if found else []
    if found and (_has_row_per_box(tables, found.sides) or any("[" in v for v in values)):
        text = f"the boxes in {', '.join(map(repr, found.sides))} are not stored"
        mapped = shlex.quote(",".join(map("=".join, found.names.items())))
        hint = f"set --schema object_detection --columns {mapped}, or --schema image_classification"
        yield finding("warning", "unread_boxes", text, hint, examples=found.sides)


def with_boxes_of_images(config: ConvertConfig, tables: InputTables) -> InputTables:
    """Returns tables whose rows are the boxes of an image, as tables with a row per image."""
    schema, image = config.dataset_schema, config.column(config.dataset_schema.image.column)
    _check_corners(schema, tables)
    is_keyed = config.key_column not in (None, image)  # each box is a record, with its own key
    if not schema.has_image or is_keyed or config.labels or image not in tables.columns:
        return tables
    columns = _columns_of_objects(config, tables)
    if not columns:
        return tables
    box = columns[0] if schema.has_boxes and len(columns) == 1 else ""
    if box:
        check_order(schema, tables, box_rows.BoxColumns({"bbox": box}, box_rows.OPEN_ORDERS))
    objects = "box" if schema.has_boxes else "mask" if schema.has_outlines else repr(columns[0])
    first = tables.files[0]
    options = first.options if isinstance(first.options, DelimitedOptions) else DelimitedOptions()
    has = "has no header, and" if options.header and config.header is None else "has"
    what = f"{has} a row per {objects}; the rows with the same {image!r} are one record"
    text = f"{masked_url(source_of(first.path, 0))}: {what}"
    # An image has its key in place of the ids of boxes.
    has_ids = _ID in tables.columns and _ID not in config.columns
    images = _texts(tables, image) if has_ids else []
    if has_ids and len({*zip(images, _texts(tables, _ID), strict=True)}) > len({*images}):
        text += f"; {_ID!r} has ids of objects, and is not read"
        tables = replace(tables, columns=tuple(n for n in tables.columns if n != _ID))
    # Byte ranges would divide the rows of an image.
    files = tuple(replace(file, grouped=image, box=box, size=None) for file in tables.files)
    note = finding("note", "row_per_box", text)
    return replace(tables, files=files, findings=(*tables.findings, note))


def _columns_of_objects(config: ConvertConfig, tables: InputTables) -> list[str]:
    """Returns the columns with one box, mask or single item per row; none for other tables."""
    schema, present = config.dataset_schema, {*tables.columns} if tables.are_tables else set()
    sides = [config.column(name) for name in schema.boxes.columns or ()]
    box = [config.column(schema.boxes.column)] if schema.boxes.column else []
    if schema.has_boxes:
        found = next((names for names in (sides, box) if names and {*names} <= present), [])
        return found if found and _has_row_per_box(tables, found) else []
    sources = [(source, f.single) for f in schema.features.values() for source in f.sources]
    found = sorted(present & {config.column(s.name) for s, _ in sources if s.origin in OUTLINES})
    values = [v for name in found for v in _texts(tables, name) if v not in ("", "None")]
    if values and all(map(are_runs, values)):
        return found
    found = sorted(present & {config.column(source.name) for source, single in sources if single})
    images = _texts(tables, config.column(schema.image.column)) if found else []
    return found if len(images) > len({*images}) else []


def _has_row_per_box(tables: InputTables, sides: list[str]) -> bool:
    first = ([row.values for row in _first(file, sides)] for file in tables.files)
    return tables.are_tables and all(
        box_rows.has_row_per_box(rows, sides) for rows in first if rows
    )


def _texts(tables: InputTables, column: str) -> list[str]:
    return [str(value) for file in tables.files for value in _values(file, column, _ROWS)]


def _first(file: TableFile, columns: list[str]) -> list[Row]:
    return FORMATS[file.format].first_rows(file, _ROWS, tuple(columns))
