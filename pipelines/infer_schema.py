"""Infers a schema from the columns of a table, its first rows, and some of its images."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from recordmill.pipelines.options import config_of
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Origin, Schema
from recordmill.schemas.masking import masked_source
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, RecordError, Reject, lost_rows_message
from recordmill.schemas.tables import Projection
from recordmill.schemas.yaml_files import preset, preset_names
from recordmill.transforms.functional.rows.binding import resolve_path
from recordmill.transforms.functional.rows.columns import missing_column, resolve_sources
from recordmill.transforms.functional.rows.infer_schema import (
    InferredSchema,
    SampledImages,
    infer_from_rows,
    schema_name,
    schema_yaml,
)
from recordmill.transforms.functional.sources.arrays import BYTES, PATH
from recordmill.transforms.functional.values.typed import single_value, size_of_values
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import InputTables, probe_tables
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.workers.sandbox import examine_in_subprocess

_SAMPLED_ROWS = 10_000
_SAMPLED_BYTES = 64 * 2**20
_SAMPLED_IMAGES = 20


def infer_schema(
    table: str,
    image_root: str | None = None,
    input_format: str = "auto",
    columns: str | None = None,
) -> str:
    """Returns a schema file for a table, with comments that explain it.

    `table` is a table, or a file pattern. `image_root`: base of relative image paths; None for the
    table's folder. `input_format` and `columns`: as in `recordmill convert`. Raises UsageError if
    it is not a table, has no rows, no such columns, or no column with a supported type.
    """
    config = config_of(
        {
            "input": [table],
            "input_format": input_format,
            "image_root": image_root,
            "columns": columns or {},
            # Placeholders: only what probes the table is used.
            **{"output": ".", "name": "unnamed", "schema": "tabular"},
        }
    )
    tables = probe_tables(config)
    for name in config.columns.values():
        if name not in tables.columns:
            raise UsageError(f"--columns: {missing_column(name, tables.columns, table)}")
    rows = list(islice(_up_to_bytes(_rows(tables), _SAMPLED_BYTES), _SAMPLED_ROWS))
    if not rows:
        raise UsageError(f"--infer {table}: has no rows. Add some.")
    names = [
        name
        for name in tables.columns
        if name not in tables.derived
        and (name not in tables.unsupported or name in tables.embedded)
    ]
    guess = infer_from_rows(names, rows, config.columns)
    if not guess.columns:
        contents = [f"{name} holds {what}" for name, what in guess.left_out.items()]
        why = (
            f"no column can become a feature: {', '.join(contents)}"
            if contents
            else "has no columns"
        )
        raise UsageError(f"--infer {table}: {why}")
    images = _images(guess, rows, image_root)
    return schema_yaml(guess, schema_name(table), _heading(table, guess, config, tables), images)


def _rows(tables: InputTables) -> Iterator[Row]:
    projection = Projection(tables.columns)
    for file in tables.files:
        for found in FORMATS[file.format].rows(file, projection):
            if isinstance(found, Row):
                yield _with_images(found, tables.embedded)
            elif isinstance(found, Reject) and found.reason is Reason.LOST_ROWS:
                lost = lost_rows_message([(masked_source(found.source), found.detail)])
                raise UsageError(f"--infer: {lost}")


def _with_images(row: Row, columns: Iterable[str]) -> Row:
    """Returns a row with the bytes or the path of images that are {bytes, path} structs."""
    structs = {c: v for c in columns if isinstance(v := row.values.get(c), dict)}
    images = {c: v.get(BYTES) or v.get(PATH) for c, v in structs.items()}
    return row._replace(values={**row.values, **images}) if images else row


def _up_to_bytes(rows: Iterator[Row], size: int) -> Iterator[Row]:
    """Yields rows until their values, such as embedded images and long texts, exceed a size."""
    for row in rows:
        yield row
        size -= size_of_values(row.values.values())
        if size < 0:
            return


def _images(guess: InferredSchema, rows: Sequence[Row], image_root: str | None) -> SampledImages:
    """Returns the formats and sizes of the first images."""
    formats, sizes = Counter[str](), list[tuple[int, int]]()
    with_image = [row for row in rows if guess.image and row.values.get(guess.image)]
    sample = with_image[:_SAMPLED_IMAGES]
    for row in sample:
        try:
            source = examine_in_subprocess(_image(row, guess.image or "", image_root))
        except RecordError:
            continue  # counted in the sample, but without a format
        formats[source.format] += 1
        sizes.append((source.width, source.height))
    return SampledImages(len(sample), formats, sizes)


def _image(row: Row, column: str, image_root: str | None) -> bytes:
    value = single_value(row.values[column])
    if isinstance(value, bytes):
        return value
    if row.image is not None:
        return read_bytes(row.image.uri, row.image.start, row.image.stop)
    return read_bytes(resolve_path(str(value), row.file, image_root))


def _heading(
    table: str, guess: InferredSchema, config: ConvertConfig, tables: InputTables
) -> list[str]:
    lines = [f"Guessed from the first {guess.rows:,} rows of {table}: check it before you use it."]
    known = [tables.preset, *(schema.name for schema in tables.schemas)]
    if fitting := [name for name in preset_names() if name in known]:
        lines += ["", "The records have the features of this preset, and need no schema file:"]
        lines += [f"  {_command(name, table, {})}" for name in fitting]
    elif fitting := [name for name in preset_names() if _fits(preset(name), guess, config)]:
        mappings = {name: _mapping(preset(name), guess) for name in fitting}
        lines += ["", "The table fits these presets without a schema file:"]
        lines += [f"  {_command(name, table, mapping)}" for name, mapping in mappings.items()]
    used = tables.embedded | tables.structs  # as images, and by their fields
    others = {name: type_ for name, type_ in tables.unsupported.items() if name not in used}
    lines += [f"Left out: {name}, of type {type_}." for name, type_ in others.items()]
    lines += [f"Left out: {name}: it holds {what}." for name, what in guess.left_out.items()]
    return [*lines, ""]


def _fits(schema: Schema, guess: InferredSchema, config: ConvertConfig) -> bool:
    """Returns whether a table has all columns that a preset needs, possibly renamed."""
    if schema.every_column:
        return guess.image is None
    mapped = config.model_copy(update={"columns": _mapping(schema, guess)})
    try:
        resolve_sources(schema, guess.columns, mapped)
    except UsageError:
        return False
    return True


def _mapping(schema: Schema, guess: InferredSchema) -> dict[str, str]:
    """Returns the table's column by a preset's column, where the names differ."""
    sources = [s for f in schema.features.values() for s in f.sources]
    known = {s.name for s in sources if s.origin in (Origin.COLUMN, Origin.CLASS_NAME)}
    known |= {schema.image.column} if schema.has_image else set()
    roles = guess.roles.items()
    return {role: column for role, column in roles if role in known and role != column}


def _command(name: str, table: str, columns_of: Mapping[str, str]) -> str:
    mapping = ",".join(f"{role}={column}" for role, column in columns_of.items())
    columns = f" --columns {shlex.quote(mapping)}" if mapping else ""
    where = f"--input {shlex.quote(table)} --output DIR --name {schema_name(table)}"
    return f"recordmill convert --schema {name} {where}{columns}"
