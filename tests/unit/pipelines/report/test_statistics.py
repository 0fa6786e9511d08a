"""Class tables."""

from __future__ import annotations

from recordmill.pipelines.report.statistics import class_tables
from tests.unit.pipelines.report.index_only import dataset


def test_classes_are_ranked_and_absent_classes_are_found(tmp_path):
    splits = {"test": [[(1, 0)]], "train": [[(1, 1), (0, 2)], [(1, 3)]]}
    (table,) = class_tables(dataset(tmp_path, splits).manifest)
    assert [(row.name, row.counts) for row in table.rows] == [
        ("dog", (2, 1)),
        ("cat", (1, 0)),
        ("cow", (0, 0)),
    ]
    assert table.splits == ("train", "test")
    assert table.totals() == (3, 1)
