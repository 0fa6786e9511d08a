"""Recognizes tables with one row per box by their columns and first rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

_ROWS = 20


def columns_of_detection(tables: InputTables) -> dict[str, str]:
    """Returns the columns of object detection in tables with a row per box; {} for other inputs."""
    found = columns_of_boxes(tables.columns) if _are_tables(tables) else None
    if found is None or not _has_row_per_box(tables, [*found.values()][2:]):
        return {}
    return found


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
    note = Finding(kind="row_per_box", severity="note", text=text)
    # Byte ranges would divide the rows of an image.
    files = tuple(replace(file, grouped=image, size=None) for file in tables.files)
    return replace(tables, files=files, findings=(*tables.findings, note))


def _are_tables(tables: InputTables) -> bool:
    return all(INPUT_FORMATS[file.format].is_table for file in tables.files)


def _has_row_per_box(tables: InputTables, sides: list[str]) -> bool:
    if not _are_tables(tables):
        return False
    first = (list(islice(_values(file, sides), _ROWS)) for file in tables.files)
    return all(has_row_per_box(rows, sides) for rows in first if rows)


def _values(file: TableFile, columns: list[str]) -> Iterator[Mapping[str, Any]]:
    try:
        rows = FORMATS[file.format].rows(file, Projection(tuple(columns)))
        yield from (row.values for row in rows if isinstance(row, Row))
    except (OSError, ValueError):  # reported when the rows are read
        return
