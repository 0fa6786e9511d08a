"""The files of a table and their splits."""

from __future__ import annotations

import pickle

from recordmill.schemas.tables import SourceSplit, TableFile


def test_a_split_is_by_default_the_whole_file_from_its_first_row():
    file = TableFile("t.csv", "csv")
    assert file == TableFile("t.csv", "csv", gzipped=False)
    assert SourceSplit(file) == SourceSplit(file, row_group=None, first=1)


def test_splits_can_be_pickled_and_hashed():
    splits = {
        SourceSplit(TableFile("t.parquet", "parquet"), group, group * 10) for group in range(3)
    }
    assert pickle.loads(pickle.dumps(splits)) == splits  # noqa: S301
    assert len(splits) == 3
