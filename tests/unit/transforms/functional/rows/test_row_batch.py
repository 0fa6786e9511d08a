"""Tests of rows as columns: they are the same rows."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.records import Cluster, Location, Row, SkippedInput
from recordmill.transforms.functional.rows import batches
from recordmill.transforms.functional.rows.batches import RowBatch, batches_of, one_by_one

VALUES = st.dictionaries(
    st.sampled_from(["a", "b", "c.d", ""]),
    st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
)
ROWS = st.lists(
    st.builds(
        Row,
        values=VALUES,
        file=st.sampled_from(["t.csv", "u.csv"]),
        line=st.integers(0, 9),
        is_text=st.just(frozenset({"a"})),
        image=st.none() | st.just(Location("i.png", 1, 2)),
        cluster=st.builds(Cluster, st.sampled_from(["", "x"])),
    ),
    min_size=1,
    max_size=6,
)


@given(ROWS, st.data())
def test_a_batch_has_the_rows_that_it_was_made_of(rows: list[Row], data: st.DataObject) -> None:
    batch = RowBatch.of(rows)
    assert [*batch] == rows
    assert [batch[i] for i in range(len(batch))] == rows
    assert RowBatch.of(batch) is batch
    assert pickle.loads(pickle.dumps(batch)) == batch == rows  # noqa: S301 - our own
    start = data.draw(st.integers(0, len(rows) - 1))
    assert [*batch[start:]] == rows[start:]
    some = data.draw(st.permutations(range(len(rows))))
    assert [*batch.take(some)] == [rows[i] for i in some]


@given(ROWS)
def test_a_column_has_the_value_of_each_row(rows: list[Row]) -> None:
    batch = RowBatch.of(rows)
    assert {*batch.names} == {name for row in rows for name in row.values}
    for name in [*batch.names, "elsewhere"]:
        assert [*batch.column(name)] == [row.values.get(name) for row in rows]
        assert batch.untyped(name) is (name == "a")


@pytest.mark.parametrize(
    ("is_text", "expected"),
    [(True, True), (False, frozenset({"day"})), (frozenset({"a"}), frozenset({"a", "day"}))],
)
def test_columns_of_text_are_added_to_all_rows(is_text: Any, expected: Any) -> None:
    rows = [Row({"a": 1}, "t", 1, is_text), Row({}, "t", 2, is_text)]
    added = RowBatch.of(rows).with_text({"day": "1"})
    assert [*added] == [
        Row({"a": 1, "day": "1"}, "t", 1, expected),
        Row({"day": "1"}, "t", 2, expected),
    ]


def test_rows_with_many_different_columns_are_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "_MAX_CELLS", 8)
    rows = [Row({f"c{i}": i}, "t", i) for i in range(5)]
    found = list(batches_of(rows))
    assert [len(batch) * len(batch.names) for batch in found] == [4, 1, 4]
    assert [*one_by_one(found)] == rows
    assert list(batches_of([])) == []


def test_other_elements_stay_between_rows() -> None:
    row, skipped = Row({}, "t", 1), SkippedInput("files")
    assert [*one_by_one([RowBatch.of([row, row]), skipped, row])] == [row, row, skipped, row]
