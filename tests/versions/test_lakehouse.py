"""Lakehouse tables are converted by their snapshot, which the manifest names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.end_to_end import readers
from tests.end_to_end.command import convert, published
from tests.images import jpeg

FLAGS = ("--key_column", "id", "--num_shards", "4", "--no_report")


def rows(first: int, stop: int, damaged: int | None = None) -> pa.Table:
    """Returns rows with their images, of which one may be truncated."""
    images = [jpeg(16, 12, seed=i)[: -100 if i == damaged else None] for i in range(first, stop)]
    labels = ["ab"[i % 2] for i in range(first, stop)]
    return pa.table({"id": [f"k{i}" for i in range(first, stop)], "image": images, "label": labels})


def keys(dataset: Path) -> set[str]:
    return {row["key"] for row in readers.index_rows(dataset, "train")}


def source(dataset: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dataset / "manifest.json").read_bytes())["source"]
    return found


def test_a_pinned_address_repeats_a_conversion(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_deltalake(str(table), rows(0, 12))
    first = published(f"delta:{table}", tmp_path / "first", *FLAGS)
    DeltaTable(str(table)).delete("id = 'k3'")
    write_deltalake(str(table), rows(12, 16), mode="append")
    second = published(f"delta:{table}", tmp_path / "second", *FLAGS)
    assert keys(first) == {f"k{i}" for i in range(12)}
    assert keys(second) == {f"k{i}" for i in range(16) if i != 3}
    assert source(first)["recognized"] == [f"delta:{table}: read as Delta table, version 0"]
    (snapshot,) = source(first)["snapshots"]
    assert snapshot["pinned"] == f"delta:{table}@0"
    again = published(snapshot["pinned"], tmp_path / "again", *FLAGS)
    for shard in readers.shards(first, "train"):
        assert (again / shard.name).read_bytes() == shard.read_bytes()


def test_labels_can_be_a_table(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for i in range(4):
        (images / f"{i}.jpg").write_bytes(jpeg(16, 12, seed=i))
    (images / "images.csv").write_text("image\n" + "".join(f"{i}.jpg\n" for i in range(4)))
    table = tmp_path / "t"
    labels = pa.table({"image": [f"{i}.jpg" for i in range(4)], "label": list("abab")})
    write_deltalake(str(table), labels)
    flags = ("--labels", f"delta:{table}", "--join_on", "image", "--no_report")
    dataset = published(images / "images.csv", tmp_path / "out", *flags)
    assert [entry["pinned"] for entry in source(dataset)["snapshots"]] == [f"delta:{table}@0"]


def test_a_run_that_is_resumed_never_mixes_two_snapshots(tmp_path: Path) -> None:
    """Shards whose rows are unchanged are reused; the others are those of the new snapshot."""
    table = tmp_path / "t"
    write_deltalake(str(table), rows(0, 16, damaged=5))
    assert convert(f"delta:{table}", tmp_path / "out", *FLAGS).code == 4
    DeltaTable(str(table)).delete("id = 'k5'")
    dataset = published(f"delta:{table}", tmp_path / "out", *FLAGS)
    assert json.loads((dataset / "run.json").read_bytes())["shards_reused"] == 3
    readers.assert_the_same(dataset, published(f"delta:{table}", tmp_path / "fresh", *FLAGS))
    (snapshot,) = source(dataset)["snapshots"]
    assert snapshot["id"] == 1
