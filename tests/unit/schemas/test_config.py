"""Options of a conversion: validation and fingerprints; and the reject budget."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.findings import lost_rows_message
from recordmill.schemas.option import Affects
from recordmill.schemas.rejects import RejectBudget, RejectLimit
from recordmill.schemas.shard_format import SHARD_FORMATS
from recordmill.schemas.yaml_files import preset
from tests.unit.schemas.other_values import OPTIONS, config, with_and_without


def test_defaults():
    made = config()
    assert made.weights == {"train": Decimal(1)}
    assert made.directory == "out/birds/1.0.0"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input": ()}, "input"),
        ({"output": ""}, "output"),
        ({"name": "two words"}, "name"),
        ({"version": "1.0"}, "version"),
        ({"homepage": "example.com"}, "homepage"),
        ({"num_classes": 0}, "num_classes"),
        ({"num_classes": 1_000_001}, "num_classes"),
        ({"num_classes": 2, "classes": ("cat", "dog")}, "--classes. Remove one of them"),
        ({"num_classes": 2, "schema": preset("tabular")}, "no feature has classes"),
        (
            {"classes": ("a",), "schema": preset("captioning")},
            "no feature has classes",
        ),
        ({"folds": 1}, "folds"),
        ({"folds": 101}, "folds"),
        ({"folds": 2, "splits": {"a": 1}}, "--folds: cannot be combined with --splits"),
        ({"folds": 2, "splits": "fold0=1,fold1=2"}, "--folds: cannot be combined with --splits"),
        ({"per_class": 0}, "per_class"),
        ({"per_class": 3, "sample": 9}, "--per_class: cannot be combined with --sample"),
        ({"per_class": 3, "append": True, "base": "x"}, "--per_class: would not count the rows"),
        ({"per_class": 3, "schema": preset("captioning")}, "--per_class: expected a schema with"),
        ({"per_class": 3, "schema": preset("image_sequence")}, "--per_class: expected a schema"),
        ({"splits": {"a": "0.9"}}, "the fractions sum to 0.9; expected 1. Correct them, or write"),
        ({"num_shards": 0}, "num_shards"),
        ({"shard_size": 0}, "shard_size"),
        ({"shard_size": "much"}, "shard_size"),
        ({"classes": ("cat", "dog", "cat")}, "'cat' occurs twice"),
        ({"compression": "zip"}, "compression"),
        ({"decode": "none"}, "decode"),
        ({"if_exists": "append"}, "if_exists"),
        ({"shard_count": 3}, "shard_count"),
    ],
    ids=str,
)
def test_invalid_options_are_rejected(options, problem):
    with pytest.raises(ValidationError, match=problem):
        config(**options)


@pytest.mark.parametrize(
    ("text", "size"),
    [("128MiB", 128 * 2**20), ("1GB", 10**9), ("64KiB", 2**16), (4096, 4096)],
)
def test_shard_sizes(text, size):
    assert config(shard_size=text).shard_size == size


def test_a_number_of_classes_names_each_by_its_id():
    assert config().class_names is None
    assert config(classes=("b", "a")).class_names == ("b", "a")
    assert config(num_classes=3).class_names == ("0", "1", "2")


def test_column_returns_the_name_in_the_table():
    made = config(columns={"label": "class"})
    assert (made.column("label"), made.column("image")) == ("class", "image")


@pytest.mark.parametrize("option", OPTIONS)
def test_the_fingerprint_changes_with_every_option_that_decides_content(option):
    other, without = with_and_without(option)
    outside = Affects.METADATA | Affects.CHECKS | Affects.RUN
    decides = not OPTIONS[option].option.affects & outside
    assert (other.fingerprint != without.fingerprint) is decides


@pytest.mark.parametrize("option", ["labels", "join_on"])
def test_the_options_of_a_join_require_each_other(option):
    with pytest.raises(ValidationError, match="--labels and --join_on: each requires the other"):
        config(**{option: "x"})


def test_a_class_is_not_renamed_to_itself():
    with pytest.raises(ValidationError, match=r"--rename dog=dog: has the same name twice, with"):
        config(rename="cat=pet,dog =dog")
    assert config(rename={"dog ": "dog"}).rename == {"dog ": "dog"}  # only in Python


def test_records_per_shard_and_a_number_of_shards_exclude_each_other():
    with pytest.raises(ValidationError, match="Remove one of them"):
        config(records_per_shard=3, num_shards=2)


def test_the_options_of_an_increment_require_a_base():
    with pytest.raises(
        ValidationError, match=r"--append: adds rows to a base version\. Set --base"
    ):
        config(append=True)
    with pytest.raises(ValidationError, match="--on_conflict: applies only to --append"):
        config(base="out/birds/0.9.0", on_conflict="keep")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"splits": {"a": "0.9", "b": "0.1"}}, {"splits": {"b": "0.1", "a": "0.9"}}),
        ({"input": ("a", "b")}, {"input": ("b", "a")}),
        ({"num_shards": 1}, {"num_shards": {"train": 1}}),
        ({"classes": ("cat", "dog")}, {"classes": ("dog", "cat")}),
        ({"columns": {"a": "b"}}, {"columns": {"b": "a"}}),
        ({"key_column": "x"}, {"group_column": "x"}),
    ],
    ids=str,
)
def test_similar_options_have_different_fingerprints(one, other):
    assert config(**one).fingerprint != config(**other).fingerprint


def test_two_spellings_of_a_size_are_equal():
    assert config(shard_size="1MiB").fingerprint == config(shard_size=2**20).fingerprint


def test_the_fingerprint_is_the_same_in_every_process():
    code = (
        "from recordmill.schemas.config import ConvertConfig;"
        "from recordmill.schemas.yaml_files import preset;"
        "print(ConvertConfig(inputs=('t.csv',), output='o', name='birds', classes=('b', 'a'),"
        "schema=preset('image_classification'), splits={'x': '1', 'y': '2'}).fingerprint)"
    )
    here = config(classes=("b", "a"), splits={"x": "1", "y": "2"}).fingerprint
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip() == here


@pytest.mark.parametrize("option", [o.name for o in OPTIONS.values() if o.option.needs_pixels])
def test_what_needs_pixels_cannot_be_combined_with_headers(option):
    value = getattr(with_and_without(option)[0], option)
    with pytest.raises(ValidationError, match=f"--{option}: needs the pixels of images"):
        config(**{option: value, "decode": "header"})


def test_what_compares_no_pixels_can_be_combined_with_headers():
    assert config(near_duplicates="none", decode="header").decode == "header"
    assert config(reject_quality="blank, tiny").reject_quality == ("blank", "tiny")


@pytest.mark.parametrize("option", OPTIONS)
def test_a_config_survives_a_round_trip_through_json(option):
    made, _ = with_and_without(option)
    again = ConvertConfig.model_validate_json(made.model_dump_json())
    assert again == made
    assert again.fingerprint == made.fingerprint


@pytest.mark.parametrize(
    ("given", "sample", "part"),
    [
        ("1%", "1%", Fraction(1, 100)),
        (" 0.5% ", "0.5%", Fraction(1, 200)),
        ("100%", "100%", Fraction(1)),
        ("1000", 1000, None),
        (1000, 1000, None),
        (None, None, None),
    ],
)
def test_a_sample_is_a_percentage_or_a_number_of_rows(given, sample, part):
    made = config(sample=given)
    assert (made.sample, made.sample_part) == (sample, part)
    assert (made.fingerprint == config().fingerprint) is (sample is None)


@pytest.mark.parametrize(
    ("text", "rejected", "rows", "allowed"),
    [
        ("0", 0, 100, True),
        ("0", 1, 100, False),
        ("3", 3, 3, True),
        ("3", 4, 1000, False),
        ("5%", 5, 100, True),
        ("5%", 6, 100, False),
        ("5%", 5, 99, False),
        ("0.1%", 1, 1000, True),
        ("0.1%", 1, 999, False),
        ("0.3%", 3, 1000, True),  # 0.3 * 1000 / 100 is below 3 in floats
        ("0%", 0, 0, True),
        ("0%", 1, 10**9, False),
        ("100%", 7, 7, True),
        (" 3 ", 3, 9, True),
    ],
    ids=str,
)
def test_reject_budget(text, rejected, rows, allowed):
    assert RejectLimit.parse(text).allows(rejected, rows) is allowed
    over = RejectBudget.parse(text).exceeded({"corrupt": rejected}, rows)
    assert over == (() if allowed else ("all rejects",))


@pytest.mark.parametrize(
    "text", ["", "-1", "1.5", "101%", "100.1%", "%", "5 %", "five", "1e3", "-1%"]
)
def test_invalid_budgets_are_rejected(text):
    with pytest.raises(ValueError, match="expected a number of rows or a percentage"):
        RejectBudget.parse(text)


@pytest.mark.parametrize(
    ("text", "over"),
    [
        ("9", ()),
        ("8", ("all rejects",)),
        ("9,truncated=6,read_error=3%", ()),
        ("9,truncated=5", ("truncated",)),
        ("8,truncated=5,corrupt=0", ("all rejects", "truncated")),
        ("9%,read_error=2.9%", ("read_error",)),
        ("truncated=6,read_error=3", ()),
        ("truncated=6", ("read_error",)),
        ("corrupt=9", ("read_error", "truncated")),
        (" 9 , truncated=6", ()),
    ],
)
def test_each_reason_can_have_its_own_limit(text, over):
    budget = RejectBudget.parse(text)
    assert budget.exceeded({"truncated": 6, "read_error": 3}, 100) == over
    assert RejectBudget.parse(str(budget)) == budget


@pytest.mark.parametrize("text", ["100%", "1000", "truncated=9", "5,truncated=5"])
def test_no_budget_allows_lost_rows_and_they_count_towards_no_other_limit(text):
    budget = RejectBudget.parse(text)
    assert budget.exceeded({"lost_rows": 1}, 10) == ("lost_rows",)
    assert budget.exceeded({"truncated": 5, "lost_rows": 7}, 100) == ("lost_rows",)
    assert RejectBudget.parse("50%").exceeded({"truncated": 5, "lost_rows": 2}, 12) == (
        "lost_rows",
    )


def test_the_message_for_lost_rows_lists_the_first_three():
    locations = [(f"t.csv:{i}", "cut") for i in (5, 3, 1, 2)]
    assert lost_rows_message(locations) == (
        "rows of the input are lost:\n  t.csv:1: cut\n  t.csv:2: cut\n  t.csv:3: cut\n"
        "  and 1 more\nTheir number is unknown, so no --max_rejects allows it. "
        "Replace the file by an intact copy, or fix it there."
    )


def test_lost_rows_with_remedies_of_their_own_have_no_other() -> None:
    assert lost_rows_message([("t.csv:1", "cut. Close the quote.")]) == (
        "rows of the input are lost:\n  t.csv:1: cut. Close the quote.\n"
        "Their number is unknown, so no --max_rejects allows it."
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lost_rows=1", "lost_rows cannot have a limit: the number of lost rows is unknown"),
        ("1,2", "two limits for all rejects, 1 and 2"),
        ("truncated=1,truncated=2", "names truncated twice"),
        ("truncatd=1", r"'truncatd' is not a reason \(did you mean 'truncated'"),
        ("truncated=", "expected a number of rows or a percentage like 0.5%, got ''"),
        ("truncated", "expected a number of rows or a percentage"),
        ("1,", "two limits for all rejects"),
    ],
)
def test_invalid_budgets_with_reasons_are_rejected(text, problem):
    with pytest.raises(ValueError, match=problem):
        RejectBudget.parse(text)


@given(st.integers(0, 10**12) | st.decimals(0, 100, places=3).map(lambda d: f"{d}%"))
def test_a_budget_survives_a_round_trip_through_text(amount):
    budget = RejectBudget.parse(str(amount))
    assert RejectBudget.parse(str(budget)) == budget


@pytest.mark.parametrize("found", SHARD_FORMATS.values(), ids=SHARD_FORMATS)
def test_an_index_needs_a_seekable_format(found):
    if found.seekable:
        assert config(index=True, compression=found.name).index
    else:
        with pytest.raises(ValidationError, match=f"{found.name} streams are not seekable"):
            config(index=True, compression=found.name)


def test_a_hundred_thousand_classes_are_checked_in_one_pass():
    names = tuple(f"class {i}" for i in range(100_000))
    assert config(classes=names).classes == names
    with pytest.raises(ValidationError, match="'class 7' occurs twice"):
        config(classes=(*names, "class 7"))


def test_folds_are_equal_splits():
    folds = {"fold0": Decimal(1), "fold1": Decimal(1), "fold2": Decimal(1)}
    assert config(folds="3").weights == config(splits=folds).weights == folds
    # As forget reads it from a manifest.
    assert config(folds=3, splits={"fold0": "1", "fold1": "1", "fold2": "1"}).weights == folds
