"""Writes a first schema for a table: from its columns, its first rows, and some of its images."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from recordmill.pipelines.input_tables import InputTables, probe_tables
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Origin, Schema
from recordmill.schemas.masking import masked_source
from recordmill.schemas.presets import preset, preset_names
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, RecordError, Reject, lost_rows_message
from recordmill.schemas.tables import Projection, SourceSplit
from recordmill.transforms.functional.rows.binding import resolve_path
from recordmill.transforms.functional.rows.columns import resolve_sources
from recordmill.transforms.functional.rows.infer_schema import (
    InferredSchema,
    SampledImages,
    infer_from_rows,
    schema_name,
    schema_yaml,
)
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.formats import FORMATS
from recordmill.transforms.workers.sandbox import examine_in_subprocess

_LOOKED_AT_ROWS = 10_000
_LOOKED_AT_BYTES = 64 * 2**20
_OPENED_IMAGES = 20


def infer_schema(table: str, image_root: str | None = None, input_format: str = "auto") -> str:
    """Returns a schema file for a table, with comments that say why.

    Args:
        table: a table, or a pattern of them.
        image_root: base of relative image paths, or None for the table's folder.
        input_format: as in `recordmill convert`.

    Raises:
        UsageError: if it is no table, has no rows, or no column that a feature can hold.
    """
    config = _config(table, image_root, input_format)
    tables = probe_tables(config)
    rows = list(islice(_within(_rows(tables), _LOOKED_AT_BYTES), _LOOKED_AT_ROWS))
    if not rows:
        raise UsageError(f"--infer {table}: has no rows to look at")
    columns = [name for name in tables.columns if name not in tables.unsupported]
    guess = infer_from_rows(columns, rows)
    if not guess.columns:
        reported = [f"{name} holds {what}" for name, what in guess.left_out.items()]
        why = (
            f"no column holds what a feature can: {', '.join(reported)}"
            if reported
            else "has no columns"
        )
        raise UsageError(f"--infer {table}: {why}")
    images = _images(guess, rows, image_root)
    return schema_yaml(guess, schema_name(table), _heading(table, guess, config, tables), images)


def _config(table: str, image_root: str | None, input_format: str) -> ConvertConfig:
    return ConvertConfig.model_validate(
        {
            "inputs": (table,),
            "input_format": input_format,
            "image_root": image_root,
            "output": ".",
            "name": "unnamed",
            "schema": preset("tabular"),
        }
    )


def _rows(tables: InputTables) -> Iterator[Row]:
    projection = Projection(tables.columns)
    for file in tables.files:
        source = FORMATS[file.format]
        for split in source.split(file):
            if isinstance(split, SourceSplit):
                for found in source.read(split, projection):
                    if isinstance(found, Row):
                        yield found
                    elif isinstance(found, Reject) and found.reason is Reason.LOST_ROWS:
                        lost = lost_rows_message([(masked_source(found.source), found.detail)])
                        raise UsageError(f"--infer: {lost}")


def _within(rows: Iterator[Row], size: int) -> Iterator[Row]:
    """Yields rows until their bytes, such as embedded images, amount to a size."""
    for row in rows:
        yield row
        size -= sum(len(value) for value in row.values.values() if isinstance(value, bytes))
        if size < 0:
            return


def _images(guess: InferredSchema, rows: Sequence[Row], image_root: str | None) -> SampledImages:
    """Returns what the first images are."""
    formats, sizes = Counter[str](), list[tuple[int, int]]()
    named = [row for row in rows if guess.image and row.values.get(guess.image)]
    tried = named[:_OPENED_IMAGES]
    for row in tried:
        try:
            source = examine_in_subprocess(_image(row, guess.image or "", image_root))
        except RecordError:
            continue  # counted as one that cannot be opened
        formats[source.format] += 1
        sizes.append((source.width, source.height))
    return SampledImages(len(tried), formats, sizes)


def _image(row: Row, column: str, image_root: str | None) -> bytes:
    value = row.values[column]
    if isinstance(value, bytes):
        return value
    if row.image is not None:
        return read_bytes(row.image.uri, row.image.start, row.image.stop)
    return read_bytes(resolve_path(str(value), row.file, image_root))


def _heading(
    table: str, guess: InferredSchema, config: ConvertConfig, tables: InputTables
) -> list[str]:
    lines = [f"Guessed from the first {guess.rows:,} rows of {table}: check it before you use it."]
    if fitting := [name for name in preset_names() if _fits(preset(name), guess, config)]:
        lines += ["", "The table fits these presets as it is:"]
        lines += [f"  {_command(name, table, guess)}" for name in fitting]
    lines += [f"Left out: {name}, of type {type_}." for name, type_ in tables.unsupported.items()]
    lines += [f"Left out: {name}: it holds {what}." for name, what in guess.left_out.items()]
    return [*lines, ""]


def _fits(schema: Schema, guess: InferredSchema, config: ConvertConfig) -> bool:
    """Returns whether a table has all columns that a preset needs, under whatever names."""
    if schema.every_column:
        return guess.image is None
    mapped = config.model_copy(update={"columns": _mapping(schema, guess)})
    try:
        resolve_sources(schema, guess.columns, mapped)
    except UsageError:
        return False
    return True


def _mapping(schema: Schema, guess: InferredSchema) -> dict[str, str]:
    """Returns a preset's columns that have another name in the table."""
    sources = [s for f in schema.features.values() for s in f.sources]
    known = {s.name for s in sources if s.origin in (Origin.COLUMN, Origin.CLASS_NAME)}
    known |= {schema.image.column} if schema.has_image else set()
    roles = guess.roles.items()
    return {role: column for role, column in roles if role in known and role != column}


def _command(name: str, table: str, guess: InferredSchema) -> str:
    mapping = ",".join(f"{role}={column}" for role, column in _mapping(preset(name), guess).items())
    columns = f" --columns {shlex.quote(mapping)}" if mapping else ""
    where = f"--input {shlex.quote(table)} --output DIR --name {schema_name(table)}"
    return f"recordmill convert --schema {name} {where}{columns}"
