"""Where records are: the rows of records/, read a batch at a time, and only the columns needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas import layout
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.transforms.functional.one_thread_parquet import open_parquet, read_batches
from recordmill.transforms.storage.files import open_binary

_BATCH_ROWS = 65_536

MAX_INDEXES = 256
"""Indexes that a search for rare classes may read in one split."""

COLUMNS = ("key", "split", "shard", "index", "offset", "length", "sha256", "class")


class Place(NamedTuple):
    """A record's row in records/.

    Attributes:
        key: the row's identity.
        split: the record's split.
        shard: number of its shard.
        record: its number within the shard.
        offset: the byte at which its data begins in the uncompressed shard.
        length: bytes of its data.
        sha256: of its image as stored, or "".
        classes: the names of its classes.
    """

    key: str
    split: str
    shard: int
    record: int
    offset: int
    length: int
    sha256: str
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """A written dataset, published or not.

    Attributes:
        directory: its folder.
        manifest: what it consists of.
    """

    directory: str
    manifest: Manifest

    def shards(self) -> Iterator[ShardEntry]:
        """Yields all shards, split by split, in order."""
        for split in self.manifest.splits.values():
            yield from split.shards

    def shard_path(self, place: Place) -> str:
        """Returns the file of a record's shard."""
        shard = self.manifest.splits[place.split].shards[place.shard]
        return layout.join(self.directory, shard.file)

    def batches(self, shard: ShardEntry, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields some columns of a shard's index."""
        with open_binary(layout.join(self.directory, shard.index_file)) as stream:
            yield from read_batches(open_parquet(stream), _BATCH_ROWS, columns)

    def places(self, shard: ShardEntry, classes: Collection[str] = ()) -> Iterator[Place]:
        """Yields the places of a shard's records, in order; only of these classes, if any."""
        for batch in self.batches(shard, COLUMNS):
            labels = batch.column("class")
            if classes and pa.types.is_string(labels.type):
                batch = batch.filter(pc.is_in(labels, value_set=pa.array(list(classes))))
            for row in batch.to_pylist():
                place = place_of(row)
                if not classes or not set(classes).isdisjoint(place.classes):
                    yield place


def place_of(row: Mapping[str, Any]) -> Place:
    """Returns a row of records/ as a place."""
    label = row["class"]
    classes = tuple(label) if isinstance(label, list) else () if label is None else (label,)
    return Place(
        key=row["key"],
        split=row["split"],
        shard=row["shard"],
        record=row["index"],
        offset=row["offset"],
        length=row["length"],
        sha256=row["sha256"] or "",
        classes=classes,
    )


def sample(
    dataset: Dataset, wanted: Mapping[str, Mapping[str, int]]
) -> dict[tuple[str, str], list[Place]]:
    """Returns the first records of each class in each split.

    Records lie in the order of a salted hash of their keys, so that the first are a fair sample,
    and the same in every run.

    Args:
        dataset: where to look.
        wanted: split to class name to how many; the class "" stands for all records.
    """
    found: dict[tuple[str, str], list[Place]] = {}
    for split, counts in wanted.items():
        missing = {name: n for name, n in counts.items() if n > 0}
        read = 0
        for shard in dataset.manifest.splits[split].shards:
            sought = missing.keys() & _names_in(shard, dataset.manifest)
            if sought and read < MAX_INDEXES:
                read += 1
                _collect(dataset, shard, split, missing, found)
    return found


def _collect(
    dataset: Dataset,
    shard: ShardEntry,
    split: str,
    missing: dict[str, int],
    found: dict[tuple[str, str], list[Place]],
) -> None:
    """Takes what is still missing from one shard."""
    sought = set(missing) & _names_in(shard, dataset.manifest)
    for place in dataset.places(shard, sought - {""}):
        for name in place.classes or ("",):
            if name in sought:
                found.setdefault((split, name), []).append(place)
                missing[name] -= 1
                if not missing[name]:
                    del missing[name]
                    sought.discard(name)
        if not sought:
            return


def _names_in(shard: ShardEntry, manifest: Manifest) -> set[str]:
    """Returns the names of the classes that a shard holds; {""} without classes."""
    feature = class_feature(manifest)
    if feature is None:
        return {""} if shard.records else set()
    names = manifest.resolved
    held = shard.classes.get(feature, {}).items()
    return {names.class_name(feature, label) for label, count in held if count}


def class_feature(manifest: Manifest) -> str | None:
    """Returns the feature whose classes stand in records/, if any."""
    return next(iter(manifest.dataset_schema.class_features), None)
