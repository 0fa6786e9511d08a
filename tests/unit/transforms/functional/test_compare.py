"""Compares the comparison by digests with a direct comparison of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional.compare import (
    ComparedPair,
    ComparedRecord,
    Comparison,
    compare,
    digest_rows,
    other_ids,
    row_dtype,
    value_digests,
)

SHOWN = 3

# key to its split and two values
datasets = st.dictionaries(
    st.text(max_size=2),
    st.tuples(st.integers(0, 2), st.tuples(st.integers(0, 1), st.integers(0, 1))),
    max_size=20,
)


def spots_of(dataset):
    """Returns the location of each record, with one shard per split."""
    rows = Counter()
    locations = {}
    for key, (split, _) in dataset.items():
        locations[key] = ComparedRecord(split, 7, rows[split])
        rows[split] += 1
    return locations


def digested(dataset):
    """Returns the rows of a dataset in any order."""
    locations = spots_of(dataset)
    parts = [
        digest_rows(locations[key], [key], b"".join(v.to_bytes(8, "little") for v in values), 2)
        for key, (_, values) in dataset.items()
    ]
    return np.concatenate([np.zeros(0, row_dtype(2)), *reversed(parts)])


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("abc", "ac", {1: 2}),
        ("abc", "abcd", {}),
        ("ab", "ba", {0: 1, 1: 0}),
        ("ab", "xb", {}),
        ("ab", "bx", {0: 1, 1: -2}),
        ("ab", "xab", {0: -1, 1: 0, 2: 1}),
        ("", "ab", {}),
    ],
)
def test_ids_of_classes_with_one_name_are_compared(
    left: str, right: str, expected: dict[int, int]
) -> None:
    assert other_ids(left, right) == expected

    def example(ids: Iterable[int]) -> bytes:
        label = tf.train.Feature(int64_list=tf.train.Int64List(value=[*ids, -1]))
        features = tf.train.Features(feature={"label": label})
        return tf.train.Example(features=features).SerializeToString()

    found = value_digests(example(range(len(right))), ["label", "x"], {"label": expected})
    of_left = example(expected.get(n, n) for n in range(len(right)))
    assert found == value_digests(of_left, ["label", "x"])


@given(datasets, datasets)
def test_comparison_agrees_with_a_direct_one(left, right):
    at_left, at_right = spots_of(left), spots_of(right)
    common = left.keys() & right.keys()
    different = [k for k in common if left[k][1] != right[k][1]]
    moved = [k for k in common if left[k][1] == right[k][1] and left[k][0] != right[k][0]]
    features = {
        k: tuple(n for n in (0, 1) if left[k][1][n] != right[k][1][n]) for k in different + moved
    }
    only_left, only_right = left.keys() - right.keys(), right.keys() - left.keys()

    def pairs(keys):
        found = [ComparedPair(at_left[k], at_right[k], features[k]) for k in keys]
        return sorted(found)[:SHOWN]

    assert compare(digested(left), digested(right), SHOWN) == Comparison(
        same=len(common) - len(different) - len(moved),
        different=len(different),
        features=Counter(n for k in different for n in features[k]),
        moved=Counter((left[k][0], right[k][0]) for k in moved),
        only_left=Counter(left[k][0] for k in only_left),
        only_right=Counter(right[k][0] for k in only_right),
        different_examples=pairs(different),
        moved_examples=pairs(moved),
        left_examples=sorted(at_left[k] for k in only_left)[:SHOWN],
        right_examples=sorted(at_right[k] for k in only_right)[:SHOWN],
    )


@given(datasets, datasets)
def test_merged_parts_equal_the_total(left, right):
    one, other = digested(left), digested(right)
    halves = [
        [rows[(rows["key"][:, 0] & np.uint64(1)) == bit] for rows in (one, other)] for bit in (0, 1)
    ]
    parts = [compare(*both, SHOWN) for both in halves]
    assert Comparison.sum_of(parts).first(SHOWN) == compare(one, other, SHOWN)


def test_the_rows_of_a_shard():
    rows = digest_rows(ComparedRecord(1, 2, 5), ["a", "b"], bytes(range(32)), 2)
    assert rows["split"].tolist() == [1, 1]
    assert rows["shard"].tolist() == [2, 2]
    assert rows["row"].tolist() == [5, 6]
    assert rows["values"].tobytes() == bytes(range(32))
    assert rows["key"][0].tobytes().hex() == "ca978112ca1bbdcafac231b39a23dc4d"  # of sha256("a")
    assert digest_rows(ComparedRecord(0, 0, 0), ["a"], None, 3)["values"].tolist() == [[0, 0, 0]]


def example(**features):
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def ints(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def floats(*values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def test_value_digests_distinguish_only_values():
    values = [ints(), ints(0), ints(1), ints(1, 2), ints(2, 1), floats(), floats(1.0), floats(-0.0)]
    digests = [value_digests(example(a=value), ["a"]) for value in values]
    assert len({*digests, value_digests(example(), ["a"])}) == len(values) + 1
    both = example(a=ints(1), b=ints(2))
    assert value_digests(both, ["b", "a"]) == (
        value_digests(example(b=ints(2)), ["b"]) + value_digests(example(a=ints(1)), ["a"])
    )
