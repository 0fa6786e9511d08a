"""The order within a shard, and the rows that repeat a key."""

from __future__ import annotations

import random

import pytest

from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.functional.rows.shard_order import duplicate_of, in_order


def ref(key, file="t.csv", line=1, uri="", values=()):
    return ImageRef(
        key=key, uri=uri or f"/{key}", start=None, stop=None, values=values, file=file, line=line
    )


def placed(order, *arguments, **options):
    return order, ref(*arguments, **options)


def repeat(key, source, first):
    detail = f"the key stands in {first}, too; only the first row counts"
    return Reject(key, f"/{key}", source, Reason.DUPLICATE_KEY, detail)


@pytest.mark.parametrize(
    ("rows", "kept", "repeated"),
    [
        pytest.param([], [], [], id="no rows"),
        pytest.param(
            [placed(b"\x02", "a", line=1), placed(b"\x01", "b", line=2)],
            [ref("b", line=2), ref("a", line=1)],
            [],
            id="by order, not by line",
        ),
        pytest.param(
            [placed(b"\x80", "a"), placed(b"\x7f", "b")],
            [ref("b"), ref("a")],
            [],
            id="bytes compare unsigned",
        ),
        pytest.param(
            [placed(b"\x01", "a", line=9), placed(b"\x01", "a", line=10)],
            [ref("a", line=9)],
            [repeat("a", "t.csv:10", "t.csv:9")],
            id="line 9 comes before line 10",
        ),
        pytest.param(
            [placed(b"\x01", "a", "u.csv", 1), placed(b"\x01", "a", "t.csv", 5)],
            [ref("a", "t.csv", 5)],
            [repeat("a", "u.csv:1", "t.csv:5")],
            id="the first file counts",
        ),
        pytest.param(
            [placed(b"\x01", "a", line=n) for n in (3, 1, 2)],
            [ref("a", line=1)],
            [repeat("a", "t.csv:2", "t.csv:1"), repeat("a", "t.csv:3", "t.csv:1")],
            id="three of one key all name the first",
        ),
        pytest.param(
            [placed(b"\x01", "b", line=1), placed(b"\x01", "a", line=2)],
            [ref("a", line=2), ref("b", line=1)],
            [],
            id="two keys of one order are two keys",
        ),
    ],
)
def test_in_order(rows, kept, repeated):
    assert in_order(rows) == (kept, repeated)


def test_rows_that_differ_only_in_what_does_not_compare_are_sorted_all_the_same():
    rows = [
        placed(b"\x01", "a", line=2, uri="/a", values=(None, [1])),
        placed(b"\x01", "a", line=1, uri="/a", values=(b"x", 1)),
    ]
    kept, repeated = in_order(rows)
    assert kept == [rows[1][1]]
    assert [reject.source for reject in repeated] == ["t.csv:2"]


def test_the_order_in_which_rows_arrive_does_not_matter():
    rows = [placed(bytes([i % 7]), f"k{i % 11}", f"t{i % 3}.csv", i) for i in range(100)]
    expected = in_order(rows)
    for seed in range(20):
        shuffled = rows[:]
        random.Random(seed).shuffle(shuffled)
        assert in_order(iter(shuffled)) == expected


def test_duplicate_of():
    assert duplicate_of(ref("k", "u.csv", 7), "t.csv", 3) == repeat("k", "u.csv:7", "t.csv:3")
