"""Tests of the files of lakehouse tables: their columns are those of the table."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import parquet
from recordmill.transforms.functional.sources.parquet import (
    FIELD_ID,
    DataFile,
    _deleted_lines,
    encoded_rows,
    encoded_template,
    mapped,
    with_names,
)


def file_of(schema: pa.Schema, deleted: tuple[int, ...] = (), **values: Any) -> TableFile:
    """Returns a data file whose columns have the names of those of the table."""
    named = pa.schema([mapped(f, lambda f: with_names(f, [f.name], {})) for f in schema])
    rows = encoded_rows(np.array(deleted, np.int64))
    return TableFile(
        "t.parquet", "parquet", options=DataFile(encoded_template(named, values), rows)
    )


def with_ids(field: pa.Field, numbers: dict[str, int]) -> pa.Field:
    return mapped(
        field,
        lambda f: (
            with_names(f, [], {FIELD_ID: str(numbers[f.name]).encode()})
            if f.name in numbers
            else with_names(f, [], {})
        ),
    )


def read(table: pa.Table, file: TableFile, **projection: Any) -> list[Any]:
    data = io.BytesIO()
    pq.write_table(table, data, row_group_size=4)
    found = []
    for part in parquet.parts(data, file):
        found += one_by_one(parquet.read(data, part, Projection(**projection)))
    return found


def values_of(table: pa.Table, file: TableFile, *columns: str) -> list[dict[str, Any]]:
    return [dict(row.values) for row in read(table, file, columns=columns or None)]


def test_deleted_rows_are_those_of_a_range() -> None:
    numbers = np.array([70_000, 3, 0, 3, 69_999])
    file = TableFile("t", "parquet", options=DataFile(b"", encoded_rows(numbers)))
    assert _deleted_lines(file, 1, 70_001) == {1, 4, 70_000, 70_001}
    assert _deleted_lines(file, 2, 69_999) == {4, 70_000}
    assert _deleted_lines(TableFile("t", "parquet"), 1, 9) == frozenset()
    assert encoded_rows(np.array([], np.int64)) == b""


def test_types_are_those_of_the_table() -> None:
    old = pa.table({"n": pa.array([1], pa.int8()), "x": pa.array([0.5], pa.float32())})
    old = old.append_column("s", pa.array([[{"a": 3}]], pa.list_(pa.struct([("a", pa.int16())]))))
    new = pa.schema(
        [
            ("n", pa.float64()),
            ("x", pa.float64()),
            ("s", pa.list_(pa.struct([("b", pa.string()), ("a", pa.int64())]))),
        ]
    )
    (row,) = read(old, file_of(new))
    assert row.values == {"n": 1.0, "x": 0.5, "s.b": [None], "s.a": [3]}
    assert isinstance(row.values["n"], float)


def test_a_value_that_the_type_of_the_table_cannot_have_is_rejected() -> None:
    table = pa.table({"n": [1, 2**40]})
    found = read(table, file_of(pa.schema([("n", pa.int32())]), deleted=(0,)))
    assert [(type(row), row.source) for row in found] == [(Reject, "t.parquet:2")]


def test_columns_with_ids_are_found_by_them_at_every_depth() -> None:
    numbers = {"a": 1, "b": 2, "s": 3, "x": 4, "y": 5}
    type_ = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    fields = [pa.field("a", pa.int64()), pa.field("b", pa.int64()), pa.field("s", type_)]
    written = pa.schema([with_ids(field, numbers) for field in fields])
    table = pa.table([[1], [2], [{"x": 3, "y": 4}]], schema=written)
    # The table has renamed a to b, b to c, and swapped the fields of s.
    renamed = {"b": 1, "c": 2, "s": 3, "y": 4, "x": 5, "new": 6}
    fields = [pa.field("b", pa.int64()), pa.field("c", pa.int64()), pa.field("s", type_)]
    fields.append(pa.field("new", pa.int64()))
    schema = pa.schema([with_ids(field, renamed) for field in fields])
    file = TableFile("t", "parquet", options=DataFile(encoded_template(schema, {"new": 9})))
    expected = {"b": 1, "c": 2, "s.x": 4, "s.y": 3, "new": 9}
    assert values_of(table, file) == [expected]
    for name, value in expected.items():
        assert values_of(table, file, name) == [{name: value}]


def test_a_file_without_ids_needs_names() -> None:
    schema = pa.schema([with_ids(pa.field("a", pa.int64()), {"a": 1})])
    file = TableFile("t", "parquet", options=DataFile(encoded_template(schema, {})))
    with pytest.raises(UsageError, match=r"^t: its columns have no ids, .*\. Rewrite the table"):
        read(pa.table({"a": [1]}), file)


def test_missing_structs_are_null_and_empty_lists_stay_empty() -> None:
    type_ = pa.struct([("x", pa.int64())])
    columns = {
        "s": pa.array([None, {"x": 1}], type_),
        "l": pa.array([[], [{"x": 2}]], pa.list_(type_)),
    }
    schema = pa.schema(
        [("s", pa.struct([("x", pa.int64()), ("y", pa.string())])), ("l", pa.list_(type_))]
    )
    assert values_of(pa.table(columns), file_of(schema)) == [
        {"s.x": None, "s.y": None, "l.x": []},
        {"s.x": 1, "s.y": None, "l.x": [2]},
    ]


def test_rows_of_columns_that_no_file_has_are_counted() -> None:
    schema = pa.schema([("a", pa.int64()), ("day", pa.string())])
    file = file_of(schema, deleted=(1, 5), day="monday")
    found = read(pa.table({"a": range(6)}), file, columns=("day",))
    assert [(row.line, row.values) for row in found] == [
        (line, {"day": "monday"}) for line in (1, 3, 4, 5)
    ]
    assert [row.line for row in read(pa.table({"a": range(6)}), file, columns=())] == [1, 3, 4, 5]


@pytest.mark.parametrize("pixels", [True, False])
def test_embedded_images_of_deleted_rows_are_not_returned(pixels: bool) -> None:
    images = [{"bytes": bytes([i]), "path": f"{i}.jpg"} for i in range(6)]
    table = pa.table({"image": images, "id": list(range(6))})
    file = file_of(table.schema, deleted=(0, 4))
    found = read(table, file, columns=("id",), image="image", pixels=pixels)
    if pixels:
        assert [row.image for row in found] == [bytes([i]) for i in (1, 2, 3, 5)]
    assert all(isinstance(row, Row) for row in found)
    assert [(row.line, row.values["id"]) for row in found] == [(2, 1), (3, 2), (4, 3), (6, 5)]


def test_a_split_states_the_rows_of_its_file() -> None:
    file = file_of(pa.schema([("a", pa.int64())]), deleted=(0, 1))
    data = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), data)
    assert parquet.probe(data, file).has_rows is False
    assert list(parquet.parts(data, file)) == [Part(file, 0, 1)]
