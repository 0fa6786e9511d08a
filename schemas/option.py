"""Options, declared once: flags, keywords of the library, and the reference come from the fields.

A field of a model whose annotation has an `Option` is an option. Choices and defaults are those of
the field itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from recordmill.schemas.layout import check_utf8
from recordmill.schemas.settings import parse_integer


@dataclass(frozen=True)
class Option:
    """What the type and the default of a field do not say.

    Attributes:
        group: the heading that it is listed under.
        metavar: a name for its value, such as "DIR".
        help: what it does.
        default: what is used if it is not given, where the field's default does not show it.
        expected: what a valid value looks like, for error messages.
    """

    group: str
    metavar: str
    help: str
    default: str = ""
    expected: str = ""


@dataclass(frozen=True)
class DeclaredOption:
    """An option with all that is known about it.

    Attributes:
        name: of the flag, without dashes, and of the keyword.
        field: its type and default.
        option: the rest.
    """

    name: str
    field: FieldInfo
    option: Option

    @property
    def choices(self) -> tuple[str, ...] | None:
        """All values that it can have, if these are few."""
        annotation = self.field.annotation
        return get_args(annotation) if get_origin(annotation) is Literal else None

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.field.annotation is bool

    @property
    def is_repeated(self) -> bool:
        """Whether its flag may be given more than once."""
        return self.field.is_required() and get_origin(self.field.annotation) is tuple

    @property
    def default(self) -> str:
        """What is used if it is not given, as text; "" if nothing is."""
        value = self.field.default
        is_value = value is not PydanticUndefined and value is not None and value is not False
        return self.option.default or (str(value) if is_value else "")

    @property
    def help(self) -> str:
        """What it does, and its default."""
        default = f"default: {self.default}" if self.default and not self.is_switch else ""
        return "; ".join(filter(None, (self.option.help, default)))


def options_of(*models: type[BaseModel]) -> Iterator[DeclaredOption]:
    """Yields the options that models declare, in the order of their fields."""
    for model in models:
        for name, field in model.model_fields.items():
            for option in field.metadata:
                if isinstance(option, Option):
                    yield DeclaredOption(str(field.validation_alias or name), field, option)


def read_path(value: Any) -> Any:
    """Returns a path as text; any other value as it is."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(path, str):
        check_utf8(path)
    return path


def parse_pairs(value: Any) -> Any:
    """Returns the mapping that a text like "a=b,c=d" stands for; any other value as it is."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",")]
    if bad := ["".join(pair) for pair in pairs if not (pair[0] and pair[1] and pair[2])]:
        raise ValueError(f"expected NAME=VALUE,…, got {bad[0]!r}")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice")
    return {name.strip(): text.strip() for name, _, text in pairs}


def read_integer(value: Any) -> Any:
    """Returns the whole number that a text is; any other value as it is."""
    return parse_integer(value) if isinstance(value, str) else value


Path = Annotated[str, BeforeValidator(read_path)]
Pairs = Annotated[dict[str, str], BeforeValidator(parse_pairs)]
Settings = Annotated[dict[str, Any], BeforeValidator(parse_pairs)]
Integer = Annotated[int, BeforeValidator(read_integer)]
