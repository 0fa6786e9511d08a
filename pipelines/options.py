"""What the command line's flags amount to: one frozen config, and Beam's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from pydantic import BaseModel, ValidationError

from recordmill.pipelines.engines.runners import settle
from recordmill.pipelines.flags import add_setting_flags
from recordmill.pipelines.parser import Parser
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.features import Schema
from recordmill.schemas.presets import parse_schema, preset, preset_names
from recordmill.schemas.rejects import RejectBudget
from recordmill.schemas.settings import (
    BoxSettings,
    ImageSettings,
    MaskSettings,
    is_integer,
    parse_integer,
)
from recordmill.schemas.yaml_loader import MAX_LENGTH
from recordmill.transforms.functional.rows.labels import is_class_name
from recordmill.transforms.storage.files import exists, open_binary


def config_of(flags: dict[str, Any]) -> ConvertConfig:
    """Returns the settings that parsed flags amount to.

    Raises:
        UsageError: for a value that is none.
    """
    values = dict(flags)
    values["inputs"] = tuple(values.pop("input"))
    values["dataset_schema"] = _settled_schema(values)
    readers = {
        "columns": _pairs,
        "splits": _weights,
        "num_shards": _num_shards,
        "records_per_shard": parse_integer,
        "seed": parse_integer,
        "max_rejects": RejectBudget.parse,
        "classes": _class_names,
    }
    for name, read in readers.items():
        if name in values:
            values[name] = _read(name, values[name], read)
    if "records_per_shard" in values and "shard_size" in values:
        raise UsageError("--records_per_shard and --shard_size both say how many shards; drop one")
    try:
        return ConvertConfig(**values)
    except ValidationError as error:
        raise UsageError(_describe(error)) from error


_MAX_CLASSES_BYTES = 64 * 2**20

_BLOCKS: dict[str, type[BaseModel]] = {
    "image": ImageSettings,
    "boxes": BoxSettings,
    "masks": MaskSettings,
}


def with_settings(schema: Schema, block: str, overrides: dict[str, Any]) -> Schema:
    """Returns a schema with some settings of its `image:`, `boxes:` or `masks:` block replaced.

    Raises:
        UsageError: for a setting that is none, or that conflicts with another.
    """
    if not overrides:
        return schema
    known = _BLOCKS[block].model_fields
    if unknown := sorted(overrides.keys() - known.keys()):
        guess = did_you_mean(unknown[0], known)
        raise UsageError(
            f"--{block} {unknown[0]}: no such setting{guess}; there are: {', '.join(known)}"
        )
    kept = getattr(schema, block).model_dump()
    if "column" in overrides:
        kept.pop("columns", None)  # the other way to write boxes
    try:
        settings = _BLOCKS[block].model_validate({**kept, **overrides})
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0] if first["loc"] else ",".join(overrides)
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"--{block} {name}: {message}") from error
    return schema.model_copy(update={block: settings})


def with_label_offset(schema: Schema, text: str) -> Schema:
    """Returns a schema whose labels are all offset by 0 or 1.

    Raises:
        UsageError: for another offset, or a schema without class labels.
    """
    if text not in ("0", "1"):
        raise UsageError(f"--label_offset {text}: expected 0 or 1")
    if not schema.named_features:
        raise UsageError(f"--label_offset: schema {schema.name!r} has no class labels")
    features = {
        name: feature.model_copy(update={"label_offset": int(text)}) if feature.classes else feature
        for name, feature in schema.features.items()
    }
    return schema.model_copy(update={"features": features})


def _settled_schema(values: dict[str, Any]) -> Schema:
    """Takes the flags that say what the schema is from the others."""
    schema = load_schema(values.pop("schema", "image_classification"))
    overrides: dict[str, dict[str, Any]] = {block: {} for block in _BLOCKS}
    for block in _BLOCKS:
        if block in values:
            pairs = _read(block, values.pop(block), _pairs)
            overrides[block] = {k: int(v) if is_integer(v) else v for k, v in pairs.items()}
    if "image_timeout" in values:
        overrides["image"]["timeout"] = values.pop("image_timeout")
    for block, settings in overrides.items():
        schema = with_settings(schema, block, settings)
    if "label_offset" in values:
        schema = with_label_offset(schema, values.pop("label_offset"))
    return schema


def beam_options(rest: Sequence[str]) -> PipelineOptions:
    """Returns Beam's own options.

    Raises:
        UsageError: for a flag that Beam does not know either, and would drop in silence; or if
            the runner lacks something.
    """
    parser = Parser(prog="recordmill convert", allow_abbrev=False, add_help=False)
    for known in PipelineOptions.__subclasses__():
        try:
            known._add_argparse_args(parser)
        except argparse.ArgumentError:  # some of Beam's own classes share a flag
            continue
    _, unknown = parser.parse_known_args(list(rest))
    if unknown:
        ours = Parser(add_help=False)
        add_setting_flags(ours)
        raise parser.unknown(unknown[0], [*ours.flags(), *parser.flags()])
    options = PipelineOptions(list(rest))
    settle(options)
    return options


def load_schema(name: str) -> Schema:
    """Returns the preset of that name, or the schema in that file.

    Raises:
        UsageError: if there is neither.
    """
    try:
        data = _bytes_of(name, 4 * MAX_LENGTH) if "." in name else None
    except ValueError as error:
        expected = f"expected a YAML file or one of: {', '.join(preset_names())}"
        raise UsageError(f"--schema {name}: {error}; {expected}") from error
    return preset(name) if data is None else parse_schema(data, name)


def _bytes_of(path: str, most: int) -> bytes | None:
    """Returns a file that a flag names, or one byte more than allowed; None if there is none.

    Raises:
        ValueError: if it cannot be read.
    """
    try:
        if not exists(path):
            return None
        with open_binary(path) as stream:
            return stream.read(most + 1)
    except IsADirectoryError as error:
        raise ValueError("is a folder") from error
    except OSError as error:
        raise ValueError(error.strerror or error) from error


def _read(name: str, text: str, read: Any) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise UsageError(f"--{name} {text}: {error}") from error


def _pairs(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if bad := ["".join(pair) for pair in pairs if not (pair[0] and pair[1] and pair[2])]:
        raise ValueError(f"expected NAME=VALUE,…, got {bad[0]!r}")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _weights(text: str) -> dict[str, Decimal]:
    try:
        weights = {name: Decimal(weight) for name, weight in _pairs(text).items()}
    except InvalidOperation as error:
        raise ValueError("expected numbers, as in train=0.9,validation=0.1") from error
    if not all(weight.is_finite() for weight in weights.values()):
        raise ValueError("expected finite numbers")
    return weights


def _num_shards(text: str) -> Any:
    if text == "auto":
        return text
    try:
        if "=" not in text:
            return parse_integer(text)
        return {split: parse_integer(number) for split, number in _pairs(text).items()}
    except ValueError as error:
        raise ValueError("expected auto, a number, or train=16,test=2") from error


def _class_names(path: str) -> tuple[str, ...]:
    try:
        data = _bytes_of(path, _MAX_CLASSES_BYTES)
    except ValueError as error:
        raise ValueError(f"{error}; expected a file of class names, one a line") from error
    if data is None:
        raise ValueError("no such file; expected class names, one a line")
    if len(data) > _MAX_CLASSES_BYTES:
        raise ValueError(f"is larger than {_MAX_CLASSES_BYTES:,} bytes; expected class names")
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not text in UTF-8"
        raise ValueError(f"{what}; expected class names, one a line") from error
    while lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if not is_class_name(line):
            what = "it is empty, or has spaces around it"
            raise ValueError(f"line {number}: {line!r} is no class name: {what}")
    if not lines:
        raise ValueError("the file is empty; expected class names, one a line")
    return tuple(lines)


_HINTS = {
    "name": "expected letters, digits and _, beginning with a letter",
    "version": "expected three numbers, as in 1.0.0",
    "shard_size": "expected a size above 0, as in 128MiB",
}
"""What pydantic says in terms of its own."""


def _describe(error: ValidationError) -> str:
    first = error.errors()[0]
    if hint := _HINTS.get(str(first["loc"][0]) if first["loc"] else ""):
        return f"--{first['loc'][0]} {first['input']}: {hint}"
    flag = f"--{first['loc'][0]} " if first["loc"] else ""
    got = _as_typed(first["input"]) if first["loc"] else ""
    return f"{flag}{got}: {first['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def _as_typed(value: Any) -> Any:
    """Returns a value as it stood on the command line."""
    if isinstance(value, dict):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return value
