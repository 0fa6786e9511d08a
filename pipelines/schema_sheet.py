"""Prints a schema for people: its features, the columns it needs, and how to parse its records."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from schemas.features import Feature, Kind, Missing, Origin, Schema

_DTYPES = {Kind.INT64: "tf.int64", Kind.FLOAT: "tf.float32", Kind.BYTES: "tf.string"}


def show_schema(console: Console, schema: Schema) -> None:
    """Prints a schema's sheet."""
    console.print(f"[bold]{schema.name}[/bold]  {schema.description}\n")
    if schema.every_column:
        console.print("Every column of the table is a feature, by its type.")
        return
    table = Table("feature", "kind", "shape", "from", "missing", box=None)
    for column in table.columns:
        column.no_wrap = True
    for name, feature in schema.features.items():
        table.add_row(name, *describe(feature))
    console.print(table)
    console.print(f"\nColumns: {', '.join(columns_of(schema)) or 'none'}\n")
    console.print(parse_code(schema), highlight=False, markup=False, soft_wrap=True)


def describe(feature: Feature) -> tuple[str, str, str, str]:
    """Returns kind, shape, sources and what becomes of missing values, in words."""
    shape = "one value" if feature.shape is None else str(list(feature.shape))
    missing = "row is rejected" if feature.missing is Missing.REQUIRED else "empty list"
    if feature.default is not None:
        missing = f"default {feature.default!r}"
    kind = f"{feature.kind.value}, class id" if feature.classes else feature.kind.value
    return kind, shape, " or ".join(str(s) for s in feature.sources), missing


def columns_of(schema: Schema) -> list[str]:
    """Returns the columns that a table has to have, alternatives joined by "or"."""
    columns = [schema.image.column] if schema.has_image else []
    for feature in schema.features.values():
        named = [s.name for s in feature.sources if s.origin in (Origin.COLUMN, Origin.CLASS_NAME)]
        optional = any(s.origin is Origin.KEY for s in feature.sources)
        text = " or ".join(named) + (" (optional)" if optional else "")
        if named and text not in columns:
            columns.append(text)
    return columns


def parse_code(schema: Schema) -> str:
    """Returns the parse spec of a schema's records, as TensorFlow code."""
    lines = [f"    {name!r}: {_spec(feature)}," for name, feature in schema.features.items()]
    return "\n".join(["spec = {", *lines, "}", "tf.io.parse_single_example(record, spec)"])


def _spec(feature: Feature) -> str:
    dtype = _DTYPES[feature.kind]
    if feature.optional:
        return f"tf.io.VarLenFeature({dtype})"
    return f"tf.io.FixedLenFeature({list(feature.shape or ())}, {dtype})"
