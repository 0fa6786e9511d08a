"""Sums of counts: by the type of each field, in any order, and of any partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from recordmill.schemas.statistics import Leakage
from recordmill.schemas.sums import Summed


@dataclass
class Inner(Summed):
    number: int = 0


@dataclass
class Counts(Summed):
    number: int = 0
    known: int | None = None
    largest: float = 0.0
    found: bool = False
    counter: Counter[str] = field(default_factory=Counter)
    by_name: dict[str, int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    inner: Inner = field(default_factory=Inner)
    examples: tuple[int, ...] = ()


class Model(Summed, BaseModel):
    counts: dict[str, int] = {}
    parts: tuple[Leakage, ...] = ()


parts = st.builds(
    Counts,
    st.integers(-5, 5),
    st.none() | st.integers(0, 5),
    st.sampled_from([0.0, 1.5, 7.0]),
    st.booleans(),
    st.builds(Counter, st.dictionaries(st.sampled_from("ab"), st.integers(0, 3))),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 3)),
    st.sets(st.sampled_from("ab")),
    st.builds(Inner, st.integers(0, 3)),
    st.tuples(st.integers(0, 9)),
)


def test_each_field_is_added_by_its_type() -> None:
    one = Counts(1, None, 2.0, False, Counter(a=1), {"a": 1}, {"a"}, Inner(1), (3, 4, 5))
    two = Counts(2, 7, 1.0, True, Counter(a=1, b=0), {"b": 2}, {"b"}, Inner(4), (1, 2, 9))
    expected = Counts(
        *(3, 7, 2.0, True, Counter(a=2, b=0), {"a": 1, "b": 2}, {"a", "b"}, Inner(5)),
        (1, 2, 3, 4, 5),  # as many as are kept
    )
    assert Counts.sum_of([one, two]) == expected
    assert list(expected.counter) == ["a", "b"]  # also one of zero


@given(st.lists(parts, max_size=6), st.integers(0, 6), st.randoms())
def test_the_sum_does_not_depend_on_the_partition(found, cut, random) -> None:
    whole = Counts.sum_of(found)
    random.shuffle(found)
    assert Counts.sum_of([Counts.sum_of(found[:cut]), Counts.sum_of(found[cut:])]) == whole


def test_parts_in_a_tuple_are_added_by_their_key() -> None:
    def leak(one: str, other: str, images: int, key: str) -> Leakage:
        return Leakage(splits=(one, other), images=images, records=2, examples=((key, key),))

    one = Model(counts={"a": 1}, parts=(leak("a", "b", 1, "x"), leak("b", "c", 5, "k")))
    two = Model(counts={"a": 2}, parts=(leak("a", "b", 2, "w"),))
    both = Leakage(splits=("a", "b"), images=3, records=4, examples=(("w", "w"), ("x", "x")))
    assert Model.sum_of([one, two]) == Model(counts={"a": 3}, parts=(both, one.parts[1]))
    assert Model.sum_of([]) == Model()
