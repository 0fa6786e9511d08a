"""Options that follow from the input."""

from __future__ import annotations

import pytest

from recordmill.pipelines.options import _with_names, config_of


@pytest.mark.parametrize(
    ("columns", "label", "notes"),
    [
        (("image", " cat"), " cat", ["columns: label is ' cat', with its blanks"]),
        (("image", " cat", "cat"), "cat", []),
        (("image", " cat", "cat "), "cat", []),
        (("image", "dog"), "cat", []),
    ],
    ids=str,
)
def test_columns_are_named_without_the_blanks_at_their_ends_if_only_one_is_meant(
    columns: tuple[str, ...], label: str, notes: list[str]
) -> None:
    config = config_of({"input": ["a.csv"], "output": "o", "name": "x", "columns": "label=cat"})
    said: list[str] = []
    found = _with_names(config, columns, said)
    assert (found.columns, said) == ({"label": label}, notes)
