"""Tests that duplicate statistics do not depend on the order in which tallies are merged."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.statistics import (
    EXAMPLES,
    PAIRED_SPLITS,
    Conflicts,
    Duplicate,
    DuplicateStats,
    ImageGroup,
    Leakage,
    RecordExample,
)
from recordmill.transforms.functional.duplicates import (
    duplicate_stats,
    merge,
    num_buckets,
    split_by_bucket,
    tally_shard,
    with_dropped_row,
)

RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["test", "train", "validation"]),
        st.sampled_from(["", "cat", "dog", "owl"]),
        st.integers(0, 12),
    ),
    max_size=60,
)


def sha256(image: int) -> str:
    return hashlib.sha256(bytes([image])).hexdigest()


def examples_of(rows, shards: int) -> list[RecordExample]:
    """Returns one record of each split and label, then another one, up to four records."""
    found = []
    left = sorted(rows, key=lambda row: (row[1], row[2], row[0]))
    while left and len(found) < 4:
        firsts = {}
        for row in left:
            firsts.setdefault(row[1:3], row)
        found += firsts.values()
        left = [row for row in left if row not in firsts.values()]
    return [
        RecordExample(key=key, split=split, shard=int(key) % shards, index=int(key) // shards)
        for key, split, _, _ in found[:4]
    ]


def expected(records: list[tuple[str, str, int]], shards: int) -> DuplicateStats:
    """Computes the statistics from all records; the key of a record is its zero-padded number."""
    rows = [(f"{i:04d}", *record) for i, record in enumerate(records)]
    images = sorted({image for *_, image in rows})
    of = {image: [row for row in rows if row[3] == image] for image in images}
    held = Counter((split, image) for _, split, _, image in rows)
    splits = sorted({split for _, split, _, _ in rows})
    repeated = {s: sum(n - 1 for (t, _), n in held.items() if s == t) for s in splits}
    leaks = []
    for one, two in combinations(splits, 2):
        if both := [i for i in images if held[one, i] and held[two, i]]:
            pairs = [
                tuple(min(k for k, t, _, _ in of[i] if t == s) for s in (one, two)) for i in both
            ]
            count = sum(held[one, i] + held[two, i] for i in both)
            examples = tuple(sorted(pairs)[:EXAMPLES])
            leaks.append(
                Leakage(splits=(one, two), images=len(both), records=count, examples=examples)
            )
    torn = [i for i in images if len({label for _, _, label, _ in of[i]} - {""}) > 1]
    firsts = [
        sorted(min(k for k, _, other, _ in of[i] if other == label) for label in labels)[:2]
        for i in torn
        for labels in [{label for _, _, label, _ in of[i]} - {""}]
    ]
    groups = [
        ImageGroup(
            records=len(of[i]),
            spans_splits=len({split for _, split, _, _ in of[i]}) > 1,
            conflicting=i in torn,
            examples=examples_of(of[i], shards),
        )
        for i in images
        if len(of[i]) > 1
    ]
    groups.sort(
        key=lambda group: (
            not group.spans_splits,
            not group.conflicting,
            group.examples[0].split,
            group.examples[0].key,
        )
    )
    return DuplicateStats(
        groups=groups,
        images=len(images),
        duplicates={split: count for split, count in repeated.items() if count},
        leaks=tuple(leaks),
        conflicts=Conflicts(
            images=len(torn),
            records=sum(len(of[i]) for i in torn),
            examples=tuple(sorted(map(tuple, firsts))[:EXAMPLES]),
        ),
    )


@given(RECORDS, st.integers(1, 5), st.integers(1, 7), st.randoms(use_true_random=False))
def test_merged_statistics_equal_those_of_all_records(records, shards, buckets, chance):
    keyed = [(f"{i:04d}", *record) for i, record in enumerate(records)]
    parts = []
    for split in ("test", "train", "validation"):
        for shard in range(shards):
            # The records of other splits, which have no image here, keep the numbers of the rows.
            rows = [
                (key, sha256(image) if of == split else None, label)
                for key, of, label, image in keyed
                if int(key) % shards == shard
            ]
            parts += split_by_bucket(tally_shard(split, shard, rows), buckets).items()
    chance.shuffle(parts)
    totals: dict[int, dict] = {}
    for bucket, tally in parts:
        merge(totals.setdefault(bucket, {}), tally)
    assert DuplicateStats.sum_of(map(duplicate_stats, totals.values())) == expected(records, shards)


def test_the_size_of_a_tally_does_not_depend_on_the_number_of_records():
    def tally(count):
        return tally_shard("train", 5, ((f"{i:07d}", sha256(1), "") for i in range(count)))

    firsts = tuple((f"{i:07d}", 5, i) for i in range(4))
    assert tally(100_000) == {bytes.fromhex(sha256(1))[:16]: (("train", "", 100_000, firsts),)}
    assert len(tally(10)) == 1


def test_buckets_of_images_are_small():
    rows = 1_000_000
    digests = [hashlib.sha256(str(i).encode()).digest()[:16] for i in range(50_000)]
    parts = split_by_bucket(dict.fromkeys(digests, ()), num_buckets(rows))
    assert len(parts) == num_buckets(rows) == 16
    assert max(map(len, parts.values())) * rows / len(digests) < 1.1 * 2**16


def test_a_dropped_row_counts_as_a_conflict_only_if_its_label_differs():
    def repeat(key, label):
        return Duplicate(key, "", "", "train", "a", label, "cat" if label else "")

    message = Conflicts()
    for row in (repeat("d", "dog"), repeat("b", ""), repeat("c", "owl")):
        message = with_dropped_row(message, row)
    assert message == Conflicts(images=1, records=2, examples=(("a", "c"),))


def leaks_of_one_image(splits: int) -> tuple[Leakage, ...]:
    names = [f"s{number:03d}" for number in range(splits)]
    tally = tally_shard(names[0], 0, [("0", sha256(0), "")])
    for number, name in enumerate(names[1:], 1):
        merge(tally, tally_shard(name, 0, [(str(number), sha256(0), "")]))
    return duplicate_stats(tally).leaks


def test_pairs_of_splits_are_limited() -> None:
    assert len(leaks_of_one_image(PAIRED_SPLITS)) == PAIRED_SPLITS * (PAIRED_SPLITS - 1) // 2
    leaks = leaks_of_one_image(300)
    assert [leak.splits for leak in leaks] == [("s000", f"s{n:03d}") for n in range(1, 300)]
    assert {(leak.images, leak.records) for leak in leaks} == {(1, 2)}


def test_only_the_worst_groups_are_kept() -> None:
    images = [(f"{i:03d}", hashlib.sha256(str(i).encode()).hexdigest(), "cat") for i in range(100)]
    twice = [(f"{key}b", digest, label) for key, digest, label in images]
    tally = tally_shard("train", 0, [*images, *twice])
    merge(tally, tally_shard("test", 0, [(f"{k}c", d, "dog") for k, d, _ in images[90:]]))
    groups = duplicate_stats(tally).groups
    firsts = [group.examples[0].key for group in groups]
    assert firsts == [f"{i:03d}c" for i in range(90, 100)] + [f"{i:03d}" for i in range(6)]
    assert [group.spans_splits for group in groups] == [True] * 10 + [False] * 6
