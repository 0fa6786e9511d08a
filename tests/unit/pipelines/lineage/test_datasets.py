"""Names of datasets as Spark, Airflow and dbt write them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from recordmill.pipelines.lineage import (
    DatasetName,
    Input,
    _base_dataset,
    _name_of,
    _tables_of,
)
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.manifest import Base, Manifest
from recordmill.schemas.plan import TableSnapshot

BUCKET = "s3://birds"


def config(**options: Any) -> ConvertConfig:
    return ConvertConfig.model_validate(
        {"inputs": ("/data/labels.csv",), "output": "/out", "name": "birds", **options}
    )


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        ("/data/labels.csv", "file", "/data/labels.csv"),
        ("/data/photos/", "file", "/data/photos"),
        ("labels.csv", "file", os.path.join(os.getcwd(), "labels.csv")),
        ("s3://birds", BUCKET, "/"),
        ("s3://birds/", BUCKET, "/"),
        ("s3://birds/day 1/a.csv", BUCKET, "day 1/a.csv"),
        ("gs://birds/photos/", "gs://birds", "photos"),
        ("azfs://us/er/a.csv", "abfss://er@us.dfs.core.windows.net", "a.csv"),
        ("hdfs://data/a.csv", "hdfs", "/data/a.csv"),
        ("https://me:hush@host:8080/a/b.csv?token=hush#x", "https://host:8080", "a/b.csv"),
    ],
)
def test_names_by_the_conventions_of_openlineage(path: str, namespace: str, name: str) -> None:
    assert _name_of(path) == DatasetName(namespace, name)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://birds/day=*/part-?.parquet", "/"),
        ("s3://birds/a/day=*/part.parquet", "a"),
        ("s3://birds/a/[bc].csv", "a"),
        ("s3://birds/a/b.csv", "a/b.csv"),
    ],
)
def test_the_files_of_a_pattern_are_the_dataset_in_their_folder(path: str, name: str) -> None:
    assert _tables_of(config(inputs=(path,))) == (Input(DatasetName(BUCKET, name)),)


def test_a_relative_pattern_without_a_folder_is_the_working_folder() -> None:
    assert _tables_of(config(inputs=("*.csv",))) == (Input(DatasetName("file", os.getcwd())),)


def test_tables_are_the_inputs_and_the_labels_without_the_base_version() -> None:
    options = config(
        inputs=("/a/1-*.csv", "/a/2-*.csv", "/out/birds/1.0.0"),
        labels="/l.csv",
        join_on="image",
        base="/out/birds/1.0.0",
    )
    names = [table.name.name for table in _tables_of(options)]
    assert names == ["/a", "/l.csv"]


def test_a_lakehouse_table_has_its_snapshot_as_version() -> None:
    delta = TableSnapshot(input="delta:s3://b/t", pinned="delta:s3://b/t@3", table="", id=3)
    ice = TableSnapshot(input="iceberg:c.n.t@7", pinned="iceberg:c.n.t@7", table="", id=7)
    assert _tables_of(config(inputs=(delta.input, ice.input)), [delta, ice]) == (
        Input(DatasetName("s3://b", "t"), "3"),
        Input(DatasetName("iceberg", "c.n.t"), "7"),
    )


@pytest.mark.parametrize(
    ("directory", "namespace", "name"),
    [("/out/birds/1.0.0", "file", "/out/birds"), ("s3://birds/out/1.0.0", BUCKET, "out")],
)
def test_versions_of_a_dataset_have_one_name(directory: str, namespace: str, name: str) -> None:
    manifest = Manifest.model_construct(version="1.0.0")
    base = Base(directory, "", manifest, {})
    assert _base_dataset(base) == Input(DatasetName(namespace, name), "1.0.0")
    assert _name_of(directory.rpartition("/")[0]) == DatasetName(namespace, name)
