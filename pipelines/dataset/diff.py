"""Compares two published datasets, record by record, by their keys.

Both are read once, in order. What is kept of a record, some hundred bytes, goes to temporary files,
parted by its key, and the parts are compared one by one: memory does not grow with the datasets.
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
from recordmill.transforms.functional.compare import (
    Comparison,
    Pair,
    RecordLocation,
    compare,
    digest_rows,
    message_features,
    row_dtype,
    value_digests,
)
from recordmill.transforms.functional.records.examples import feature_values
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.shard_files import DAMAGED_GZIP, uncompressed
from recordmill.transforms.workers.cores import num_cores

_PARTS_BITS = 6
_BATCH_ROWS = 1024


@dataclass(frozen=True)
class Difference:
    """What two datasets have in common, and what not.

    Attributes:
        left: one of them.
        right: the other.
        names: the features of both, as the numbers in `found` count them.
        found: what was found, record by record.
        notes: what differs in their schemas and class names, in words.
    """

    left: Dataset
    right: Dataset
    names: tuple[str, ...]
    found: Comparison
    notes: tuple[str, ...]

    @property
    def is_none(self) -> bool:
        """Whether the two hold the same records, in the same splits, and mean the same by them."""
        found = self.found
        apart = found.different + found.moved.total()
        return not (apart + found.only_left.total() + found.only_right.total() or self.notes)


def diff(left: str, right: str, shown: int = 5) -> Difference:
    """Returns what differs between two published datasets.

    Args:
        left: the folder of one.
        right: the folder of the other.
        shown: how many examples to find of each sort.

    Raises:
        UsageError: if one of them is no published dataset.
        VerificationFailed: if a shard of one is damaged.
    """
    one, other = _open(left), _open(right)
    features = (side.manifest.dataset_schema.features for side in (one, other))
    names = tuple(dict.fromkeys(name for named in features for name in named))
    shared = _checksums(one) & _checksums(other)
    found = Comparison()
    with tempfile.TemporaryDirectory(prefix="recordmill-diff-") as folder:
        of_one = _Spill(Path(folder), "left", len(names))
        of_other = _Spill(Path(folder), "right", len(names))
        _read(one, names, shared, of_one)
        _read(other, names, shared, of_other)
        for part in range(2**_PARTS_BITS):
            found.merge(compare(of_one.part(part), of_other.part(part), shown), shown)
    return Difference(one, other, names, found, tuple(_notes(one.manifest, other.manifest)))


def values_of(difference: Difference, pair: Pair) -> dict[str, tuple[Any, Any]]:
    """Returns the values in which two records differ, on the left and on the right.

    A value is a list; it is None where the record has no such feature.
    """
    left, right = _features(difference.left, pair.left), _features(difference.right, pair.right)
    names = [difference.names[number] for number in pair.features]
    return {name: (_value(left, name), _value(right, name)) for name in names}


class _Spill:
    """The rows of one dataset, in files by parts of their keys."""

    def __init__(self, folder: Path, name: str, features: int) -> None:
        self._files = [folder / f"{name}-{part}" for part in range(2**_PARTS_BITS)]
        self._type = row_dtype(features)
        self._lock = threading.Lock()

    def add(self, rows: np.ndarray) -> None:
        parts = rows["key"][:, 0] >> np.uint64(64 - _PARTS_BITS)
        with self._lock:
            for part in np.unique(parts):
                with self._files[part].open("ab") as stream:
                    stream.write(rows[parts == part].tobytes())

    def part(self, number: int) -> np.ndarray:
        file = self._files[number]
        return np.fromfile(file, self._type) if file.exists() else np.zeros(0, self._type)


def shard_of(dataset: Dataset, spot: RecordLocation) -> tuple[str, ShardEntry]:
    """Returns the name of a record's split, and its shard."""
    name = list(dataset.splits)[spot.split]
    return name, dataset.shard(name, spot.shard)


def key_of(dataset: Dataset, spot: RecordLocation) -> str:
    """Returns the key of a record."""
    _, shard = shard_of(dataset, spot)
    key: str = dataset.index(shard, ["key"])["key"][spot.row].as_py()
    return key


def _features(dataset: Dataset, spot: RecordLocation) -> dict[str, Any]:
    """Returns the features of a record, as its protobuf message has them."""
    return message_features(dataset.record(shard_of(dataset, spot)[1], spot.row))


def _checksums(dataset: Dataset) -> set[tuple[str, str]]:
    """Returns the checksums of each shard and its index."""
    return {(shard.sha256, shard.index_sha256) for shard in dataset.shards().values()}


def _open(directory: str) -> Dataset:
    try:
        return Dataset.open(directory)
    except VerificationFailed as error:  # here it is a wrong argument, and not a result
        raise UsageError(str(error)) from error


def _read(
    dataset: Dataset, names: Sequence[str], shared: set[tuple[str, str]], spill: _Spill
) -> None:
    """Reads a dataset's keys, and its records where the other has not the very same shard."""
    numbers = {name: number for number, name in enumerate(dataset.splits)}

    def read(item: tuple[tuple[str, int], ShardEntry]) -> None:
        (split, number), shard = item
        first = RecordLocation(numbers[split], number, 0)
        is_shared = (shard.sha256, shard.index_sha256) in shared
        try:
            for rows in _rows(dataset, first, shard, () if is_shared else names, len(names)):
                spill.add(rows)
        except (FrameError, DecodeError, *DAMAGED_GZIP) as error:
            what = f"{error}; run recordmill verify for details"
            raise VerificationFailed(f"{dataset.path(shard.file)}: {what}") from error

    with ThreadPoolExecutor(num_cores()) as executor:
        list(executor.map(read, dataset.shards().items()))


def _rows(
    dataset: Dataset, first: RecordLocation, shard: ShardEntry, names: Sequence[str], features: int
) -> Iterator[np.ndarray]:
    """Yields the rows of a shard, batch by batch; without values if no names are given."""
    index = dataset.index(shard, ["key"])
    with uncompressed(dataset.path(shard.file)) as stream:
        frames, row = read_frames(stream), 0
        for batch in index.to_batches(_BATCH_ROWS):
            keys = batch.column("key").to_pylist()
            values = None
            if names:
                digests = [value_digests(f.data, names) for f in islice(frames, len(keys))]
                _same_number(row + len(digests), row + len(keys))
                values = b"".join(digests)
            yield digest_rows(first._replace(row=row), keys, values, features)
            row += len(keys)
        if names:
            _same_number(row + len(list(frames)), row)


def _same_number(records: int, keys: int) -> None:
    if records != keys:
        raise FrameError(keys, 0, "it holds other records than its index in records/ lists")


def _notes(left: Manifest, right: Manifest) -> Iterator[str]:
    """Yields what differs in the meaning of the records."""
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
    told = [
        f"{what} {', '.join(names[:5])}{' …' * (len(names) > 5)}" for what, names in parts if names
    ]
    yield f"classes of {feature!r}: {'; '.join(told) or 'in another order, with other ids'}"


def _value(features: Any, name: str) -> list[Any] | None:
    if name not in features:
        return None
    found = features[name]
    if isinstance(found, FeatureList):
        return [value for feature in found.feature for value in feature_values(feature)]
    return feature_values(found)
