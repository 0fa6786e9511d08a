"""Tests of Iceberg tables: the rows are those that the library selects, in every snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.types
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, FloatType, IntegerType, NestedField, StringType

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.tables import Projection, Sources
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.recognize import sources_of
from tests.iceberg_tables import compact, delete_equal, delete_positions, local_catalog

BIRDS = Schema(
    NestedField(1, "id", StringType()),
    NestedField(2, "label", IntegerType()),
    NestedField(3, "site", StringType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "score", FloatType()),
)
BY_SITE = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "site"),
    PartitionField(4, 1001, IdentityTransform(), "day"),
)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with local_catalog(tmp_path, monkeypatch) as opened:
        yield opened


def opened(name: str, snapshot: int | None = None, input_format: str = "auto") -> Sources:
    at = "" if snapshot is None else f"@{snapshot}"
    return sources_of(f"iceberg:{name}{at}", input_format, has_images=True)


def message_of(name: str, snapshot: int | None = None, input_format: str = "auto") -> str:
    with pytest.raises(UsageError) as error:
        opened(name, snapshot, input_format)
    return str(error.value)


def rows_of(layout: Sources) -> list[Row]:
    return [
        row
        for file in layout.files
        for part in FORMATS[file.format].parts(file)
        for row in one_by_one(FORMATS[file.format].read(part, Projection()))
        if isinstance(row, Row)
    ]


def values_of(name: str, snapshot: int | None = None) -> list[dict[str, Any]]:
    return by_id(dict(row.values) for row in rows_of(opened(name, snapshot)))


def selected(table: Any, snapshot: int | None = None) -> list[dict[str, Any]]:
    """Returns the rows that the library selects, with dates as text."""
    rows = table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return by_id({**row, "day": row["day"] and row["day"].isoformat()} for row in rows)


def by_id(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def birds(first: int, stop: int) -> pa.Table:
    numbers = range(first, stop)
    return pa.table(
        {
            "id": [f"{i:03}" for i in numbers],
            "label": pa.array([i % 3 for i in numbers], pa.int32()),
            "site": [("A/B ü%20", "c=d", None)[i % 3] for i in numbers],
            "day": [date(2024, 3, 1 + i % 2) for i in numbers],
            "score": pa.array([i / 2 for i in numbers], pa.float32()),
        }
    )


@pytest.mark.filterwarnings("ignore")
def test_every_snapshot_has_the_rows_that_the_library_selects(catalog: Any) -> None:
    table = catalog.create_table("db.birds", BIRDS, partition_spec=BY_SITE)
    table.append(birds(0, 30))
    table.append(birds(30, 40))
    table.delete("label == 1 and id < '010'")
    table.upsert(birds(38, 45).set_column(1, "label", pa.array([9] * 7, pa.int32())), ["id"])
    with table.update_schema() as update:
        update.rename_column("label", "class")
        update.update_column("score", field_type=pyiceberg.types.DoubleType())
    table.append(birds(45, 50).rename_columns(["id", "class", "site", "day", "score"]))
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    assert [values_of("local.db.birds", id_) for id_ in ids] == [selected(table, i) for i in ids]
    assert values_of("local.db.birds") == selected(table)
    assert len(values_of("local.db.birds")) == 47
    assert values_of("local.db.birds", ids[0]) == by_id(
        {**row, "day": row["day"].isoformat()} for row in birds(0, 30).to_pylist()
    )


@pytest.mark.filterwarnings("ignore")
def test_added_files_without_ids_are_read_by_names_and_partitions(
    catalog: Any, tmp_path: Path
) -> None:
    table = catalog.create_table("db.birds", BIRDS, partition_spec=BY_SITE)
    path = tmp_path / "old.parquet"
    pq.write_table(birds(1, 2), path)
    table.add_files([f"file://{path}"])
    assert values_of("local.db.birds") == selected(table)
    assert [(row.file, row.line) for row in rows_of(opened("local.db.birds"))] == [(str(path), 1)]
    # Files of Hive lack the column of the partition.
    pq.write_table(birds(1, 2).drop_columns(["site", "day"]), path)
    assert values_of("local.db.birds") == selected(table)
    (row,) = values_of("local.db.birds")
    assert (row["site"], row["day"]) == ("c=d", "2024-03-02")


@pytest.mark.filterwarnings("ignore")
def test_deleted_rows_are_skipped(catalog: Any) -> None:
    table = catalog.create_table("db.birds", BIRDS)
    table.append(birds(0, 9))
    path = next(iter(table.scan().plan_files())).file.file_path
    delete_positions(table, {path: [0, 3, 8]})
    delete_positions(table, {path: [3, 5]})
    rows = rows_of(opened("local.db.birds"))
    assert [(row.line, row.values["id"]) for row in rows] == [
        (line, f"{line - 1:03}") for line in (2, 3, 5, 7, 8)
    ]
    assert values_of("local.db.birds") == selected(table)


@pytest.mark.filterwarnings("ignore")
def test_rows_that_are_deleted_by_their_values_are_rejected(catalog: Any) -> None:
    """The library would have to compare them with all rows; it raises an error."""
    table = catalog.create_table("db.birds", BIRDS)
    table.append(birds(0, 9))
    before = table.current_snapshot().snapshot_id
    delete_equal(table, "id", ["003"])
    assert message_of("local.db.birds") == (
        "iceberg:local.db.birds: has files of equality deletes, as Flink writes them, which "
        "pyiceberg cannot apply; expected position deletes or deletion vectors. Rewrite the table "
        "with its engine, as docs/how-to/from-lakehouse.md shows."
    )
    assert len(values_of("local.db.birds", before)) == 9


def added_since(table: Any, first: int, snapshot: int | None = None) -> list[str]:
    """Returns the ids of the rows that were added since a snapshot."""
    since = {str(table.metadata.table_uuid): first}
    at = "" if snapshot is None else f"@{snapshot}"
    found = sources_of(f"iceberg:local.db.birds{at}", "auto", has_images=True, since=since)
    assert found.snapshot
    id_ = found.snapshot.id
    assert found.text == f"Iceberg table, snapshot {id_}: rows added since snapshot {first}"
    return sorted(str(row.values["id"]) for row in rows_of(found))


@pytest.mark.filterwarnings("ignore")
def test_rows_that_were_added_since_a_snapshot(catalog: Any) -> None:
    """Also if they were compacted with older ones, and changed among themselves."""
    table = catalog.create_table("db.birds", BIRDS)
    ids = []
    for first in (0, 3, 6):
        table.append(birds(first, first + 3))
        ids.append(table.current_snapshot().snapshot_id)
    assert added_since(table, ids[0]) == [f"{i:03}" for i in range(3, 9)]
    assert added_since(table, ids[0], ids[1]) == ["003", "004", "005"]
    assert added_since(table, ids[2]) == []
    compact(table)
    table.append(birds(9, 12))
    assert added_since(table, ids[1]) == [f"{i:03}" for i in range(6, 12)]
    with table.update_schema() as update:
        update.rename_column("id", "name")
    assert len(rows_of(opened("local.db.birds"))) == 12
    with table.update_schema() as update:
        update.rename_column("name", "id")
    table.delete("id == '010'")
    assert added_since(table, ids[1]) == ["006", "007", "008", "009", "011"]


@pytest.mark.filterwarnings("ignore")
def test_snapshots_that_change_older_rows_are_named(catalog: Any) -> None:
    table = catalog.create_table("db.birds", BIRDS)
    table.append(birds(0, 3))
    first = table.current_snapshot().snapshot_id
    path = next(iter(table.scan().plan_files())).file.file_path
    table.append(birds(3, 6))
    second = table.current_snapshot().snapshot_id
    delete_positions(table, {path: [1]})
    deleted = table.current_snapshot().snapshot_id
    table.append(birds(6, 9))
    with pytest.raises(UsageError) as error:
        added_since(table, first)
    assert str(error.value) == (
        f"iceberg:local.db.birds: snapshot {deleted} (delete) changes or deletes older rows; "
        f"expected only rows that were added after snapshot {first}, which --base has. Convert "
        "the whole table without --append, which also removes deleted rows."
    )
    assert added_since(table, first, second) == ["003", "004", "005"]
    assert added_since(table, deleted) == ["006", "007", "008"]
    with pytest.raises(UsageError) as error:
        added_since(table, second, first)
    assert str(error.value) == (
        f"iceberg:local.db.birds@{first}: is not a later snapshot than {second}, which --base has, "
        "or the snapshots between them have expired. Convert the whole table without --append, "
        "which also removes deleted rows."
    )


@pytest.mark.filterwarnings("ignore")
def test_the_snapshot_is_named(catalog: Any) -> None:
    table = catalog.create_table("db.birds", BIRDS)
    table.append(birds(0, 3))
    first = table.current_snapshot().snapshot_id
    table.append(birds(3, 6))
    for pinned, id_ in ((None, table.current_snapshot().snapshot_id), (first, first)):
        found = opened("local.db.birds", pinned)
        assert found.text == f"Iceberg table, snapshot {id_}"
        assert found.snapshot
        assert found.snapshot.model_dump() == {
            "input": "iceberg:local.db.birds" + (f"@{pinned}" if pinned else ""),
            "pinned": f"iceberg:local.db.birds@{id_}",
            "table": str(table.metadata.table_uuid),
            "id": id_,
        }
    assert message_of("local.db.birds", 5).startswith(
        "iceberg:local.db.birds@5: the table has no such snapshot; the last ones are "
    )


def test_what_cannot_be_read_is_named(catalog: Any) -> None:
    for name in ("", "local", "local.birds", "local..birds"):
        assert message_of(name) == (
            f"iceberg:{name}: is not the address of a table; expected "
            "iceberg:CATALOG.NAMESPACE.TABLE or iceberg:CATALOG.NAMESPACE.TABLE@SNAPSHOT"
        )
    assert message_of("local.db.birds") == (
        "iceberg:local.db.birds: cannot be read as an Iceberg table: NoSuchTableError: Table does "
        "not exist: db.birds"
    )
    assert message_of("other.db.birds").startswith(
        "iceberg:other.db.birds: cannot be read as an Iceberg table: ValueError: "
    )
    catalog.create_table("db.birds", BIRDS)
    assert opened("local.db.birds") == Sources((), "Iceberg table without a snapshot")
    assert message_of("local.db.birds", input_format="csv") == (
        "iceberg:local.db.birds: a table has no other format. Remove --input_format."
    )
