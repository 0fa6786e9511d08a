"""Increments of lakehouse tables: only rows that were added since the base version are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from recordmill.transforms.storage.dataset import DatasetFolder
from tests.end_to_end import readers
from tests.end_to_end.command import Ended, convert, published, recordmill
from tests.iceberg_tables import compact, local_catalog
from tests.images import jpeg
from tests.lakehouse import delete_rows
from tests.versions.increments import assert_is_one_conversion, manifest

FLAGS = ("--key_column", "id", "--num_shards", "4", "--no_report")


def rows(first: int, stop: int) -> pa.Table:
    numbers = range(first, stop)
    labels = ["ab"[i % 2] for i in numbers]
    images = [jpeg(16, 12, seed=i) for i in numbers]
    return pa.table({"id": [f"k{i}" for i in numbers], "image": images, "label": labels})


def write(table: Path, first: int, stop: int) -> None:
    write_deltalake(str(table), rows(first, stop), mode="append")


def append(address: object, output: Path, version: str, base: str, *flags: object) -> Ended:
    folder = output / "birds" / base
    return convert(
        address, output, "--version", version, "--base", folder, "--append", *FLAGS, *flags
    )


def appended(address: object, output: Path, version: str, base: str) -> Path:
    ended = append(address, output, version, base)
    assert ended.code == 0, ended.err
    return output / "birds" / version


def counts(dataset: Path) -> tuple[int, int, int]:
    """Returns the number of rows of a dataset, of new records, and of rows that were read again."""
    found = manifest(dataset)
    rows = found["input"]
    return rows["rows"], sum(found["base"]["new"].values()), rows.get("unchanged", 0)


def test_increments_of_a_delta_table_are_one_conversion(tmp_path: Path) -> None:
    """Also if files with rows of two days were compacted into one in between."""
    table, out = tmp_path / "t", tmp_path / "out"
    write(table, 0, 12)
    published(f"delta:{table}", out, *FLAGS)
    ends, version = (12, 16, 19), 0
    for day in (1, 2):
        first, stop = ends[day - 1 : day + 1]
        for start in range(first, stop, 2):
            write(table, start, min(start + 2, stop))
            if start % 4 == 0:
                DeltaTable(str(table)).optimize.compact()
        dataset = appended(f"delta:{table}", out, f"1.{day}.0", f"1.{day - 1}.0")
        assert counts(dataset) == (stop, stop - first, 0)
        known, version = version, DeltaTable(str(table)).version()
        source = manifest(dataset)["source"]
        assert source["recognized"] == [
            f"delta:{table}: read as Delta table, version {version}: rows added since version "
            f"{known}"
        ]
        assert [entry["id"] for entry in source["snapshots"]] == [version]
    ended = convert(f"delta:{table}", tmp_path / "full", *FLAGS, "--version", "1.2.0")
    assert ended.code == 0, ended.err
    assert_is_one_conversion(tmp_path / "full/birds/1.2.0", out / "birds/1.2.0", lakehouse=True)


def test_increments_of_an_iceberg_table_are_one_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_catalog(tmp_path, monkeypatch) as catalog:
        table, out = catalog.create_table("db.t", rows(0, 1).schema), tmp_path / "out"
        table.append(rows(0, 12))
        published("iceberg:local.db.t", out, *FLAGS)
        ends = (12, 16, 19)
        for day in (1, 2):
            first, stop = ends[day - 1 : day + 1]
            for start in range(first, stop, 2):
                table.append(rows(start, min(start + 2, stop)))
                if start % 4 == 0:
                    compact(table)
            dataset = appended("iceberg:local.db.t", out, f"1.{day}.0", f"1.{day - 1}.0")
            assert counts(dataset) == (stop, stop - first, 0)
        ended = convert("iceberg:local.db.t", tmp_path / "full", *FLAGS, "--version", "1.2.0")
        assert ended.code == 0, ended.err
        assert_is_one_conversion(tmp_path / "full/birds/1.2.0", out / "birds/1.2.0", lakehouse=True)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Delta table t, of whose version 1 out is; tests get copies at this path, which out has."""
    folder = tmp_path_factory.mktemp("lakehouse") / "each"
    write(folder / "t", 0, 4)
    write(folder / "t", 4, 8)
    published(f"delta:{folder / 't'}", folder / "out", *FLAGS)
    return folder.rename(folder.with_name("first"))


