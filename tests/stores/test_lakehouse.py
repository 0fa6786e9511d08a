"""Tables of Delta Lake and Iceberg in a bucket, read with the flags of the store only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

from tests.end_to_end import readers
from tests.end_to_end.command import recordmill
from tests.iceberg_tables import compact, delete_positions
from tests.images import jpeg
from tests.lakehouse import delete_rows
from tests.stores.kinds import Store
from tests.stores.servers import S3_KEYS
from tests.versions.increments import manifest


def rows(first: int, stop: int) -> pa.Table:
    numbers = range(first, stop)
    labels = ["ab"[i % 2] for i in numbers]
    images = [jpeg(16, 12, seed=i) for i in numbers]
    return pa.table({"id": [f"k{i}" for i in numbers], "image": images, "label": labels})


def converted(store: Store, address: str, output: Path, version: str, *flags: str) -> Path:
    """Converts a table of the store into a local folder."""
    given = ("--key_column=id", "--num_shards=4", "--no_report", *store.flags, *flags)
    asked = (f"--input={address}", f"--output={output}", "--name=birds", f"--version={version}")
    ended = recordmill("convert", *asked, *given)
    assert ended.code == 0, ended.err
    return output / "birds" / version


def assert_has_rows(dataset: Path, selected: pa.Table) -> None:
    """Asserts that a dataset has the rows that the library selects, with their images."""
    examples = readers.examples(dataset, "train")
    index = readers.index_rows(dataset, "train")
    found = {
        row["key"]: (row["class"], example["image"][0])
        for row, example in zip(index, examples, strict=True)
    }
    columns = selected.select(["id", "label", "image"]).to_pylist()
    assert found == {row["id"]: (row["label"], row["image"]) for row in columns}
    assert len(columns) == len(index)


def test_a_delta_table_with_deleted_rows(s3_store: Store, tmp_path: Path) -> None:
    local, out, name = tmp_path / "t", tmp_path / "out", "tables/birds"
    for first in (0, 8):
        deltalake.write_deltalake(str(local), rows(first, first + 8), mode="append")
    delete_rows(local, {0: [1, 7], 1: [0]})
    s3_store.upload(local, name)
    key, secret = S3_KEYS
    access = {
        "aws_endpoint": s3_store.proxy.url,
        "aws_allow_http": "true",
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "aws_region": "us-east-1",
    }
    url = f"{s3_store.root}/{name}"
    address = f"delta:{url}"
    dataset = converted(s3_store, address, out, "1.0.0")
    selected = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(local)))
    assert_has_rows(dataset, pa.table(selected.execute("SELECT * FROM t")))
    (snapshot,) = manifest(dataset)["source"]["snapshots"]
    assert snapshot["pinned"] == f"{address}@2"
    first = converted(s3_store, f"{address}@0", tmp_path / "first", "1.0.0")
    assert_has_rows(first, rows(0, 8))
    deltalake.write_deltalake(url, rows(16, 20), mode="append", storage_options=access)
    deltalake.write_deltalake(url, rows(20, 22), mode="append", storage_options=access)
    deltalake.DeltaTable(url, storage_options=access).optimize.compact()
    given = (f"--base={dataset}", "--append")
    dataset = converted(s3_store, address, out, "1.1.0", *given)
    table = deltalake.DeltaTable(url, storage_options=access)
    selected = deltalake.QueryBuilder().register("t", table)
    assert_has_rows(dataset, pa.table(selected.execute("SELECT * FROM t")))
    assert sum(manifest(dataset)["base"]["new"].values()) == 6


@pytest.fixture
def catalog(s3_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog in a file, whose configuration has no credentials of the store."""
    monkeypatch.setenv("PYICEBERG_CATALOG__BUCKET__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__BUCKET__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__BUCKET__WAREHOUSE", f"{s3_store.root}/warehouse")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    key, secret = S3_KEYS
    access = {
        "s3.endpoint": s3_store.proxy.url,
        "s3.access-key-id": key,
        "s3.secret-access-key": secret,
        "s3.region": "us-east-1",
    }
    catalog = pyiceberg.catalog.load_catalog("bucket", **access)
    catalog.create_namespace("db")
    yield catalog
    catalog.close()


@pytest.mark.filterwarnings("ignore")
def test_an_iceberg_table_with_deleted_rows(s3_store: Store, catalog: Any, tmp_path: Path) -> None:
    table, out = catalog.create_table("db.birds", rows(0, 1).schema), tmp_path / "out"
    for first in (0, 8):
        table.append(rows(first, first + 8))
    older = table.current_snapshot().snapshot_id
    files = [task.file.file_path for task in table.scan().plan_files()]
    assert all(file.startswith(f"{s3_store.root}/warehouse/") for file in files)
    delete_positions(table, {files[0]: [1, 7], files[1]: [0]})
    address = "iceberg:bucket.db.birds"
    dataset = converted(s3_store, address, out, "1.0.0")
    assert_has_rows(dataset, table.scan().to_arrow())
    assert len(readers.keys(dataset, "train")) == 13
    first = converted(s3_store, f"{address}@{older}", tmp_path / "first", "1.0.0")
    assert_has_rows(first, rows(0, 16))
    table.append(rows(16, 20))
    table.append(rows(20, 22))
    compact(table)
    dataset = converted(s3_store, address, out, "1.1.0", f"--base={dataset}", "--append")
    assert_has_rows(dataset, table.scan().to_arrow())
    assert sum(manifest(dataset)["base"]["new"].values()) == 6
