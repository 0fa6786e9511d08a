"""Tests of the footer of Parquet files: lists of too many values are not read."""

from __future__ import annotations

import contextlib
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Projection, SourceSplit, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import parquet, parquet_footer
from recordmill.transforms.functional.sources.parquet_footer import check_nested_values

TABLE = TableFile("t.parquet", "parquet")


def written(table: pa.Table, rows: int | None = None) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows, compression="zstd")
    return sink.getvalue()


@given(
    st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), min_size=1, max_size=8),
    st.integers(1, 4),
)
@settings(max_examples=50)
def test_the_number_of_values_is_that_of_pyarrow(rows: list[list[list[int]]], size: int) -> None:
    table = pa.table({"n": pa.array(rows, pa.list_(pa.list_(pa.int32()))), "id": range(len(rows))})
    data = written(table, size)
    groups = parquet_footer._footer(io.BytesIO(data))[4]
    metadata = pq.read_metadata(io.BytesIO(data))
    for i, group in enumerate(groups):
        found = [column[3][5] for column in group[1]]
        assert found == [metadata.row_group(i).column(c).num_values for c in (0, 1)]


def test_a_list_of_equal_values_is_not_read() -> None:
    items = pa.ListArray.from_arrays(
        [0, 5_000_000, 5_000_001], pa.array([0] * 5_000_001, pa.int8())
    )
    data = written(pa.table({"id": [1, 2], "v": items}))
    assert len(data) < 2_000

    def read(*columns: str) -> list[Row | Reject]:
        found = parquet.read(io.BytesIO(data), SourceSplit(TABLE, 0, 1), Projection(columns, ""))
        return list(one_by_one(found))  # type: ignore[arg-type]

    assert [row.values for row in read("id") if isinstance(row, Row)] == [{"id": 1}, {"id": 2}]
    rejects = read("id", "v")
    assert [(r.source, r.reason) for r in rejects if isinstance(r, Reject)] == [
        ("t.parquet:1", Reason.MALFORMED_ROW),
        ("t.parquet:2", Reason.MALFORMED_ROW),
    ]
    with pytest.raises(ValueError, match=r"column 'v.list.element' has 5,000,001 values in "):
        parquet.read_table(data)
    assert parquet.read_table(data, ["id"]).num_rows == 2


@given(st.data())
@settings(max_examples=200)
def test_a_damaged_footer_is_an_error(data: st.DataObject) -> None:
    file = bytearray(written(pa.table({"v": [[1, 2], [3]], "s": [["a"], []]})))
    length = int.from_bytes(file[-8:-4], "little")
    at = data.draw(st.integers(len(file) - 8 - length, len(file) - 9))
    file[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        check_nested_values(io.BytesIO(bytes(file)), 0, frozenset({"v.list.element"}))
