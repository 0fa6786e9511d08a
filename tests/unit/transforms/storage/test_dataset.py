"""Reading of published datasets, and the messages for damaged ones."""

from __future__ import annotations

import gc
import gzip
import hashlib
import os
import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification, manifest_of
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.row_counts import RowCounts, SplitCounts
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.records.framing import masked_crc32c
from recordmill.transforms.storage.dataset import (
    Dataset,
    RecordLocation,
    commit_marker,
    current_folder,
    find_manifest,
    newest_version,
    published_versions,
    read_index,
)

SHARDS = {
    ("test", 0): {"a.png": b"first"},
    ("train", 0): {"b.png": b"", "c.png": b"x" * 300},
    ("train", 1): {"d.png": b"last"},
}
SCHEMA = preset("image_classification")


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    length += struct.pack("<I", masked_crc32c(length))
    return length + data + struct.pack("<I", masked_crc32c(data))


def index_of(split: str, shard: int, records: dict[str, bytes]) -> pa.Table:
    lengths = [len(data) for data in records.values()]
    return pa.table(
        {
            "key": list(records),
            "split": [split] * len(records),
            "shard": [shard] * len(records),
            "index": list(range(len(records))),
            "offset": [12 + sum(lengths[:n]) + 16 * n for n in range(len(records))],
            "length": lengths,
            "sha256": pa.array([None] * len(records), pa.string()),
            "class": ["cat", "dog"][: len(records)],
        }
    )


def write(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def put(
    folder: Path,
    compression: str = "none",
    content: dict[tuple[str, int], dict[str, bytes]] = SHARDS,
) -> Path:
    """Writes a dataset of three shards and returns its folder."""
    shards = []
    for (split, number), records in content.items():
        name = layout.shard_name("birds", split, number, 2, compression)
        index = layout.records_name(split, number, 2)
        data = b"".join(map(framed, records.values()))
        digest = write(folder / name, gzip.compress(data) if compression == "gzip" else data)
        (folder / "records").mkdir(exist_ok=True)
        pq.write_table(index_of(split, number, records), folder / index)
        sha256 = hashlib.sha256((folder / index).read_bytes()).hexdigest()
        entry = ShardEntry(
            **{"file": name, "records": len(records), "bytes": len(data), "sha256": digest},
            **{"payload": 0, "crc32c": 0, "index_file": index, "index_sha256": sha256},
            images={},
        )
        shards.append(ShardVerification(split, number, entry, 0))
    resolved = ResolvedSchema(SCHEMA, {"label": ("cat", "dog"), "image": ()})
    splits = {
        split: SplitCounts(rows=rows, records=rows, rejected=0, duplicates=0)
        for split, rows in (("test", 1), ("train", 3))
    }
    plan, counts = Plan(resolved, {"test": 1, "train": 2}, 4), RowCounts.of(4, splits)
    info = DatasetInfo(plan, counts, splits, tuple(shards), images={}, problems=())
    config = ConvertConfig(
        inputs=("t.csv",), output=str(folder), name="birds", schema=SCHEMA, compression=compression
    )
    manifest = manifest_of(info, config, {}).to_json()
    write(folder / layout.MANIFEST, manifest)
    write(folder / layout.SUCCESS, commit_marker(manifest))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "1.0.0")


def failing(action: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(VerificationFailed) as caught:
        action(*arguments)
    return str(caught.value)


def test_an_open_dataset_describes_its_files(folder: Path) -> None:
    dataset = Dataset.open(folder)
    assert repr(dataset) == f"Dataset({str(folder)!r}): train 3, test 1 records"
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
    assert Dataset.open(f"{folder}/") == dataset


def test_the_newest_version_is_by_number_and_published(tmp_path: Path) -> None:
    for version in ("1.9.0", "1.10.0", "2.0.0", "3.0.0-draft"):
        put(tmp_path / version)
    (tmp_path / "2.0.0" / "_SUCCESS").unlink()
    assert published_versions(str(tmp_path)) == ["1.9.0", "1.10.0"]
    assert newest_version(tmp_path) == newest_version(f"{tmp_path}/") == f"{tmp_path}/1.10.0"
    assert newest_version(tmp_path / "1.9.0") == f"{tmp_path}/1.9.0"
    assert newest_version(tmp_path / "none") == f"{tmp_path}/none"
    assert newest_version(tmp_path / "1.9.0/_SUCCESS") == f"{tmp_path}/1.9.0/_SUCCESS"
    assert failing(Dataset.open, tmp_path).endswith(
        "recordmill convert has published. It has the versions 1.9.0, 1.10.0"
    )


def test_only_committed_datasets_are_opened(folder: Path) -> None:
    (folder / "_SUCCESS").write_bytes(b"")
    assert failing(Dataset.open, folder) == (
        f"{folder}/manifest.json: does not match the checksum in _SUCCESS. "
        "Convert again, or restore it from a backup."
    )
    assert not Dataset.open_unchecked(folder).is_committed
    assert find_manifest(str(folder)) == (Dataset.open_unchecked(folder).manifest, False)
    (folder / "_SUCCESS").unlink()
    assert failing(Dataset.open, folder).startswith(
        f"{folder}: not a published dataset: it has no _SUCCESS; expected "
    )
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "manifest.json").unlink()
    assert failing(Dataset.open, folder).startswith(f"{folder}/manifest.json: is missing. ")
    assert find_manifest(str(folder)) == (None, False)


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("is_valid", [True, False])
def test_garbage_collection_is_restored(folder: Path, collects: bool, is_valid: bool) -> None:
    if not is_valid:
        (folder / layout.MANIFEST).write_text("{}")
    try:
        if not collects:
            gc.disable()
        with nullcontext() if is_valid else pytest.raises(VerificationFailed):
            Dataset.open(folder)
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_a_manifest_of_a_later_version_is_rejected(folder: Path) -> None:
    later = (folder / "manifest.json").read_bytes().replace(b'_version": ', b'_version": 9', 1)
    write(folder / "manifest.json", later)
    write(folder / "_SUCCESS", commit_marker(later))
    assert "is not a manifest that this version reads: at format_version" in failing(
        Dataset.open, folder
    )
    assert find_manifest(str(folder)) == (None, True)


