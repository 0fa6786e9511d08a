"""Tests of Delta tables: the rows are those that the library itself selects, in every version."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.tables import Projection, Sources
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.recognize import sources_of
from tests.lakehouse import added, commit, delete_rows, log


def opened(table: Path, version: int | None = None) -> Sources:
    at = "" if version is None else f"@{version}"
    return sources_of(f"delta:{table}{at}", "auto", has_images=True)


def message_of(table: Path | str, **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        sources_of(f"delta:{table}", options.get("input_format", "auto"), has_images=True)
    return str(error.value)


def rows_of(layout: Sources, columns: tuple[str, ...] | None = None) -> list[Row]:
    found = [
        row
        for file in layout.files
        for part in FORMATS[file.format].parts(file)
        for row in one_by_one(FORMATS[file.format].read(part, Projection(columns)))
    ]
    assert all(isinstance(row, Row) for row in found)
    return found


def values_of(table: Path, version: int | None = None) -> list[dict[str, Any]]:
    rows = rows_of(opened(table, version))
    return sorted((dict(row.values) for row in rows), key=lambda row: row["id"])


def selected(table: Path, version: int | None = None) -> list[dict[str, Any]]:
    """Returns the rows that the library selects."""
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table), version))
    rows = pa.table(query.execute("SELECT * FROM t ORDER BY id"))
    return rows.to_pylist()


def birds(first: int, stop: int) -> pa.Table:
    numbers = range(first, stop)
    return pa.table(
        {
            "id": [f"{i:03}" for i in numbers],
            "image": [f"{i}.jpg" for i in numbers],
            "label": pa.array([i % 3 for i in numbers], pa.int32()),
            "site": [("A/B ü%20", "c=d", None)[i % 3] for i in numbers],
        }
    )


def test_every_version_has_the_rows_that_the_library_selects(tmp_path: Path) -> None:
    table = str(tmp_path / "a b ü")
    deltalake.write_deltalake(table, birds(0, 30), partition_by=["site"])
    deltalake.write_deltalake(table, birds(30, 40), mode="append")
    deltalake.DeltaTable(table).delete("label = 1 AND id < '010'")
    deltalake.DeltaTable(table).update({"label": "7"}, predicate="id IN ('003', '035')")
    source = birds(38, 45)
    merge = deltalake.DeltaTable(table).merge(source, "t.id = s.id", "s", "t")
    merge.when_matched_update({"label": "9"}).when_not_matched_insert_all().execute()
    deltalake.DeltaTable(table).optimize.compact()
    folder = Path(table)
    versions = [values_of(folder, version) for version in range(6)]
    assert versions == [selected(folder, version) for version in range(6)]
    assert list(map(len, versions)) == [30, 40, 37, 37, 42, 42]
    assert values_of(folder) == versions[-1]


def test_deleted_rows_are_skipped_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    table = tmp_path / "a b ü"
    for first in (0, 25):
        deltalake.write_deltalake(str(table), birds(first, first + 25), mode="append")
    delete_rows(table, {0: [0, 3, 24], 1: list(range(5, 25))})
    assert values_of(table) == selected(table)
    assert len(values_of(table)) == 22 + 5
    assert values_of(table, 1) == selected(table, 1)
    first = added(table)[0]["path"]
    rows = [row for row in rows_of(opened(table)) if row.file == str(table / first)]
    assert [row.line for row in rows] == [line for line in range(1, 26) if line not in (1, 4, 25)]


def test_deleted_rows_in_partitions_whose_names_are_encoded(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), birds(0, 9), partition_by=["site"])
    delete_rows(tmp_path, {0: [0], 1: [1], 2: [2]})
    assert values_of(tmp_path) == selected(tmp_path)
    assert len(values_of(tmp_path)) == 6


def test_deleted_rows_of_a_file_with_several_row_groups(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), birds(0, 25))
    path = tmp_path / added(tmp_path)[0]["path"]
    pq.write_table(birds(0, 25), path, row_group_size=10)
    delete_rows(tmp_path, {0: [0, 9, 10, 24]})
    assert [row.line for row in rows_of(opened(tmp_path))] == [
        *range(2, 10),
        *range(12, 25),
    ]


def test_a_table_whose_rows_are_all_deleted_has_no_rows(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), birds(0, 3))
    delete_rows(tmp_path, {0: [0, 1, 2]})
    (file,) = opened(tmp_path).files
    assert not FORMATS["parquet"].probe(file).has_rows
    deltalake.write_deltalake(str(tmp_path), birds(0, 3), mode="append")
    assert values_of(tmp_path) == selected(tmp_path)


def test_columns_that_were_added_later_are_empty_in_old_files(tmp_path: Path) -> None:
    old = pa.table({"id": ["a"], "s": [{"x": 1}]})
    new = pa.table({"id": ["b"], "s": [{"x": 2, "y": "z"}], "n": [0.5]})
    deltalake.write_deltalake(str(tmp_path), old)
    deltalake.write_deltalake(str(tmp_path), new, mode="append", schema_mode="merge")
    assert values_of(tmp_path) == [
        {"id": "a", "s.x": 1, "s.y": None, "n": None},
        {"id": "b", "s.x": 2, "s.y": "z", "n": 0.5},
    ]
    rows = rows_of(opened(tmp_path), ("s.y", "n"))
    assert sorted(str(row.values) for row in rows) == [
        "{'s.y': 'z', 'n': 0.5}",
        "{'s.y': None, 'n': None}",
    ]


def test_partition_columns_have_the_types_of_the_table(tmp_path: Path) -> None:
    moment = datetime(2024, 3, 1, 12, 30, 0, 500000, tzinfo=timezone.utc)
    values = {
        "i": pa.array([7], pa.int64()),
        "f": pa.array([0.5], pa.float32()),
        "b": pa.array([True]),
        "d": pa.array([date(2024, 3, 1)]),
        "t": pa.array([moment], pa.timestamp("us", "UTC")),
        "n": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
    }
    table = pa.table({"id": ["a"], **values})
    deltalake.write_deltalake(str(tmp_path), table, partition_by=list(values))
    assert values_of(tmp_path) == [
        {
            "id": "a",
            "i": 7,
            "f": 0.5,
            "b": True,
            "d": "2024-03-01",
            "t": "2024-03-01T12:30:00.5Z",
            "n": 1.5,
        }
    ]


def with_schema(table: Path, change: Any, **configuration: str) -> None:
    """Commits another schema, with names of columns that are mapped to those in the files."""
    (metadata,) = [action["metaData"] for action in log(table) if "metaData" in action]
    schema = json.loads(metadata["schemaString"])
    names = [field["name"] for field in schema["fields"]]
    for field in schema["fields"]:
        change(field)
    renamed = {old: field["name"] for old, field in zip(names, schema["fields"], strict=True)}
    changed = {"schemaString": json.dumps(schema), "configuration": configuration}
    changed["partitionColumns"] = [renamed[name] for name in metadata["partitionColumns"]]
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    commit(table, {"protocol": protocol}, {"metaData": {**metadata, **changed}})


def test_renamed_columns_are_read_by_their_names_in_the_files(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": ["a"], "b": [1], "c": [2]}))
    names = {"id": "id", "b": "c", "c": "b"}  # two columns have swapped their names
    numbers = {"id": 1, "b": 2, "c": 3}

    def rename(field: dict[str, Any]) -> None:
        field["metadata"] = {
            "delta.columnMapping.physicalName": field["name"],
            "delta.columnMapping.id": numbers[field["name"]],
        }
        field["name"] = names[field["name"]]

    with_schema(tmp_path, rename, **{"delta.columnMapping.mode": "name"})
    assert values_of(tmp_path) == [{"id": "a", "c": 1, "b": 2}]


def test_columns_by_id_need_ids_in_the_files(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": ["a"], "b": [1]}))

    def identify(field: dict[str, Any]) -> None:
        field["metadata"] = {
            "delta.columnMapping.physicalName": field["name"],
            "delta.columnMapping.id": {"id": 2, "b": 1}[field["name"]],
        }

    with_schema(tmp_path, identify, **{"delta.columnMapping.mode": "id"})
    (file,) = opened(tmp_path).files
    with pytest.raises(UsageError, match="its columns have no ids"):
        FORMATS["parquet"].probe(file)
    ids = [pa.field("x", pa.string(), metadata={"PARQUET:field_id": "2"})]
    ids += [pa.field("y", pa.int64(), metadata={"PARQUET:field_id": "1"})]
    pq.write_table(pa.table([["a"], [1]], schema=pa.schema(ids)), file.path)
    assert values_of(tmp_path) == [{"id": "a", "b": 1}]


def test_a_file_of_another_folder_is_read_there(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "source x"), birds(0, 5))
    deltalake.write_deltalake(str(tmp_path / "clone"), birds(5, 8))
    add = added(tmp_path / "source x")[0]
    path = f"file://{tmp_path}/source%20x/{add['path']}"
    commit(tmp_path / "clone", {"add": {**add, "path": path}})
    assert [row["id"] for row in values_of(tmp_path / "clone")] == [f"00{i}" for i in range(8)]


def test_the_snapshot_names_the_version_that_was_read(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), birds(0, 3))
    deltalake.write_deltalake(str(tmp_path), birds(3, 6), mode="append")
    id_ = str(deltalake.DeltaTable(str(tmp_path)).metadata().id)
    for version in (None, 0):
        at, number = (f"@{version}", version) if version is not None else ("", 1)
        found = opened(tmp_path, version)
        assert found.text == f"Delta table, version {number}"
        assert found.snapshot
        assert found.snapshot.model_dump() == {
            "input": f"delta:{tmp_path}{at}",
            "pinned": f"delta:{tmp_path}@{number}",
            "table": id_,
            "id": number,
        }


def test_values_of_a_partition_column_that_was_renamed_are_not_lost(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), birds(0, 3), partition_by=["site"])

    numbers = {"id": 1, "image": 2, "label": 3, "site": 4}

    def rename(field: dict[str, Any]) -> None:
        field["metadata"] = {
            "delta.columnMapping.physicalName": field["name"],
            "delta.columnMapping.id": numbers[field["name"]],
        }
        field["name"] = {"site": "place"}.get(field["name"], field["name"])

    with_schema(tmp_path, rename, **{"delta.columnMapping.mode": "name"})
    assert [row["place"] for row in values_of(tmp_path)] == ["A/B ü%20", "c=d", None]
    since = {str(deltalake.DeltaTable(str(tmp_path)).metadata().id): 0}
    with pytest.raises(UsageError) as error:
        sources_of(f"delta:{tmp_path}", "auto", has_images=True, since=since)
    assert str(error.value) == (
        f"delta:{tmp_path}: has other partition columns than version 0. Convert the whole table "
        "without --append, which also removes deleted rows."
    )


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    table = tmp_path / "t"
    assert message_of(table) == f"delta:{table}: there is no Delta table. Check the path."
    assert message_of("") == (
        "delta:: is not the address of a table; expected delta:PATH or delta:PATH@VERSION"
    )
    deltalake.write_deltalake(str(table), birds(0, 3))
    assert message_of(f"{table}@4") == (
        f"delta:{table}@4: the table has no such version; expected 0 to 0"
    )
    assert message_of(table, input_format="csv") == (
        f"delta:{table}: a table has no other format. Remove --input_format."
    )
    assert message_of("hdfs://name/t") == (
        "delta:hdfs://name/t: cannot be read as a Delta table: expected a local path, s3:// or gs://"
    )
    deltalake.DeltaTable(str(table)).delete()
    assert opened(table).files == ()
    (table / "_delta_log" / f"{1:020}.json").write_text("{")
    assert message_of(table).startswith(f"delta:{table}: cannot be read as a Delta table: ")


def test_a_feature_that_is_not_known_is_rejected(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), birds(0, 3))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["variantType"]}
    commit(tmp_path, {"protocol": {**protocol, "readerFeatures": ["variantType"]}})
    assert message_of(tmp_path) == (
        f"delta:{tmp_path}: the table uses variantType, which is not supported. Export it to a "
        "folder of Parquet with its engine, and convert that folder."
    )
