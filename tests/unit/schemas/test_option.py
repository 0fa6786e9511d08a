"""Options declared as fields, and the parsing of their values from text."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

import pytest
from pydantic import BaseModel, ValidationError

from recordmill.schemas.errors import UsageError
from recordmill.schemas.option import (
    Affects,
    Integer,
    Pairs,
    Path,
    fields_that_affect,
    option,
    options_of,
)

ROW, RUN = Affects.ROW, Affects.RUN


class Model(BaseModel):
    paths: tuple[Path, ...] = option("a", ..., ROW, "PATTERN", "files", validation_alias="path")
    level: Literal["low", "high"] = option("a", "low", ROW, "", "how much")
    seed: Integer = option("b", 0, RUN, "N", "changes the order")
    columns: Pairs = option("b", {}, ROW, "S=T,…", "names")
    root: Path | None = option("b", None, ROW, "DIR", "a folder", "the table's folder")
    quick: bool = option("b", True, RUN | ROW, "", "be quick")
    internal: int = 7


OPTIONS = {declared.name: declared for declared in options_of(Model)}


def test_only_fields_with_an_option_are_options():
    assert list(OPTIONS) == ["path", "level", "seed", "columns", "root", "quick"]


def test_choices_switches_and_repeated_flags_follow_from_the_type():
    assert [name for name, declared in OPTIONS.items() if declared.is_switch] == ["quick"]
    assert [name for name, declared in OPTIONS.items() if declared.is_repeated] == ["path"]
    assert {name: declared.choices for name, declared in OPTIONS.items() if declared.choices} == {
        "level": ("low", "high")
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("path", "files"),
        ("level", "how much; default: low"),
        ("seed", "changes the order; default: 0"),
        ("columns", "names"),
        ("root", "a folder; default: the table's folder"),
        ("quick", "be quick"),
    ],
)
def test_the_help_states_the_default(name, text):
    assert OPTIONS[name].help == text


def test_text_and_typed_values_are_both_accepted():
    written = Model.model_validate({"path": ["a"], "seed": "-3", "columns": "x=y, z = w"})
    typed = Model(path=[PurePosixPath("a")], seed=-3, columns={"x": "y", "z": "w"})
    assert written == typed
    assert written.paths == ("a",)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"seed": "1_000"}, "expected an integer, got '1_000'"),
        ({"seed": 1.5}, "valid integer"),
        ({"columns": "x"}, "expected NAME=VALUE,…, got 'x'"),
        ({"columns": "x=1,x=2"}, "a name occurs twice"),
        ({"columns": "x=1, x=2"}, "a name occurs twice"),
        ({"columns": "x=1,y= "}, "expected NAME=VALUE,…, got 'y='"),
    ],
)
def test_invalid_values_are_rejected(value, problem):
    with pytest.raises(ValidationError, match=problem):
        Model.model_validate({"path": ["a"], **value})


def test_a_path_that_is_not_utf8_is_rejected():
    with pytest.raises(UsageError, match="is not valid UTF-8"):
        Model.model_validate({"path": ["\udcff.csv"]})


def test_fields_are_found_by_what_their_options_affect():
    assert fields_that_affect(Model, RUN) == {"seed", "quick"}
    assert fields_that_affect(Model, RUN | ROW) == set(Model.model_fields) - {"internal"}
    assert fields_that_affect(Model, Affects.SHARD) == set()
