"""The command line's flags: into one frozen config, and Beam's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from apache_beam.options.pipeline_options import PipelineOptions
from pydantic import ValidationError

from schemas.config import ConvertConfig, RejectBudget
from schemas.errors import UsageError
from schemas.features import Schema
from schemas.image_settings import ImageSettings
from schemas.presets import parse_schema, preset
from transforms.files import exists, open_binary
from transforms.functional.labels import is_class_name

_CHOICES = {
    "input_format": ("auto", "csv", "tsv", "jsonl", "parquet"),
    "compression": ("none", "gzip"),
    "decode": ("full", "header"),
    "verify": ("parse", "decode"),
    "if_exists": ("fail", "skip", "replace"),
}


class Parser(argparse.ArgumentParser):
    """Raises what argparse would print and exit with."""

    def error(self, message: str) -> NoReturn:
        """Raises bad usage."""
        raise UsageError(f"{message}; see {self.prog} --help")


def add_convert_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill convert`; a flag that is not given is not set."""
    for group, flags in _CONVERT_FLAGS.items():
        section = parser.add_argument_group(group)
        for name, (metavar, text) in flags.items():
            section.add_argument(
                f"--{name}",
                metavar=None if name in _CHOICES else metavar,
                choices=_CHOICES.get(name),
                help=text,
                default=argparse.SUPPRESS,
                required=name in ("input", "output", "name"),
                action="append" if name == "input" else "store",
            )


_CONVERT_FLAGS: dict[str, dict[str, tuple[str, str]]] = {
    "input": {
        "input": ("PATTERN", "a table, or a pattern of them; may be given more than once"),
        "input_format": ("FORMAT", "default: told by the name and the content"),
        "schema": ("PRESET|FILE", "default: image_classification"),
        "image_root": ("DIR", "base of relative image paths; default: the table's folder"),
        "columns": ("S=T,…", "schema column = table column, where the names differ"),
        "key_column": ("C", "the rows' identity; default: the image path as written"),
        "image": ("K=V,…", "settings of the schema's image block: max_side=512,format=jpeg,…"),
        "classes": ("FILE", "class names, one a line; default: the names found, sorted"),
    },
    "output": {
        "output": ("DIR", "the dataset goes to DIR/NAME/VERSION"),
        "name": ("NAME", "letters, digits and _"),
        "version": ("X.Y.Z", "default: 1.0.0"),
        "compression": ("C", "default: none; TFDS reads no gzip"),
        "if_exists": ("WHAT", "what to do with a published dataset; default: fail"),
    },
    "placement": {
        "splits": ("train=0.9,…", "weights; default: all to train"),
        "split_column": ("C", "a row's own split wins"),
        "group_column": ("C", "rows with one value land in one split: patient, video, place"),
        "num_shards": ("auto|N|S=N,…", "per split; default: auto, by size"),
        "shard_size": ("SIZE", "of a shard, for auto; default: 128MiB"),
        "seed": ("N", "another seed, another split and order; default: 0"),
    },
    "checks": {
        "decode": ("HOW", "full reads every coded bit, header only the size; default: full"),
        "verify": ("HOW", "parse every record, or decode every image, too; default: parse"),
        "image_timeout": ("SECONDS", "that decoding one image may take; default: 60"),
        "max_rejects": ("N|P%", "more rejects than this fail the run; default: 0"),
    },
}


def config_of(flags: dict[str, Any]) -> ConvertConfig:
    """Returns the settings that parsed flags amount to.

    Raises:
        UsageError: for a value that is none.
    """
    values = dict(flags)
    values["inputs"] = tuple(values.pop("input"))
    schema = load_schema(values.pop("schema", "image_classification"))
    values["dataset_schema"] = with_image_settings(schema, _image_overrides(values))
    readers = {
        "columns": _pairs,
        "splits": _weights,
        "num_shards": _num_shards,
        "max_rejects": RejectBudget.parse,
        "classes": _class_names,
    }
    for name, read in readers.items():
        if name in values:
            values[name] = _read(name, values[name], read)
    try:
        return ConvertConfig(**values)
    except ValidationError as error:
        raise UsageError(_describe(error)) from error


def with_image_settings(schema: Schema, overrides: dict[str, Any]) -> Schema:
    """Returns a schema with some of its image settings replaced.

    Raises:
        UsageError: for a setting that is none, or that conflicts with another.
    """
    if not overrides:
        return schema
    known = ImageSettings.model_fields
    if unknown := sorted(overrides.keys() - known.keys()):
        raise UsageError(f"--image {unknown[0]}: no such setting; there are: {', '.join(known)}")
    try:
        image = ImageSettings.model_validate({**schema.image.model_dump(), **overrides})
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0] if first["loc"] else ",".join(overrides)
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"--image {name}: {message}") from error
    return schema.model_copy(update={"image": image})


def _image_overrides(values: dict[str, Any]) -> dict[str, Any]:
    """Takes the flags that set up images from the others."""
    overrides: dict[str, Any] = {}
    if "image" in values:
        pairs = _read("image", values.pop("image"), _pairs)
        overrides = {k: int(v) if v.isdigit() else v for k, v in pairs.items()}
    if "image_timeout" in values:
        overrides["timeout"] = values.pop("image_timeout")
    return overrides


def beam_options(rest: Sequence[str]) -> PipelineOptions:
    """Returns Beam's own options.

    Raises:
        UsageError: for a flag that Beam does not know either, and would drop in silence.
    """
    parser = Parser(prog="recordmill convert", allow_abbrev=False, add_help=False)
    for options in PipelineOptions.__subclasses__():
        try:
            options._add_argparse_args(parser)
        except argparse.ArgumentError:  # some of Beam's own classes share a flag
            continue
    _, unknown = parser.parse_known_args(list(rest))
    if unknown:
        raise UsageError(f"unknown flag {unknown[0]}; see recordmill convert --help")
    return PipelineOptions(list(rest))


def load_schema(name: str) -> Schema:
    """Returns the preset of that name, or the schema in that file.

    Raises:
        UsageError: if there is neither.
    """
    if not exists(name) or "." not in name:
        return preset(name)
    with open_binary(name) as stream:
        return parse_schema(stream.read().decode("utf-8", "replace"), name)


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
        return int(text) if "=" not in text else {s: int(n) for s, n in _pairs(text).items()}
    except ValueError as error:
        raise ValueError("expected auto, a number, or train=16,test=2") from error


def _class_names(path: str) -> tuple[str, ...]:
    if not exists(path):
        raise ValueError("no such file; expected class names, one a line")
    with open_binary(path) as stream:
        lines = stream.read().decode("utf-8-sig").splitlines()
    while lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if not is_class_name(line):
            what = "it is empty, or has spaces around it"
            raise ValueError(f"line {number}: {line!r} is no class name: {what}")
    if not lines:
        raise ValueError("the file is empty; expected class names, one a line")
    return tuple(lines)


def _describe(error: ValidationError) -> str:
    first = error.errors()[0]
    flag = f"--{first['loc'][0]} " if first["loc"] else ""
    got = first["input"] if first["loc"] else ""
    return f"{flag}{got}: {first['msg'].removeprefix('Value error, ')}".removeprefix(": ")
