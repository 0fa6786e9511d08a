"""Recognizes tables with one row per box by their columns and first rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.findings import Finding
from recordmill.schemas.input_formats import INPUT_FORMATS
from recordmill.schemas.masking import masked_url
from recordmill.schemas.records import Row
from recordmill.schemas.tables import Projection, TableFile
from recordmill.transforms.functional.sources.box_rows import columns_of_boxes, has_row_per_box
from recordmill.transforms.functional.sources.delimited import DelimitedOptions
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import InputTables

_ROWS = 1000
_ID = "id"


def columns_of_detection(tables: InputTables) -> dict[str, str]:
    """Returns the columns of object detection in tables with a row per box; {} for other inputs."""
    found = columns_of_boxes(tables.columns) if _are_tables(tables) else None
    if found is None or not _has_row_per_box(tables, [*found.values()][2:]):
        return {}
    # A table of labels has them in these columns, and no image twice.
    if not {"image", "label"} <= {*tables.columns}:
        return found
    images = _values(tables, found["image"])
    return found if len(images) > len(set(images)) else {}


def is_open_images(columns: Mapping[str, str]) -> bool:
    """Returns whether columns are those of Open Images, whose boxes are fractions."""
    return (columns.get("image"), columns.get("xmin")) == ("ImageID", "XMin")


def with_boxes_of_images(config: ConvertConfig, tables: InputTables) -> InputTables:
    """Returns tables whose rows are the boxes of an image, as tables with a row per image."""
    schema, image = config.dataset_schema, config.column(config.dataset_schema.image.column)
    sides = [config.column(name) for name in schema.boxes.columns or ()]
    is_keyed = config.key_column not in (None, image)  # each box is a record, with its own key
    if not (schema.has_boxes and schema.has_image and sides) or is_keyed or config.labels:
        return tables
    if not {image, *sides} <= {*tables.columns} or not _has_row_per_box(tables, sides):
        return tables
    first = tables.files[0]
    options = first.options if isinstance(first.options, DelimitedOptions) else DelimitedOptions()
    has = "has no header, and" if options.header and config.header is None else "has"
    what = f"{has} a row per box; the rows with the same {image!r} are one record"
    text = f"{masked_url(first.path)}: {what}"
    # An image has its key in place of the ids of boxes.
    has_ids = _ID in tables.columns and _ID not in config.columns
    if has_ids and _has_several(_values(tables, image), _values(tables, _ID)):
        text += f"; {_ID!r} has ids of boxes, and is not read"
        tables = replace(tables, columns=tuple(n for n in tables.columns if n != _ID))
    note = Finding(kind="row_per_box", severity="note", text=text)
    # Byte ranges would divide the rows of an image.
    files = tuple(replace(file, grouped=image, size=None) for file in tables.files)
    return replace(tables, files=files, findings=(*tables.findings, note))


def _are_tables(tables: InputTables) -> bool:
    return all(INPUT_FORMATS[file.format].is_table for file in tables.files)


def _has_row_per_box(tables: InputTables, sides: list[str]) -> bool:
    if not _are_tables(tables):
        return False
    first = (_first(file, sides) for file in tables.files)
    return all(has_row_per_box(rows, sides) for rows in first if rows)


def _values(tables: InputTables, column: str) -> list[str]:
    """Returns the values in a column of the first rows of all tables, as text."""
    return [str(row.get(column)) for file in tables.files for row in _first(file, [column])]


def _has_several(images: list[str], values: list[str]) -> bool:
    return len(set(zip(images, values, strict=True))) > len(set(images))


def _first(file: TableFile, columns: list[str]) -> list[Mapping[str, Any]]:
    """Returns the first rows of a table; none if it cannot be read, which is reported later."""
    projection = Projection(tuple(columns))
    try:
        rows = FORMATS[file.format].ungrouped_rows(file, projection)
        return [row.values for row in islice(rows, _ROWS) if isinstance(row, Row)]
    except (OSError, ValueError):
        return []
