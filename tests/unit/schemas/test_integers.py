"""Whole numbers in flags and places: one rule for all of them."""

from __future__ import annotations

import pytest

from recordmill.pipelines.options import config_of
from recordmill.schemas.errors import UsageError
from recordmill.schemas.integers import is_integer, parse_integer

ODD = ["²", "٣", "1_000", " 1", "1 ", "+1", "1.0", "", "-", "one", "9" * 4001]


@pytest.mark.parametrize("text", ODD)
def test_what_is_no_integer_is_rejected_as_such(text: str) -> None:
    assert not is_integer(text)
    with pytest.raises(ValueError, match="expected a whole number"):
        parse_integer(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("-7", -7), ("007", 7), ("9" * 19, 10**19 - 1)]
)
def test_integers(text: str, value: int) -> None:
    assert parse_integer(text) == value


@pytest.mark.parametrize("text", ["²", "٣", "x"])
@pytest.mark.parametrize(
    ("flag", "form"),
    [
        ("image", "max_side={}"),
        ("num_shards", "{}"),
        ("num_shards", "train={}"),
        ("records_per_shard", "{}"),
        ("seed", "{}"),
        ("max_rejects", "{}"),
        ("version", "{}.0.0"),
        ("image", "resize={0}x{0}"),
    ],
)
def test_no_flag_takes_other_digits(flag: str, form: str, text: str) -> None:
    flags = {"input": ["t.csv"], "output": "o", "name": "n", flag: form.format(text)}
    with pytest.raises(UsageError, match=rf"--{flag}"):
        config_of(flags)
