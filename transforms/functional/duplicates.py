"""Duplicate images, detected by their digests, within a split and across splits; leaks of groups.

A tally is a plain dict of plain tuples: it crosses shuffles, in place of any image. It can be added
to and merged in any order, and holds a bounded number of keys for each image, however often that
occurs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TypeAlias

from recordmill.schemas.duplicates import (
    EXAMPLES,
    PAIRED_SPLITS,
    Conflicts,
    Duplicate,
    DuplicateStats,
    GroupLeakage,
    Leakage,
    Pair,
)

DIGEST_BYTES = 16
"""Of a sha256: two different images agree in these by chance in one of 2^128 cases."""

_BUCKET_IMAGES = 2**16

Seen: TypeAlias = tuple[str, str, int, str]
"""A split, a label, how many records have both, and the smallest key among them."""

Tally: TypeAlias = dict[bytes, tuple[Seen, ...]]
"""Digest of an image to where it was seen; at most one `Seen` for a split and label."""


def num_buckets(rows: int) -> int:
    """Returns in how many parts to compare the images of so many rows: each fits in memory."""
    return 1 + rows // _BUCKET_IMAGES


def bucket_of(digest: bytes, buckets: int) -> int:
    """Returns the part that an image belongs to."""
    return int.from_bytes(digest[:8], "big") * buckets >> 64


def label_text(label: str | list[str] | None) -> str:
    """Returns a record's class, as the index has it, in one text; "" for none.

    >>> label_text(["dog", "cat"]), label_text(None)
    ('cat|dog', '')
    """
    return "|".join(sorted(label)) if isinstance(label, list) else label or ""


def tally_shard(split: str, rows: Iterable[tuple[str, str, str]]) -> Tally:
    """Returns the tally of one shard.

    Args:
        split: the shard's split.
        rows: key, hex digest of the image and label of each record.
    """
    tally: Tally = {}
    for key, sha256, label in rows:
        digest = bytes.fromhex(sha256)[:DIGEST_BYTES]
        seen: tuple[Seen, ...] = ((split, label, 1, key),)
        present = tally.get(digest)
        tally[digest] = seen if present is None else _merged(present, seen)
    return tally


def split_by_bucket(tally: Tally, buckets: int) -> dict[int, Tally]:
    """Returns a tally in parts."""
    if buckets == 1:
        return {0: tally} if tally else {}
    parts: dict[int, Tally] = {}
    for digest, seen in tally.items():
        parts.setdefault(bucket_of(digest, buckets), {})[digest] = seen
    return parts


def merge(tally: Tally, other: Tally) -> Tally:
    """Returns the first tally, with the second added to it."""
    for digest, seen in other.items():
        present = tally.get(digest)
        tally[digest] = seen if present is None else _merged(present, seen)
    return tally


def _merged(one: tuple[Seen, ...], other: tuple[Seen, ...]) -> tuple[Seen, ...]:
    merged = {(split, label): (count, key) for split, label, count, key in one}
    for split, label, count, key in other:
        present = merged.get((split, label))
        merged[split, label] = (
            (count, key) if present is None else (present[0] + count, min(present[1], key))
        )
    return tuple(
        (split, label, count, key) for (split, label), (count, key) in sorted(merged.items())
    )


def duplicate_stats(tally: Tally) -> DuplicateStats:
    """Returns what a tally of whole images says."""
    duplicates: Counter[str] = Counter()
    leaks: dict[tuple[str, str], list[tuple[int, Pair]]] = {}
    conflicts: list[tuple[int, Pair]] = []
    for seen in tally.values():
        if len(seen) == 1 and seen[0][2] == 1:
            continue
        splits = _by_split(seen)
        duplicates.update({s: count - 1 for s, (count, _) in splits.items() if count > 1})
        for one, two in _pairs_of(sorted(splits)):
            (count, key), (other_count, other_key) = splits[one], splits[two]
            found = count + other_count, (key, other_key)
            leaks.setdefault((one, two), []).append(found)
        conflicts += _conflict(seen)
    return DuplicateStats(
        images=len(tally),
        duplicates=dict(sorted(duplicates.items())),
        leaks=tuple(_leak(splits, found) for splits, found in sorted(leaks.items())),
        conflicts=_conflicts(conflicts),
    )


def _pairs_of(splits: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Returns which pairs of the splits of one image are counted: no more than 16 a record."""
    if len(splits) > PAIRED_SPLITS:
        return ((splits[0], other) for other in splits[1:])
    return combinations(splits, 2)


