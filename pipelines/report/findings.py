"""Findings of a report, most severe first, and groups of records with the same image.

The number of duplicates is in manifest.json. The records are looked up in records/, in three passes
over the digests and in bounded memory: 8 bytes per record for up to four million records. Of more
records, only images whose digests are below a limit are compared, so that groups stay complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipelines.report.statistics import ClassTable
from recordmill.pipelines.run.summary import SHOWN_LEAKS, group_notes, oddities
from recordmill.schemas.duplicates import DuplicateStats
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage.dataset import LOCATION_COLUMNS, Dataset, RecordLocation

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


MAX_RECORDS = 4_000_000
"""How many digests are held at once: 32 MB."""

MAX_GROUPS = 10_000
"""Of repeated images, those with the smallest digests, among which the worst are looked for."""

SHOWN_GROUPS = 16
SHOWN_COPIES = 4

_HEX_DIGITS = 16
_NIBBLES = np.zeros(256, np.uint64)
_NIBBLES[list(b"0123456789abcdef")] = np.arange(16, dtype=np.uint64)
_SHIFTS = np.arange(60, -4, -4, dtype=np.uint64)


@dataclass(frozen=True)
class Group:
    """Records that hold the same image.

    Attributes:
        records: how many.
        copies: where the first of them are, from as many splits as there are.
        crossing: whether they are in more than one split.
        disputed: whether they have different classes.
    """

    records: int
    copies: tuple[RecordLocation, ...]
    crossing: bool
    disputed: bool


def find_duplicates(dataset: Dataset) -> tuple[Group, ...]:
    """Returns records that hold the same image: those across splits first, then disputed ones."""
    manifest = dataset.manifest
    if not manifest.content.leaks and not any(manifest.content.duplicates.values()):
        return ()
    digests = _all_digests(dataset, min(1.0, MAX_RECORDS / max(1, manifest.input.records)))
    repeated = np.unique(digests[1:][digests[1:] == digests[:-1]])[:MAX_GROUPS]
    facts = _facts(dataset, repeated)
    starts = np.searchsorted(facts["digest"], repeated)
    sizes = np.diff([*starts, len(facts)])
    crossing = _differ(facts["split"], starts)
    disputed = _differ(facts["label"], starts)
    worst = np.lexsort((repeated, ~disputed, ~crossing))[:SHOWN_GROUPS]
    return _groups(dataset, repeated[worst], sizes[worst], crossing[worst], disputed[worst])


def prefixes(column: pa.Array) -> np.ndarray:
    """Returns the first 64 bits of hex digests, as uint64; none of them may be null.

    >>> prefixes(pa.array(["00000000000000ff" + "0" * 48])).tolist()
    [255]
    """
    text = pa.array(pc.utf8_slice_codeunits(column, 0, _HEX_DIGITS), pa.string())
    data = text.buffers()[2]
    if not len(column) or data is None:
        return np.empty(0, np.uint64)
    digits = np.frombuffer(data, np.uint8, len(column) * _HEX_DIGITS).reshape(-1, _HEX_DIGITS)
    halves: np.ndarray = (_NIBBLES[digits] << _SHIFTS).sum(axis=1, dtype=np.uint64)
    return halves


def _all_digests(dataset: Dataset, part: float) -> np.ndarray:
    """Returns the digests of all images, or of the part with the smallest, sorted."""
    limit = np.uint64(min(int(part * 2.0**64), 2**64 - 1))
    found = [np.empty(0, np.uint64)]
    for shard in dataset.shards().values():
        for batch in dataset.batches(shard, ["sha256"]):
            digests = prefixes(batch.column(0).drop_null())
            found.append(digests[digests <= limit])
    return np.sort(np.concatenate(found))


_FACT = np.dtype([("digest", np.uint64), ("split", np.uint32), ("label", np.uint32)])


def _facts(dataset: Dataset, repeated: np.ndarray) -> np.ndarray:
    """Returns digest, split and class, as numbers, of each record whose image is repeated."""
    splits = {name: i for i, name in enumerate(dataset.manifest.splits)}
    labels: dict[str, int] = {}
    found = [np.empty(0, _FACT)]
    for batch in _repeats(dataset, repeated, ("split", "sha256", "class")):
        facts = np.empty(batch.num_rows, _FACT)
        facts["digest"] = prefixes(batch.column("sha256"))
        facts["split"] = [splits[name] for name in batch.column("split").to_pylist()]
        classes = map(repr, batch.column("class").to_pylist())
        facts["label"] = [labels.setdefault(text, len(labels)) for text in classes]
        found.append(facts)
    return np.sort(np.concatenate(found), order="digest")


def _repeats(
    dataset: Dataset, repeated: np.ndarray, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows whose image has one of these digests, which are sorted."""
    if not len(repeated):
        return
    for shard in dataset.shards().values():
        for batch in dataset.batches(shard, columns):
            whole = batch.filter(batch.column("sha256").is_valid())
            digests = prefixes(whole.column("sha256"))
            nearest = np.searchsorted(repeated, digests).clip(max=len(repeated) - 1)
            wanted = repeated[nearest] == digests
            if wanted.any():
                yield whole.filter(pa.array(wanted))


def _differ(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns for each group of values whether they differ."""
    if not len(starts):
        return np.empty(0, bool)
    unlike: np.ndarray = np.minimum.reduceat(values, starts) != np.maximum.reduceat(values, starts)
    return unlike


def _groups(
    dataset: Dataset,
    digests: np.ndarray,
    sizes: np.ndarray,
    crossing: np.ndarray,
    disputed: np.ndarray,
) -> tuple[Group, ...]:
    """Returns the groups of these digests, with some of their records."""
    copies: dict[int, dict[Any, list[RecordLocation]]] = {int(digest): {} for digest in digests}
    for batch in _repeats(dataset, np.sort(digests), LOCATION_COLUMNS):
        for digest, row in zip(prefixes(batch.column("sha256")), batch.to_pylist(), strict=True):
            found = RecordLocation.of(row)
            alike = copies[int(digest)].setdefault((found.split, found.classes), [])
            if len(alike) < SHOWN_COPIES:
                alike.append(found)
    facts = zip(digests, sizes, crossing, disputed, strict=True)
    return tuple(
        Group(int(size), _in_turn(copies[int(digest)]), bool(across), bool(unlike))
        for digest, size, across, unlike in facts
    )


def _in_turn(alike: dict[Any, list[RecordLocation]]) -> tuple[RecordLocation, ...]:
    """Returns some copies: the first of each split and class, then the second, and so on."""
    ranked = [(i, found) for copies in alike.values() for i, found in enumerate(copies)]
    return tuple(found for _, found in sorted(ranked)[:SHOWN_COPIES])
