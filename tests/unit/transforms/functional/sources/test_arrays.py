"""Tests of the fields of structs, and of dates and decimals, in Arrow columns."""

from __future__ import annotations

import io
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.transforms.functional.sources.arrays import (
    _plain,
    _plain_type,
    columns_of,
    is_supported,
    plain_batch,
    plain_schema,
    select,
    selected,
    text_bytes,
)

TABLE = pa.table(
    {
        "a.b": [1, 2, 3],
        "a": [{"b": 5}, {"b": 6}, {"b": 7}],
        "patient": [{"id": "x", "stay": {"day": date(2024, 1, 31)}}, None, {"id": None}],
        # As Spark and COCO-like tables have boxes, and as Hugging Face Datasets has them.
        "objects": [
            [{"bbox": [1.0, 2.0], "category": 7}, {"bbox": [3.0, 4.0], "category": 8}],
            None,
            [],
        ],
        "hf": [
            {"bbox": [[1.0, 2.0], [3.0, 4.0]], "category": [7, 8]},
            None,
            {"bbox": [], "category": []},
        ],
        "image": [{"bytes": b"x", "path": "x.png"}, None, {"bytes": None, "path": None}],
    }
)
VALUES = {
    "a.b": [1, 2, 3],  # a column's own name takes precedence over a path
    "patient.id": ["x", None, None],
    "patient.stay.day": ["2024-01-31", None, None],
    "objects.bbox": [[[1.0, 2.0], [3.0, 4.0]], None, []],
    "objects.category": [[7, 8], None, []],
    "hf.bbox": [[[1.0, 2.0], [3.0, 4.0]], None, []],
    "hf.category": [[7, 8], None, []],
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("start", [0, 1, 3])
def test_fields_of_structs_are_columns(name, start):
    (batch,) = TABLE.to_batches()
    found = select(batch.slice(start), selected(TABLE.schema, [name]))
    assert found.to_pydict() == {name: VALUES[name][start:]}


def test_without_names_fields_replace_structs():
    names = [column.name for column in selected(TABLE.schema, None)]
    assert names == [*list(VALUES)[:1], *list(VALUES)[1:], "image"]


def test_structs_themselves_can_be_selected():
    (batch,) = TABLE.to_batches()
    assert select(batch, selected(TABLE.schema, ["a"])).to_pydict() == {
        "a": [{"b": 5}, {"b": 6}, {"b": 7}]
    }


def test_unknown_names_are_ignored_and_no_column_keeps_the_rows():
    (batch,) = TABLE.to_batches()
    kept = selected(TABLE.schema, ["patient.name", "objects.bbox.x", "a.b.c"])
    assert kept == []
    assert select(batch, kept).num_rows == 3


def test_parquet_reads_only_the_selected_fields():
    data = io.BytesIO()
    pq.write_table(TABLE, data)
    kept = selected(TABLE.schema, ["patient.stay.day", "objects.category", "a.b"])
    assert [column.prefix for column in kept] == ["patient.stay.day", "objects", "a.b"]
    (batch,) = pq.ParquetFile(data).iter_batches(columns=["patient.stay.day"])
    assert str(batch.schema.field("patient").type) == "struct<stay: struct<day: date32[day]>>"
    assert select(batch, kept[:1]).to_pydict() == {"patient.stay.day": VALUES["patient.stay.day"]}


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.date32(), date(2024, 3, 1), "2024-03-01"),
        (pa.date64(), date(2024, 3, 1), "2024-03-01"),
        (pa.date32(), date(476, 9, 4), "0476-09-04"),
        (pa.timestamp("s"), datetime(2024, 3, 1, 12, 30), "2024-03-01T12:30:00"),
        (pa.timestamp("ns"), datetime(2024, 3, 1, 12, 30), "2024-03-01T12:30:00"),
        (pa.timestamp("us"), datetime(2024, 3, 1, 0, 0, 10), "2024-03-01T00:00:10"),
        (pa.timestamp("us"), datetime(2024, 3, 1, 0, 0, 0, 500_000), "2024-03-01T00:00:00.5"),
        (pa.timestamp("ms", "Europe/Berlin"), 1_709_292_600_250, "2024-03-01T11:30:00.25Z"),
        (pa.timestamp("us", "UTC"), 0, "1970-01-01T00:00:00Z"),
        (pa.time32("s"), time(12, 30, 10), "12:30:10"),
        (pa.time64("us"), time(12, 30, 0, 7), "12:30:00.000007"),
        (pa.decimal128(5, 2), Decimal("12.50"), 12.5),
        (pa.decimal128(5, 0), Decimal(12), 12),
        (pa.decimal128(5, -2), Decimal(1200), 1200),
        (pa.decimal256(60, 0), Decimal(-12), -12),
        (pa.decimal128(38, 0), Decimal(2**70), str(2**70)),
        (pa.list_(pa.decimal128(5, 2)), [Decimal("0.25"), None], [0.25, None]),
        (pa.list_(pa.date32(), 2), [date(2024, 3, 1)] * 2, ["2024-03-01"] * 2),
        (pa.dictionary(pa.int8(), pa.date32()), date(2024, 3, 1), "2024-03-01"),
    ],
    ids=str,
)
def test_dates_are_iso_text_and_decimals_are_numbers(type_, value, expected):
    if pa.types.is_dictionary(type_):
        column = pa.array([None, value, None], type_.value_type).dictionary_encode()
    else:
        column = pa.array([None, value, None], type_)
    assert is_supported(type_)
    found = _plain(column[1:]).to_pylist()
    assert found == [expected, None]
    assert type(found[0]) is type(expected)


