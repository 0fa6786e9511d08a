"""What the command line's flags amount to: one frozen config, and Beam's options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from apache_beam.options.pipeline_options import PipelineOptions
from pydantic import BaseModel, ValidationError

from recordmill.pipelines.engines.runners import resolve_options
from recordmill.pipelines.parser import Parser, add_convert_options
from recordmill.schemas.config import DEFAULT_SCHEMA, ConvertConfig, SchemaOverrides
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.features import Schema
from recordmill.schemas.option import options_of
from recordmill.schemas.settings import BoxSettings, ImageSettings, MaskSettings, is_integer
from recordmill.schemas.yaml_files import MAX_LENGTH, parse_schema, preset, preset_names
from recordmill.transforms.functional.rows.labels import is_class_name
from recordmill.transforms.storage.files import exists, open_binary


def config_of(options: Mapping[str, Any]) -> ConvertConfig:
    """Returns the settings that options amount to.

    Args:
        options: name to value: a text as on the command line, or a value of the option's type.

    Raises:
        UsageError: for an option that is unknown, or a value that is not valid.
    """
    values = dict(options)
    known = [declared.name for declared in options_of(ConvertConfig, SchemaOverrides)]
    if unknown := sorted(values.keys() - {*known, *ConvertConfig.model_fields}):
        raise UsageError(f"unknown option {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    changes = {name: values.pop(name) for name in SchemaOverrides.model_fields if name in values}
    schema = values.pop("schema", DEFAULT_SCHEMA)
    schema = schema if isinstance(schema, Schema) else load_schema(os.fspath(schema))
    values["schema"] = _overridden(schema, _checked(SchemaOverrides, changes))
    if isinstance(classes := values.get("classes"), (str, os.PathLike)):
        values["classes"] = _class_names(os.fspath(classes))
    if "records_per_shard" in values and "shard_size" in values:
        raise UsageError("--records_per_shard and --shard_size both say how many shards; drop one")
    return _checked(ConvertConfig, values)


Model = TypeVar("Model", bound=BaseModel)

_MAX_CLASSES_BYTES = 64 * 2**20
_CLASSES = "expected a file of class names, one per line"

_BLOCKS: dict[str, type[BaseModel]] = {
    "image": ImageSettings,
    "boxes": BoxSettings,
    "masks": MaskSettings,
}


def _with_settings(schema: Schema, block: str, overrides: Mapping[str, Any]) -> Schema:
    """Returns a schema with some settings of its `image:`, `boxes:` or `masks:` block replaced.

    Args:
        schema: the schema.
        block: which block of it.
        overrides: setting to value; numbers may be texts.

    Raises:
        UsageError: for a setting that is unknown, or that conflicts with another.
    """
    if not overrides:
        return schema
    known = _BLOCKS[block].model_fields
    if unknown := sorted(overrides.keys() - known.keys()):
        guess = did_you_mean(unknown[0], known)
        raise UsageError(
            f"--{block} {unknown[0]}: unknown setting{guess}; available: {', '.join(known)}"
        )
    kept = getattr(schema, block).model_dump()
    if "column" in overrides:
        kept.pop("columns", None)  # the other way to write boxes
    typed = {k: int(v) if is_integer(str(v)) else v for k, v in overrides.items()}
    try:
        settings = _BLOCKS[block].model_validate({**kept, **typed})
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0] if first["loc"] else ",".join(overrides)
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"--{block} {name}: {message}") from error
    return schema.model_copy(update={block: settings})


def _overridden(schema: Schema, changes: SchemaOverrides) -> Schema:
    timeout = {"timeout": changes.image_timeout} if changes.image_timeout is not None else {}
    schema = _with_settings(schema, "image", changes.image | timeout)
    schema = _with_settings(schema, "boxes", changes.boxes)
    schema = _with_settings(schema, "masks", changes.masks)
    if changes.label_offset is None:
        return schema
    if not schema.named_features:
        raise UsageError(f"--label_offset: schema {schema.name!r} has no class labels")
    update = {"label_offset": changes.label_offset}
    features = {
        name: feature.model_copy(update=update) if feature.classes else feature
        for name, feature in schema.features.items()
    }
    return schema.model_copy(update={"features": features})


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
        add_convert_options(ours)
        raise parser.unknown(unknown[0], [*ours.flags(), *parser.flags()])
    options = PipelineOptions(list(rest))
    resolve_options(options)
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


def _class_names(path: str) -> tuple[str, ...]:
    try:
        data = _bytes_of(path, _MAX_CLASSES_BYTES)
        if data is None:
            raise ValueError("no such file")
        if len(data) > _MAX_CLASSES_BYTES:
            raise ValueError(f"is larger than {_MAX_CLASSES_BYTES:,} bytes")
        lines = data.decode("utf-8-sig").splitlines()
        while lines and not lines[-1]:
            lines.pop()
        if not lines:
            raise ValueError("the file is empty")
        for number, line in enumerate(lines, start=1):
            if not is_class_name(line):
                what = "is not a class name: it is empty, or has spaces around it"
                raise ValueError(f"line {number}: {line!r} {what}")
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not text in UTF-8"
        raise UsageError(f"--classes {path}: {what}; {_CLASSES}") from error
    except ValueError as error:
        raise UsageError(f"--classes {path}: {error}; {_CLASSES}") from error
    return tuple(lines)


def _checked(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Returns a model of options.

    Raises:
        UsageError: for the first value that is not valid.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        problem = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            raise UsageError(problem) from error
        name = str(first["loc"][0])
        if first["type"] == "missing":
            raise UsageError(f"--{name} is required") from error
        expected = {o.name: o.option.expected for o in options_of(model)}.get(name)
        problem = f"expected {expected}" if expected else problem
        raise UsageError(f"--{name} {_as_typed(values.get(name, ''))}: {problem}") from error


def _as_typed(value: Any) -> Any:
    """Returns a value as it is written on the command line."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return value