def test_a_dataset_moved_by_an_interrupted_run_is_found(tmp_path: Path) -> None:
    moved = put(tmp_path / "birds/.1.0.0.run/replaced")
    assert current_folder(str(tmp_path / "birds/1.0.0")) == str(moved)
    assert current_folder(str(moved)) == str(moved)
    assert current_folder("s3://b/birds/1.0.0") == "s3://b/birds/1.0.0"


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_records_are_read_by_number_and_by_key(tmp_path: Path, compression: str) -> None:
    dataset = Dataset.open(put(tmp_path, compression))
    shards = dataset.shards()
    for place, records in SHARDS.items():
        found = [dataset.record(shards[place], n) for n in range(len(records))]
        assert found == list(records.values())
    location = dataset.find("c.png")
    assert location == RecordLocation("c.png", "train", 0, 1, 28, 300, "", ("dog",))
    assert dataset.record(shards["train", 0], 1, (28, 300)) == b"x" * 300
    assert dataset.find("e.png") is None
    assert dataset.location(shards["train", 0], 1) == location
    assert dataset.is_gzipped == (compression == "gzip")


def test_selections_are_ranges_of_shards(folder: Path) -> None:
    dataset = Dataset.open(folder)
    assert dataset.select("train[1:]+test") == [
        ("train", 0, 1, 1),
        ("train", 1, 0, 1),
        ("test", 0, 0, 1),
    ]
    assert dataset.select("all", (1, 2)) == [("train", 0, 1, 1), ("train", 1, 0, 1)]
    with pytest.raises(UsageError, match=r"share=\(2, 2\): expected \(i, n\)"):
        dataset.select("all", (2, 2))


def test_locations_are_filtered_by_class(folder: Path) -> None:
    dataset = Dataset.open(folder)
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
    dataset = Dataset.open(folder)
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
    dataset = Dataset.open(folder)
    found = failing(dataset.record, dataset.shards()["train", 0], 1, span)
    assert found.startswith(f"{folder}: birds-train.tfrecord-00000-of-00002: record 1 at byte ")


def test_an_unreadable_shard_is_reported(tmp_path: Path) -> None:
    dataset = Dataset.open(put(tmp_path))
    shard = dataset.shards()["test", 0]
    path = tmp_path / shard.file
    path.unlink()
    assert failing(dataset.record, shard, 0) == f"{path}: is missing. Restore it from a backup."
    path.mkdir()
    assert failing(dataset.record, shard, 0).startswith(f"{path}: cannot be read: Is a directory")


def test_a_damaged_gzip_stream_is_reported(tmp_path: Path) -> None:
    dataset = Dataset.open(put(tmp_path, "gzip"))
    shard = dataset.shards()["train", 1]
    path = tmp_path / shard.file
    path.write_bytes(path.read_bytes()[:-12])
    assert failing(dataset.record, shard, 0).startswith(
        f"{tmp_path}: {shard.file}: record 0 at byte 0: "
    )


def test_rejects_and_dropped_rows_are_read(folder: Path) -> None:
    dataset = Dataset.open(folder)
    assert (list(dataset.rejects()), list(dataset.dropped())) == ([], [])
    write(folder / layout.lines_name("rejects"), b'{"key": "e"}\n{"key": "f"}\n')
    write(folder / layout.lines_name("dropped"), b'{"key": "g"}\n')
    assert [line["key"] for line in dataset.rejects()] == ["e", "f"]
    assert [line["key"] for line in dataset.dropped()] == ["g"]


def test_the_published_index_is_read(folder: Path) -> None:
    dataset = Dataset.open(folder)
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
    dataset = Dataset.open(folder)
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
