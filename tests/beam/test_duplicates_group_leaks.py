"""FindGroupLeaks: exactly the groups with rows in more than one split."""

from __future__ import annotations

from collections import defaultdict

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipelines.graph import _groups_may_span_splits
from recordmill.schemas.statistics import GroupLeakage
from recordmill.transforms.duplicates import FindGroupLeaks
from recordmill.transforms.elements import AssignedRows
from recordmill.transforms.functional.duplicates import (
    distinct_splits,
    group_leakage,
)
from recordmill.transforms.functional.rows.batches import OrderedRefs
from tests.beam.direct import config, direct_pipeline, ref

ROWS = [
    *[("p1", "train"), ("p2", "test"), ("p1", "test"), ("p3", "train"), ("p3", "train")],
    *[("p4", "test"), ("p4", "train"), ("p4", "extra"), ("", "train"), ("", "test")],
]
LEAKS = GroupLeakage(
    groups=2, examples=(("p1", ("test", "train")), ("p4", ("extra", "test", "train")))
)


def assigned(rows: list[tuple[str, str]]) -> list[AssignedRows]:
    return [
        ((split, 0), OrderedRefs.of([(bytes([i]), ref(f"{i}.jpg", i)._replace(group=group))]))
        for i, (group, split) in enumerate(rows)
    ]


def test_groups_in_several_splits_are_detected() -> None:
    with direct_pipeline() as p:
        rows = p | beam.Create(assigned(ROWS))
        leaks = rows | FindGroupLeaks() | beam.CombineGlobally(GroupLeakage.sum_of)
        assert_that(leaks, equal_to([LEAKS]))


@given(
    rows=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("xyz")), max_size=40),
    parts=st.integers(1, 4),
)
def test_leaks_equal_those_of_a_brute_force_search(rows: list[tuple[str, str]], parts: int) -> None:
    spread: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for i in range(parts):
        for group in {group for group, _ in rows[i::parts]}:
            spread[group].append(distinct_splits((s,) for g, s in rows[i::parts] if g == group))
    found = [
        leak for g, splits in spread.items() for leak in group_leakage(g, distinct_splits(splits))
    ]
    merged = GroupLeakage.sum_of(map(GroupLeakage.sum_of, (found[:2], found[2:])))
    plain = {g: sorted({s for other, s in rows if other == g}) for g, _ in rows}
    torn = sorted((g, tuple(splits)) for g, splits in plain.items() if len(splits) > 1)
    assert merged == GroupLeakage(groups=len(torn), examples=tuple(torn[:5]))


def test_groups_are_compared_if_a_column_or_base_decides_splits() -> None:
    asked = [
        {"group_column": "patient", "split_column": "split"},
        {"group_column": "patient", "base": "out/birds/1.0.0"},
        {"group_column": "patient"},
        {"split_column": "split"},
    ]
    assert [_groups_may_span_splits(config(**options)) for options in asked] == [
        True,
        True,
        False,
        False,
    ]
