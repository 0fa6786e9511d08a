"""Tables of Delta Lake and Iceberg that Spark wrote, converted with the rows that Spark selects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

from tests.deploy.runs.environments import ROOT, environment, run
from tests.end_to_end import readers
from tests.end_to_end.command import published
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
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pyiceberg.catalog.Catalog:
    """The catalog `local`, with an empty namespace `db`."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    catalog = pyiceberg.catalog.load_catalog("local")
    catalog.create_namespace("db")
    return catalog


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
