"""What a person should look at first: the findings of a report, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from recordmill.pipelines.report.classes import ClassTable
from recordmill.pipelines.run.summary import SHOWN_LEAKS, group_notes, oddities
from recordmill.schemas.duplicates import DuplicateStats
from recordmill.schemas.manifest import Manifest

Grade = Literal["bad", "warn", "note"]

_SHOWN_NAMES = 5
_LOPSIDED = 10
_ANEW = " to "
"""As in "gif to png, upright"; others are kept, or are remarks on boxes."""


@dataclass(frozen=True)
class Finding:
    """Something worth a look.

    Attributes:
        grade: "bad" speaks against the dataset, "warn" may do so, "note" is good to know.
        text: in words.
        anchor: the part of the page that tells more.
    """

    grade: Grade
    text: str
    anchor: str


def findings(
    manifest: Manifest, problems: tuple[str, ...], tables: list[ClassTable]
) -> list[Finding]:
    """Returns all findings, the gravest first."""
    found = [
        *(Finding("bad", text, "verdict") for text in problems),
        *_of_groups(manifest),
        *_of_content(manifest.content),
        *_of_rows(manifest),
        *(finding for table in tables for finding in _of_classes(table)),
    ]
    return sorted(found, key=lambda finding: ("bad", "warn", "note").index(finding.grade))


def treated(manifest: Manifest) -> int:
    """Returns how many images were transcoded."""
    return sum(n for how, n in manifest.images.items() if _ANEW in how.partition(",")[0])


def _of_rows(manifest: Manifest) -> Iterator[Finding]:
    if rejected := manifest.input.rejected:
        part = f"{rejected / manifest.input.rows:.2%} of all rows"
        yield Finding("warn", f"{_count(rejected, 'row')} rejected, {part}.", "rejects")
    for note in oddities(manifest):
        text = note.removeprefix("note: ")
        yield Finding("warn", f"{text[0].upper()}{text[1:]}.", "splits")
    if transcoded := treated(manifest):
        yield Finding("note", f"{_count(transcoded, 'image')} transcoded.", "images")


def _of_classes(table: ClassTable) -> Iterator[Finding]:
    absent = tuple(row.name for row in table.rows if not row.total)
    if absent:
        text = f"{_classes(absent)} of {table.feature} without any record: {_names(absent)}."
        yield Finding("warn", text, "splits")
    for i, split in enumerate(table.splits):
        if missing := table.missing_in(i):
            text = f"{_classes(missing)} missing from {split}: {_names(missing)}."
            yield Finding("warn", text, "splits")
    counts = [row.total for row in table.present]
    if counts and counts[0] >= _LOPSIDED * counts[-1]:
        ratio = f"{counts[0]:,} to {counts[-1]:,}"
        text = f"Classes of {table.feature} are uneven: from the largest to the smallest {ratio}."
        yield Finding("note", text, "splits")


def _of_groups(manifest: Manifest) -> Iterator[Finding]:
    for note in group_notes(manifest)[:1]:
        yield Finding("warn", f"{note.removeprefix('warning: ')}: a leak.", "splits")


def _of_content(content: DuplicateStats) -> Iterator[Finding]:
    for leak in content.leaks[:SHOWN_LEAKS]:
        one, other = leak.splits
        text = f"{_count(leak.images, 'image')} in both {one} and {other}: a leak."
        yield Finding("warn", text, "leaks")
    if len(content.leaks) > SHOWN_LEAKS:
        text = f"{_count(len(content.leaks) - SHOWN_LEAKS, 'more pair')} of splits share images."
        yield Finding("warn", text, "leaks")
    if n := content.conflicts.images:
        yield Finding("warn", f"{_count(n, 'image')} with different labels.", "leaks")
    if n := content.dropped_conflicts.images:
        text = f"{_count(n, 'image')} of dropped rows had another label."
        yield Finding("warn", text, "leaks")
    if n := sum(content.duplicates.values()):
        text = f"{_count(n, 'record')} repeating an image of the same split."
        yield Finding("note", text, "leaks")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _classes(names: tuple[str, ...]) -> str:
    return "1 class" if len(names) == 1 else f"{len(names):,} classes"


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return (
        shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES:,} more"
    )
