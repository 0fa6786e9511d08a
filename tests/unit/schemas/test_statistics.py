"""Tallies add up, in any order and any parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.records import ImageShape
from recordmill.schemas.statistics import ImageTally, _bin_of, edge_of

SHAPES = st.builds(
    ImageShape,
    format=st.sampled_from(["jpeg", "png"]),
    width=st.integers(1, 70_000),
    height=st.integers(1, 70_000),
    channels=st.integers(1, 4),
    bytes=st.integers(1, 10**9),
)


def tally(shapes):
    made = ImageTally()
    for shape in shapes:
        made.add(shape)
    return made


@given(st.lists(SHAPES), st.lists(SHAPES))
def test_tallies_of_parts_add_up_to_that_of_the_whole(one, two):
    assert ImageTally.sum_of([tally(one), tally(two)]) == tally(two + one)


@given(st.lists(SHAPES, min_size=1))
def test_every_image_is_counted_in_its_bin(shapes):
    made = tally(shapes)
    assert made.images == len(shapes) == made.widths.total() == made.ratios.total()
    assert made.total_bytes == sum(shape.bytes for shape in shapes)
    widths = [shape.width for shape in shapes]
    assert made.extremes["width"] == (min(widths), max(widths))
    for bin_, count in made.widths.items():
        low, high = edge_of(bin_, 4), edge_of(bin_ + 1, 4)
        assert count == sum(low - 1e-6 <= width < high - 1e-6 for width in widths)


@given(st.floats(1e-4, 1e9), st.sampled_from([1, 4, 8]))
def test_a_bin_has_the_values_between_its_edges(value, steps):
    index = _bin_of(value, steps)
    assert edge_of(index, steps) <= value * (1 + 1e-8)
    assert value < edge_of(index + 1, steps) * (1 + 1e-8)


@pytest.mark.parametrize(("value", "index"), [(1, 0), (2, 4), (256, 32), (255, 31)])
def test_powers_of_two_begin_a_bin(value, index):
    assert _bin_of(value, 4) == index
