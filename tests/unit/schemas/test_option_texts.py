"""Types of options: what each text is parsed to, and which values are not valid."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import tensorflow_datasets as tfds
from pydantic import TypeAdapter, ValidationError

from recordmill.schemas import option
from recordmill.schemas.option import Version, Weights
from recordmill.schemas.rejects import RejectBudget
from recordmill.schemas.statistics import ISSUES

ALL_ISSUES = tuple(ISSUES)

VALID: list[tuple[str, Any, Any]] = [
    ("Weights", "train=0.9, test=0.1", {"train": Decimal("0.9"), "test": Decimal("0.1")}),
    ("Weights", {"train": 8, "test": "2"}, {"train": Decimal(8), "test": Decimal(2)}),
    ("SplitColumn", "none", None),
    ("SplitColumn", "fold", "fold"),
    ("SplitColumn", None, None),
    ("NumShards", "auto", "auto"),
    ("NumShards", "99999", 99_999),
    ("NumShards", "train=16,test=2", {"train": 16, "test": 2}),
    ("NumShards", {"train": 16}, {"train": 16}),
    ("Sample", " 0.5% ", "0.5%"),
    ("Sample", "100%", "100%"),
    ("Sample", "1000", 1000),
    ("Sample", 1_000_000, 1_000_000),
    ("Sample", None, None),
    ("Budget", "10,truncated=5", RejectBudget.parse("10,truncated=5")),
    ("Budget", 10, RejectBudget.parse("10")),
    ("Delimiter", ";", ";"),
    ("Delimiter", "tab", "\t"),
    ("Delimiter", "\\t", "\t"),
    ("Header", "none", ()),
    ("Header", "file, label", ("file", "label")),
    ("Header", ("file", "label"), ("file", "label")),
    ("Issues", ", ".join(ALL_ISSUES), ALL_ISSUES),
    ("ImageSuffix", ".jpg", ".jpg"),
    ("DatasetName", "birds_2", "birds_2"),
    ("WebAddress", "", ""),
    ("WebAddress", "https://example.com/birds", "https://example.com/birds"),
]

INVALID: list[tuple[str, Any, str]] = [
    ("Weights", "train", r"expected NAME=VALUE,…, got 'train'"),
    ("Weights", "train=1,train=1", "a name occurs twice"),
    ("Weights", "train=half", "expected numbers, as in train=0.9,validation=0.1"),
    ("Weights", "train=inf", "expected finite numbers"),
    ("Weights", {"train": "nan"}, "finite"),
    ("Weights", {"train": "-1"}, "must not be negative"),
    ("Weights", {"train": "0"}, "one must be above 0"),
    ("Weights", {}, "one must be above 0"),
    ("Weights", {"a": "0.8", "b": "0.3"}, "the fractions sum to 1.1; expected 1"),
    ("Weights", {"a": "0.9"}, "the fractions sum to 0.9; expected 1. Correct them, or write"),
    ("Weights", {"a": 1, "b": 0.5}, "the fractions sum to 1.5; expected 1"),
    ("Weights", {"../x": "1"}, "'../x' cannot name a split; expected up to 50 letters"),
    ("Weights", {"train\n": "1"}, "cannot name a split"),
    ("Weights", {"a" * 51: "1"}, "cannot name a split"),
    ("NumShards", 0, "greater than or equal to 1"),
    ("NumShards", 100_000, "less than or equal to 99999"),
    ("NumShards", {"train": 0}, "greater than or equal to 1"),
    ("NumShards", "many", "many"),
    *(("Sample", value, "expected a percentage above 0%") for value in ("0%", "100.1%")),
    *(("Sample", value, "expected an integer, got") for value in ("1.5", "1 %%", "")),
    *(("Sample", value, "greater than or equal to 1") for value in ("0", "-1")),
    ("Sample", 0.01, "valid integer"),
    ("Sample", "1000001", "less than or equal to 1000000"),
    ("Delimiter", "ab", "pattern"),
    ("Delimiter", '"', "pattern"),
    ("Delimiter", "a", "pattern"),
    ("Issues", "blank,ugly", "ugly"),
    ("ImageSuffix", "jpg", "pattern"),
    *(("DatasetName", name, "pattern") for name in ("two words", "1st", "a/b", "", "birds\n")),
    *(("Version", text, "pattern") for text in ("1.0", "1.0.0-rc1", "01.0.0", "1.0.00", "1.0.0\n")),
    ("WebAddress", "example.com", "pattern"),
    ("WebAddress", "https://a b", "pattern"),
]


@pytest.mark.parametrize(("kind", "given", "parsed"), VALID, ids=str)
def test_a_value_is_parsed(kind: str, given: object, parsed: object) -> None:
    assert TypeAdapter(getattr(option, kind)).validate_python(given) == parsed


@pytest.mark.parametrize(("kind", "given", "problem"), INVALID, ids=str)
def test_an_invalid_value_is_an_error(kind: str, given: object, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TypeAdapter(getattr(option, kind)).validate_python(given)


@pytest.mark.parametrize(
    "weights",
    [(8, 1, 1), (1, 1), (1, 0), ("0.8", "0.2"), ("0.333",) * 3, (1 / 3,) * 3, ("33.3", "0.5")],
    ids=str,
)
def test_weights_are_fractions_of_one_or_any_other_numbers(weights: tuple[Any, ...]) -> None:
    splits = {f"s{number}": weight for number, weight in enumerate(weights)}
    assert len(TypeAdapter(Weights).validate_python(splits)) == len(weights)


def test_versions_are_those_of_tfds() -> None:
    for version in ("0.0.0", "1.0.0", "10.20.30"):
        assert TypeAdapter(Version).validate_python(version) == str(tfds.core.Version(version))
    with pytest.raises(ValueError, match="Invalid version"):
        tfds.core.Version("01.0.0")
