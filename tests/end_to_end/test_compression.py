"""Datasets of each compression have the same records, and TFDS metadata if it reads them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from recordmill import load
from recordmill.schemas.shard_format import ShardFormat
from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table
from tests.shard_formats import COMPRESSED, packed, unpacked


@pytest.fixture(scope="module")
def table(folder: Path, images: list[Photo]) -> Path:
    rows = [{"image": p.path, "label": p.label} for p in images]
    return write_table(folder / "compression.csv", rows)


@pytest.fixture(scope="module", params=COMPRESSED.values(), ids=COMPRESSED)
def found(request: pytest.FixtureRequest) -> ShardFormat:
    return request.param


@pytest.fixture(scope="module")
def shards(found: ShardFormat) -> list[str]:
    return [f"birds-train.tfrecord-{i:05d}-of-00002{found.suffix}" for i in range(2)]


@pytest.fixture(scope="module")
def made(table: Path, found: ShardFormat, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("--compression", found.name, "--num_shards", "2")
    return published(table, tmp_path_factory.mktemp("out"), *flags)


@pytest.fixture(scope="module")
def plain(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(table, tmp_path_factory.mktemp("plain"), "--num_shards", "2")


@pytest.fixture
def dataset(made: Path, tmp_path: Path) -> Path:
    """A copy of the dataset, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "birds"))


def test_shards_have_the_suffix_and_tfds_finds_metadata_if_it_reads_them(
    made: Path, shards: list[str], found: ShardFormat
) -> None:
    assert sorted(path.name for path in made.glob("*tfrecord*")) == shards
    for name in ("features.json", "dataset_info.json"):
        assert (made / name).exists() is found.in_tfds
    assert (made / "_SUCCESS").exists()
    assert (made / "label.labels.txt").exists()


def test_the_records_are_those_of_an_uncompressed_dataset(
    made: Path, plain: Path, found: ShardFormat
) -> None:
    assert readers.records(made, "train") == readers.records(plain, "train")
    assert readers.index_rows(made, "train") == readers.index_rows(plain, "train")
    streams = {
        name.removesuffix(found.suffix): unpacked(found, data)
        for name, data in readers.shard_bytes(made).items()
    }
    assert streams == readers.shard_bytes(plain)
    assert recordmill("diff", made, plain).code == 0
    ours, theirs = (list(load(dataset).as_numpy_iterator()) for dataset in (made, plain))
    assert [record["label"] for record in ours] == [record["label"] for record in theirs]
    assert all(map(np.array_equal, *([r["image"] for r in rs] for rs in (ours, theirs))))


def test_a_second_run_gives_the_same_bytes(
    made: Path, table: Path, found: ShardFormat, tmp_path: Path
) -> None:
    again = published(table, tmp_path, "--compression", found.name, "--num_shards", "2")
    readers.assert_the_same(again, made)


def test_the_dataset_is_verified(made: Path) -> None:
    ended = recordmill("verify", made)
    assert (ended.code, ended.err) == (0, "")
    assert "12 records" in ended.out


@pytest.mark.parametrize("part", [0.0, 0.01, 0.25, 0.5, 0.75, 0.999])
def test_a_flipped_bit_is_reported_with_its_file(
    dataset: Path, shards: list[str], part: float
) -> None:
    shard = dataset / shards[0]
    data = bytearray(shard.read_bytes())
    data[int(part * len(data))] ^= 0x10
    shard.write_bytes(data)
    ended = recordmill("verify", dataset)
    assert ended.code == 3
    assert f"{shards[0]}: " in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("cut", [8, 100, 1000])
def test_a_truncated_shard_is_reported_with_its_file(
    dataset: Path, shards: list[str], cut: int
) -> None:
    shard = dataset / shards[1]
    shard.write_bytes(shard.read_bytes()[:-cut])
    ended = recordmill("verify", dataset)
    assert ended.code == 3
    assert f"{shards[1]}: " in ended.err
    assert "Traceback" not in ended.err


def test_a_shard_compressed_again_is_reported_although_its_records_are_the_same(
    dataset: Path, shards: list[str], found: ShardFormat
) -> None:
    shard = dataset / shards[0]
    stream = unpacked(found, shard.read_bytes())
    shard.write_bytes(packed(found, stream[:99]) + packed(found, stream[99:]))
    ended = recordmill("verify", dataset)
    assert ended.code == 3
    assert f"{shards[0]}: " in ended.err


def test_the_manifest_has_the_digest_of_the_stored_file(made: Path, shards: list[str]) -> None:
    manifest = json.loads((made / "manifest.json").read_bytes())
    listed = manifest["splits"]["train"]["shards"]
    assert [(shard["file"], shard["bytes"]) for shard in listed] == [
        (name, (made / name).stat().st_size) for name in shards
    ]
