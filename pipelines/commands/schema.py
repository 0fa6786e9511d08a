"""`recordmill schema`: prints a schema, or infers one from a table.

A schema is printed with its features, its required columns, and the parse spec of its records. It
is inferred from the columns of a table, its first rows, and some of its images.
"""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from recordmill.pipelines.console.printing import say
from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.input_tables import InputTables, probe_tables
from recordmill.pipelines.options import load_schema
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import NO_COLUMN, Feature, Kind, Missing, Origin, Schema, Source
from recordmill.schemas.masking import masked_source
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, RecordError, Reject, lost_rows_message
from recordmill.schemas.settings import BoxSettings
from recordmill.schemas.tables import Projection, SourceSplit
from recordmill.schemas.yaml_files import preset, preset_names
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
from recordmill.transforms.storage.stores.options import use_store_flags
from recordmill.transforms.workers.sandbox import examine_in_subprocess

_SAMPLED_ROWS = 10_000
_SAMPLED_BYTES = 64 * 2**20
_SAMPLED_IMAGES = 20


_DTYPES = {Kind.INT64: "tf.int64", Kind.FLOAT: "tf.float32", Kind.BYTES: "tf.string"}


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Prints a schema, or infers one from a table.

    Args:
        flags: the parsed flags.
        rest: unknown flags; always empty.

    Returns:
        The exit code.
    """
    use_store_flags(vars(flags))
    if flags.infer is not None:
        say(infer_schema(flags.infer, flags.image_root, flags.input_format), end="")
    else:
        show_schema(Terminal(), load_schema(flags.schema))
    return 0


def show_schema(terminal: Terminal, schema: Schema) -> None:
    """Prints a schema: features, columns, and the code that parses its records.

    Args:
        terminal: where to print.
        schema: the schema.
    """
    terminal.heading(schema.name, f" {schema.description}")
    terminal.line()
    if schema.every_column:
        terminal.line("Every column of the table is a feature, by its type.")
        return
    heads = ("feature", "kind", "shape", "from", "missing")
    rows = [(name, *describe(feature)) for name, feature in schema.features.items()]
    terminal.table(heads, rows, whole=True)
    terminal.lines(("", f"Columns: {', '.join(columns_of(schema)) or 'none'}", ""))
    terminal.lines(parse_code(schema).split("\n"))


def describe(feature: Feature) -> tuple[str, str, str, str]:
    """Returns kind, shape, sources and treatment of missing values, as text."""
    shape = "one value" if feature.shape is None else str(list(feature.shape))
    shape = shape.replace("None", "any") + (" a box" if feature.of_boxes else "")
    shape += " a frame" if feature.per == "frame" else ""
    missing = "row is rejected" if feature.missing is Missing.REQUIRED else "empty list"
    if feature.default is not None:
        missing = f"default {feature.default!r}"
    kind = f"{feature.kind.value}, class id" if feature.classes else feature.kind.value
    return kind, shape, " or ".join(str(s) for s in feature.sources), missing


def columns_of(schema: Schema) -> list[str]:
    """Returns the columns that a table must have, with alternatives joined by "or"."""
    columns = [schema.image.column] if schema.has_image else []
    if schema.sequence is not None:
        columns += [schema.sequence.group, schema.sequence.order]
    if schema.has_boxes:
        columns += _box_columns(schema.boxes)
    for feature in schema.features.values():
        named = [_named(s, schema) for s in feature.sources if s.origin not in NO_COLUMN]
        optional = any(s.origin is Origin.KEY for s in feature.sources)
        optional |= feature.missing is Missing.EMPTY or feature.default is not None
        text = " or ".join(named) + (" (optional)" if optional else "")
        if named and text not in columns:
            columns.append(text)
    return columns


def _named(source: Source, schema: Schema) -> str:
    drawn = source.origin is Origin.SEGMENTATION
    return f"{source.name} with {schema.masks.labels}" if drawn else source.name


def _box_columns(boxes: BoxSettings) -> list[str]:
    """Returns the columns of boxes, and the column of their units."""
    ways = [", ".join(boxes.columns or ()), boxes.column]
    units = [] if boxes.units_column is None else [f"{boxes.units_column} (optional)"]
    return [" or ".join(way for way in ways if way), *units]


def parse_code(schema: Schema) -> str:
    """Returns TensorFlow code that parses the records of a schema."""
    lines = [
        f"    {name!r}: {_spec(feature)}," for name, feature in schema.context_features.items()
    ]
    if schema.sequence is not None:
        frames = [
            f"    {name!r}: {_spec_of_frames(feature)},"
            for name, feature in schema.frame_features.items()
        ]
        parse = "tf.io.parse_single_sequence_example(record, context, frames)"
        return "\n".join(["context = {", *lines, "}", "frames = {", *frames, "}", parse])
    return "\n".join(["spec = {", *lines, "}", "tf.io.parse_single_example(record, spec)"])


def _spec(feature: Feature) -> str:
    dtype = _DTYPES[feature.kind]
    if feature.optional:
        return f"tf.io.VarLenFeature({dtype})"
    shape = list(feature.shape or ())
    if feature.has_open_rows:
        return f"tf.io.FixedLenSequenceFeature({shape[1:]}, {dtype}, allow_missing=True)"
    return f"tf.io.FixedLenFeature({shape}, {dtype})"


def _spec_of_frames(feature: Feature) -> str:
    dtype = _DTYPES[feature.kind]
    if feature.optional:
        return f"tf.io.RaggedFeature({dtype})"
    return f"tf.io.FixedLenSequenceFeature({list(feature.shape or ())}, {dtype})"


def infer_schema(table: str, image_root: str | None = None, input_format: str = "auto") -> str:
    """Returns a schema file for a table, with comments that explain it.

    Args:
        table: a table, or a file pattern.
        image_root: base of relative image paths; None for the table's folder.
        input_format: as in `recordmill convert`.

    Raises:
        UsageError: if it is not a table, has no rows, or has no column with a supported type.
    """
    config = _config(table, image_root, input_format)
    tables = probe_tables(config)
    rows = list(islice(_up_to_bytes(_rows(tables), _SAMPLED_BYTES), _SAMPLED_ROWS))
    if not rows:
        raise UsageError(f"--infer {table}: has no rows. Add some.")
    columns = [name for name in tables.columns if name not in tables.unsupported]
    guess = infer_from_rows(columns, rows)
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


def _config(table: str, image_root: str | None, input_format: str) -> ConvertConfig:
    """Returns a config to probe the table with; name, output and schema are placeholders."""
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


def _up_to_bytes(rows: Iterator[Row], size: int) -> Iterator[Row]:
    """Yields rows until the bytes in them, such as embedded images, exceed a size."""
    for row in rows:
        yield row
        size -= sum(len(value) for value in row.values.values() if isinstance(value, bytes))
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
        lines += ["", "The table fits these presets without a schema file:"]
        lines += [f"  {_command(name, table, guess)}" for name in fitting]
    lines += [f"Left out: {name}, of type {type_}." for name, type_ in tables.unsupported.items()]
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


def _command(name: str, table: str, guess: InferredSchema) -> str:
    mapping = ",".join(f"{role}={column}" for role, column in _mapping(preset(name), guess).items())
    columns = f" --columns {shlex.quote(mapping)}" if mapping else ""
    where = f"--input {shlex.quote(table)} --output DIR --name {schema_name(table)}"
    return f"recordmill convert --schema {name} {where}{columns}"
