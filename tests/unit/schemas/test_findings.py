"""Findings as lines of text."""

from __future__ import annotations

from recordmill.schemas.findings import Finding, lines


def test_a_hint_that_follows_several_findings_is_printed_once() -> None:
    one = Finding(kind="a", severity="warning", text="one", hint="do this")
    other = Finding(kind="a", severity="note", text="two", hint="do this")
    plain = Finding(kind="b", severity="info", text="three")
    last = Finding(kind="c", severity="note", text="four", hint="do that")
    assert list(lines([one, other, plain, last])) == [
        "warning: one",
        "note: two",
        "      (do this)",
        "three",
        "note: four",
        "      (do that)",
    ]
