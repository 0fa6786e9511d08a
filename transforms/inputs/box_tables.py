"""Recognizes tables with one row per box by their columns and first rows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding, finding
from recordmill.schemas.masking import masked_url
from recordmill.schemas.origins import BOX_SIDES, OUTLINES
from recordmill.schemas.records import Row, source_of
from recordmill.schemas.settings import Order
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.images.masks import are_runs
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.sources.box_rows import (
    OPEN_ORDERS,
    BoxColumns,
    columns_of_boxes,
    has_row_per_box,
)
from recordmill.transforms.functional.sources.delimited import DelimitedOptions
from recordmill.transforms.functional.values.boxes import BOX_COLUMNS
from recordmill.transforms.functional.values.typed import short_repr
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import InputTables

_ROWS = 10_000
_ID = "id"
_MEANINGS: dict[Order, str] = {
    "xywh": "left, top, width, height",
    "xyxy": "two corners",
    "cxcywh": "center, width, height",
    "yxyx": "two corners, y first",
}


def columns_of_detection(tables: InputTables, stated: Mapping[str, str]) -> BoxColumns | None:
    """Returns the columns of object detection in tables with a row per box; None for others."""
    columns = tables.columns if tables.are_tables else ()
    found = columns_of_boxes(columns, stated)
    if found is None and columns_of_boxes(columns, {"image": "", **stated}):
        # The column of images has another name, but names of files.
        images = [c for c in columns if all(map(has_image_suffix, _values(tables, c) or [""]))]
        if len(images) == 1:
            found = columns_of_boxes(columns, {**stated, "image": images[0]})
    if found is None or not _has_row_per_box(tables, found.sides):
        return None
    # A table of labels has them in these columns, and no image twice.
    if "labels" in stated or not {"image", "label"} <= {*tables.columns}:
        return found
    images = _values(tables, found.names["image"])
    return found if len(images) > len(set(images)) else None


def check_order(schema: Schema, tables: InputTables, found: BoxColumns) -> None:
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


def check_labels(tables: InputTables, found: BoxColumns) -> None:
    """Checks that one of the columns is named like one of classes; raises UsageError if not."""
    if "labels" not in found.names:
        where, sides = masked_url(tables.files[0].path), ", ".join(found.sides)
        what = f"has a row per box ({sides}), and no column that is named like one of classes"
        raise UsageError(
            f"{where}: {what}; it has: {', '.join(tables.columns)}. Name it with --columns "
            "labels=COLUMN; or an image's class with --columns label=COLUMN."
        )


def unread_boxes(config: ConvertConfig, tables: InputTables) -> Iterator[Finding]:
    """Yields a warning on boxes in a table of which only labels are read."""
    roles = {"image": config.column("image"), "labels": config.column("label")}
    is_read = tables.preset or tables.schemas or config.dataset_schema.has_boxes
    found = None if is_read else columns_of_boxes(tables.columns, roles)
    values = _values(tables, found.sides[0]) if found else []
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
        check_order(schema, tables, BoxColumns({"bbox": box}, OPEN_ORDERS))
    objects = "box" if schema.has_boxes else "mask" if schema.has_outlines else repr(columns[0])
    first = tables.files[0]
    options = first.options if isinstance(first.options, DelimitedOptions) else DelimitedOptions()
    has = "has no header, and" if options.header and config.header is None else "has"
    what = f"{has} a row per {objects}; the rows with the same {image!r} are one record"
    text = f"{masked_url(source_of(first.path, 0))}: {what}"
    # An image has its key in place of the ids of boxes.
    has_ids = _ID in tables.columns and _ID not in config.columns
    images = _values(tables, image) if has_ids else []
    if has_ids and len({*zip(images, _values(tables, _ID), strict=True)}) > len({*images}):
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
    values = [v for name in found for v in _values(tables, name) if v not in ("", "None")]
    if values and all(map(are_runs, values)):
        return found
    found = sorted(present & {config.column(source.name) for source, single in sources if single})
    images = _values(tables, config.column(schema.image.column)) if found else []
    return found if len(images) > len({*images}) else []


def _has_row_per_box(tables: InputTables, sides: list[str]) -> bool:
    first = ([row.values for row in _first(file, sides)] for file in tables.files)
    return tables.are_tables and all(has_row_per_box(rows, sides) for rows in first if rows)


def _values(tables: InputTables, column: str) -> list[str]:
    return [str(row.values.get(column)) for file in tables.files for row in _first(file, [column])]


def _first(file: TableFile, columns: list[str]) -> list[Row]:
    return FORMATS[file.format].first_rows(file, _ROWS, tuple(columns))
