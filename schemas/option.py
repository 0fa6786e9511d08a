"""Declares options as fields of models: flags, keywords and the reference are derived from them.

A field of a model is an option if its annotation has an `Option`. The field itself has the type,
the choices and the default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Flag, auto
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from recordmill.schemas.layout import check_utf8
from recordmill.schemas.settings import parse_integer


class Affects(Flag):
    """What an option can change.

    Fingerprints, the checks of `--append` and the options of `WriteDataset` are derived from it.
    """

    SOURCE = auto()  # which rows are read, and from where; rows of a Beam pipeline have no source
    ROW = auto()  # what becomes of a single row, as in `BuildExamples`
    DATASET = auto()  # what all rows decide together: classes, splits, shards, order
    SHARD = auto()  # the bytes of a shard, or its rejects, for the same references and schema
    BASE = (
        auto()
    )  # where a record is, or its bytes: with --append it must be as in the base version
    METADATA = auto()  # how the dataset is described
    CHECKS = auto()  # what is checked or listed; the manifest states it
    RUN = auto()  # nothing that the manifest states


@dataclass(frozen=True)
class Option:
    """The declaration of an option."""

    group: str
    affects: Affects
    metavar: str  # a placeholder for its value, such as "DIR"
    help: str
    default: str = ""  # a description of the default, if the field's default does not show it
    expected: str = ""  # a description of valid values, for error messages


@dataclass(frozen=True)
class DeclaredOption:
    """An option with its name and its field."""

    name: str  # the keyword, and the flag without dashes
    field: FieldInfo
    option: Option

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The choices of a `Literal` option; None for any other."""
        annotation = self.field.annotation
        return get_args(annotation) if get_origin(annotation) is Literal else None

    @property
    def is_switch(self) -> bool:
        """Whether the option is a bool."""
        return self.field.annotation is bool

    @property
    def is_repeated(self) -> bool:
        """Whether the flag can be given more than once."""
        return self.field.is_required() and get_origin(self.field.annotation) is tuple

    @property
    def is_mapping(self) -> bool:
        """Whether the option is a mapping, such as "a=b,c=d"; its flags are joined."""
        return get_origin(self.field.annotation) is dict

    @property
    def default(self) -> str:
        """The default as text; "" if there is none."""
        value = self.field.default
        is_value = value is not PydanticUndefined and value is not None and value is not False
        return self.option.default or (str(value) if is_value else "")

    @property
    def help(self) -> str:
        """The description, with the default."""
        default = f"default: {self.default}" if self.default and not self.is_switch else ""
        return "; ".join(filter(None, (self.option.help, default)))


def options_of(*models: type[BaseModel]) -> Iterator[DeclaredOption]:
    """Yields the options of models, in the order of their fields."""
    for model in models:
        for name, info in model.model_fields.items():
            for option in info.metadata:
                if isinstance(option, Option):
                    yield DeclaredOption(str(info.validation_alias or name), info, option)


def fields_that_affect(model: type[BaseModel], what: Affects) -> set[str]:
    """Returns the names of the fields of all options that affect any of the given things."""
    return {
        name
        for name, info in model.model_fields.items()
        for option in info.metadata
        if isinstance(option, Option) and option.affects & what
    }


def read_path(value: Any) -> Any:
    """Converts a path to text; returns any other value unchanged."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(path, str):
        check_utf8(path)
    return path


def parse_pairs(value: Any) -> Any:
    """Parses a mapping such as "a=b,c=d"; returns any value that is not text unchanged."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",")]
    if bad := ["".join(pair) for pair in pairs if not (pair[0] and pair[1] and pair[2])]:
        raise ValueError(f"expected NAME=VALUE,…, got {bad[0]!r}")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice")
    return {name.strip(): text.strip() for name, _, text in pairs}


def read_integer(value: Any) -> Any:
    """Parses an integer; returns any value that is not text unchanged."""
    return parse_integer(value) if isinstance(value, str) else value


Path = Annotated[str, BeforeValidator(read_path)]
Pairs = Annotated[dict[str, str], BeforeValidator(parse_pairs)]
Settings = Annotated[dict[str, Any], BeforeValidator(parse_pairs)]
Integer = Annotated[int, BeforeValidator(read_integer)]
