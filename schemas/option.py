"""Declares options as fields of models: flags, keywords and the reference are derived from them.

A field of a model is an option if `option()` declares it. The field itself has the type, the
choices and the default. The types of options whose text has a form of its own are below.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Flag, auto
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from recordmill.schemas.condition import Condition
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.layout import check_utf8
from recordmill.schemas.rejects import RejectBudget
from recordmill.schemas.settings import parse_integer
from recordmill.schemas.statistics import IssueName
from recordmill.schemas.yaml_files import load_yaml, shortened

_OPTION = "option"


class Affects(Flag):
    """What an option can change.

    Fingerprints, the checks of `--append` and the options of `WriteDataset` are derived from it.
    """

    SOURCE = auto()  # which rows are read, and from where; rows of a Beam pipeline have no source
    ROW = auto()  # what becomes of a single row, as in `BuildExamples`
    DATASET = auto()  # what all rows decide together: classes, splits, shards, order
    SHARD = auto()  # the bytes of a shard, or its rejects, for the same references and schema
    BASE = auto()  # where a record is, or its bytes: with --append as in the base version
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
    needs_pixels: bool = False  # whether values except its default and "none" need decoded images


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
        """Whether the flag can be given more than once: a tuple, of which no text is split."""
        parsers = [one for one in self.field.metadata if isinstance(one, BeforeValidator)]
        return get_origin(self.field.annotation) is tuple and parsers in ([], [_OneOrMore])

    @property
    def is_mapping(self) -> bool:
        """Whether the option is a mapping, such as "a=b,c=d"; its flags are joined."""
        return get_origin(self.field.annotation) is dict

    @property
    def default(self) -> str:
        """The default as text; "" if there is none."""
        value = self.field.default
        is_value = value not in (None, PydanticUndefined, {}, ()) and value is not False
        return self.option.default or (str(value) if is_value else "")

    @property
    def help(self) -> str:
        """The description, with the default."""
        default = f"default: {self.default}" if self.default and not self.is_switch else ""
        return "; ".join(filter(None, (self.option.help, default)))


def option(
    group: str,
    default: Any,
    affects: Affects,
    metavar: str,
    help: str,
    shown: str = "",
    expected: str = "",
    needs_pixels: bool = False,
    **field: Any,
) -> Any:
    """Declares a field of a model as an option; `field` has its further constraints."""
    declared: Any = Option(group, affects, metavar, help, shown, expected, needs_pixels)
    default = PydanticUndefined if "default_factory" in field else default
    return Field(default, json_schema_extra={_OPTION: declared}, **field)


def options_of(*models: type[BaseModel]) -> Iterator[DeclaredOption]:
    """Yields the options of models, in the order of their fields."""
    for model in models:
        for name, info in model.model_fields.items():
            if found := _option_of(info):
                yield DeclaredOption(str(info.validation_alias or name), info, found)


def fields_that_affect(model: type[BaseModel], what: Affects) -> set[str]:
    """Returns the names of the fields of all options that affect any of the given things."""
    found = ((name, _option_of(info)) for name, info in model.model_fields.items())
    return {name for name, option in found if option and option.affects & what}


def _option_of(info: FieldInfo) -> Option | None:
    extra: Any = info.json_schema_extra
    return extra.get(_OPTION) if extra else None


def _read_path(value: Any) -> Any:
    """Converts a path to text; returns any other value unchanged."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(path, str):
        check_utf8(path)
    return path


