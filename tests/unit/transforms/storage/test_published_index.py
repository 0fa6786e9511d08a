"""The index of a shard's records is read as it was published, or rejected with a message."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import ProofError
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.storage.published_index import read_index

NAME = "records/records-train-00000-of-00001.parquet"
COLUMNS = {"key": ["a", "b"], "offset": [12, 40], "length": [12, 9]}


def entry(data: bytes) -> ShardEntry:
    digests = {"sha256": "", "index_sha256": hashlib.sha256(data).hexdigest(), "crc32c": 0}
    counts = {"records": 2, "bytes": 0, "payload": 0, "classes": {}, "images": {}}
    return ShardEntry(file="train", index_file=NAME, **digests, **counts)  # type: ignore[arg-type]


def written(folder: Path, columns: dict[str, Any]) -> ShardEntry:
    path = folder / NAME
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return entry(path.read_bytes())


def test_the_published_index_is_read(tmp_path: Path) -> None:
    shard = written(tmp_path, COLUMNS)
    table = read_index(str(tmp_path), shard, ["offset", "key"])
    assert table.to_pydict() == {"offset": [12, 40], "key": ["a", "b"]}


def other(path: Path) -> None:
    pq.write_table(pa.table({**COLUMNS, "offset": [-12, 2**62]}), path)


def twice(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (other, "its sha256 differs"),
        (twice, "its sha256 differs"),
        (empty, "its sha256 differs"),
        (Path.unlink, "is missing"),
        (folder, "cannot be read: Is a directory"),
        (fifo, "cannot be read: is a FIFO"),
    ],
)
def test_another_index_is_rejected_by_name(
    damage: Callable[[Path], None], what: str, tmp_path: Path
) -> None:
    shard = written(tmp_path, COLUMNS)
    damage(tmp_path / NAME)
    with pytest.raises(ProofError, match=what) as caught:
        read_index(str(tmp_path), shard, ["key"])
    assert str(caught.value).startswith(f"{tmp_path / NAME}: ")


@pytest.mark.parametrize(
    "columns",
    [
        {"offset": [1], "length": [1]},
        {**COLUMNS, "key": [1, 2]},
        {**COLUMNS, "key": ["a", None]},
        {**COLUMNS, "offset": [1.5, 2.0]},
        {**COLUMNS, "length": pa.array([None, 3], pa.int64())},
        None,
    ],
)
def test_what_a_manifest_lists_and_is_not_an_index_is_rejected(
    columns: dict[str, Any] | None, tmp_path: Path
) -> None:
    shard = written(tmp_path, COLUMNS if columns is None else columns)
    if columns is None:
        (tmp_path / NAME).write_bytes(b"PAR1 no Parquet PAR1")
        shard = entry(b"PAR1 no Parquet PAR1")
    with pytest.raises(ProofError, match="is not a valid index: "):
        read_index(str(tmp_path), shard, ["key", "offset", "length"])