def _by_split(seen: Iterable[Seen]) -> dict[str, tuple[int, str]]:
    """Returns split to the number of an image's records there, and the smallest key."""
    splits: dict[str, tuple[int, str]] = {}
    for split, _, count, key in seen:
        others, smallest = splits.get(split, (0, key))
        splits[split] = others + count, min(smallest, key)
    return splits


def _conflict(seen: Iterable[Seen]) -> Iterator[tuple[int, Pair]]:
    """Yields how many records an image has and the smallest keys of two labels, if it has two."""
    firsts: dict[str, str] = {}
    records = 0
    for _, label, count, key in seen:
        records += count
        if label:
            firsts[label] = min(firsts.get(label, key), key)
    if len(firsts) > 1:
        one, two, *_ = sorted(firsts.values())
        yield records, (one, two)


def _leak(splits: tuple[str, str], found: list[tuple[int, Pair]]) -> Leakage:
    counts, pairs = zip(*found, strict=True)
    return Leakage(
        splits=splits, images=len(found), records=sum(counts), examples=_smallest([pairs])
    )


def _conflicts(found: list[tuple[int, Pair]]) -> Conflicts:
    return Conflicts(
        images=len(found),
        records=sum(count for count, _ in found),
        examples=_smallest([[pair for _, pair in found]]),
    )


def merge_duplicate_stats(contents: Iterable[DuplicateStats]) -> DuplicateStats:
    """Returns what is known of all images, from what is known of parts of them."""
    parts = list(contents)
    duplicates: Counter[str] = Counter()
    leaks: dict[tuple[str, str], list[Leakage]] = {}
    for part in parts:
        duplicates.update(part.duplicates)
        for leak in part.leaks:
            leaks.setdefault(leak.splits, []).append(leak)
    return DuplicateStats(
        images=sum(part.images for part in parts),
        duplicates=dict(sorted(duplicates.items())),
        leaks=tuple(_merge_leaks(splits, found) for splits, found in sorted(leaks.items())),
        conflicts=_merge_conflicts([part.conflicts for part in parts]),
        dropped_conflicts=_merge_conflicts([part.dropped_conflicts for part in parts]),
    )


def with_dropped_row(conflicts: Conflicts, repeat: Duplicate) -> Conflicts:
    """Returns the conflicts among the dropped rows of one image, with one more row."""
    if not repeat.label:
        return conflicts
    pairs = (*conflicts.examples, (repeat.kept, repeat.key))
    return Conflicts(images=1, records=conflicts.records + 1, examples=(min(pairs),))


def _merge_leaks(splits: tuple[str, str], leaks: list[Leakage]) -> Leakage:
    return Leakage(
        splits=splits,
        images=sum(leak.images for leak in leaks),
        records=sum(leak.records for leak in leaks),
        examples=_smallest(leak.examples for leak in leaks),
    )


def _merge_conflicts(conflicts: list[Conflicts]) -> Conflicts:
    return Conflicts(
        images=sum(conflict.images for conflict in conflicts),
        records=sum(conflict.records for conflict in conflicts),
        examples=_smallest(conflict.examples for conflict in conflicts),
    )


def _smallest(examples: Iterable[Iterable[Pair]]) -> tuple[Pair, ...]:
    return tuple(sorted(pair for pairs in examples for pair in pairs)[:EXAMPLES])


def distinct_splits(splits: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the splits that occur in some lists of them, sorted.

    >>> distinct_splits([("train",), ("test", "train")])
    ('test', 'train')
    """
    return tuple(sorted({split for some in splits for split in some}))


def group_leakage(group: str, splits: tuple[str, ...]) -> Iterator[GroupLeakage]:
    """Yields that a group is in several splits, if it is."""
    if len(splits) > 1:
        yield GroupLeakage(groups=1, examples=((group, splits),))


def merge_group_leaks(leaks: Iterable[GroupLeakage]) -> GroupLeakage:
    """Returns the sum of what is known of different groups."""
    parts = list(leaks)
    examples = sorted(example for part in parts for example in part.examples)
    return GroupLeakage(
        groups=sum(part.groups for part in parts), examples=tuple(examples[:EXAMPLES])
    )
