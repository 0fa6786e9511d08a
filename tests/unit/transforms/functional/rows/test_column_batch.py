"""Tests of named tuples as columns: they are the same rows as in a list."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional.rows.batches import ColumnBatch, once


class Pair(NamedTuple):
    """A key, and a value of any type."""

    key: str
    value: Any
    text: str = ""


class Pairs(ColumnBatch[Pair]):
    """Rows with a key, a value and a text."""

    row_class, fields = Pair, Pair._fields


VALUES = st.sampled_from([None, "", "a", b"", b"x", 0, False, 0.0, -0.0, 1, True, (1,), ["a"]])
ROWS = st.lists(st.builds(Pair, st.sampled_from("ab"), VALUES, st.sampled_from(["", "a"])))


def with_shared(rows: list[Pair]) -> Pairs:
    """Returns a batch whose columns are single values where all values are the same."""
    key, *others = Pairs.of(rows).columns
    return Pairs([key, *map(once, others)])


@given(ROWS, st.data())
def test_a_batch_has_the_rows_that_it_was_made_of(rows: list[Pair], data: st.DataObject) -> None:
    for batch in (Pairs.of(rows), with_shared(rows)):
        assert len(batch) == len(rows)
        assert repr([*batch]) == repr(rows)  # unlike ==, distinguishes 0, 0.0, -0.0 and False
        assert repr(batch) == f"Pairs.of({rows!r})"
        assert {type(row) for row in batch} <= {Pair}
        assert batch == rows
        assert pickle.loads(pickle.dumps(batch)) == rows  # noqa: S301 - our own
        assert Pairs.of(batch) is batch
        for name in Pair._fields:
            assert repr([*batch.column(name)]) == repr([getattr(row, name) for row in rows])
        assert [batch[i] for i in range(-len(rows), len(rows))] == rows * 2
        some = data.draw(st.slices(len(rows)))
        assert repr([*batch[some]]) == repr(rows[some])
        positions = data.draw(st.lists(st.sampled_from(range(len(rows))))) if rows else []
        assert repr([*batch.take(positions)]) == repr([rows[i] for i in positions])


@given(st.lists(ROWS))
def test_batches_are_joined(parts: list[list[Pair]]) -> None:
    rows = [row for part in parts for row in part]
    assert repr([*Pairs.joined(parts)]) == repr(rows)
    joined = Pairs.joined(map(with_shared, parts))
    assert len(joined) == len(rows)
    assert repr([*joined]) == repr(rows)


@given(ROWS)
def test_fields_are_selected(rows: list[Pair]) -> None:
    for batch in (Pairs.of(rows), with_shared(rows)):
        selected = batch.select("text", "value")
        expected = [(row.text, row.value) for row in rows]
        if len(selected) == 1:
            selected *= len(rows)
        assert repr(selected) == repr(expected) or not rows


def test_a_field_that_all_rows_of_all_parts_share_stays_a_single_value() -> None:
    parts = [with_shared([Pair("a", 1, "t"), Pair("b", 2, "t")]), with_shared([Pair("c", 3, "t")])]
    joined = Pairs.joined(parts)
    assert joined.columns == (("a", "b", "c"), (1, 2, 3), ("t",))
    assert joined[1:].columns == (("b", "c"), (2, 3), ("t",))
    assert joined.take([2, 0]).columns == (("c", "a"), (3, 1), ("t",))
    assert joined.select("text") == [("t",)]
    assert joined.select("text", "key") == [("t", "a"), ("t", "b"), ("t", "c")]
    other = Pairs.joined([joined, [Pair("d", 4, "u")]])
    assert other.columns[2] == ("t", "t", "t", "u")


def test_a_position_outside_of_a_batch_is_an_error() -> None:
    batch = with_shared([Pair("a", 1), Pair("b", 1)])
    with pytest.raises(IndexError):
        batch[2]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (("a", "a"), ("a",)),
        ((b"", b""), (b"",)),
        ((None, None), (None,)),
        (("a", "b"), ("a", "b")),
        ((0.0, -0.0), (0.0, -0.0)),
        ((1, 1), (1, 1)),
        (((), ()), ((), ())),
        ((), ()),
    ],
)
def test_only_text_bytes_and_none_become_a_single_value(
    column: tuple[Any, ...], expected: tuple[Any, ...]
) -> None:
    assert once(column) == expected
