"""`--index`: record offsets in the format of DALI's tool and the tfrecord package."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

BY_PACKAGE = """
import hashlib, sys
import tfrecord  # in a process of its own: its protobufs and TensorFlow's exclude each other
shard, index, part = sys.argv[1:]
for record in tfrecord.tfrecord_iterator(shard, index, (int(part), 2)):
    print(hashlib.sha256(record).hexdigest())
"""
"""Prints the records of one of two parts of a shard."""


@pytest.fixture(scope="module")
def table(images: list[Photo], folder: Path) -> Path:
    rows = [{"image": p.path, "label": p.label} for p in images]
    return write_table(folder / "index.csv", rows)


@pytest.fixture(scope="module")
def dataset(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("index")
    return published(table, output, "--index", "--splits", "train=0.5,test=0.5", "--num_shards", 2)


def test_the_index_lists_the_frames_of_each_shard(dataset: Path) -> None:
    shards = [shard for split in ("train", "test") for shard in readers.shards(dataset, split)]
    assert sorted(path.name for path in (dataset / "idx").iterdir()) == sorted(
        f"{shard.name}.idx" for shard in shards
    )
    for shard in shards:
        frames = readers.frames(shard.read_bytes())
        expected = "".join(f"{frame.start} {frame.stop - frame.start}\n" for frame in frames)
        assert (dataset / "idx" / f"{shard.name}.idx").read_text() == expected


def test_the_tfrecord_package_reads_every_record_by_the_index(dataset: Path) -> None:
    (shard, *_) = readers.shards(dataset, "train")
    index = str(dataset / "idx" / f"{shard.name}.idx")
    expected = list(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator())
    assert len(expected) > 1
    digests = [hashlib.sha256(record).hexdigest() for record in expected]
    half = len(digests) // 2
    for part, there in enumerate((digests[:half], digests[half:])):
        command = [sys.executable, "-c", BY_PACKAGE, shard, index, str(part)]
        read = subprocess.run(command, capture_output=True, text=True, check=True)
        assert read.stdout.split() == there


def test_all_other_files_are_the_same_as_without_index(
    table: Path, dataset: Path, tmp_path: Path
) -> None:
    plain = published(table, tmp_path, "--splits", "train=0.5,test=0.5", "--num_shards", 2)
    assert not (plain / "idx").exists()
    ours, theirs = readers.content(dataset), readers.content(plain)
    same = ours.keys() & theirs.keys()
    assert ours.keys() - theirs.keys() == {name for name in ours if name.startswith("idx/")}
    changed = {name for name in same if ours[name] != theirs[name]}
    assert changed == {"_SUCCESS", "manifest.json"}


@pytest.mark.parametrize("fault", ["changed", "missing", "stray"])
def test_verify_checks_the_index(dataset: Path, tmp_path: Path, fault: str) -> None:
    assert recordmill("verify", dataset).code == 0
    copied = shutil.copytree(dataset, tmp_path / "copied")
    first = sorted((copied / "idx").iterdir())[0]
    if fault == "changed":
        first.write_text(first.read_text().replace("0 ", "1 ", 1))
    elif fault == "missing":
        first.unlink()
    else:
        first = first.with_name("other.idx")
        first.write_text("0 1\n")
    messages = {"changed": "its sha256 differs", "missing": "is missing", "stray": "is not part of"}
    ended = recordmill("verify", copied)
    assert ended.code == 3
    assert f"idx/{first.name}: " in ended.err
    assert messages[fault] in ended.err


def test_index_with_gzip_is_a_usage_error(table: Path, tmp_path: Path) -> None:
    ended = convert(table, tmp_path / "out", "--index", "--compression", "gzip")
    assert ended.code == 2
    assert "gzip streams are not seekable" in ended.err
    assert "--compression none" in ended.err
    assert not (tmp_path / "out").exists()


def test_a_run_without_index_replaces_one_with_it(
    dataset: Path, table: Path, tmp_path: Path
) -> None:
    there = tmp_path / "birds" / "1.0.0"
    shutil.copytree(dataset, there)
    assert published(table, tmp_path, "--if_exists", "replace") == there
    assert not (there / "idx").exists()
    (there / "_SUCCESS").unlink()  # an unfinished run may have left one, too
    shutil.copytree(dataset / "idx", there / "idx")
    assert published(table, tmp_path) == there
    assert not (there / "idx").exists()
