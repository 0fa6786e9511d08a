"""The files of a table and their parts."""

from __future__ import annotations

import pickle

from recordmill.schemas.tables import TableFile, TablePart


def test_a_part_is_by_default_the_whole_file_from_its_first_row():
    file = TableFile("t.csv", "csv")
    assert file == TableFile("t.csv", "csv", gzipped=False)
    assert TablePart(file) == TablePart(file, row_group=None, first=1)


def test_parts_cross_processes_and_are_reported_apart():
    parts = {TablePart(TableFile("t.parquet", "parquet"), group, group * 10) for group in range(3)}
    assert pickle.loads(pickle.dumps(parts)) == parts  # noqa: S301
    assert len(parts) == 3