def _of_text(parse: Callable[[str], Any]) -> BeforeValidator:
    """Returns a validator that parses text, and leaves typed values as they are."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _parse_pairs(text: str) -> dict[str, str]:
    pairs = [tuple(map(str.strip, part.partition("="))) for part in text.split(",")]
    if bad := ["".join(pair) for pair in pairs if not (pair[0] and pair[1] and pair[2])]:
        raise ValueError(f"expected NAME=VALUE,…, got {bad[0]!r}")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice")
    return {name: text for name, _, text in pairs}


Path = Annotated[str, BeforeValidator(_read_path)]
Pairs = Annotated[dict[str, str], _of_text(_parse_pairs)]
Settings = Annotated[dict[str, Any], _of_text(_parse_pairs)]
FromInteger = _of_text(parse_integer)
Integer = Annotated[int, FromInteger]


# Part of shard names: file systems allow 255 bytes, and a letter has up to four.
SPLIT_NAME = re.compile(r"[A-Za-z]\w{0,49}")

SPLIT_NAME_RULE = "up to 50 letters, digits and _, beginning with a letter"

# Allows for rounded fractions, as in 0.333,0.333,0.333.
_SUM_TOLERANCE = Decimal("0.001")

_PERCENTAGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")

# Limit for the rows of a sample: every worker holds the hash positions of as many rows, 8 MB.
MAX_SAMPLE_ROWS = 1_000_000

# The largest number of shards that fits into the five digits in shard names.
MAX_SHARDS = 99_999

# The value of --split_column for no column.
NO_SPLITS = "none"

# TFDS and semver.org accept no leading zeros.
_NUMBER = r"(0|[1-9][0-9]*)"


def _parse_weights(text: str) -> dict[str, Decimal]:
    try:
        weights = {name: Decimal(weight) for name, weight in _parse_pairs(text).items()}
    except InvalidOperation as error:
        raise ValueError("expected numbers, as in train=0.9,validation=0.1") from error
    if not all(weight.is_finite() for weight in weights.values()):
        raise ValueError("expected finite numbers")
    return weights


def _check_weights(splits: dict[str, Decimal]) -> dict[str, Decimal]:
    if bad := [name for name in splits if not SPLIT_NAME.fullmatch(name)]:
        raise ValueError(f"{bad[0]!r} cannot name a split; expected {SPLIT_NAME_RULE}")
    total = sum(splits.values(), Decimal())
    if any(weight < 0 for weight in splits.values()) or total <= 0:
        raise ValueError("split weights must not be negative, and one must be above 0")
    are_fractions = max(splits.values()) <= 1 and any(weight % 1 for weight in splits.values())
    if are_fractions and abs(total - 1) > _SUM_TOLERANCE:
        raise ValueError(
            f"the fractions sum to {total.normalize():f}; expected 1. Correct them, or write "
            "whole numbers, as in train=8,test=2"
        )
    return splits


def _parse_split_column(text: str) -> str | None:
    """Parses the name of a column; "none" is no column, not even one of the source."""
    return None if text == NO_SPLITS else text


def _parse_num_shards(text: str) -> str | int | dict[str, int]:
    if "=" not in text:
        return text if text == "auto" else parse_integer(text)
    return {split: parse_integer(number) for split, number in _parse_pairs(text).items()}


def _parse_budget(value: Any) -> Any:
    return RejectBudget.parse(str(value)) if isinstance(value, (str, int, float)) else value


def _parse_sample(text: str) -> str | int:
    """Parses a percentage such as "0.5%", or a number of rows."""
    if match := _PERCENTAGE.fullmatch(text.strip()):
        if not 0 < Decimal(match[1]) <= 100:
            raise ValueError("expected a percentage above 0%, and up to 100%")
        return text.strip()
    return parse_integer(text)


def _check_condition(value: str | None) -> str | None:
    if value is not None:
        _ = Condition(value).columns
    return value


def _parse_delimiter(text: str) -> str:
    r"""Returns a delimiter; "tab" and "\\t", which are easier to type, are the tab character."""
    return "\t" if text in ("tab", "\\t") else text


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _parse_header(text: str) -> tuple[str, ...]:
    """Parses "none" or names of columns; () is a header of numbers."""
    return () if text == "none" else _parse_names(text)


Weights: TypeAlias = Annotated[
    dict[str, Decimal], _of_text(_parse_weights), AfterValidator(_check_weights)
]
SplitColumn: TypeAlias = Annotated[str | None, _of_text(_parse_split_column)]
_ShardCount: TypeAlias = Annotated[int, Field(ge=1, le=MAX_SHARDS)]
NumShards: TypeAlias = Annotated[
    Literal["auto"] | _ShardCount | dict[str, _ShardCount], _of_text(_parse_num_shards)
]
Sample: TypeAlias = Annotated[
    Annotated[int, Field(strict=True, ge=1, le=MAX_SAMPLE_ROWS)]
    | Annotated[str, Field(pattern="%$")]
    | None,
    _of_text(_parse_sample),
]
Where: TypeAlias = Annotated[str | None, AfterValidator(_check_condition)]
Budget: TypeAlias = Annotated[RejectBudget, BeforeValidator(_parse_budget)]
Delimiter: TypeAlias = Annotated[
    str, _of_text(_parse_delimiter), Field(pattern=r"^[\t !#-/:-@\[-`{-~]$")
]
Header: TypeAlias = Annotated[tuple[str, ...], _of_text(_parse_header)]
_OneOrMore = _of_text(lambda text: (text,))
Patterns: TypeAlias = Annotated[tuple[str, ...], _OneOrMore]
Issues: TypeAlias = Annotated[tuple[IssueName, ...], _of_text(_parse_names)]
ImageSuffix: TypeAlias = Annotated[str, Field(pattern=r"^\.[A-Za-z0-9]+$")]
DatasetName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z]\w*$")]
Version: TypeAlias = Annotated[str, Field(pattern=rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}$")]
WebAddress: TypeAlias = Annotated[str, Field(pattern=r"^(https?://\S+)?$")]


Properties: TypeAlias = "dict[str, str | tuple[str, ...]]"

_DATASET = (
    "dateCreated", "dateModified", "datePublished", "inLanguage", "keywords", "sameAs",
    "sdLicense", "sdVersion",
)  # fmt: skip

# The properties of the extension, which have the prefix `rai:` in croissant.json.
RESPONSIBLE_AI = (
    "annotationsPerItem", "annotatorDemographics", "dataAnnotationAnalysis",
    "dataAnnotationPlatform", "dataAnnotationProtocol", "dataBiases", "dataCollection",
    "dataCollectionMissingData", "dataCollectionRawData", "dataCollectionTimeframe",
    "dataCollectionType", "dataImputationProtocol", "dataLimitations",
    "dataManipulationProtocol", "dataPreprocessingProtocol", "dataReleaseMaintenancePlan",
    "dataSocialImpact", "dataUseCases", "machineAnnotationTools",
    "personalSensitiveInformation",
)  # fmt: skip

NAMES = (*_DATASET, *RESPONSIBLE_AI)


def parse_properties(text: str | bytes, where: str) -> Properties:
    """Parses a YAML file of properties: a mapping of names to texts, dates, or lists of these.

    Raises UsageError if it is not YAML, or has an unknown property, or no text for one.
    """
    _, document = load_yaml(text, where)
    if not isinstance(document, dict):
        raise UsageError(
            f"{where}: expected a mapping such as 'keywords: [birds]', got {shortened(document)}"
        )
    return {name: _value(name, value, where) for name, value in document.items()}


def _value(name: Any, value: Any, where: str) -> str | tuple[str, ...]:
    if name not in NAMES:
        guess = did_you_mean(str(name), NAMES)
        raise UsageError(
            f"{where}: unknown property {name!r}{guess}; available: {', '.join(NAMES)}"
        )
    items = value if isinstance(value, list) else [value]
    # YAML loads unquoted dates as such; str() returns them as they were written.
    if not items or not all(isinstance(item, str | datetime.date) and str(item) for item in items):
        raise UsageError(
            f"{where}: at {name}: expected a text, a date, or a list of them, "
            f"got {shortened(value)}. Quote numbers."
        )
    texts = tuple(str(item) for item in items)
    return texts if isinstance(value, list) else texts[0]
