"""Tables as Spark and pandas write them are converted as they are.

`tables_of_tools/` has their output: of Spark 3.5 by `spark.scala`, of pandas by `pandas_tables.py`.
The expected values are read by PyArrow and by the csv module.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import recordmill

TABLES = Path(__file__).parent / "tables_of_tools"

SPARK = """
features:
  patient: {kind: int64, from: "column:patient.id", missing: empty}
  age: {kind: int64, from: "column:patient.age", missing: empty}
  boxes: {kind: float, from: "column:objects.bbox", shape: [null, 4]}
  classes: {kind: int64, from: "column:objects.category", classes: true, shape: []}
  taken: {kind: bytes, from: "column:taken", missing: empty}
  stored: {kind: bytes, from: "column:stored"}
  dose: {kind: float, from: "column:dose"}
  visit: {kind: int64, from: "column:visit"}
  site: {kind: bytes, from: "column:site", missing: empty}
"""


def converted(tmp_path: Path, *arguments: object) -> Path:
    target = ("--output", tmp_path, "--name", "birds")
    ended = recordmill("convert", *target, *arguments)
    assert ended.code == 0, ended.err
    return tmp_path / "birds" / "1.0.0"


def by_key(dataset: Path, split: str) -> dict[str, dict[str, list[Any]]]:
    keys, examples = readers.keys(dataset, split), readers.examples(dataset, split)
    return dict(zip(keys, examples, strict=True))


def as_example(row: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns the expected values of a row of Spark's table, as PyArrow reads it."""
    patient, objects = row["patient"] or {}, row["objects"]
    stored = row["stored"].strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".")
    return {
        "patient": [patient["id"]] if patient else [],
        "age": [patient["age"]] if patient else [],
        "boxes": [number for found in objects for number in found["bbox"]],
        "classes": [["cat", "dog"].index(found["category"]) for found in objects],
        "taken": [row["taken"].isoformat().encode()] if row["taken"] else [],
        "stored": [f"{stored}{'Z' if row['stored'].tzinfo else ''}".encode()],
        "dose": [float(row["dose"])],
        "visit": [int(row["visit"])],
        "site": [row["site"].encode()] if row["site"] else [],
    }


def test_a_folder_that_spark_wrote(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SPARK)
    folder = TABLES / "spark" / "parquet"
    assert {path.name[:1] for path in folder.rglob("*SUCCESS*")} == {"_", "."}
    flags = ("--schema", tmp_path / "s.yaml", "--key_column", "image")
    dataset = converted(tmp_path, "--input", folder, *flags, "--group_column", "patient.id",
                        "--max_rejects", 1)  # fmt: skip
    rows = ds.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
    assert len(rows) == 12
    found = {split: by_key(dataset, split) for split in ("train", "test")}
    for row in rows:
        if row["patient"] is None:  # without a group
            continue
        assert found[row["split"]].pop(row["image"]) == as_example(row)
    assert found == {"train": {}, "test": {}}
    (reject,) = readers.rejects(dataset)
    assert (reject["key"], reject["reason"]) == ("05.png", "missing_value")


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_text_that_spark_wrote(format_: str, tmp_path: Path) -> None:
    flags = ("--schema", "tabular", "--key_column", "image", "--split_column", "split")
    dataset = converted(tmp_path, "--input", TABLES / "spark" / format_, *flags)
    assert {split: len(readers.keys(dataset, split)) for split in ("train", "test")} == {
        "train": 9,
        "test": 3,
    }


PANDAS = """
features:
  label: {kind: int64, from: "column:label", classes: true}
  taken: {kind: bytes, from: "column:taken"}
  stored: {kind: bytes, from: "column:stored"}
  day: {kind: bytes, from: "column:day"}
  dose: {kind: float, from: "column:dose", missing: empty}
  box: {kind: float, from: "column:box", shape: [4]}
  site: {kind: bytes, from: "column:site", missing: empty}
  age: {kind: int64, from: "column:patient.age"}
"""


def test_a_parquet_file_that_pandas_wrote(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(PANDAS)
    table = TABLES / "pandas.parquet"
    flags = ("--schema", tmp_path / "s.yaml", "--key_column", "name", "--max_rejects", 1)
    found = by_key(converted(tmp_path, "--input", table, *flags), "train")
    expected = {}
    for row in pq.read_table(table).to_pylist():
        if row["label"] is None:
            continue
        expected[row["name"]] = {
            "label": [int(row["label"])],
            "taken": [row["taken"].isoformat().encode()],
            "stored": [b"2024-03-01T11:30:00.25Z"],
            "day": [row["day"].isoformat().encode()],
            "dose": [] if row["dose"] is None else [np.float32(row["dose"])],
            "box": row["box"],
            "site": [] if row["site"] is None else [row["site"].encode()],
            "age": [row["patient"]["age"]],
        }
    assert sorted(found) == ["a", "b", "d"]
    assert found == expected


def test_a_csv_file_with_semicolons_that_pandas_wrote(tmp_path: Path) -> None:
    table = TABLES / "pandas.csv"
    (tmp_path / "s.yaml").write_text(
        'features: {label: {kind: int64, from: "column:label", classes: true}}'
    )
    flags = ("--delimiter", ";", "--key_column", "name", "--max_rejects", 1)
    dataset = converted(tmp_path, "--input", table, "--schema", tmp_path / "s.yaml", *flags)
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter=";"))
    expected = {row["name"]: {"label": [int(float(row["label"]))]} for row in rows if row["label"]}
    assert by_key(dataset, "train") == expected
    assert not (dataset / "label.labels.txt").exists()
