"""Reads published datasets with readers that share no code with the writer."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tensorflow as tf
import tensorflow_datasets as tfds

from recordmill.schemas.shard_format import format_of_file
from tests.shard_formats import unpacked

VOLATILE = {"run.json", "report.html"}


@dataclass(frozen=True)
class Frame:
    """A record of an uncompressed shard: its byte range and its data."""

    start: int
    stop: int
    data: bytes


def shards(dataset: Path, split: str) -> list[Path]:
    """Returns the shards of a split, in order."""
    return sorted(dataset.glob(f"*-{split}.tfrecord-*"))


def records(dataset: Path, split: str) -> list[bytes]:
    """Returns every record of a split in order, as tf.data reads them if it can."""
    files = [str(path) for path in shards(dataset, split)]
    found = format_of_file(files[0])
    if found.tensorflow is None:
        streams = [unpacked(found, path.read_bytes()) for path in shards(dataset, split)]
        return [frame.data for stream in streams for frame in frames(stream)]
    return list(tf.data.TFRecordDataset(files, found.tensorflow).as_numpy_iterator())


def examples(dataset: Path, split: str) -> list[dict[str, list[Any]]]:
    """Returns every record of a split in order, as features of tf.train.Example."""
    return [example_features(record) for record in records(dataset, split)]


def example_features(record: bytes) -> dict[str, list[Any]]:
    """Returns the features of a serialized example, by TensorFlow's own protobuf class."""
    features = tf.train.Example.FromString(record).features.feature
    return {
        name: list(getattr(feature, feature.WhichOneof("kind")).value)
        for name, feature in features.items()
    }


def parsed(dataset: Path, split: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Returns all records of a split, parsed in one call: values by feature."""
    batch = tf.io.parse_example(records(dataset, split), spec)
    return {
        name: values.to_list() if isinstance(values, tf.RaggedTensor) else values.numpy().tolist()
        for name, values in batch.items()
    }


def loaded(dataset: Path, split: str) -> tuple[tfds.core.DatasetBuilder, list[dict[str, Any]]]:
    """Returns TFDS's builder of a dataset, and the examples of a split in order."""
    builder = tfds.builder_from_directory(str(dataset))
    config = tfds.ReadConfig(interleave_cycle_length=1)
    data = builder.as_dataset(split=split, shuffle_files=False, read_config=config)
    return builder, list(tfds.as_numpy(data))


def index_rows(dataset: Path, split: str) -> list[dict[str, Any]]:
    """Returns the rows of records/ of a split, in order."""
    files = sorted((dataset / "records").glob(f"records-{split}-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def keys(dataset: Path, split: str) -> list[str]:
    """Returns the keys of a split, in order."""
    return [row["key"] for row in index_rows(dataset, split)]


def splits(dataset: Path) -> dict[str, set[str]]:
    """Returns the keys of each split."""
    names = {path.name.split("-")[1] for path in (dataset / "records").glob("*.parquet")}
    return {name: set(keys(dataset, name)) for name in names}


def rejects(dataset: Path) -> list[dict[str, str]]:
    """Returns the rejects, sorted by source."""
    files = sorted((dataset / "rejects").glob("rejects-*.jsonl"))
    assert files, "rejects/ has a file even without any reject"
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda reject: reject["source"])


def reject_reasons(dataset: Path) -> list[tuple[str, str, str]]:
    """Returns (key, source without folder, reason) of each reject; all must have a detail."""
    found = rejects(dataset)
    within = {"start", "stop"}  # of an image that is within a file
    assert all(set(r) - within == {"key", "uri", "source", "reason", "detail"} for r in found)
    assert all(r["detail"] for r in found)
    return [(r["key"], r["source"].rpartition("/")[2], r["reason"]) for r in found]


def content(dataset: Path) -> dict[str, Any]:
    """Returns the files of a dataset that must be the same in each run; some as sorted lines."""
    files = [path for path in dataset.rglob("*") if path.is_file() and path.name not in VOLATILE]
    return {
        str(path.relative_to(dataset)): sorted(path.read_bytes().splitlines())
        if path.parent.name in ("rejects", "dropped")
        else path.read_bytes()
        for path in files
    }


def assert_the_same(dataset: Path, expected: Path) -> None:
    """Asserts that two datasets have the same content; a failure shows which values differ."""
    found, target = content(dataset), content(expected)
    assert sorted(found) == sorted(target)
    different = [name for name in target if found[name] != target[name]]
    values = {
        name: _differences(json.loads(found[name]), json.loads(target[name]))
        for name in different
        if name.endswith(".json")
    }
    assert not different, (different, values)


def _differences(found: Any, expected: Any) -> Any:
    """Returns what differs between two JSON values: dicts by key, others as a pair."""
    if not (isinstance(found, dict) and isinstance(expected, dict)):
        return found, expected
    if list(found) != list(expected):
        return list(found), list(expected)  # the order of keys counts, too
    return {
        key: _differences(found[key], expected[key]) for key in found if found[key] != expected[key]
    }


def shard_bytes(dataset: Path) -> dict[str, bytes]:
    """Returns the shards of a dataset: name to content."""
    return {path.name: path.read_bytes() for path in dataset.glob("*.tfrecord-*")}


def frames(data: bytes) -> list[Frame]:
    """Returns the frames of an undamaged, uncompressed shard."""
    found, start = [], 0
    while start < len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        stop = start + 12 + length + 4
        found.append(Frame(start, stop, data[start + 12 : stop - 4]))
        start = stop
    assert start == len(data)
    return found
