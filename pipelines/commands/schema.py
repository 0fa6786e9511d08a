"""`recordmill schema`: prints a schema, or infers one from a table.

A schema is printed with its features, the columns it needs, and how to parse its records.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from recordmill.pipelines.console.printing import say
from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.options import load_schema
from recordmill.pipelines.schema_inference import infer_schema
from recordmill.schemas.features import NO_COLUMN, Feature, Kind, Missing, Origin, Schema, Source
from recordmill.schemas.settings import BoxSettings
from recordmill.transforms.storage.stores.options import use_store_flags

_DTYPES = {Kind.INT64: "tf.int64", Kind.FLOAT: "tf.float32", Kind.BYTES: "tf.string"}


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Prints a schema, or one that fits a table."""
    use_store_flags(vars(flags))
    if flags.infer is not None:
        say(infer_schema(flags.infer, flags.image_root, flags.input_format), end="")
    else:
        show_schema(Terminal(), load_schema(flags.schema))
    return 0


def show_schema(terminal: Terminal, schema: Schema) -> None:
    """Prints a schema's sheet."""
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
    """Returns kind, shape, sources and what becomes of missing values, in words."""
    shape = "one value" if feature.shape is None else str(list(feature.shape))
    shape = shape.replace("None", "any") + (" a box" if feature.of_boxes else "")
    shape += " a frame" if feature.per == "frame" else ""
    missing = "row is rejected" if feature.missing is Missing.REQUIRED else "empty list"
    if feature.default is not None:
        missing = f"default {feature.default!r}"
    kind = f"{feature.kind.value}, class id" if feature.classes else feature.kind.value
    return kind, shape, " or ".join(str(s) for s in feature.sources), missing


def columns_of(schema: Schema) -> list[str]:
    """Returns the columns that a table has to have, alternatives joined by "or"."""
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
    """Returns the columns that boxes come from, and those of their units."""
    ways = [", ".join(boxes.columns or ()), boxes.column]
    units = [] if boxes.units_column is None else [f"{boxes.units_column} (optional)"]
    return [" or ".join(way for way in ways if way), *units]


def parse_code(schema: Schema) -> str:
    """Returns the parse spec of a schema's records, as TensorFlow code."""
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
