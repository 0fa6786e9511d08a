"""The file of `--croissant`: its properties and its messages."""

from __future__ import annotations

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.option import NAMES, parse_properties


def test_texts_dates_and_lists() -> None:
    text = "keywords: [birds, photos]\ndatePublished: 2026-11-23\ndataBiases: Only garden birds.\n"
    assert parse_properties(text, "c.yaml") == {
        "keywords": ("birds", "photos"),
        "datePublished": "2026-11-23",
        "dataBiases": "Only garden birds.",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- keywords", "expected a mapping such as 'keywords: [birds]', got ['keywords']"),
        ("", "expected a mapping such as 'keywords: [birds]', got None"),
        (
            "keyword: x",
            f"unknown property 'keyword' (did you mean 'keywords'?); available: {', '.join(NAMES)}",
        ),
        (
            "sdVersion: 1.0",
            "at sdVersion: expected a text, a date, or a list of them, got 1.0. Quote numbers.",
        ),
        (
            "keywords: []",
            "at keywords: expected a text, a date, or a list of them, got []. Quote numbers.",
        ),
    ],
)
def test_messages(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_properties(text, "c.yaml")
    assert str(raised.value) == f"c.yaml: {problem}"
