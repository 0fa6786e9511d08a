"""The Dataset of the public API."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import recordmill
from recordmill.pipelines.base_version import open_base
from recordmill.pipelines.commands.diff import _diff
from recordmill.pipelines.dataset.dataset import Dataset, open_dataset
from recordmill.pipelines.dataset.load import load
from recordmill.pipelines.dataset.records import Records
from recordmill.pipelines.dataset.verify import verify_dataset
from recordmill.pipelines.record_files import RecordSource
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.shard_format import ShardFormat
from recordmill.transforms.storage import dataset as storage
from tests.shard_formats import every_compression
from tests.unit.transforms.storage.test_dataset import put

ROOT = Path(__file__).parents[4]


def test_every_reader_takes_the_newest_version(tmp_path: Path) -> None:
    for version in ("1.0.0", "1.1.0"):
        put(tmp_path / "birds" / version)
    path, newest = tmp_path / "birds", str(tmp_path / "birds/1.1.0")
    assert open_dataset(path).directory == Records(path).path == newest
    assert load(path, decode=False, features=["label"]).cardinality() == 3
    assert RecordSource.of([str(path)]).dataset == storage.DatasetFolder.open(newest)
    assert _diff(str(path), newest).left.directory == newest
    assert verify_dataset(str(path), "parse")[0].directory == newest
    for base in (path, path / "2.0.0"):
        with pytest.raises(UsageError, match=r"--base .*not a published dataset"):
            open_base(ConvertConfig(inputs=["t"], output="out", name="birds", base=base))


def test_records_of_all_splits_are_read_by_number_and_key(tmp_path: Path) -> None:
    dataset = open_dataset(put(tmp_path))
    assert isinstance(dataset, Dataset)
    assert dataset.splits["train"].records == 3
    assert (len(dataset.records), dataset.records.number("d.png")) == (4, 3)
    assert dataset.records.keys() == ["a.png", "b.png", "c.png", "d.png"]
    assert dataset.records is dataset.records


def test_pickles_exclude_the_index(tmp_path: Path) -> None:
    dataset = open_dataset(put(tmp_path))
    assert len(dataset.records) == 4
    copied = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - made in this line
    assert copied == dataset
    assert "records" not in vars(copied)
    assert len(copied.records) == 4


@every_compression
def test_records_of_compressed_shards_are_a_usage_error(tmp_path: Path, found: ShardFormat) -> None:
    with pytest.raises(UsageError, match=f"{found.name} streams are not seekable"):
        open_dataset(put(tmp_path, found.name)).records  # noqa: B018


def test_opening_and_reading_imports_neither_tensorflow_nor_beam(tmp_path: Path) -> None:
    code = f"""
import sys
from recordmill.pipelines.dataset.dataset import open_dataset
dataset = open_dataset({str(put(tmp_path))!r})
print(len(dataset.records), list(dataset.rejects()), dataset.find("c.png").record)
print([name for name in ("tensorflow", "apache_beam") if name in sys.modules])
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout.splitlines() == ["4 [] 1", "[]"]


def test_verify_raises_an_error_with_all_problems(tmp_path: Path) -> None:
    path = put(tmp_path)
    with pytest.raises(VerificationFailed) as raised:
        recordmill.verify(path)
    first, *problems, remedy = str(raised.value).splitlines()
    assert (
        remedy
        == "Copy the damaged files again; --salvage DIR writes their intact records to new ones."
    )
    assert first == f"{path}: verification failed:"
    assert len(problems) == len(open_dataset(path).verify())
    assert problems[0].startswith("  birds-test.tfrecord-00000-of-00002: record 0 at byte 0: ")
