"""Tests that columns of Parquet files are not decoded if they expand to far more memory."""

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
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import parquet
from recordmill.transforms.functional.sources.stated_sizes import pages_of_group

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
    metadata = pq.read_metadata(io.BytesIO(data))
    for i in range(metadata.num_row_groups):
        columns = [metadata.row_group(i).column(c) for c in (0, 1)]
        expected = {
            c.path_in_schema: (c.num_values, c.total_compressed_size, c.dictionary_page_offset)
            for c in columns
        }
        pages = pages_of_group(io.BytesIO(data), i)
        assert {path: found[1:] for path, found in pages.items()} == expected
        for column in columns:
            found = list(pages[column.path_in_schema]._pages(io.BytesIO(data)))
            assert [kind for kind, _, _ in found] == [2, 0]
            assert sum(size for _, size, _ in found) < column.total_uncompressed_size


def test_a_list_of_equal_values_is_not_read() -> None:
    items = pa.ListArray.from_arrays(
        [0, 5_000_000, 5_000_001], pa.array([0] * 5_000_001, pa.int8())
    )
    data = written(pa.table({"id": [1, 2], "v": items}))
    assert len(data) < 2_000

    def read(*columns: str) -> list[Row | Reject]:
        found = parquet.read(io.BytesIO(data), Part(TABLE, 0, 1), Projection(columns, ""))
        return list(one_by_one(found))  # type: ignore[arg-type]

    assert [row.values for row in read("id") if isinstance(row, Row)] == [{"id": 1}, {"id": 2}]
    rejects = read("id", "v")
    assert [(r.source, r.reason) for r in rejects if isinstance(r, Reject)] == [
        ("t.parquet:1", Reason.MALFORMED_ROW),
        ("t.parquet:2", Reason.MALFORMED_ROW),
    ]
    with pytest.raises(ValueError, match=r"'v.list.element': 5,000,001 values in "):
        parquet.read_table(data)
    assert parquet.read_table(data, ["id"]).num_rows == 2


@given(st.data())
@settings(max_examples=100)
def test_a_damaged_footer_is_an_error(data: st.DataObject) -> None:
    file = bytearray(written(pa.table({"v": [[1, 2], [3]], "s": [["a"], []]})))
    length = int.from_bytes(file[-8:-4], "little")
    at = data.draw(st.integers(len(file) - 8 - length, len(file) - 9))
    file[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        for column in pages_of_group(io.BytesIO(file), 0).values():
            column.check(io.BytesIO(file))


LONG = pa.array(["x" * 2**20])
BOMBS = {
    "page": pa.table({"v": [b"\0" * (65 * 2**20)]}),
    "dictionary page": pa.table({"v": pa.array(["x" * (65 * 2**20)]).dictionary_encode()}),
    "list of long texts": pa.table(
        {"v": pa.ListArray.from_arrays([0, 99], pa.DictionaryArray.from_arrays([0] * 99, LONG))}
    ),
    "fields of lists": pa.table(
        {
            "v": pa.ListArray.from_arrays(
                [0, 999_999],
                pa.StructArray.from_arrays([pa.array([0] * 999_999, pa.int8())] * 5, names="abcde"),
            )
        }
    ),
    "long texts": pa.table(
        {"v": pa.DictionaryArray.from_arrays([0] * 20, pa.array(["x" * 2**23]))}
    ),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_columns_that_expand_are_not_decoded(kind: str) -> None:
    data = written(BOMBS[kind])
    assert len(data) < 20_000
    before = pa.total_allocated_bytes()
    peak = before

    def read() -> list[Row | Reject]:
        found = parquet.read(io.BytesIO(data), Part(TABLE, 0, 1), Projection(None, ""))
        return list(one_by_one(found))  # type: ignore[arg-type]

    rejects = read()
    peak = max(peak, pa.total_allocated_bytes())
    assert peak - before < 64 * 2**20
    assert len(rejects) == BOMBS[kind].num_rows
    assert {r.reason for r in rejects if isinstance(r, Reject)} == {Reason.MALFORMED_ROW}


@given(st.lists(st.lists(st.text(max_size=9), max_size=4), min_size=1, max_size=30))
@settings(max_examples=50)
def test_texts_that_repeat_are_read_if_they_are_small(rows: list[list[str]]) -> None:
    data = written(pa.table({"v": rows}, pa.schema([("v", pa.list_(pa.string()))])))
    assert parquet.read_table(data)["v"].to_pylist() == rows


def test_a_table_without_rows_is_read() -> None:
    """Arrow writes one row group, whose columns state 0 as the place of their data."""
    data = written(pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.binary())}))
    batches = parquet.open_parquet(io.BytesIO(data)).iter_batches(9, columns=["a", "b"])
    assert sum(batch.num_rows for batch in batches) == 0
