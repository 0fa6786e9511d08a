"""Numbers of rows for each split: within one row of the exact share of each label."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional.rows.strata import (
    MAX_GROUP_LABELS,
    MAX_GROUPS,
    Group,
    allocate_groups,
    allocate_rows,
    group_bits,
)

WEIGHTS = st.lists(st.integers(1, 100), min_size=1, max_size=5)
SINGLE = st.dictionaries(st.tuples(st.integers(0, 60)), st.integers(0, 1_000), max_size=40)
LABEL_SETS = st.sets(st.integers(0, 8), max_size=4).map(lambda labels: tuple(sorted(labels)))
SEVERAL = st.dictionaries(LABEL_SETS, st.integers(1, 20), max_size=30)


def excess(allocated, weights, labels=None):
    """Returns by how many rows each split exceeds its share of the rows with some labels."""
    rows = [found for key, found in allocated.items() if labels is None or labels <= set(key)]
    total = sum(map(sum, rows))
    shares = [Fraction(total * weight, sum(weights)) for weight in weights]
    return [sum(r[split] for r in rows) - share for split, share in enumerate(shares)]


@given(SINGLE, WEIGHTS)
def test_each_class_is_within_one_row_of_its_share(counts, weights):
    allocated = allocate_rows(counts, weights)
    assert {labels: sum(rows) for labels, rows in allocated.items()} == counts
    for labels, rows in allocated.items():
        assert all(abs(over) < 1 for over in excess({labels: rows}, weights))
        assert min(rows) >= 0
    assert all(abs(over) < len(weights) for over in excess(allocated, weights))


@given(SEVERAL, WEIGHTS)
def test_each_label_set_is_within_one_row_of_its_share(counts, weights):
    allocated = allocate_rows(counts, weights)
    assert {labels: sum(rows) for labels, rows in allocated.items()} == counts
    for labels, rows in allocated.items():
        assert all(abs(over) < 1 for over in excess({labels: rows}, weights))


@given(SEVERAL, WEIGHTS, st.randoms())
def test_the_order_of_the_label_sets_does_not_matter(counts, weights, random):
    keys = list(counts)
    random.shuffle(keys)
    expected = allocate_rows(counts, weights)
    assert allocate_rows({key: counts[key] for key in keys}, weights) == expected


@pytest.mark.parametrize("weights", [(8, 1, 1), (7, 2, 1), (1, 1, 1), (90, 5, 3, 2)], ids=str)
def test_many_labels_per_row_are_within_two_rows_of_their_shares(weights):
    # Powers of some numbers modulo a prime stand for random labels, a few of them frequent.
    counts = Counter(
        tuple(sorted({pow(base, i, 1_009) % 41 % (3 * base) for base in (2, 5, 11, 13)}))
        for i in range(1, 1_000)
    )
    assert len(counts) > 300
    allocated = allocate_rows(counts, weights)
    for label in range(39):
        assert max(map(abs, excess(allocated, weights, {label}))) < 2
    assert max(map(abs, excess(allocated, weights))) <= 1


def test_totals_are_exact_although_every_class_is_rounded():
    # Of 7 rows, 5.6 belong to train: largest remainders alone would give all classes 5.
    allocated = allocate_rows({(label,): 7 for label in range(1_000)}, (8, 1, 1))
    assert [sum(column) for column in zip(*allocated.values(), strict=True)] == [5600, 700, 700]


@given(SINGLE, WEIGHTS, st.data())
def test_rows_of_the_base_version_count_and_new_ones_fill_up(counts, weights, data):
    kept = st.lists(st.integers(0, 50), min_size=len(weights), max_size=len(weights))
    fixed = data.draw(st.dictionaries(st.tuples(st.integers(0, 60)), kept, max_size=20))
    allocated = allocate_rows(counts, weights, fixed)
    assert {labels: sum(rows) for labels, rows in allocated.items()} == counts
    for labels, rows in allocated.items():
        of_set = fixed.get(labels, [0] * len(weights))
        together = [new + old for new, old in zip(rows, of_set, strict=True)]
        over = excess({labels: together}, weights)
        # A split that already has more than its share gets no row.
        full = (new for new, e in zip(rows, over, strict=True) if e - new > 0)
        assert not any(full)
        if all(e - new <= 0 for new, e in zip(rows, over, strict=True)):
            assert all(abs(e) < 1 for e in over)


def test_new_rows_fill_the_split_that_lacks_most():
    assert allocate_rows({(0,): 10}, [1, 1], {(0,): [10, 0]}) == {(0,): [0, 10]}
    assert allocate_rows({(0,): 20}, [1, 1], {(0,): [10, 0]}) == {(0,): [5, 15]}


GROUPS = st.dictionaries(
    st.integers(0, 1_000),
    st.builds(
        lambda labels, others: Group(labels, sum(labels.values()) + others),
        st.dictionaries(st.integers(0, 5), st.integers(1, 9), max_size=3),
        st.integers(1, 3),
    ),
    max_size=30,
).map(lambda groups: dict(sorted(groups.items())))


@given(GROUPS, WEIGHTS)
def test_every_group_is_in_one_split(groups, weights):
    found = allocate_groups(groups, weights)
    assert found.keys() == groups.keys()
    assert set(found.values()) <= set(range(len(weights)))


def test_groups_come_close_to_the_shares_of_all_rows_and_of_each_label():
    groups = {i: Group({i % 3: 2 + i % 4}, 2 + i % 4) for i in range(120)}
    found = allocate_groups(groups, [8, 1, 1])
    rows, labels = Counter(), Counter()
    for key, split in found.items():
        rows[split] += groups[key].rows
        labels.update({(label, split): n for label, n in groups[key].labels.items()})
    assert [rows[split] for split in range(3)] == [336, 42, 42]
    for label in range(3):
        assert [labels[label, split] for split in range(3)] == [112, 14, 14]


def test_a_group_of_the_base_version_stays_with_most_of_its_rows():
    groups = {i: Group({}, 10, (0, 2, 1) if i < 3 else ()) for i in range(10)}
    found = allocate_groups(groups, [8, 1, 1])
    assert [found[i] for i in range(3)] == [1, 1, 1]
    # The split that already has more than its share gets no other group.
    assert Counter(found.values()) == {0: 6, 1: 3, 2: 1}


@given(st.integers(0, 2**30), st.integers(0, 2**30), st.integers(1, 10**6))
def test_the_groups_in_memory_are_limited(groups, group_labels, labels):
    bits = group_bits(groups, group_labels, labels)
    assert bits == 64 or (bits >= 8 and 2**bits <= MAX_GROUPS)
    assert bits in (8, 64) or 2**bits * labels <= MAX_GROUP_LABELS
    assert (bits == 64) == (groups <= MAX_GROUPS and group_labels <= MAX_GROUP_LABELS)
