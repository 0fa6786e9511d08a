"""Findings of a report, most severe first, and groups of records with the same image.

manifest.json has the number of duplicates. The records themselves are looked up in the indexes, in
three passes and bounded memory: 8 bytes per record for up to four million records. In larger
datasets, only images with digests below a limit are compared, so that groups remain complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipelines.report.statistics import ClassTable
from recordmill.pipelines.run.class_notes import class_drift_notes, rare_class_notes
from recordmill.pipelines.run.image_notes import image_notes
from recordmill.pipelines.run.split_notes import (
    missing_class_notes,
    share_notes,
    stratification_notes,
)
from recordmill.pipelines.run.summary import SHOWN_LEAKS, class_name_notes, group_notes
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.statistics import DuplicateStats
from recordmill.transforms.storage.dataset import LOCATION_COLUMNS, Dataset, RecordLocation

Severity = Literal["bad", "warn", "note"]

_SHOWN_NAMES = 5

# Ratio of the largest to the smallest class above which class sizes are reported as uneven.
_UNEVEN_RATIO = 10

# Marks a treatment as transcoding, as in "gif to png, upright".
_TRANSCODED = " to "


@dataclass(frozen=True)
class Finding:
    """An observation about the dataset that deserves attention.

    Attributes:
        severity: "bad" for an error, "warn" for a possible one, "note" for information.
        text: a sentence.
        anchor: the section of the page with the details.
    """

    severity: Severity
    text: str
    anchor: str


def findings(
    manifest: Manifest, problems: tuple[str, ...], tables: list[ClassTable]
) -> list[Finding]:
    """Returns the findings of a dataset, most severe first.

    Args:
        manifest: the manifest of the dataset.
        problems: the problems of a failed verification.
        tables: the class tables.
    """
    unsorted = [
        *(Finding("bad", text, "verdict") for text in problems),
        *_of_groups(manifest),
        *_of_duplicates(manifest.content),
        *_of_images(manifest),
        *_of_rows(manifest),
        *(finding for table in tables for finding in _of_classes(table)),
    ]
    return sorted(unsorted, key=lambda finding: ("bad", "warn", "note").index(finding.severity))


def transcoded_images(manifest: Manifest) -> int:
    """Returns the number of transcoded images."""
    return sum(n for how, n in manifest.images.items() if _TRANSCODED in how.partition(",")[0])


def _of_rows(manifest: Manifest) -> Iterator[Finding]:
    if rejected := manifest.input.rejected:
        share = f"{rejected / manifest.input.rows:.2%} of all rows"
        yield Finding("warn", f"{_count(rejected, 'row')} rejected, {share}.", "rejects")
    warnings = share_notes(manifest) + missing_class_notes(manifest) + class_name_notes(manifest)
    for _, text in _sentences(warnings):
        yield Finding("warn", text, "splits")
    notes = stratification_notes(manifest) + rare_class_notes(manifest)
    for _, text in _sentences(notes + class_drift_notes(manifest)):
        yield Finding("note", text, "splits")
    if transcoded := transcoded_images(manifest):
        yield Finding("note", f"{_count(transcoded, 'image')} transcoded.", "images")


def _of_classes(table: ClassTable) -> Iterator[Finding]:
    absent = tuple(row.name for row in table.rows if not row.total)
    if absent:
        text = f"{_classes(absent)} of {table.feature} without any record: {_names(absent)}."
        yield Finding("warn", text, "splits")
    counts = [row.total for row in table.present]
    if counts and counts[0] >= _UNEVEN_RATIO * counts[-1]:
        sizes = f"the largest has {_count(counts[0], 'label')}, the smallest {counts[-1]:,}"
        text = f"Class sizes of {table.feature} are uneven: {sizes}."
        yield Finding("note", text, "splits")


def _of_groups(manifest: Manifest) -> Iterator[Finding]:
    for note in group_notes(manifest)[:1]:
        yield Finding("warn", f"{note.removeprefix('warning: ')}: leakage.", "splits")


def _of_duplicates(content: DuplicateStats) -> Iterator[Finding]:
    for leak in content.leaks[:SHOWN_LEAKS]:
        one, other = leak.splits
        text = f"{_count(leak.images, 'image')} in both {one} and {other}: leakage."
        yield Finding("warn", text, "leaks")
    if len(content.leaks) > SHOWN_LEAKS:
        text = f"{_count(len(content.leaks) - SHOWN_LEAKS, 'more pair')} of splits share images."
        yield Finding("warn", text, "leaks")
    if n := content.conflicts.images:
        yield Finding("warn", f"{_count(n, 'image')} with conflicting labels.", "leaks")
    if n := content.dropped_conflicts.images:
        text = f"{_count(n, 'image')} of dropped rows had a conflicting label."
        yield Finding("warn", text, "leaks")
    if n := sum(content.duplicates.values()):
        text = f"{_count(n, 'record')} with the image of another record of the same split."
        yield Finding("note", text, "leaks")


def _of_images(manifest: Manifest) -> Iterator[Finding]:
    for severity, text in _sentences(image_notes(manifest)):
        yield Finding(severity, text, "leaks" if "similar" in text else "quality")


def _sentences(notes: Iterable[str]) -> Iterator[tuple[Severity, str]]:
    """Yields the severity and the sentence of each note.

    Args:
        notes: lines of a summary; those that are indented continue the line before.
    """
    for note in notes:
        severity, _, text = note.partition(": ")
        if not note.startswith(" "):
            sentence = f"{text[0].upper()}{text[1:].removesuffix('.')}."
            yield "warn" if severity == "warning" else "note", sentence


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _classes(names: tuple[str, ...]) -> str:
    return "1 class" if len(names) == 1 else f"{len(names):,} classes"


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return (
        shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES:,} more"
    )


# Maximum number of digests in memory: 32 MB.
MAX_RECORDS = 4_000_000

# Maximum number of ranked groups: those with the smallest digests.
MAX_GROUPS = 10_000

SHOWN_GROUPS = 16
SHOWN_DUPLICATES = 4

_HEX_DIGITS = 16
_NIBBLES = np.zeros(256, np.uint64)
_NIBBLES[list(b"0123456789abcdef")] = np.arange(16, dtype=np.uint64)
_SHIFTS = np.arange(60, -4, -4, dtype=np.uint64)


@dataclass(frozen=True)
class DuplicateGroup:
    """Records with the same image.

    Attributes:
        records: the number of records.
        locations: the locations of the first records of each split and class.
        spans_splits: whether the records are in more than one split.
        conflicting: whether the records have different classes.
    """

    records: int
    locations: tuple[RecordLocation, ...]
    spans_splits: bool
    conflicting: bool


def find_duplicates(dataset: Dataset) -> tuple[DuplicateGroup, ...]:
    """Returns groups of records with the same image: leaked images first, then label conflicts."""
    manifest = dataset.manifest
    if not manifest.content.leaks and not any(manifest.content.duplicates.values()):
        return ()
    digests = _all_digests(dataset, min(1.0, MAX_RECORDS / max(1, manifest.input.records)))
    # Sorted: a digest that equals its predecessor occurs more than once.
    duplicated = np.unique(digests[1:][digests[1:] == digests[:-1]])[:MAX_GROUPS]
    rows = _rows_of(dataset, duplicated)  # sorted by digest, so each group is a range of rows
    starts = np.searchsorted(rows["digest"], duplicated)
    sizes = np.diff([*starts, len(rows)])
    spans_splits = _differ(rows["split"], starts)
    conflicting = _differ(rows["label"], starts)
    # lexsort sorts by its last key first: leaks, then conflicts, then digests.
    worst = np.lexsort((duplicated, ~conflicting, ~spans_splits))[:SHOWN_GROUPS]
    return _groups(
        dataset, duplicated[worst], sizes[worst], spans_splits[worst], conflicting[worst]
    )


def prefixes(column: pa.Array) -> np.ndarray:
    """Returns the first 64 bits of hexadecimal digests, as uint64; the column has no nulls.

    >>> prefixes(pa.array(["00000000000000ff" + "0" * 48])).tolist()
    [255]
    """
    text = pa.array(pc.utf8_slice_codeunits(column, 0, _HEX_DIGITS), pa.string())
    data = text.buffers()[2]
    if not len(column) or data is None:
        return np.empty(0, np.uint64)
    # All slices have the same length, so the buffer is a matrix of ASCII digits, (rows, 16).
    digits = np.frombuffer(data, np.uint8, len(column) * _HEX_DIGITS).reshape(-1, _HEX_DIGITS)
    first_halves: np.ndarray = (_NIBBLES[digits] << _SHIFTS).sum(axis=1, dtype=np.uint64)
    return first_halves


def _all_digests(dataset: Dataset, share: float) -> np.ndarray:
    """Returns the sorted digests of all images, or of the share with the smallest digests."""
    limit = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
    found = [np.empty(0, np.uint64)]
    for shard in dataset.shards().values():
        for batch in dataset.batches(shard, ["sha256"]):
            digests = prefixes(batch.column(0).drop_null())
            found.append(digests[digests <= limit])
    return np.sort(np.concatenate(found))


_ROW = np.dtype([("digest", np.uint64), ("split", np.uint32), ("label", np.uint32)])


def _rows_of(dataset: Dataset, duplicated: np.ndarray) -> np.ndarray:
    """Returns one row, of type `_ROW`, per record with a duplicate image, sorted by digest."""
    splits = {name: i for i, name in enumerate(dataset.manifest.splits)}
    labels: dict[str, int] = {}
    found = [np.empty(0, _ROW)]
    for batch in _duplicate_records(dataset, duplicated, ("split", "sha256", "class")):
        rows = np.empty(batch.num_rows, _ROW)
        rows["digest"] = prefixes(batch.column("sha256"))
        rows["split"] = [splits[name] for name in batch.column("split").to_pylist()]
        classes = map(repr, batch.column("class").to_pylist())
        rows["label"] = [labels.setdefault(text, len(labels)) for text in classes]
        found.append(rows)
    return np.sort(np.concatenate(found), order="digest")  # groups become adjacent


def _duplicate_records(
    dataset: Dataset, duplicated: np.ndarray, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yields the index rows of records whose image has one of the sorted digests."""
    if not len(duplicated):
        return
    for shard in dataset.shards().values():
        for batch in dataset.batches(shard, columns):
            with_image = batch.filter(batch.column("sha256").is_valid())
            digests = prefixes(with_image.column("sha256"))
            nearest = np.searchsorted(duplicated, digests).clip(max=len(duplicated) - 1)
            matching = duplicated[nearest] == digests
            if matching.any():
                yield with_image.filter(pa.array(matching))


