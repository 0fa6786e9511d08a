"""The groups of similar images and the images of low quality that a report shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.image_quality import ISSUES, IssueName
from recordmill.schemas.statistics import RecordExample
from recordmill.transforms.storage.dataset import LOCATION_COLUMNS, Dataset, RecordLocation

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
    """Records with the same image."""

    records: int
    locations: tuple[RecordLocation, ...]
    spans_splits: bool  # whether the records are in more than one split
    conflicting: bool  # whether the records have different classes


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


def _prefixes(column: pa.Array) -> np.ndarray:
    """Returns the first 64 bits of hexadecimal digests, as uint64; the column has no nulls.

    >>> _prefixes(pa.array(["00000000000000ff" + "0" * 48])).tolist()
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
            digests = _prefixes(batch.column(0).drop_null())
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
        rows["digest"] = _prefixes(batch.column("sha256"))
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
            digests = _prefixes(with_image.column("sha256"))
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
        for digest, row in zip(_prefixes(batch.column("sha256")), batch.to_pylist(), strict=True):
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


@dataclass(frozen=True)
class ShownIssue:
    """A quality issue with its worst images."""

    name: IssueName  # its name, as in `--reject_quality`
    rule: str
    images: int
    examples: tuple[tuple[float, RecordLocation], ...]


def similar_groups(dataset: Dataset) -> tuple[DuplicateGroup, ...]:
    """Returns the groups of similar images that the manifest has as examples."""
    near = dataset.manifest.near_duplicates
    return tuple(
        DuplicateGroup(
            group.records,
            tuple(_location(dataset, example) for example in group.examples),
            group.spans_splits,
            group.conflicting,
        )
        for group in (near.examples if near else ())
    )


def quality_issues(dataset: Dataset) -> tuple[ShownIssue, ...]:
    """Returns the quality issues of a dataset, each with its worst images."""
    quality = dataset.manifest.quality
    return tuple(
        ShownIssue(
            name,
            ISSUES[name].rule,
            sum(issue.images.values()),
            tuple((value, _location(dataset, example)) for value, example in issue.examples),
        )
        for name, issue in (quality.issues.items() if quality else ())
    )


def _location(dataset: Dataset, example: RecordExample) -> RecordLocation:
    shard = dataset.shards()[example.split, example.shard]
    return dataset.location(shard, example.index)