def test_a_date_that_iso_text_cannot_represent_is_missing():
    column = pa.array([0, 2**31 - 1], pa.int32()).view(pa.date32())
    assert _plain(column).to_pylist() == ["1970-01-01", None]


UUIDS = [b"a" * 16, None, bytes(16)]
TEXTS = ["61616161-6161-6161-6161-616161616161", None, "00000000-0000-0000-0000-000000000000"]
STATED = {"bytes": pa.binary_view(), "path": pa.string_view()}
STRUCTS = [{"bytes": b"x", "path": "p"}, None, {"bytes": None, "path": "q"}]
LISTS = [["a", "b"], None, ["c", None]]
TENSOR = pa.fixed_shape_tensor(pa.int8(), [2])
CATEGORY = pa.DictionaryArray.from_arrays(
    pa.array([1, None, 0], pa.uint32()), pa.array(["b", "a"], pa.string_view())
)


def extension(type_, values):
    return pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))


@pytest.mark.parametrize(
    ("column", "expected", "type_"),
    [
        (pa.array(["x", None, ""], pa.string_view()), ["x", None, ""], "large_string"),
        (pa.array([b"x", None, b""], pa.binary_view()), [b"x", None, b""], "large_binary"),
        (pa.array(STRUCTS, pa.struct(STATED)), STRUCTS, "struct<bytes: large_binary, path: l"),
        (pa.array(LISTS, pa.list_view(pa.string())), LISTS, "large_list<item: string>"),
        (pa.array(LISTS, pa.list_view(pa.string_view())), LISTS, "large_list<item: large_string>"),
        (pa.array(LISTS, pa.large_list_view(pa.string())), LISTS, "large_list<item: string>"),
        (pa.array(LISTS, pa.list_(pa.string_view(), 2)), LISTS, "large_list<item: large_string>"),
        (
            pa.array([[s] for s in STRUCTS], pa.list_view(pa.struct(STATED))),
            [[s] for s in STRUCTS],
            "large_list<item: struct<bytes: large_binary, path: large_string>>",
        ),
        (CATEGORY, ["a", None, "b"], "dictionary<values=large_string, indices=uint32, ordered=0>"),
        (extension(pa.uuid(), UUIDS), TEXTS, "string"),
        (extension(pa.bool8(), [0, None, 2]), [False, None, True], "bool"),
        (extension(pa.json_(), ["[1]", None, ""]), ["[1]", None, ""], "string"),
        (extension(TENSOR, [[1, 2], None, [3, 4]]), [[1, 2], None, [3, 4]], "fixed_size_list<"),
        (pa.array(LISTS, pa.list_(pa.string())), LISTS, "list<item: string>"),
    ],
)
def test_views_and_extensions_have_the_values_of_plain_types(column, expected, type_):
    batch = pa.record_batch({"c": pa.concat_arrays([column.slice(1), column])})
    found = plain_batch(batch)
    assert str(found.schema.field("c").type).startswith(type_)
    assert found.schema == plain_schema(batch.schema)
    assert found.column(0).to_pylist() == expected[1:] + expected
    assert plain_batch(batch.slice(1, 3)).column(0).to_pylist() == [expected[2], *expected[:2]]
    assert text_bytes(column) <= 100


def test_a_tensor_with_a_shape_keeps_its_type():
    type_ = pa.fixed_shape_tensor(pa.int8(), [2, 2])
    assert _plain_type(type_) is type_
    assert not is_supported(type_)


def test_lists_that_share_items_have_the_size_of_all():
    items = pa.array(["x" * 1000], pa.string_view())
    number = [0] * 500, [1] * 500
    column = pa.ListViewArray.from_arrays(*(pa.array(n, pa.int32()) for n in number), items)
    assert text_bytes(column) > 500_000


def test_other_types_are_not_supported():
    types = [pa.struct([("x", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.duration("s")]
    assert [is_supported(type_) for type_ in types] == [False] * 3


def test_columns_have_the_type_of_their_values():
    columns = columns_of(TABLE.schema)
    assert str(columns["objects.bbox"].type) == "list<item: list<item: double>>"
    assert str(columns["hf.bbox"].type) == "list<item: list<item: double>>"
    assert str(columns["patient.stay.day"].type) == "date32[day]"
