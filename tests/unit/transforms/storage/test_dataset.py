"""Reading of published datasets, and the messages for damaged ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.shard_format import ShardFormat
from recordmill.transforms.storage.dataset import DatasetFolder, RecordLocation, read_index
from tests.shard_formats import every_compression, every_format
from tests.unit.transforms.storage.birds import SHARDS, failing, index_of, put, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "1.0.0")


def test_an_open_dataset_describes_its_files(folder: Path) -> None:
    dataset = DatasetFolder.open(folder)
    assert repr(dataset) == f"DatasetFolder({str(folder)!r}): train 3, test 1 records"
    assert {name: split.records for name, split in dataset.splits.items()} == {
        "test": 1,
        "train": 3,
    }
    assert dataset.classes == {"label": ("cat", "dog")}
    assert list(dataset.shards()) == list(SHARDS)
    assert len(dataset.shards()) == len(SHARDS)
    assert not {("train", -1), ("train", 2), ("gone", 0)} & dataset.shards().keys()
    assert dataset.report == f"{folder}/report.html"
    data = (folder / "manifest.json").read_bytes()
    assert dataset.manifest == Manifest.model_validate_json(data)
    assert dataset.manifest_sha256 == hashlib.sha256(data).hexdigest()
    assert DatasetFolder.open(f"{folder}/") == dataset


@every_format
def test_records_are_read_by_number_and_by_key(tmp_path: Path, found: ShardFormat) -> None:
    dataset = DatasetFolder.open(put(tmp_path, found.name))
    shards = dataset.shards()
    for place, records in SHARDS.items():
        read = [dataset.record(shards[place], n) for n in range(len(records))]
        assert read == list(records.values())
    location = dataset.find("c.png")
    assert location == RecordLocation("c.png", "train", 0, 1, 28, 300, "", ("dog",))
    assert dataset.record(shards["train", 0], 1, (28, 300)) == b"x" * 300
    assert dataset.find("e.png") is None
    assert dataset.located(shards["train", 0], [1, 0, 1]) == [
        location,
        dataset.find("b.png"),
        location,
    ]
    with pytest.raises(IndexError):
        dataset.located(shards["train", 0], [2])
    assert dataset.shard_format is found


def test_selections_are_ranges_of_shards(folder: Path) -> None:
    dataset = DatasetFolder.open(folder)
    assert dataset.select("train[1:]+test") == [
        ("train", 0, 1, 1),
        ("train", 1, 0, 1),
        ("test", 0, 0, 1),
    ]
    assert dataset.select("all", (1, 2)) == [("train", 0, 1, 1), ("train", 1, 0, 1)]
    with pytest.raises(UsageError, match=r"share=\(2, 2\): expected \(i, n\)"):
        dataset.select("all", (2, 2))


def test_locations_are_filtered_by_class(folder: Path) -> None:
    dataset = DatasetFolder.open(folder)
    shard = dataset.shards()["train", 0]
    assert [location.key for location in dataset.locations(shard)] == ["b.png", "c.png"]
    assert [location.key for location in dataset.locations(shard, {"dog"})] == ["c.png"]


@pytest.mark.parametrize(
    ("byte", "what"),
    [
        (16 + 3, "the checksum of the record's length does not match"),
        (16 + 20, "the checksum of the record's data does not match"),
        (16 + 12 + 300, "the checksum of the record's data does not match"),
    ],
)
def test_a_damaged_record_is_located(folder: Path, byte: int, what: str) -> None:
    path = folder / "birds-train.tfrecord-00000-of-00002"
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    dataset = DatasetFolder.open(folder)
    shard = dataset.shards()["train", 0]
    assert dataset.record(shard, 0) == b""
    message = f"{folder}: {path.name}: record 1 at byte 16: {what}"
    assert failing(dataset.record, shard, 1) == f"{message} (key 'c.png')"
    (folder / shard.index_file).unlink()
    assert failing(dataset.record, shard, 1, (28, 300)) == message


@pytest.mark.parametrize("span", [(28, 299), (-1, 5), (28, 2**62), (12, 300), (10**9, 1), (28, -1)])
def test_a_record_that_differs_from_the_index_is_damaged(
    folder: Path, span: tuple[int, int]
) -> None:
    dataset = DatasetFolder.open(folder)
    found = failing(dataset.record, dataset.shards()["train", 0], 1, span)
    assert found.startswith(f"{folder}: birds-train.tfrecord-00000-of-00002: record 1 at byte ")


def test_an_unreadable_shard_is_reported(tmp_path: Path) -> None:
    dataset = DatasetFolder.open(put(tmp_path))
    shard = dataset.shards()["test", 0]
    path = tmp_path / shard.file
    path.unlink()
    assert failing(dataset.record, shard, 0) == f"{path}: is missing. Restore it from a backup."
    path.mkdir()
    assert failing(dataset.record, shard, 0).startswith(f"{path}: cannot be read: Is a directory")


@every_compression
def test_a_damaged_stream_is_reported(tmp_path: Path, found: ShardFormat) -> None:
    dataset = DatasetFolder.open(put(tmp_path, found.name))
    shard = dataset.shards()["train", 1]
    path = tmp_path / shard.file
    path.write_bytes(path.read_bytes()[:-12])
    assert failing(dataset.record, shard, 0).startswith(
        f"{tmp_path}: {shard.file}: record 0 at byte 0: "
    )


def test_rejects_and_dropped_rows_are_read(folder: Path) -> None:
    dataset = DatasetFolder.open(folder)
    assert (list(dataset.rejects()), list(dataset.dropped())) == ([], [])
    write(folder / layout.lines_name("rejects"), b'{"key": "e"}\n{"key": "f"}\n')
    write(folder / layout.lines_name("dropped"), b'{"key": "g"}\n')
    assert [line["key"] for line in dataset.rejects()] == ["e", "f"]
    assert [line["key"] for line in dataset.dropped()] == ["g"]


def test_the_published_index_is_read(folder: Path) -> None:
    dataset = DatasetFolder.open(folder)
    table = dataset.index(dataset.shards()["train", 0], ["offset", "key"])
    assert table.to_pydict() == {"offset": [12, 28], "key": ["b.png", "c.png"]}


def other(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.set_column(4, "offset", pa.array([-12, 2**62])), path)


def twice(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (other, "is not the file that manifest.json lists: its sha256 differs"),
        (twice, "is not the file that manifest.json lists: its sha256 differs"),
        (empty, "is not the file that manifest.json lists: its sha256 differs"),
        (Path.unlink, "is missing"),
        (folder_instead, "cannot be read: Is a directory"),
        (fifo, "cannot be read: is a FIFO"),
    ],
)
def test_an_index_that_differs_is_rejected(
    damage: Callable[[Path], None], what: str, folder: Path
) -> None:
    dataset = DatasetFolder.open(folder)
    shard = dataset.shards()["train", 0]
    damage(folder / shard.index_file)
    message = failing(dataset.index, shard, ["key"])
    assert message.startswith(f"{folder / shard.index_file}: {what}")


COLUMNS = {"key": ["a", "b"], "offset": [12, 40], "length": [12, 9]}


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
def test_an_invalid_index_is_rejected(columns: dict[str, Any] | None, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    if columns is None:
        path.write_bytes(b"PAR1 no Parquet PAR1")
    else:
        pq.write_table(pa.table(columns), path)
    message = failing(read_index, str(path), ["key", "offset", "length"])
    assert message.startswith(f"{path}: is not a valid index: ")


def test_damage_at_any_byte_of_an_index_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "index.parquet"
    pq.write_table(index_of("train", 0, SHARDS[("train", 0)]), path)
    intact = path.read_bytes()
    rejected = 0
    for position in range(0, len(intact), 3):
        path.write_bytes(intact[:position] + b"\xff" + intact[position + 1 :])
        try:
            read_index(str(path), ["key", "length"])
        except VerificationFailed:
            rejected += 1
    assert rejected > 100