def _differ(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns whether the values of each group differ; a group begins at each of `starts`."""
    if not len(starts):
        return np.empty(0, bool)
    # The values of a group differ if their minimum is not their maximum.
    differing: np.ndarray = np.minimum.reduceat(values, starts) != np.maximum.reduceat(
        values, starts
    )
    return differing


def _groups(
    dataset: Dataset,
    digests: np.ndarray,
    sizes: np.ndarray,
    spans_splits: np.ndarray,
    conflicting: np.ndarray,
) -> tuple[DuplicateGroup, ...]:
    """Returns the duplicate groups of the digests, with the locations of a few records each."""
    # {digest: {(split, classes): [RecordLocation]}}
    found: dict[int, dict[Any, list[RecordLocation]]] = {int(digest): {} for digest in digests}
    for batch in _duplicate_records(dataset, np.sort(digests), LOCATION_COLUMNS):
        for digest, row in zip(prefixes(batch.column("sha256")), batch.to_pylist(), strict=True):
            location = RecordLocation.of(row)
            same = found[int(digest)].setdefault((location.split, location.classes), [])
            if len(same) < SHOWN_DUPLICATES:
                same.append(location)
    columns = zip(digests, sizes, spans_splits, conflicting, strict=True)
    return tuple(
        DuplicateGroup(int(size), _round_robin(found[int(digest)]), bool(spans), bool(conflict))
        for digest, size, spans, conflict in columns
    )


def _round_robin(found: dict[Any, list[RecordLocation]]) -> tuple[RecordLocation, ...]:
    """Returns a few locations: the first of each split and class, then the second, and so on."""
    ranked = [(i, location) for same in found.values() for i, location in enumerate(same)]
    return tuple(location for _, location in sorted(ranked)[:SHOWN_DUPLICATES])
