"""Class tables and histograms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipelines.report.statistics import (
    class_tables,
    histogram_of_bins,
    histogram_of_values,
    size_text,
)
from recordmill.schemas.statistics import edge_of
from tests.unit.pipelines.report.index_only import dataset


def test_classes_are_ranked_and_absent_classes_are_found(tmp_path):
    splits = {"test": [[(1, 0)]], "train": [[(1, 1), (0, 2)], [(1, 3)]]}
    (table,) = class_tables(dataset(tmp_path, splits).manifest)
    assert [(row.name, row.counts) for row in table.rows] == [
        ("dog", (1, 2)),
        ("cat", (0, 1)),
        ("cow", (0, 0)),
    ]
    assert (table.missing_from(0), table.missing_from(1)) == (("cat",), ())
    assert table.totals() == (1, 3)


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
    histogram = histogram_of_values(values, repr)
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
