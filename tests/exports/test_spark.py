"""Tables of Delta Lake and Iceberg that Spark wrote, converted with the rows that Spark selects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pytest

from tests.deploy.runs.environments import ROOT, environment, run
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published
from tests.iceberg_tables import local_catalog
from tests.stores.servers import maven

JARS = (
    "io.delta:delta-spark_2.12:3.3.2",
    "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.0",
)
FLAGS = ("--schema", "tabular", "--key_column", "id")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with the tables, and what Spark selects from them."""
    folder = tmp_path_factory.mktemp("spark")
    venv = environment("spark", ["pyspark==3.5.7"], ROOT / "constraints.txt")
    script = Path(__file__).parent / "spark_export.py"
    printed = run(venv / "bin" / "python", script, maven("spark-tables", JARS), folder)
    return folder, json.loads(printed.splitlines()[-1])


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pyiceberg.catalog.Catalog]:
    """The catalog `local`, with an empty namespace `db`."""
    with local_catalog(tmp_path, monkeypatch) as opened:
        yield opened


def test_every_version_of_a_delta_table_has_the_rows_that_spark_selects(
    written: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = written
    assert len(expected["delta"]) == 7
    for version, rows in expected["delta"].items():
        assert rows_of(f"delta:{folder}/delta@{version}", tmp_path / version) == rows


@pytest.mark.parametrize("name", ["v2", "v3"])
def test_every_snapshot_of_an_iceberg_table_has_the_rows_that_spark_selects(
    name: str,
    written: tuple[Path, dict[str, Any]],
    catalog: pyiceberg.catalog.Catalog,
    tmp_path: Path,
) -> None:
    expected = written[1][name]
    catalog.register_table(f"db.{name}", expected["metadata"])
    assert len(expected["rows"]) == 4
    for snapshot, rows in expected["rows"].items():
        assert rows_of(f"iceberg:local.db.{name}@{snapshot}", tmp_path / snapshot) == rows


def test_equality_deletes_are_rejected_until_spark_has_applied_them(
    written: tuple[Path, dict[str, Any]],
    catalog: pyiceberg.catalog.Catalog,
    tmp_path: Path,
) -> None:
    expected = written[1]["equality"]
    assert expected["rows"] == [{"id": "1", "n": 1}, {"id": "2", "n": 7}, {"id": "3", "n": 3}]
    for name, metadata in expected["metadata"].items():
        catalog.register_table(f"db.{name}", metadata)
    output = tmp_path / "out"
    published("iceberg:local.db.before", output, *FLAGS)
    rejected = convert("iceberg:local.db.deleted", tmp_path / "deleted", *FLAGS)
    assert rejected.code == 2
    assert "iceberg:local.db.deleted: has files of equality deletes" in rejected.err
    assert rows_of("iceberg:local.db.rewritten", tmp_path / "rewritten") == expected["rows"]
    # The record of the older row would stay.
    asked = ("--base", output / "birds/1.0.0", "--append", "--version", "1.1.0")
    rejected = convert("iceberg:local.db.rewritten", output, *FLAGS, *asked)
    assert rejected.code == 2
    assert "shows, and convert it without --append." in rejected.err


def test_rows_that_spark_compacted_with_older_ones_are_appended(
    written: tuple[Path, dict[str, Any]],
    catalog: pyiceberg.catalog.Catalog,
    tmp_path: Path,
) -> None:
    folder, expected = written
    catalog.register_table("db.compacted", expected["compacted"]["metadata"])
    addresses = {
        f"delta:{folder}/compacted": 3,
        "iceberg:local.db.compacted": expected["compacted"]["first"],
    }
    for address, first in addresses.items():
        output = tmp_path / address.partition(":")[0]
        base = published(f"{address}@{first}", output, *FLAGS)
        assert len(readers.keys(base, "train")) == 2
        asked = ("--base", base, "--append", "--version", "1.1.0", "--num_shards", "1")
        ended = convert(address, output, *FLAGS, *asked)
        assert ended.code == 0, ended.err
        dataset = output / "birds" / "1.1.0"
        keys = sorted(readers.keys(dataset, "train"))
        assert keys == [row["id"] for row in expected["compacted"]["rows"]]
        found = json.loads((dataset / "manifest.json").read_bytes())
        assert found["input"].get("unchanged", 0) == 0
        assert sum(found["base"]["new"].values()) == 2


def rows_of(address: str, output: Path) -> list[dict[str, Any]]:
    """Converts a table, and returns the values of its records that are not empty, by id."""
    dataset = published(address, output, *FLAGS)
    rows = [
        {name: plain(values[0]) for name, values in example.items() if values}
        for example in readers.examples(dataset, "train")
    ]
    return sorted(rows, key=lambda row: row["id"])


def plain(value: Any) -> Any:
    """Returns a value as JSON has it."""
    return value.decode() if isinstance(value, bytes) else value
