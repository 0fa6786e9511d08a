"""The types of options whose text has a form of its own: parsed, and checked one by one."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.image_quality import IssueName
from recordmill.schemas.option import parse_pairs
from recordmill.schemas.rejects import RejectBudget
from recordmill.schemas.settings import parse_integer
from recordmill.schemas.yaml_files import load_yaml, shortened

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


def _parse_weights(value: Any) -> Any:
    """Parses weights such as "train=0.9,test=0.1"; returns other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        weights = {name: Decimal(weight) for name, weight in parse_pairs(value).items()}
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


def _parse_split_column(value: Any) -> Any:
    """Parses the name of a column; "none" is no column, not even one of the source."""
    return None if value == NO_SPLITS else value


def _parse_num_shards(value: Any) -> Any:
    """Parses a number of shards, or one per split; returns other values unchanged."""
    if not isinstance(value, str) or value == "auto":
        return value
    if "=" not in value:
        return parse_integer(value)
    return {split: parse_integer(number) for split, number in parse_pairs(value).items()}


def _parse_budget(value: Any) -> Any:
    return RejectBudget.parse(str(value)) if isinstance(value, (str, int, float)) else value


def _parse_sample(value: Any) -> Any:
    """Parses a percentage such as "0.5%", or a number of rows."""
    if not isinstance(value, str):
        return value
    if match := _PERCENTAGE.fullmatch(value.strip()):
        if not 0 < Decimal(match[1]) <= 100:
            raise ValueError("expected a percentage above 0%, and up to 100%")
        return value.strip()
    return parse_integer(value)


def _parse_delimiter(value: Any) -> Any:
    r"""Returns a delimiter; "tab" and "\\t", which are easier to type, are the tab character."""
    return "\t" if value in ("tab", "\\t") else value


def _parse_header(value: Any) -> Any:
    """Parses "none" or names of columns; () is a header of numbers."""
    if not isinstance(value, str):
        return value
    return () if value == "none" else tuple(name.strip() for name in value.split(","))


def _parse_issues(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value


Weights: TypeAlias = Annotated[
    dict[str, Decimal], BeforeValidator(_parse_weights), AfterValidator(_check_weights)
]
SplitColumn: TypeAlias = Annotated[str | None, BeforeValidator(_parse_split_column)]
_ShardCount: TypeAlias = Annotated[int, Field(ge=1, le=MAX_SHARDS)]
NumShards: TypeAlias = Annotated[
    Literal["auto"] | _ShardCount | dict[str, _ShardCount], BeforeValidator(_parse_num_shards)
]
Sample: TypeAlias = Annotated[
    Annotated[int, Field(strict=True, ge=1, le=MAX_SAMPLE_ROWS)]
    | Annotated[str, Field(pattern="%$")]
    | None,
    BeforeValidator(_parse_sample),
]
Budget: TypeAlias = Annotated[RejectBudget, BeforeValidator(_parse_budget)]
Delimiter: TypeAlias = Annotated[
    str, BeforeValidator(_parse_delimiter), Field(pattern=r"^[\t !#-/:-@\[-`{-~]$")
]
Header: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_parse_header)]
Issues: TypeAlias = Annotated[tuple[IssueName, ...], BeforeValidator(_parse_issues)]
ImageSuffix: TypeAlias = Annotated[str, Field(pattern=r"^\.[A-Za-z0-9]+$")]
DatasetName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z]\w*$")]
Version: TypeAlias = Annotated[str, Field(pattern=rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}$")]
WebAddress: TypeAlias = Annotated[str, Field(pattern=r"^(https?://\S+)?$")]


Properties: TypeAlias = "dict[str, str | tuple[str, ...]]"

_DATASET = (
    "dateCreated",
    "dateModified",
    "datePublished",
    "inLanguage",
    "keywords",
    "sameAs",
    "sdLicense",
    "sdVersion",
)

# The properties of the extension, which have the prefix `rai:` in croissant.json.
RESPONSIBLE_AI = (
    "annotationsPerItem",
    "annotatorDemographics",
    "dataAnnotationAnalysis",
    "dataAnnotationPlatform",
    "dataAnnotationProtocol",
    "dataBiases",
    "dataCollection",
    "dataCollectionMissingData",
    "dataCollectionRawData",
    "dataCollectionTimeframe",
    "dataCollectionType",
    "dataImputationProtocol",
    "dataLimitations",
    "dataManipulationProtocol",
    "dataPreprocessingProtocol",
    "dataReleaseMaintenancePlan",
    "dataSocialImpact",
    "dataUseCases",
    "machineAnnotationTools",
    "personalSensitiveInformation",
)

NAMES = (*_DATASET, *RESPONSIBLE_AI)


def parse_properties(text: str | bytes, where: str) -> Properties:
    """Parses a YAML file of properties.

    Returns the text, or the texts, of each property. `text` is the YAML document: a mapping of
    names to texts, dates, or lists of these. `where` is the name of the document in messages, such
    as its path. Raises UsageError if the text is not YAML, or has an unknown property, or no text
    for one.
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
