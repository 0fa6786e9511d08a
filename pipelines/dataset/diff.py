"""Compares two published datasets record by record, by key.

Each dataset is read once, in order. About a hundred bytes per record are spilled to temporary files
that are partitioned by key. Partitions are compared one by one, so memory use does not depend on
the size of the datasets.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.example_pb2 import FeatureList
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.transforms.functional.compare import (
    ComparedPair,
    ComparedRecord,
    Comparison,
    compare,
    digest_rows,
    message_features,
    row_dtype,
    value_digests,
)
from recordmill.transforms.functional.read_ahead import map_ahead
from recordmill.transforms.functional.records.examples import feature_values
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.published import newest_version
from recordmill.transforms.storage.shard_files import uncompressed
from recordmill.transforms.workers.process import num_cores

# 64 partitions: at 100 bytes per record, ten million records make partitions of 16 MB.
_PARTITION_BITS = 6

_BATCH_ROWS = 1024

# Queued shards per core, so that no thread idles while results are collected.
_SHARDS_AHEAD = 4


@dataclass(frozen=True)
class Difference:
    """The result of comparing two datasets."""

    left: Dataset
    right: Dataset
    features: tuple[str, ...]  # the feature names of both; `comparison` refers to them by index
    comparison: Comparison  # the counts and examples of equal and different records
    notes: tuple[str, ...]  # the differences of schemas and class names, as text

    @property
    def is_empty(self) -> bool:
        """Whether records, splits, schemas and class names are equal."""
        found = self.comparison
        in_both = found.different + found.moved.total()
        return not (in_both + found.only_left.total() + found.only_right.total() or self.notes)


def diff(left: str, right: str, shown: int = 5) -> Difference:
    """Returns the differences between two published datasets.

    `shown` is the number of examples per kind of difference. Raises UsageError if a folder is not a
    published dataset. Raises VerificationFailed if a shard is damaged.
    """
    one, other = _open(left), _open(right)
    # Features of both are numbered: a row has one value digest per feature, by its number.
    features = (side.manifest.dataset_schema.features for side in (one, other))
    names = tuple(dict.fromkeys(name for named in features for name in named))
    # Shards with equal checksums have equal values: only their keys are read.
    shared = _checksums(one) & _checksums(other)
    with tempfile.TemporaryDirectory(prefix="recordmill-diff-") as folder:
        left_rows = _Spill(Path(folder), "left", len(names))
        right_rows = _Spill(Path(folder), "right", len(names))
        _read(one, names, shared, left_rows)
        _read(other, names, shared, right_rows)
        comparison = Comparison.sum_of(
            compare(left_rows.partition(number), right_rows.partition(number), shown)
            for number in range(2**_PARTITION_BITS)
        ).first(shown)
    return Difference(one, other, names, comparison, tuple(_notes(one.manifest, other.manifest)))


def value_differences(difference: Difference, pair: ComparedPair) -> dict[str, tuple[Any, Any]]:
    """Returns the different values of two records with the same key.

    Returns a dict of feature name to (left, right): lists of values, or None on a side that lacks
    the feature.
    """
    # Only the few shown records are read again, instead of keeping the values of all.
    left, right = _features(difference.left, pair.left), _features(difference.right, pair.right)
    names = [difference.features[number] for number in pair.features]
    return {name: (_value(left, name), _value(right, name)) for name in names}


class _Spill:
    """The rows of one dataset in temporary files, partitioned by key."""

    def __init__(self, folder: Path, name: str, features: int) -> None:
        self._files = [folder / f"{name}-{number}" for number in range(2**_PARTITION_BITS)]
        self._type = row_dtype(features)
        self._lock = threading.Lock()

    def add(self, rows: np.ndarray) -> None:
        """Appends rows; locked, because shards are read concurrently."""
        # Keys are digests, so their first bits distribute rows evenly.
        partitions = rows["key"][:, 0] >> np.uint64(64 - _PARTITION_BITS)
        with self._lock:
            for number in np.unique(partitions):
                with self._files[number].open("ab") as stream:
                    stream.write(rows[partitions == number].tobytes())

    def partition(self, number: int) -> np.ndarray:
        """Returns the rows of a partition in the order in which they were added."""
        file = self._files[number]
        return np.fromfile(file, self._type) if file.exists() else np.zeros(0, self._type)


def shard_of(dataset: Dataset, location: ComparedRecord) -> tuple[str, ShardEntry]:
    """Returns the split and the shard of a record.

    `location` is the location of the record; its split is an index.
    """
    name = list(dataset.splits)[location.split]
    return name, dataset.shard(name, location.shard)


def key_of(dataset: Dataset, location: ComparedRecord) -> str:
    """Returns the key of a record."""
    _, shard = shard_of(dataset, location)
    key: str = dataset.index(shard, ["key"])["key"][location.row].as_py()
    return key


def _features(dataset: Dataset, location: ComparedRecord) -> dict[str, Any]:
    """Returns the features of a record, as protobuf messages."""
    return message_features(dataset.record(shard_of(dataset, location)[1], location.row))


def _checksums(dataset: Dataset) -> set[str]:
    return {_checksum(shard) for split in dataset.splits.values() for shard in split.shards}


def _checksum(shard: ShardEntry) -> str:
    """Returns the checksums of a shard and of its index.

    One string, not a tuple: so many tuples make Python's garbage collector scan both manifests.
    """
    return shard.sha256 + shard.index_sha256


def _open(directory: str) -> Dataset:
    try:
        return Dataset.open(newest_version(directory))
    except VerificationFailed as error:  # a wrong argument, not a difference
        raise UsageError(str(error)) from error


def _read(dataset: Dataset, names: Sequence[str], shared: set[str], spill: _Spill) -> None:
    """Spills the rows of a dataset; skips the values of shards that both datasets have."""
    numbers = {name: number for number, name in enumerate(dataset.splits)}

    def read(item: tuple[tuple[str, int], ShardEntry]) -> None:
        (split, number), shard = item
        first = ComparedRecord(numbers[split], number, 0)
        is_shared = _checksum(shard) in shared
        try:
            for rows in _rows(dataset, first, shard, () if is_shared else names, len(names)):
                spill.add(rows)
        except (FrameError, DecodeError, OSError, *DAMAGED_STREAM) as error:
            problem = f"{error}; run recordmill verify for details"
            raise VerificationFailed(f"{dataset.path(shard.file)}: {problem}") from error

    cores = num_cores()
    with ThreadPoolExecutor(cores) as executor:
        for _ in map_ahead(read, dataset.shards().items(), executor, _SHARDS_AHEAD * cores):
            pass  # raises the error of a shard, if any


def _rows(
    dataset: Dataset, first: ComparedRecord, shard: ShardEntry, names: Sequence[str], features: int
) -> Iterator[np.ndarray]:
    """Yields the rows of a shard in batches; without value digests if `names` is empty."""
    index = dataset.index(shard, ["key"])
    with uncompressed(dataset.path(shard.file)) as stream:
        frames, row = read_frames(stream), 0
        for batch in index.to_batches(_BATCH_ROWS):
            keys = batch.column("key").to_pylist()
            values = None  # no names: both datasets have this shard
            if names:
                digests = [value_digests(f.data, names) for f in islice(frames, len(keys))]
                _check_number(row + len(digests), row + len(keys))
                values = b"".join(digests)
            yield digest_rows(first._replace(row=row), keys, values, features)
            row += len(keys)  # the first row of the next batch, counted from the start of the shard
        if names:
            _check_number(row + len(list(frames)), row)


def _check_number(records: int, keys: int) -> None:
    if records != keys:
        raise FrameError(keys, 0, "the shard has other records than its index in records/")


def _notes(left: Manifest, right: Manifest) -> Iterator[str]:
    """Yields the differences of schemas and class names."""
    one, other = left.dataset_schema.features, right.dataset_schema.features
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other:
            yield f"feature {name!r}: only {'left' if name in one else 'right'}"
        elif one[name].kind is not other[name].kind:
            yield f"feature {name!r}: {one[name].kind.value} left, {other[name].kind.value} right"
    for name in dict.fromkeys([*left.classes, *right.classes]):
        yield from _class_notes(name, left.classes.get(name, ()), right.classes.get(name, ()))


def _class_notes(feature: str, left: Sequence[str], right: Sequence[str]) -> Iterator[str]:
    if tuple(left) == tuple(right):
        return
    gone, new = sorted(set(left) - set(right)), sorted(set(right) - set(left))
    parts = [("only left", gone), ("only right", new)]
    changes = [
        f"{what} {', '.join(names[:5])}{' …' * (len(names) > 5)}" for what, names in parts if names
    ]
    yield f"classes of {feature!r}: {'; '.join(changes) or 'in another order, with other ids'}"


def _value(features: Any, name: str) -> list[Any] | None:
    if name not in features:
        return None
    values = features[name]
    if isinstance(values, FeatureList):
        return [value for feature in values.feature for value in feature_values(feature)]
    return feature_values(values)