@pytest.fixture
def table(converted: Path) -> Iterator[Path]:
    """A Delta table, of whose version 1 out/ beside it is."""
    folder = shutil.copytree(converted, converted.with_name("each"))
    yield folder / "t"
    shutil.rmtree(folder)


def test_a_dry_run_states_what_is_read(table: Path) -> None:
    write(table, 8, 11)
    ended = append(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0", "--dry_run")
    assert ended.code == 0, ended.err
    assert f"delta:{table}: read as Delta table, version 2: rows added since version 1" in ended.out
    ended = append(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0", "--dry_run", "--json")
    assert json.loads(ended.out)["rows"] == 3


def test_the_base_version_is_opened_once(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(table, 8, 9)
    opened, open_dataset = list[str](), DatasetFolder.open
    monkeypatch.setattr(
        DatasetFolder, "open", lambda directory: opened.append(directory) or open_dataset(directory)
    )
    ended = append(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0")
    assert ended.code == 0, ended.err
    assert [path for path in opened if path.endswith("1.0.0")] == [
        f"{table.parent}/out/birds/1.0.0"
    ]


def test_a_table_that_gained_no_rows_gives_the_same_records(table: Path) -> None:
    DeltaTable(str(table)).optimize.compact()
    for flags in (("--dry_run",), ()):
        ended = append(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0", *flags)
        assert ended.code == 0, ended.err
        assert "note: the input has no rows, so the records are those of 1.0.0\n" in ended.out
    dataset = table.parent / "out/birds/1.1.0"
    assert counts(dataset) == (8, 0, 0)
    assert [entry["id"] for entry in manifest(dataset)["source"]["snapshots"]] == [2]
    write(table, 8, 11)
    dataset = appended(f"delta:{table}", table.parent / "out", "1.2.0", "1.1.0")
    assert counts(dataset) == (11, 3, 0)


def test_one_of_two_tables_gained_no_rows(table: Path) -> None:
    other = table.with_name("other")
    write(other, 20, 23)
    both = ("--input", f"delta:{other}")
    ended = append(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0", *both)
    assert ended.code == 0, ended.err
    assert counts(table.parent / "out/birds/1.1.0") == (11, 3, 0)


@pytest.mark.parametrize("change", ["DELETE", "UPDATE", "MERGE", "WRITE", "vector"])
def test_changed_and_deleted_rows_are_rejected(table: Path, change: str) -> None:
    write(table, 8, 9)
    delta = DeltaTable(str(table))
    if change == "DELETE":
        delta.delete("id = 'k3'")
    if change == "UPDATE":
        delta.update({"label": "'c'"}, predicate="id = 'k3'")
    if change == "MERGE":
        merge = delta.merge(rows(7, 9), "t.id = s.id", "s", "t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    if change == "WRITE":
        write_deltalake(str(table), rows(0, 9), mode="overwrite")
    if change == "vector":
        delete_rows(table, {1: [2]})
    write(table, 9, 10)
    ended = append(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0")
    assert ended.code == 2
    operation = "" if change == "vector" else f" ({change})"
    assert ended.err == (
        f"recordmill: --input delta:{table}: version 3{operation} changes or deletes older rows; "
        "expected only rows that were added after version 1, which --base has. Convert the whole "
        "table without --append, which also removes deleted rows.\n"
    )


def test_a_conversion_of_the_whole_table_removes_deleted_rows(table: Path) -> None:
    """And the next increment begins at its version."""
    delete_rows(table, {1: [2]})
    asked = ("--base", table.parent / "out/birds/1.0.0", *FLAGS, "--version", "1.1.0")
    ended = convert(f"delta:{table}", table.parent / "out", *asked)
    assert ended.code == 0, ended.err
    write(table, 8, 9)
    dataset = appended(f"delta:{table}", table.parent / "out", "1.2.0", "1.1.0")
    assert set(readers.keys(dataset, "train")) == {f"k{i}" for i in range(9) if i != 6}
    assert counts(dataset) == (8, 1, 0)


def test_rows_that_were_added_and_changed_since_the_base_version_are_new(table: Path) -> None:
    write(table, 8, 12)
    delta = DeltaTable(str(table))
    delta.update({"label": "'c'"}, predicate="id = 'k9'")
    delta.delete("id = 'k10'")
    dataset = appended(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0")
    found = {row["key"]: row["class"] for row in readers.index_rows(dataset, "train")}
    assert found == {f"k{i}": "ab"[i % 2] for i in range(12) if i != 10} | {"k9": "c"}
    assert counts(dataset) == (11, 3, 0)


def test_files_that_vacuum_deleted_are_named(table: Path) -> None:
    write(table, 8, 9)
    DeltaTable(str(table)).optimize.compact()
    # Deletes the files that were compacted, as at the end of their retention.
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    ended = append(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0")
    assert ended.code == 2
    assert (
        ".parquet is missing: its rows were added after version 1, which --base has, and "
        "compacted into another file since. Convert the whole table without --append"
    ) in ended.err


def test_a_version_before_that_of_the_base_version_is_rejected(table: Path) -> None:
    ended = append(f"delta:{table}@0", table.parent / "out", "1.1.0", "1.0.0")
    assert ended.code == 2
    assert f"delta:{table}@0: is older than version 1, which --base has. Convert" in ended.err


def test_a_log_that_begins_after_the_base_version_is_stated(table: Path) -> None:
    write(table, 8, 9)
    DeltaTable(str(table)).create_checkpoint()
    for version in (0, 1):
        (table / f"_delta_log/{version:020}.json").unlink()
    ended = append(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0")
    assert ended.code == 2
    assert f"delta:{table}: its log does not reach back to version 1. Convert the w" in ended.err


def test_all_rows_of_another_table_are_new(table: Path) -> None:
    """Rows with known keys are compared with their records, as for any other table."""
    shutil.rmtree(table)
    write(table, 0, 10)
    dataset = appended(f"delta:{table}", table.parent / "out", "1.1.0", "1.0.0")
    assert counts(dataset) == (18, 2, 8)
    source = manifest(dataset)["source"]
    assert source["recognized"] == [f"delta:{table}: read as Delta table, version 0"]


def test_versions_without_the_table_keep_its_snapshot(table: Path) -> None:
    tmp_path, out = table.parent, table.parent / "out"
    keys = tmp_path / "keys.txt"
    keys.write_text("k3\n")
    forgotten = recordmill("forget", out / "birds", "--keys", keys)
    assert forgotten.code == 0, forgotten.err
    day = tmp_path / "day.jsonl"
    (tmp_path / "50.jpg").write_bytes(jpeg(16, 12, seed=50))
    day.write_text(json.dumps({"id": "k50", "image": "50.jpg", "label": "a"}))
    repaired = appended(day, out, "1.1.0", "1.0.1")
    (snapshot,) = manifest(repaired)["source"]["snapshots"]
    assert snapshot["pinned"] == f"delta:{table}@1"
    write(table, 8, 11)
    dataset = appended(f"delta:{table}", out, "1.2.0", "1.1.0")
    assert set(readers.keys(dataset, "train")) == {
        *(f"k{i}" for i in range(11) if i != 3),
        "k50",
    }
    (snapshot,) = manifest(dataset)["source"]["snapshots"]
    assert snapshot["pinned"] == f"delta:{table}@2"
