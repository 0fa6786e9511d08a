"""`Records` returns the same records as TensorFlow, without importing TensorFlow or Beam."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grain.python as grain
import numpy as np
import pytest

from recordmill.pipelines.dataset.records import Records
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.transforms.functional.records.example_reader import _decode_stored
from tests.end_to_end import readers
from tests.end_to_end.command import ROOT, published
from tests.end_to_end.photos import Photo
from tests.end_to_end.read_one import read_one
from tests.end_to_end.tables import write_table

SCHEMA = """
features:
  image: {kind: bytes, from: "image:bytes"}
  label: {kind: int64, from: "column:label", classes: true}
  score: {kind: float, from: "column:score", default: 0.5}
  box: {kind: float, from: "column:box", shape: [4]}
  tags: {kind: bytes, from: "column:labels", shape: []}
  maybe: {kind: int64, from: "column:maybe", missing: empty}
"""


@pytest.fixture(scope="module")
def dataset(images: list[Photo], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        {"image": p.path, "label": p.label, "box": [n, 1.5, 2.5, 3.5], "labels": p.labels}
        | ({"score": n / 3, "maybe": n} if n % 2 else {})
        for n, p in enumerate(images)
    ]
    schema = folder / "records.yaml"
    schema.write_text(SCHEMA)
    table = write_table(folder / "records.jsonl", rows)
    flags = ("--splits", "train=0.7,test=0.3", "--num_shards", "train=4,test=1")
    return published(table, tmp_path_factory.mktemp("records"), "--schema", schema, *flags)


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record with its values as lists, as in TensorFlow's protobuf class."""
    return {
        name: value.tolist()
        if isinstance(value, np.ndarray)
        else value
        if isinstance(value, list)
        else [value]
        for name, value in record.items()
    }


def test_every_record_is_the_one_that_tensorflow_reads(dataset: Path) -> None:
    for split in ("train", "test"):
        found = Records(dataset, split, decode=False)
        expected = readers.examples(dataset, split)
        assert [plain(record) for record in found] == expected
        assert found.keys() == readers.keys(dataset, split)
        assert len(found) == len(expected) > 1


def test_values_have_the_types_of_their_features(dataset: Path) -> None:
    record = Records(dataset, "train")[0]
    types = {name: type(value) for name, value in record.items()}
    assert types == {
        "image": np.ndarray,
        "label": int,
        "score": float,
        "box": np.ndarray,
        "tags": list,
        "maybe": np.ndarray,
    }
    assert (record["box"].dtype, record["box"].shape) == (np.float32, (4,))
    assert (record["maybe"].dtype, record["maybe"].ndim) == (np.int64, 1)
    assert (record["image"].dtype, record["image"].shape[2]) == (np.uint8, 3)


def test_images_are_decoded(dataset: Path) -> None:
    for decoded, stored in zip(Records(dataset), Records(dataset, decode=False), strict=True):
        assert np.array_equal(decoded["image"], _decode_stored(stored["image"]))


def test_numbers_slices_and_keys(dataset: Path) -> None:
    records = Records(dataset, "all", decode=False)
    everything, keys = list(map(plain, records)), records.keys()
    assert plain(records[-1]) == plain(records[np.int64(11)]) == everything[11]
    assert [plain(r) for r in records[2:9:3]] == everything[2:9:3]
    assert records[::-1].keys() == keys[::-1]
    assert records[3:][1:4].keys() == keys[4:7]
    assert plain(records[keys[5]]) == everything[5]
    assert [records.number(key) for key in keys] == list(range(12))
    assert records[::-1].number(keys[0]) == 11
    assert keys[5] in records
    assert keys[5] not in records[6:]
    assert Records(dataset, "test+train[:3]").keys() == (
        readers.keys(dataset, "test") + readers.keys(dataset, "train")[:3]
    )
    with pytest.raises(KeyError, match="nowhere"):
        records["nowhere"]
    for number in (12, -13):
        with pytest.raises(IndexError):
            records[number]


def test_several_records_are_read_as_a_batch(dataset: Path) -> None:
    records = Records(dataset, "all", decode=False)
    expected = [plain(records[number]) for number in (7, 3, 3, -1)]
    assert list(map(plain, records.__getitems__([7, 3, np.int64(3), -1]))) == expected
    assert list(map(plain, records[[7, 3, 3, -1]])) == expected
    assert records[np.array([7, 3])].keys() == [records.keys()[7], records.keys()[3]]
    assert records[np.arange(12) > 9].keys() == records.keys()[10:]
    assert records[[]].keys() == []
    assert records[[5, 4]].number(records.keys()[4]) == 1
    for numbers in ([12], [0, -13]):
        with pytest.raises(IndexError):
            records.__getitems__(numbers)


def test_arrays_are_writable(dataset: Path) -> None:
    for channels in (0, 1, 3):
        for record in Records(dataset, "all", channels=channels):
            arrays = [value for value in record.values() if isinstance(value, np.ndarray)]
            assert all(array.flags.writeable for array in arrays)
            assert len(arrays) == 3


def label_and_size(record: dict[str, Any]) -> tuple[int, int]:
    return record["label"], record["image"].size


