"""Compressed datasets: .gz shards with the same records, without TFDS metadata."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

SHARDS = [f"birds-train.tfrecord-{i:05d}-of-00002.gz" for i in range(2)]


@pytest.fixture(scope="module")
def table(folder: Path, images: list[Photo]) -> Path:
    rows = [{"image": p.path, "label": p.label} for p in images]
    return write_table(folder / "gzip.csv", rows)


@pytest.fixture(scope="module")
def made(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("--compression", "gzip", "--num_shards", "2")
    return published(table, tmp_path_factory.mktemp("out"), *flags)


@pytest.fixture
def dataset(made: Path, tmp_path: Path) -> Path:
    """A copy of the dataset, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "birds"))


def test_shards_end_in_gz_and_tfds_finds_no_metadata(made: Path) -> None:
    assert sorted(path.name for path in made.glob("*tfrecord*")) == SHARDS
    assert not (made / "features.json").exists()
    assert not (made / "dataset_info.json").exists()
    assert (made / "_SUCCESS").exists()
    assert (made / "label.labels.txt").exists()


def test_the_records_are_those_of_an_uncompressed_dataset(
    made: Path, table: Path, tmp_path: Path
) -> None:
    plain = published(table, tmp_path, "--num_shards", "2")
    assert readers.records(made, "train") == readers.records(plain, "train")
    assert readers.index_rows(made, "train") == readers.index_rows(plain, "train")
    unzipped = {
        name.removesuffix(".gz"): gzip.decompress(data)
        for name, data in readers.shard_bytes(made).items()
    }
    assert unzipped == readers.shard_bytes(plain)


def test_a_second_run_gives_the_same_bytes(made: Path, table: Path, tmp_path: Path) -> None:
    again = published(table, tmp_path, "--compression", "gzip", "--num_shards", "2")
    readers.assert_the_same(again, made)


def test_the_dataset_is_verified(made: Path) -> None:
    ended = recordmill("verify", made)
    assert (ended.code, ended.err) == (0, "")
    assert "12 records" in ended.out


@pytest.mark.parametrize("part", [0.0, 0.01, 0.25, 0.5, 0.75, 0.999])
def test_a_flipped_bit_is_reported_with_its_file(dataset: Path, part: float) -> None:
    shard = dataset / SHARDS[0]
    data = bytearray(shard.read_bytes())
    data[int(part * len(data))] ^= 0x10
    shard.write_bytes(data)
    ended = recordmill("verify", dataset)
    assert ended.code == 3
    assert f"{SHARDS[0]}: " in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("cut", [8, 100, 1000])
def test_a_truncated_shard_is_reported_with_its_file(dataset: Path, cut: int) -> None:
    shard = dataset / SHARDS[1]
    shard.write_bytes(shard.read_bytes()[:-cut])
    ended = recordmill("verify", dataset)
    assert ended.code == 3
    assert f"{SHARDS[1]}: " in ended.err
    assert "Traceback" not in ended.err


def test_a_shard_compressed_again_is_reported_although_its_records_are_the_same(
    dataset: Path,
) -> None:
    shard = dataset / SHARDS[0]
    shard.write_bytes(gzip.compress(gzip.decompress(shard.read_bytes()), 1))
    ended = recordmill("verify", dataset)
    assert ended.code == 3
    assert f"{SHARDS[0]}: " in ended.err


def test_the_manifest_has_the_digest_of_the_stored_file(made: Path) -> None:
    manifest = json.loads((made / "manifest.json").read_bytes())
    shards = manifest["splits"]["train"]["shards"]
    assert [(shard["file"], shard["bytes"]) for shard in shards] == [
        (name, (made / name).stat().st_size) for name in SHARDS
    ]
