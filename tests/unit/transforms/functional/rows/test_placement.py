"""Tests of splits, shards and the order of records, and of rows with the same key."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.plan import SplitRanges
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.functional.rows.placement import (
    _duplicate_key_reject,
    _sort_references,
    first_of_key,
    order_of,
    orders_of,
    shards_of,
    split_of,
)

KEYS = ["a.jpg", "", "ключ", "🐈", "a\0b", "x" * 5000, "1"]


def digest(seed, purpose, text):
    message = str(seed).encode() + b"\x00" + purpose + b"\x00" + text.encode("utf-8")
    return hashlib.sha256(message).digest()


@pytest.mark.parametrize("seed", [0, 1, -1, 2**70])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key[:8]))
def test_order_is_the_salted_hash(seed, key):
    assert order_of(key, seed) == digest(seed, b"order", key)[:16]


@pytest.mark.parametrize("seed", [0, 1, -1])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key[:8]))
def test_split_is_the_range_of_the_salted_hash(seed, key):
    weights = {"train": Decimal("0.8"), "validation": Decimal("0.15"), "test": Decimal("0.05")}
    part = Fraction(int.from_bytes(digest(seed, b"split", key)[:8], "big"), 2**64)
    expected = "train" if part < Fraction(8, 10) else "test"
    if Fraction(8, 10) <= part < Fraction(95, 100):
        expected = "validation"
    assert split_of(key, SplitRanges.from_weights(weights), seed) == expected


@pytest.mark.parametrize(
    ("weights", "names", "bounds"),
    [
        pytest.param({"train": "1"}, ("train",), (2**64,), id="one"),
        pytest.param({"a": "1", "b": "1"}, ("a", "b"), (2**63, 2**64), id="halves"),
        pytest.param({"a": "0.5", "b": "0.5"}, ("a", "b"), (2**63, 2**64), id="parts of one"),
        pytest.param({"b": "30", "a": "10"}, ("b", "a"), (3 * 2**62, 2**64), id="the order given"),
        pytest.param(
            {"a": "0.1", "b": "0.2", "c": "0.7"},
            ("a", "b", "c"),
            (2**64 // 10, 3 * 2**64 // 10, 2**64),
            id="exact where floats are not",
        ),
        pytest.param(
            {"a": "1", "b": "1", "c": "1"},
            ("a", "b", "c"),
            (2**64 // 3, 2 * 2**64 // 3, 2**64),
            id="thirds",
        ),
        pytest.param({"a": "0", "b": "2", "c": "0"}, ("b",), (2**64,), id="zero weights"),
        pytest.param(
            {"a": "1e-30", "b": "1"}, ("a", "b"), (0, 2**64), id="a weight that no hash falls in"
        ),
    ],
)
def test_ranges(weights, names, bounds):
    ranges = SplitRanges.from_weights({name: Decimal(w) for name, w in weights.items()})
    assert ranges == SplitRanges(names, bounds)


def test_the_boundaries_belong_to_the_upper_split():
    point = int.from_bytes(digest(0, b"split", "a.jpg")[:8], "big")
    assert split_of("a.jpg", SplitRanges(("low", "high"), (point, 2**64)), 0) == "high"
    assert split_of("a.jpg", SplitRanges(("low", "high"), (point + 1, 2**64)), 0) == "low"


def test_splits_have_their_share_of_the_keys():
    ranges = SplitRanges.from_weights({"train": Decimal("0.9"), "test": Decimal("0.1")})
    found = Counter(split_of(f"{i}.jpg", ranges, 0) for i in range(20_000))
    assert abs(found["test"] - 2000) < 5 * (20_000 * 0.9 * 0.1) ** 0.5  # five sigmas


def test_another_seed_gives_another_partition_and_another_order():
    ranges = SplitRanges.from_weights({"a": Decimal(1), "b": Decimal(1)})
    keys = [f"{i}.jpg" for i in range(100)]
    assert [split_of(k, ranges, 0) for k in keys] != [split_of(k, ranges, 1) for k in keys]
    assert sorted(keys, key=lambda k: order_of(k, 0)) != sorted(keys, key=lambda k: order_of(k, 1))


@pytest.mark.parametrize(
    ("order", "num_shards", "expected"),
    [
        (0, 1, 0),
        (2**128 - 1, 1, 0),
        (0, 3, 0),
        (2**128 - 1, 3, 2),
        (2**127 - 1, 2, 0),
        (2**127, 2, 1),
        (2**128 // 3, 3, 0),  # 2^128 is no multiple of 3: the bound lies just above
        (2**128 // 3 + 1, 3, 1),
        (2**128 - 1, 99_999, 99_998),
    ],
    ids=str,
)
def test_shards_at_their_boundaries(order, num_shards, expected):
    assert shards_of([order.to_bytes(16, "big")], num_shards) == [expected]


@given(
    st.lists(st.text(st.characters(codec="utf-8")), unique=True, max_size=60),
    st.integers(1, 50),
    st.integers(-(2**40), 2**40),
)
def test_the_sequence_of_records_does_not_depend_on_the_number_of_shards(keys, count, seed):
    shards = [[] for _ in range(count)]
    for key, shard in zip(keys, shards_of(orders_of(keys, seed), count), strict=True):
        shards[shard].append(key)
    sequence = [key for shard in shards for key in sorted(shard, key=lambda k: order_of(k, seed))]
    assert sequence == sorted(keys, key=lambda k: order_of(k, seed))


@given(st.binary(min_size=16, max_size=16), st.integers(1, 99_999))
def test_a_shard_is_a_range_of_the_order(order, count):
    part = Fraction(int.from_bytes(order, "big"), 2**128)
    (shard,) = shards_of([order], count)
    assert Fraction(shard, count) <= part < Fraction(shard + 1, count)


def test_rows_of_a_group_are_in_one_split_and_groups_in_all():
    ranges = SplitRanges.from_weights({"a": Decimal(1), "b": Decimal(1)})
    rows = [(f"{i}.jpg", f"patient {i % 20}") for i in range(400)]
    splits_of_group = {}
    for key, group in rows:  # as the analyze pass and the assignment do
        splits_of_group.setdefault(group, set()).add(split_of(group or key, ranges, 0))
    assert all(len(splits) == 1 for splits in splits_of_group.values())
    assert set.union(*splits_of_group.values()) == {"a", "b"}


def ref(key, file="t.csv", line=1, uri="", values=()):
    return ImageRef(
        key=key, uri=uri or f"/{key}", start=None, stop=None, values=values, file=file, line=line
    )


def assigned(order, *arguments, **options):
    return order, ref(*arguments, **options)


@pytest.mark.parametrize(
    ("file", "line", "remedy"),
    [
        ("t.csv", 2, ""),
        ("a/1.xml", 0, " Remove one of the two, or give its image another name."),
        ("coco.JSON", 2, " Remove one of the two, or give its image another name."),
        ("x.tar", 2, " Unpack each tar to a folder of its own, and pack the folders into one tar."),
    ],
)
def test_the_remedy_of_a_duplicate_key_fits_its_source(file, line, remedy):
    refs = [ref("a", f"0{file}", line), ref("a", f"1{file}", line)]
    kept, duplicate = first_of_key(refs)
    assert kept == refs[0]
    assert duplicate.detail.partition("is kept.")[2] == remedy


def repeat(key, source, first):
    detail = f"duplicate key, first seen at {first}; only the first row is kept"
    return Reject(key, f"/{key}", source, Reason.DUPLICATE_KEY, detail)


@pytest.mark.parametrize(
    ("rows", "kept", "duplicates"),
    [
        pytest.param([], [], [], id="no rows"),
        pytest.param(
            [assigned(b"\x02", "a", line=1), assigned(b"\x01", "b", line=2)],
            [ref("b", line=2), ref("a", line=1)],
            [],
            id="by order, not by line",
        ),
        pytest.param(
            [assigned(b"\x80", "a"), assigned(b"\x7f", "b")],
            [ref("b"), ref("a")],
            [],
            id="bytes compare unsigned",
        ),
        pytest.param(
            [assigned(b"\x01", "a", line=9), assigned(b"\x01", "a", line=10)],
            [ref("a", line=9)],
            [repeat("a", "t.csv:10", "t.csv:9")],
            id="line 9 comes before line 10",
        ),
        pytest.param(
            [assigned(b"\x01", "a", "u.csv", 1), assigned(b"\x01", "a", "t.csv", 5)],
            [ref("a", "t.csv", 5)],
            [repeat("a", "u.csv:1", "t.csv:5")],
            id="the first file counts",
        ),
        pytest.param(
            [assigned(b"\x01", "a", line=n) for n in (3, 1, 2)],
            [ref("a", line=1)],
            [repeat("a", "t.csv:2", "t.csv:1"), repeat("a", "t.csv:3", "t.csv:1")],
            id="three of one key all name the first",
        ),
        pytest.param(
            [assigned(b"\x01", "b", line=1), assigned(b"\x01", "a", line=2)],
            [ref("a", line=2), ref("b", line=1)],
            [],
            id="two keys of one order are two keys",
        ),
    ],
)
def test_sort_references(rows, kept, duplicates):
    assert _sort_references(rows) == (kept, duplicates)


def test_rows_with_values_that_do_not_compare_are_sorted():
    rows = [
        assigned(b"\x01", "a", line=2, uri="/a", values=(None, [1])),
        assigned(b"\x01", "a", line=1, uri="/a", values=(b"x", 1)),
    ]
    kept, duplicates = _sort_references(rows)
    assert kept == [rows[1][1]]
    assert [reject.source for reject in duplicates] == ["t.csv:2"]


def test_the_order_in_which_rows_arrive_does_not_matter():
    rows = [assigned(bytes([i % 7]), f"k{i % 11}", f"t{i % 3}.csv", i) for i in range(100)]
    expected = _sort_references(rows)
    for seed in range(20):
        shuffled = rows[:]
        random.Random(seed).shuffle(shuffled)
        assert _sort_references(iter(shuffled)) == expected


def test_duplicate_of():
    assert _duplicate_key_reject(ref("k", "u.csv", 7), "t.csv", 3) == repeat(
        "k", "u.csv:7", "t.csv:3"
    )


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_rows_of_a_pipeline_have_no_first_row(order):
    rows = [ref("a", "row a", line) for line in (-7, -5, -5)]
    detail = "another row has the same key; one of them is kept"
    reject = Reject("a", "/a", "row a", Reason.DUPLICATE_KEY, detail)
    assert _sort_references((b"\x01", rows[i]) for i in order) == ([rows[0]], [reject, reject])
    found = first_of_key([rows[i] for i in order])
    assert list(found) == [reject if i else rows[0] for i in order]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_the_first_row_of_a_key_by_file_and_line_is_kept(order):
    rows = [ref("a", "t.csv", 9), ref("a", "t.csv", 10), ref("a", "u.csv", 1)]
    later = [repeat("a", source, "t.csv:9") for source in ("t.csv:10", "u.csv:1")]
    expected = [rows[0], *later]
    found = first_of_key([rows[i] for i in order])
    assert list(found) == [expected[i] for i in order]


def test_equal_rows_are_left_to_later_steps():
    assert list(first_of_key([ref("a"), ref("a")])) == [ref("a"), ref("a")]
