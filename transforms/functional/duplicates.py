"""Counts duplicate images within and across splits by digest, and groups that span splits.

Tallies are dicts of tuples, cheap to shuffle. They can be merged in any order, and hold a bounded
number of records for each image, however often it occurs.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TypeAlias

from recordmill.schemas import statistics

# Leading bytes of a sha256 that identify an image: 128 bits make collisions negligible.
DIGEST_BYTES = 16

_BUCKET_IMAGES = 2**16

# Records that are shown of each group of records with the same image.
EXAMPLE_RECORDS = 4

# A record: its key, the number of its shard, and its own number within the shard.
Located: TypeAlias = tuple[str, int, int]

# (split, label, number of records with both, the first of them by key).
Seen: TypeAlias = tuple[str, str, int, tuple[Located, ...]]

# The occurrences of each image, by digest: at most one `Seen` for each split and label.
Tally: TypeAlias = dict[bytes, tuple[Seen, ...]]

# The order of groups: first those in several splits, then those with different labels; the split
# and the key of the first record break ties.
_Rank: TypeAlias = tuple[bool, bool, str, str]


def num_buckets(rows: int) -> int:
    """Returns the number of buckets to compare images in, so that each fits in memory."""
    return 1 + rows // _BUCKET_IMAGES


def label_text(label: str | list[str] | None) -> str:
    """Returns the class of a record's index row as one text; "" for none.

    >>> label_text(["dog", "cat"]), label_text(None)
    ('cat|dog', '')
    """
    return "|".join(sorted(label)) if isinstance(label, list) else label or ""


def tally_shard(split: str, shard: int, rows: Iterable[tuple[str, str | None, str]]) -> Tally:
    """Returns the tally of one shard, of the key, image digest in hex and label of each record."""
    tally: Tally = {}
    for number, (key, sha256, label) in enumerate(rows):
        if not sha256:
            continue
        digest = bytes.fromhex(sha256)[:DIGEST_BYTES]
        seen: tuple[Seen, ...] = ((split, label, 1, ((key, shard, number),)),)
        present = tally.get(digest)
        tally[digest] = seen if present is None else _merged(present, seen)
    return tally


def split_by_bucket(tally: Tally, buckets: int) -> dict[int, Tally]:
    """Returns the parts of a tally, by bucket number."""
    if buckets == 1:
        return {0: tally} if tally else {}
    parts: dict[int, Tally] = {}
    for digest, seen in tally.items():
        # Scales the first 64 bits to [0, buckets), as digests are uniform.
        bucket = int.from_bytes(digest[:8], "big") * buckets >> 64
        parts.setdefault(bucket, {})[digest] = seen
    return parts


def merge(tally: Tally, other: Tally) -> Tally:
    """Adds a tally to another, in place."""
    for digest, seen in other.items():
        present = tally.get(digest)
        tally[digest] = seen if present is None else _merged(present, seen)
    return tally


def _merged(one: tuple[Seen, ...], other: tuple[Seen, ...]) -> tuple[Seen, ...]:
    # {(split, label): (count, first records)}: sums and minima do not depend on the merge order.
    merged = {(split, label): (count, firsts) for split, label, count, firsts in one}
    for split, label, count, firsts in other:
        others, known = merged.get((split, label), (0, ()))
        smallest = tuple(sorted((*known, *firsts))[:EXAMPLE_RECORDS])
        merged[split, label] = others + count, smallest
    return tuple(
        (split, label, count, firsts) for (split, label), (count, firsts) in sorted(merged.items())
    )


def duplicate_stats(tally: Tally) -> statistics.DuplicateStats:
    """Returns the duplicate statistics of a tally that is complete for its images."""
    duplicates: Counter[str] = Counter()
    leaks: dict[tuple[str, str], list[tuple[int, statistics.Pair]]] = {}
    conflicts: list[tuple[int, statistics.Pair]] = []
    groups: list[tuple[_Rank, tuple[Seen, ...]]] = []
    for seen in tally.values():
        if len(seen) == 1 and seen[0][2] == 1:  # most images occur in a single record
            continue
        splits = _by_split(seen)
        duplicates.update({s: count - 1 for s, (count, _) in splits.items() if count > 1})
        for one, two in _pairs_of(sorted(splits)):
            (count, key), (other_count, other_key) = splits[one], splits[two]
            found = count + other_count, (key, other_key)
            leaks.setdefault((one, two), []).append(found)
        conflict = list(_conflict(seen))
        conflicts += conflict
        first = seen[0]
        groups.append(((len(splits) == 1, not conflict, first[0], first[3][0][0]), seen))
    return statistics.DuplicateStats(
        images=len(tally),
        duplicates=duplicates,
        leaks=tuple(_leak(splits, found) for splits, found in sorted(leaks.items())),
        conflicts=_conflicts(conflicts),
        groups=tuple(
            _group(*found) for found in heapq.nsmallest(statistics.EXAMPLE_GROUPS, groups)
        ),
    )


def _group(rank: _Rank, seen: Sequence[Seen]) -> statistics.ImageGroup:
    """Returns an image with the first record of each split and label, then the second ones."""
    in_one_split, is_consistent, _, _ = rank
    ranked = [
        (i, split, label, *one) for split, label, _, firsts in seen for i, one in enumerate(firsts)
    ]
    return statistics.ImageGroup(
        records=sum(count for _, _, count, _ in seen),
        spans_splits=not in_one_split,
        conflicting=not is_consistent,
        examples=tuple(
            statistics.RecordExample(key=key, split=split, shard=shard, index=number)
            for _, split, _, key, shard, number in sorted(ranked)[:EXAMPLE_RECORDS]
        ),
    )


def _pairs_of(splits: Sequence[str]) -> Iterable[tuple[str, str]]:
    # The pairs of k-fold splits grow quadratically: beyond a limit, pair the first with the rest.
    if len(splits) > statistics.PAIRED_SPLITS:
        return ((splits[0], other) for other in splits[1:])
    return combinations(splits, 2)


def _by_split(seen: Iterable[Seen]) -> dict[str, tuple[int, str]]:
    """Returns (number of an image's records, smallest key) by split."""
    splits: dict[str, tuple[int, str]] = {}
    for split, _, count, firsts in seen:
        key = firsts[0][0]
        others, smallest = splits.get(split, (0, key))
        splits[split] = others + count, min(smallest, key)
    return splits


def _conflict(seen: Iterable[Seen]) -> Iterator[tuple[int, statistics.Pair]]:
    """Yields (records of an image, smallest keys of two labels), if its labels conflict."""
    smallest: dict[str, str] = {}
    records = 0
    for _, label, count, firsts in seen:
        records += count
        if label:
            key = firsts[0][0]
            smallest[label] = min(smallest.get(label, key), key)
    if len(smallest) > 1:
        one, two, *_ = sorted(smallest.values())
        yield records, (one, two)


def _leak(splits: tuple[str, str], found: list[tuple[int, statistics.Pair]]) -> statistics.Leakage:
    counts, pairs = zip(*found, strict=True)
    return statistics.Leakage(
        splits=splits, images=len(found), records=sum(counts), examples=_smallest([pairs])
    )


def _conflicts(found: list[tuple[int, statistics.Pair]]) -> statistics.Conflicts:
    return statistics.Conflicts(
        images=len(found),
        records=sum(count for count, _ in found),
        examples=_smallest([[pair for _, pair in found]]),
    )


def with_dropped_row(
    conflicts: statistics.Conflicts, repeat: statistics.Duplicate
) -> statistics.Conflicts:
    """Returns the label conflicts of one image's dropped rows, with one more row."""
    if not repeat.label:
        return conflicts
    pairs = (*conflicts.examples, (repeat.kept, repeat.key))
    return statistics.Conflicts(images=1, records=conflicts.records + 1, examples=(min(pairs),))


def _smallest(examples: Iterable[Iterable[statistics.Pair]]) -> tuple[statistics.Pair, ...]:
    return tuple(sorted(pair for pairs in examples for pair in pairs)[: statistics.EXAMPLES])


def distinct_splits(splits: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the distinct splits of several tuples, sorted.

    >>> distinct_splits([("train",), ("test", "train")])
    ('test', 'train')
    """
    return tuple(sorted({split for some in splits for split in some}))


def group_leakage(group: str, splits: tuple[str, ...]) -> Iterator[statistics.GroupLeakage]:
    """Yields the leakage of a group, if it is in several splits."""
    if len(splits) > 1:
        yield statistics.GroupLeakage(groups=1, examples=((group, splits),))
