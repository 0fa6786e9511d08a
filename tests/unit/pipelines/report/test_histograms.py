"""Histograms and sizes as texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipelines.report.statistics import (
    _histogram_of_values,
    histogram_of_bins,
    size_text,
)
from recordmill.schemas.statistics import edge_of


@given(st.dictionaries(st.integers(-30, 120), st.integers(1, 99), min_size=1, max_size=40))
def test_merged_bins_hold_all_values(counts):
    histogram = histogram_of_bins(counts, 4, repr)
    assert histogram.total == sum(counts.values())
    assert len(histogram.bars) <= 24
    assert float(histogram.bars[0].low) <= edge_of(min(counts), 4) * (1 + 1e-9)
    assert float(histogram.bars[-1].high) >= edge_of(max(counts) + 1, 4) * (1 - 1e-9)
    assert [bar.high for bar in histogram.bars[:-1]] == [bar.low for bar in histogram.bars[1:]]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_every_value_is_in_a_bar(values):
    histogram = _histogram_of_values(values, repr)
    assert histogram.total == len(values)
    assert (float(histogram.minimum), float(histogram.maximum)) == (min(values), max(values))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (2**20 - 1, "1.00 MiB"),
        (10**13, "9.09 TiB"),
    ],
)
def test_sizes_have_the_largest_unit_that_fits(count, text):
    assert size_text(count) == text


def test_bars_of_integers_hold_whole_numbers():
    found = _histogram_of_values([0, 2, 2, 5], str)
    assert [(bar.range, bar.count) for bar in found.bars] == [
        ("0", 1),
        ("1", 0),
        ("2", 2),
        ("3", 0),
        ("4", 0),
        ("5", 1),
    ]
    assert (found.minimum, found.maximum) == ("0", "5")
    wide = _histogram_of_values(list(range(40)), str)
    assert [(bar.range, bar.count) for bar in wide.bars[-2:]] == [
        ("36 – 38", 3),
        ("39 – 41", 1),
    ]


def test_long_tails_have_a_logarithmic_axis():
    found = _histogram_of_values([1] * 50 + [2, 3, 3, 900], str)
    assert found.is_logarithmic
    assert [(bar.range, bar.count) for bar in found.bars] == [
        ("1", 50),
        ("2 – 3", 3),
        ("4 – 7", 0),
        ("8 – 15", 0),
        ("16 – 31", 0),
        ("32 – 63", 0),
        ("64 – 127", 0),
        ("128 – 255", 0),
        ("256 – 511", 0),
        ("512 – 900", 1),
    ]
    prices = _histogram_of_values([0.25] * 20 + [0.5, 1000.0], str)
    assert (prices.bars[0].range, prices.bars[0].count) == ("0.25 – 0.5", 20)
    assert (prices.minimum, prices.maximum, prices.total) == ("0.25", "1000.0", 22)


def test_values_without_a_long_tail_or_with_a_zero_have_a_linear_axis():
    assert not _histogram_of_values(list(range(1, 900)), str).is_logarithmic
    assert not _histogram_of_values([0] * 50 + [900], str).is_logarithmic
