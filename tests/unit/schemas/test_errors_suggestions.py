"""Suggestions for misspelled names: only close ones, and fast for names of any length."""

from __future__ import annotations

import time

import pytest

from recordmill.schemas.errors import did_you_mean


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("lable", " (did you mean 'label'?)"),
        ("imgae", " (did you mean 'image'?)"),
        ("colour", ""),  # codespell:ignore colour
        ("", ""),
    ],
)
def test_the_closest_name_is_suggested_if_it_is_close(name: str, suggestion: str) -> None:
    assert did_you_mean(name, ["image", "label"]) == suggestion


def test_nothing_is_suggested_if_no_names_are_known() -> None:
    assert did_you_mean("label", []) == ""


def test_long_names_are_compared_fast() -> None:
    began = time.perf_counter()
    assert did_you_mean("a" * 10**6, ["b" * 10**6]) == ""
    assert did_you_mean("label", ["l" * 10**6, "labels"]) == " (did you mean 'labels'?)"
    assert time.perf_counter() - began < 5
