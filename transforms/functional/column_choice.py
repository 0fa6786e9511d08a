"""Which columns of a table a schema takes its values from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from schemas.config import ConvertConfig
from schemas.errors import UsageError
from schemas.features import Feature, Missing, Origin, Schema, Source


def settle_sources(
    schema: Schema, present: Sequence[str], config: ConvertConfig, where: str = "the table"
) -> Schema:
    """Returns the schema with one source a feature: the first that the table has.

    Args:
        schema: what is asked for.
        present: the table's columns.
        config: the columns' other names.
        where: what to call the table in messages.

    Raises:
        UsageError: if a column is not there, and no feature could do without it.
    """
    features = {
        name: _settled(name, feature, present, config, where)
        for name, feature in schema.features.items()
    }
    named = {
        "--key_column": config.key_column,
        "--split_column": config.split_column,
        "--group_column": config.group_column,
    }
    for flag, column in named.items():
        if column is not None and column not in present:
            raise UsageError(f"{flag} {column}: {_not_there(column, present, where)}")
    image_column = config.column(schema.image.column)
    if schema.has_image and image_column not in present:
        hint = f"; name it with --columns {schema.image.column}=COLUMN"
        raise UsageError(f"the image's path: {_not_there(image_column, present, where)}{hint}")
    _check_mapping(schema, config)
    return schema.model_copy(update={"features": features})


def needed_columns(schema: Schema, config: ConvertConfig) -> tuple[str, ...] | None:
    """Returns the table columns that have to be read, sorted; None for all of them."""
    if schema.every_column:
        return None
    names = {config.column(f.column) for f in schema.features.values() if f.column is not None}
    names |= {config.column(schema.image.column)} if schema.has_image else set()
    others = (config.key_column, config.split_column, config.group_column)
    return tuple(sorted(names | {column for column in others if column is not None}))


def check_types(unsupported: Mapping[str, str], columns: tuple[str, ...] | None) -> None:
    """Refuses columns whose type makes no feature.

    Args:
        unsupported: column to its type.
        columns: those that are needed, or None for all.

    Raises:
        UsageError: if one of them is needed.
    """
    for name, type_ in unsupported.items():
        if columns is None or name in columns:
            raise UsageError(
                f"column {name!r} is of type {type_}; expected integers, floats, booleans, text, "
                "bytes, or lists of these: cast it, or drop it"
            )


def _settled(
    name: str, feature: Feature, present: Sequence[str], config: ConvertConfig, where: str
) -> Feature:
    for source in feature.sources:
        if source.origin in (Origin.IMAGE, Origin.KEY) or config.column(source.name) in present:
            return feature.model_copy(update={"sources": (source,)})
    first = feature.sources[0]
    if feature.missing is Missing.EMPTY or feature.default is not None:
        return feature.model_copy(update={"sources": (first,)})
    column = config.column(first.name)
    hint = f"; name it with --columns {first.name}=COLUMN"
    raise UsageError(f"feature {name!r}: {_not_there(column, present, where)}{hint}")


def _not_there(column: str, present: Sequence[str], where: str) -> str:
    close = difflib.get_close_matches(column, present, n=1)
    guess = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{where} has no column {column!r}{guess}; it has: {', '.join(present) or 'none'}"


def _check_mapping(schema: Schema, config: ConvertConfig) -> None:
    """Refuses a --columns entry that no feature takes: a typo would be dropped in silence."""
    sources: list[Source] = [s for f in schema.features.values() for s in f.sources]
    known = {s.name for s in sources if s.origin in (Origin.COLUMN, Origin.CLASS_NAME)}
    known |= {schema.image.column} if schema.has_image else set()
    for name in config.columns:
        if name not in known:
            expected = ", ".join(sorted(known)) or "no columns"
            raise UsageError(
                f"--columns {name}=…: schema {schema.name!r} has no such column; it has {expected}"
            )
