"""What a conversion is asked to do: refused when it cannot be, and known by its fingerprint."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.config import ConvertConfig, RejectBudget
from schemas.presets import preset

REQUIRED = {
    "inputs": ("t.csv",),
    "output": "out",
    "name": "birds",
    "schema": preset("image_classification"),
}


def config(**options):
    return ConvertConfig(**{**REQUIRED, **options})


def test_defaults():
    made = config()
    assert made.model_dump(exclude={"dataset_schema"}) == {
        "inputs": ("t.csv",),
        "input_format": "auto",
        "output": "out",
        "name": "birds",
        "version": "1.0.0",
        "image_root": None,
        "columns": {},
        "key_column": None,
        "splits": None,
        "split_column": None,
        "group_column": None,
        "num_shards": "auto",
        "shard_size": 128 * 2**20,
        "classes": None,
        "seed": 0,
        "compression": "none",
        "decode": "full",
        "verify": "parse",
        "max_rejects": {"amount": Decimal(0), "percent": False},
        "if_exists": "fail",
    }
    assert made.weights == {"train": Decimal(1)}
    assert made.directory == "out/birds/1.0.0"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"inputs": ()}, "inputs"),
        ({"output": ""}, "output"),
        ({"name": "two words"}, "name"),
        ({"name": "1st"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "birds\n"}, "name"),
        ({"version": "1.0"}, "version"),
        ({"version": "1.0.0-rc1"}, "version"),
        ({"splits": {"train": "-1"}}, "negative"),
        ({"splits": {"train": "0"}}, "above 0"),
        ({"splits": {}}, "above 0"),
        ({"splits": {"../x": "1"}}, "cannot name a split"),
        ({"splits": {"train\n": "1"}}, "cannot name a split"),
        ({"splits": {"train": "nan"}}, "splits"),
        ({"num_shards": 0}, "num_shards"),
        ({"num_shards": 100_000}, "num_shards"),
        ({"num_shards": {"train": 0}}, "num_shards"),
        ({"shard_size": 0}, "shard_size"),
        ({"shard_size": "much"}, "shard_size"),
        ({"classes": ("cat", "dog", "cat")}, "'cat' twice"),
        ({"compression": "zip"}, "compression"),
        ({"decode": "none"}, "decode"),
        ({"if_exists": "append"}, "if_exists"),
        ({"shard_count": 3}, "shard_count"),
    ],
    ids=str,
)
def test_what_is_refused(options, problem):
    with pytest.raises(ValidationError, match=problem):
        config(**options)


@pytest.mark.parametrize(
    ("text", "size"),
    [("128MiB", 128 * 2**20), ("1GB", 10**9), ("64KiB", 2**16), (4096, 4096)],
)
def test_shard_sizes(text, size):
    assert config(shard_size=text).shard_size == size


def test_columns_are_known_by_the_names_of_the_table():
    made = config(columns={"label": "class"})
    assert (made.column("label"), made.column("image")) == ("class", "image")


MATTER = {
    "inputs": ("u.csv",),
    "input_format": "tsv",
    "name": "fish",
    "version": "1.0.1",
    "schema": preset("tf_slim"),
    "image_root": "/images",
    "columns": {"label": "class"},
    "key_column": "id",
    "splits": {"train": "0.9", "test": "0.1"},
    "split_column": "part",
    "group_column": "who",
    "num_shards": 7,
    "shard_size": "64MiB",
    "classes": ("cat",),
    "seed": 1,
    "compression": "gzip",
    "decode": "header",
}
DO_NOT_MATTER = {
    "output": "elsewhere",
    "if_exists": "replace",
    "max_rejects": RejectBudget.parse("5%"),
    "verify": "decode",
}


@pytest.mark.parametrize("option", MATTER)
def test_the_fingerprint_changes_with_every_option_that_decides_content(option):
    assert config(**{option: MATTER[option]}).fingerprint != config().fingerprint


@pytest.mark.parametrize("option", DO_NOT_MATTER)
def test_the_fingerprint_does_not_change_with_where_it_goes_or_how_it_is_checked(option):
    assert config(**{option: DO_NOT_MATTER[option]}).fingerprint == config().fingerprint


def test_every_option_is_known_to_matter_or_not():
    aliases = {field.alias or name for name, field in ConvertConfig.model_fields.items()}
    assert aliases == {*MATTER, *DO_NOT_MATTER}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"splits": {"a": "0.9", "b": "0.1"}}, {"splits": {"b": "0.1", "a": "0.9"}}),
        ({"inputs": ("a", "b")}, {"inputs": ("b", "a")}),
        ({"num_shards": 1}, {"num_shards": {"train": 1}}),
        ({"classes": ("cat", "dog")}, {"classes": ("dog", "cat")}),
        ({"columns": {"a": "b"}}, {"columns": {"b": "a"}}),
        ({"key_column": "x"}, {"group_column": "x"}),
    ],
    ids=str,
)
def test_options_that_are_nearly_the_same_have_other_fingerprints(one, other):
    assert config(**one).fingerprint != config(**other).fingerprint


def test_one_size_written_in_two_ways_is_one_option():
    assert config(shard_size="1MiB").fingerprint == config(shard_size=2**20).fingerprint


def test_the_fingerprint_is_the_same_in_every_process():
    code = (
        "from schemas.config import ConvertConfig; from schemas.presets import preset;"
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


def test_a_config_comes_back_from_json():
    made = config(**{k: v for k, v in MATTER.items() if k != "schema"}, **DO_NOT_MATTER)
    again = ConvertConfig.model_validate_json(made.model_dump_json())
    assert again == made
    assert again.fingerprint == made.fingerprint


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
    assert RejectBudget.parse(text).allows(rejected, rows) is allowed


@pytest.mark.parametrize(
    "text", ["", "-1", "1.5", "101%", "100.1%", "%", "5 %", "five", "1e3", "-1%"]
)
def test_what_is_no_budget(text):
    with pytest.raises(ValueError, match="expected a number of rows or a percentage"):
        RejectBudget.parse(text)


@given(st.integers(0, 10**12) | st.decimals(0, 100, places=3).map(lambda d: f"{d}%"))
def test_a_budget_is_written_as_it_is_read(amount):
    budget = RejectBudget.parse(str(amount))
    assert RejectBudget.parse(str(budget)) == budget