def test_a_transform_is_applied_to_each_record(dataset: Path) -> None:
    expected = [label_and_size(record) for record in Records(dataset)]
    records = Records(dataset, transform=label_and_size)
    assert list(records) == records.__getitems__(range(len(records))) == expected
    assert pickle.loads(pickle.dumps(records))[1:][0] == expected[1]  # noqa: S301 - made here


def test_sample_weights_balance_the_classes(dataset: Path) -> None:
    records = Records(dataset, "all", features=["label"])[2:]
    labels = np.array([record["label"] for record in records])
    weights = records.sample_weights()
    assert (weights.dtype, weights.shape) == (np.float64, (10,))
    of_classes = [weights[labels == label].sum() for label in range(3)]
    assert np.allclose(of_classes, 10 / 3)


def test_chosen_features(dataset: Path) -> None:
    assert [list(r) for r in Records(dataset, features=["score", "label"])[:2]] == [
        ["score", "label"]
    ] * 2
    assert Records(dataset).class_names == {"label": ("cat", "horse", "Übermut")}


def test_only_requested_shards_are_opened(dataset: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(dataset, tmp_path / "copied")
    *kept, gone = readers.shards(copied, "train")
    records, keys = Records(copied), readers.keys(copied, "train")
    gone.unlink()
    assert [plain(r) for r in records[:3]] == [plain(r) for r in Records(dataset)[:3]]
    with pytest.raises(VerificationFailed, match=r"00003-of-00004: is missing"):
        records[-1]
    assert len(kept) == 3
    assert records.keys() == keys


def test_neither_tensorflow_nor_beam_is_loaded(dataset: Path) -> None:
    code = f"""
import sys
from recordmill.pipelines.dataset.records import Records
records = Records({str(dataset)!r})
print(len(records), records[0]["image"].shape, records.keys()[0] in records)
print([name for name in ("tensorflow", "apache_beam", "grain") if name in sys.modules])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[1] == "[]"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_and_threads_read_the_same(dataset: Path, method: str) -> None:
    records = Records(dataset, "all")
    expected = [read_one(records, number) for number in range(12)]  # the files are open now
    tasks = [(records, number) for number in range(12)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(read_one, tasks) == expected
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(read_one, *zip(*tasks * 20, strict=True))) == expected * 20


def test_a_pickle_holds_the_index_and_no_keys(dataset: Path) -> None:
    records = Records(dataset, "all")
    before = len(pickle.dumps(records))
    key = records.keys()[7]
    copied = pickle.loads(pickle.dumps(records))  # noqa: S301 - made in the line before
    assert len(pickle.dumps(records)) == before
    assert copied.number(key) == 7


def test_a_changed_byte_is_found(dataset: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(dataset, tmp_path / "copied")
    shard = readers.shards(copied, "test")[0]
    whole = shard.read_bytes()
    second = readers.frames(whole)[1]
    key = readers.keys(copied, "test")[1]
    for at, part in (
        (second.start + 3, "length"),
        (second.start + 30, "data"),
        (second.stop - 1, "data"),
    ):
        data = bytearray(whole)
        data[at] ^= 1
        shard.write_bytes(data)
        records = Records(copied, "test")
        records[0]
        with pytest.raises(VerificationFailed) as found:
            records[1]
        assert str(found.value) == (
            f"{copied}: {shard.name}: record 1 at byte {second.start}: "
            f"the checksum of the record's {part} does not match (key {key!r})"
        )


def test_another_shard_in_its_place_is_found(dataset: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(dataset, tmp_path / "copied")
    shard = readers.shards(copied, "test")[0]
    shard.write_bytes(readers.shards(copied, "train")[0].read_bytes())
    with pytest.raises(VerificationFailed):
        list(Records(copied, "test"))


def test_invalid_arguments_are_reported(folder: Path, dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown split 'tain'"):
        Records(dataset, "tain")
    with pytest.raises(UsageError, match="did you mean 'label'"):
        Records(dataset, features=["lable"])
    with pytest.raises(UsageError, match="channels=2"):
        Records(dataset, channels=2)
    with pytest.raises(VerificationFailed, match="it has no _SUCCESS"):
        Records(tmp_path)
    zipped = published(
        folder / "records.jsonl",
        tmp_path,
        "--schema",
        folder / "records.yaml",
        "--compression",
        "gzip",
    )
    with pytest.raises(UsageError, match="gzip streams are not seekable"):
        Records(zipped)


def test_grain_reads_it_in_processes_of_its_own(dataset: Path) -> None:
    records = Records(dataset, "all", features=["label", "image"])
    loader = grain.DataLoader(
        data_source=records,
        sampler=grain.IndexSampler(len(records), shuffle=True, seed=3, num_epochs=2),
        worker_count=2,
    )
    labels = [record["label"] for record in loader]
    assert sorted(labels) == sorted([record["label"] for record in records] * 2)
    lazy = grain.MapDataset.source(records).shuffle(seed=1).map(lambda r: r["image"].mean())
    means = [record["image"].mean() for record in records]
    assert sorted(lazy) == sorted(means)
    assert list(lazy.to_iter_dataset()) == list(lazy)
