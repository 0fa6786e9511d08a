"""Finds records that hold the same image, to show them side by side, from records/ alone.

How many there are is in manifest.json; which ones is found here in three passes over the digests,
in bounded memory: 8 bytes a record, up to some millions of records; beyond that, of a part of all
images that their digests choose, so that no pair is torn apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.storage.dataset import LOCATION_COLUMNS, Dataset, RecordLocation

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
