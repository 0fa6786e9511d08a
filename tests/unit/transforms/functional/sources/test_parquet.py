"""Tests of Parquet files in memory: every row has its number, also after damage."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason
from recordmill.schemas.tables import DeclaredClasses, Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import arrays, arrow, parquet
from recordmill.transforms.functional.sources.arrays import BATCH_ROWS
from recordmill.transforms.functional.sources.parquet import _first_rows, probe_of_schema


def written(table, **options):
    data = io.BytesIO()
    pq.write_table(table, data, **options)
    return data.getvalue()


def read(data, columns=None):
    """Returns all rows as (line, values), and all rejects as their line."""
    file = pq.ParquetFile(io.BytesIO(data))
    return [
        plain(outcome)
        for group, first in enumerate(_first_rows(file.metadata))
        for outcome in read_group(data, group, first, columns)
    ]


def read_group(data, group, first, columns=None):
    """Returns the rows and rejects of a row group."""
    split = Part(TableFile("t.parquet", "parquet"), group, first)
    return list(one_by_one(parquet.read(io.BytesIO(data), split, Projection(columns))))


def plain(outcome):
    if isinstance(outcome, Row):
        assert (outcome.file, outcome.is_text) == ("t.parquet", False)
        return outcome.line, outcome.values
    assert (outcome.key, outcome.uri, outcome.split) == ("", "", "")
    assert outcome.reason is Reason.MALFORMED_ROW
    assert outcome.detail
    file, _, line = outcome.source.partition(":")
    assert file == "t.parquet"
    return int(line)


VALUES = {
    "image": ["a.jpg", "ü.jpg", None],
    "label": [0, None, -(2**63)],
    "score": [0.5, -1.0, None],
    "good": [True, False, None],
    "data": [b"", b"\xff\x00", None],
    "names": [["x", ""], [], None],
    "boxes": [[0.5], [1.0, 2.0], None],
}
TABLE = pa.table(
    {
        "image": VALUES["image"],
        "label": pa.array(VALUES["label"], pa.int64()),
        "score": pa.array(VALUES["score"], pa.float32()),
        "good": VALUES["good"],
        "data": pa.array(VALUES["data"], pa.binary()),
        "names": pa.array(VALUES["names"], pa.list_(pa.string())),
        "boxes": pa.array(VALUES["boxes"], pa.large_list(pa.float64())),
    }
)
ROWS = [(i + 1, {name: VALUES[name][i] for name in VALUES}) for i in range(3)]


def test_every_type_and_null():
    assert read(written(TABLE)) == ROWS


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli"])
def test_every_compression(compression):
    assert read(written(TABLE, compression=compression)) == ROWS


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(pa.array(["b", None, "a", "b"]).dictionary_encode(), id="dictionary of text"),
        pytest.param(
            pa.array(["b", None, "a", "b"], pa.large_string()).dictionary_encode(),
            id="of large text",
        ),
    ],
)
def test_dictionary_columns_are_read_as_their_values(array):
    rows = read(written(pa.table({"c": array})))
    assert rows == [(1, {"c": "b"}), (2, {"c": None}), (3, {"c": "a"}), (4, {"c": "b"})]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int8(), [1, -1]),
        (pa.uint64(), [2**64 - 1, 0]),
        (pa.float16(), [0.5, -2.0]),
        (pa.float32(), [0.5, -2.0]),
        (pa.large_binary(), [b"x", b""]),
        (pa.large_string(), ["x", ""]),
        (pa.list_(pa.float32(), 2), [[0.5, 1.0], [2.0, 3.0]]),
        (pa.list_(pa.list_(pa.int64())), [[[1], []], []]),
        (pa.null(), [None, None]),
    ],
    ids=str,
)
def test_supported_types_give_plain_python_values(type_, values):
    rows = read(written(pa.table({"c": pa.array(values, type_)})))
    assert rows == [(1, {"c": values[0]}), (2, {"c": values[1]})]
    assert [type(v["c"]) for _, v in rows] == [type(v) for v in values]


def test_rows_are_numbered_through_row_groups():
    table = pa.table({"n": list(range(1, 26))})
    data = written(table, row_group_size=10)
    assert _first_rows(pq.read_metadata(io.BytesIO(data))) == [1, 11, 21]
    assert read(data) == [(n, {"n": n}) for n in range(1, 26)]


def test_rows_are_numbered_through_batches():
    count = 2 * BATCH_ROWS + 1
    assert read(written(pa.table({"n": list(range(1, count + 1))}))) == [
        (n, {"n": n}) for n in range(1, count + 1)
    ]


def test_no_rows():
    data = written(TABLE.slice(0, 0))
    assert read(data) == []


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("label", "image"), {"image": "a.jpg", "label": 0}),
        (("image", "elsewhere"), {"image": "a.jpg"}),
        (("names",), {"names": ["x", ""]}),
        (("elsewhere",), {}),
        ((), {}),
    ],
    ids=str,
)
def test_only_projected_columns_are_kept(columns, expected):
    rows = read(written(TABLE), columns)
    assert [line for line, _ in rows] == [1, 2, 3]
    assert rows[0] == (1, expected)


def test_a_column_whose_name_begins_with_anothers_is_not_kept_with_it():
    assert read(written(pa.table({"a": [1], "a.b": [2]})), ("a",)) == [(1, {"a": 1})]


def test_a_columns_name_may_hold_dots():
    table = pa.table({"a.b": [1], ".": ["x"], "a": ["y"], "c.": [b"z"]})
    assert read(written(table)) == [(1, {"a.b": 1, ".": "x", "a": "y", "c.": b"z"})]


def test_unsupported_columns_are_named_with_their_type():
    schema = pa.schema(
        [
            ("good", pa.int64()),
            ("when", pa.timestamp("us")),
            ("nested", pa.struct([("x", pa.int64())])),
            ("pairs", pa.map_(pa.string(), pa.int64())),
            ("took", pa.duration("s")),
            ("texts", pa.list_(pa.string())),
            ("pair", pa.list_(pa.float32(), 2)),
            ("coded", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    file = TableFile("t.parquet", "parquet")
    probe = probe_of_schema(schema, file, has_rows=True)
    assert probe.unsupported == {
        "nested": "struct<x: int64>",
        "pairs": "map<string, int64>",
        "took": "duration[s]",
    }
    assert probe.structs == {"nested"}
    assert probe.columns == (
        "good",
        "when",
        "nested",
        "nested.x",
        "pairs",
        "took",
        "texts",
        "pair",
        "coded",
    )


# Damage. Parquet has no checksum of its own by default: a flipped bit may well give another value,
# which nobody can detect. But it must neither end the run nor make a row vanish from the row
# counts.

GROUP = 10
DAMAGED_TABLE = pa.table(
    {
        "id": pa.array(range(3 * GROUP), pa.int64()),
        "name": [f"näme {i % 7}" for i in range(3 * GROUP)],
        "code": pa.array([f"c{i % 3}" for i in range(3 * GROUP)]).dictionary_encode(),
        "vec": pa.array(
            [[float(i)] * (i % 4) if i % 5 else None for i in range(3 * GROUP)],
            pa.list_(pa.float32()),
        ),
    }
)


def bytes_of_group(data, group):
    """Returns the byte range of the column chunks of a row group."""
    row_group = pq.read_metadata(io.BytesIO(data)).row_group(group)
    starts, ends = [], []
    for i in range(row_group.num_columns):
        chunk = row_group.column(i)
        starts.append(chunk.dictionary_page_offset or chunk.data_page_offset)
        ends.append(starts[-1] + chunk.total_compressed_size)
    return range(min(starts), max(ends))


@pytest.mark.parametrize(("first", "compression"), enumerate(["none", "snappy", "gzip"]))
def test_damage_in_a_row_group_loses_no_row_and_touches_no_other_group(first, compression):
    data = written(DAMAGED_TABLE, row_group_size=GROUP, compression=compression)
    whole = read(data)
    assert [line for line, _ in whole] == list(range(1, 3 * GROUP + 1))
    lost = []
    for at in bytes_of_group(data, 1)[first::3]:
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        outcomes = read(bytes(damaged))
        lines = [o if isinstance(o, int) else o[0] for o in outcomes]
        if lines != list(range(1, 3 * GROUP + 1)):
            lost.append((at, lines))
        assert outcomes[:GROUP] == whole[:GROUP]
        assert outcomes[-GROUP:] == whole[-GROUP:]
    assert lost == []


def test_with_page_checksums_every_damaged_row_is_a_reject():
    data = written(DAMAGED_TABLE, row_group_size=GROUP, write_page_checksum=True)
    whole = read(data)
    damaged = bytearray(data)
    damaged[bytes_of_group(data, 1)[-1]] ^= 1
    outcomes = [plain(o) for o in read_group(bytes(damaged), 1, GROUP + 1)]
    assert outcomes == list(range(GROUP + 1, 2 * GROUP + 1))
    assert [line for line, _ in whole] == list(range(1, 3 * GROUP + 1))


BAD_TEXT = pa.array([b"a", b"\xff", None, b"b"])
TEXTS = BAD_TEXT.view(pa.string())


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (TEXTS, ["a", "\udcff", None, "b"]),
        (BAD_TEXT.cast(pa.large_binary()).view(pa.large_string()), ["a", "\udcff", None, "b"]),
        (pa.DictionaryArray.from_arrays([1, 0, 3], TEXTS), ["\udcff", "a", "b"]),
        (pa.ListArray.from_arrays([0, 1, 4, 4], TEXTS), [["a"], ["\udcff", None, "b"], []]),
        (pa.FixedSizeListArray.from_arrays(TEXTS, 2), [["a", "\udcff"], [None, "b"]]),
        (
            pa.ListArray.from_arrays([0, 2], pa.ListArray.from_arrays([0, 1, 2], TEXTS)),
            [[["a"], ["\udcff"]]],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_text_that_is_no_utf_8_is_the_fault_of_its_own_row(tmp_path, column, values):
    # Typing rejects lone surrogates, in the columns that are used.
    table = pa.table({"c": column})
    rows = list(enumerate(({"c": value} for value in values), start=1))
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    file = TableFile(str(tmp_path / "t.arrow"), "arrow")
    with open(file.path, "rb") as stream:
        found = list(one_by_one(arrow.read(stream, Part(file), Projection())))
    assert [(row.line, row.values) for row in found] == rows
    if not pa.types.is_dictionary(column.type):  # Parquet's writer rejects those
        assert read(written(table)) == rows


@pytest.mark.parametrize(
    ("most", "reasons"), [(GROUP, ["malformed_row"] * GROUP), (9, ["lost_rows"])]
)
def test_damaged_rows_are_reported_one_by_one_up_to_a_number(most, reasons, monkeypatch):
    monkeypatch.setattr(parquet, "MAX_DAMAGED_ROWS", most)
    data = bytearray(written(DAMAGED_TABLE, row_group_size=GROUP, write_page_checksum=True))
    data[bytes_of_group(bytes(data), 1)[-1]] ^= 1
    rejects = read_group(bytes(data), 1, GROUP + 1)
    assert [reject.reason.value for reject in rejects] == reasons
    assert rejects[0].source == f"t.parquet:{GROUP + 1}"


LABEL = {"names": ["owl", "cat"], "_type": "ClassLabel"}


@pytest.mark.parametrize(
    ("features", "columns"),
    [
        ({"label": LABEL, "image": {"_type": "Image"}}, ["label"]),
        ({"labels": {"feature": LABEL, "_type": "List"}}, ["labels"]),
        ({"labels": [LABEL]}, ["labels"]),
        ({"objects": {"feature": {"category": LABEL}, "_type": "Sequence"}}, ["objects.category"]),
        ({"objects": [{"category": LABEL, "box": {"_type": "Value"}}]}, ["objects.category"]),
        ({"a": {"b": {"c": LABEL}}}, ["a.b.c"]),
    ],
)
def test_class_labels_of_hugging_face_are_declared_classes(features, columns):
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    expected = DeclaredClasses(((0, "owl"), (1, "cat")), by_id=True)
    assert arrays.class_labels(metadata) == dict.fromkeys(columns, expected)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"info": 1}', b'{"info": {"features": [1]}}'])
def test_other_metadata_declares_nothing(data):
    assert arrays.class_labels({b"huggingface": data}) == {}
    assert arrays.class_labels({}) == {}


def categories(*names: str, ordered: bool = False) -> pa.DictionaryArray:
    """Returns a column with the first and the last category."""
    return pa.DictionaryArray.from_arrays([0, len(names) - 1], list(names), ordered=ordered)


@pytest.mark.parametrize("ordered", [False, True])
def test_categories_are_declared_classes_also_those_without_rows(ordered: bool) -> None:
    column = categories("red", "never", "blue", ordered=ordered)
    table = pa.table({"label": pa.chunked_array([column] * 3), "id": [*range(6)]})
    data = io.BytesIO()
    pq.write_table(table, data, row_group_size=2)
    classes = {"label": DeclaredClasses(((0, "red"), (1, "never"), (2, "blue")))}
    assert parquet.probe(data, TableFile("t.parquet", "parquet")).classes == classes


def test_row_groups_with_different_dictionaries_declare_no_classes() -> None:
    data, parts = io.BytesIO(), [categories("red", "blue"), categories("green", "red")]
    with pq.ParquetWriter(data, pa.schema({"label": parts[0].type})) as writer:
        for part in parts:
            writer.write_table(pa.table({"label": part}))
    assert parquet.probe(data, TableFile("t.parquet", "parquet")).classes == {}
