"""Which records to show: some of each split, one by its number, or one by its key."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipelines.inspect.record_files import (
    FoundRecord,
    features_of,
    read_records,
    uncompressed,
)
from recordmill.pipelines.report.dataset import COLUMNS, Dataset, Place, place_of
from recordmill.schemas import layout
from recordmill.schemas.errors import ProofError, UsageError
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.records.framing import (
    FRAME_BYTES,
    HEADER_BYTES,
    FrameError,
    read_frames,
)
from recordmill.transforms.storage.published_index import read_index

_SHOWN_KEYS = 3


@dataclass(frozen=True)
class Source:
    """Where records are looked for.

    Attributes:
        files: the TFRecord files, in order.
        dataset: the published dataset that they are, if they are one.
    """

    files: tuple[str, ...]
    dataset: Dataset | None = None

    def first(self, number: int) -> Iterator[FoundRecord]:
        """Yields the first records of all files; of a dataset, some of each split.

        Raises:
            ProofError: at the first that is damaged.
        """
        if self.dataset is None:
            every = (record for file in self.files for record in read_records(file))
            yield from islice(every, number)
            return
        splits = list(self.dataset.manifest.splits)
        for i, split in enumerate(splits):
            part = number // len(splits) + (i < number % len(splits))
            yield from islice(self._of_split(self.dataset, split), part)

    def numbered(self, number: int) -> FoundRecord:
        """Returns one record by its number, from 0, counted over all files.

        Raises:
            UsageError: if there are not so many.
        """
        left = number
        for shard, file in zip(self._shards(), self.files, strict=True):
            if shard is not None and left >= shard.records:
                left -= shard.records
                continue
            for record in read_records(file):
                if not left:
                    return self._with_key(record, shard)
                left -= 1
        raise UsageError(f"--record {number}: there are {number - left:,} records, numbered from 0")

    def keyed(self, key: str) -> FoundRecord:
        """Returns the record that was made from the row of this key.

        In files without an index of their records, it is the first that holds the key as a text.

        Raises:
            UsageError: if there is none.
        """
        if self.dataset is None:
            return self._holding(key)
        for shard in self.dataset.shards():
            index = read_index(self.dataset.directory, shard, COLUMNS)
            found = index.filter(pc.equal(index["key"], pa.scalar(key)))
            if found.num_rows:
                return _at(self.dataset, place_of(found.to_pylist()[0]))
        known = (record.key for record in self.first(_SHOWN_KEYS))
        raise UsageError(
            f"--key {key}: no record of {self.dataset.directory} has it; "
            f"keys are like {', '.join(known)}"
        )

    def _holding(self, key: str) -> FoundRecord:
        sought = key.encode("utf-8", "surrogateescape")
        for file in self.files:
            for record in read_records(file):
                if any([sought] == values for values in (record.features or {}).values()):
                    return record
        raise UsageError(
            f"--key {key}: no record holds this text; only a dataset that recordmill has "
            "published has an index of keys"
        )

    def _shards(self) -> Sequence[ShardEntry | None]:
        return list(self.dataset.shards()) if self.dataset else [None] * len(self.files)

    def _of_split(self, dataset: Dataset, split: str) -> Iterator[FoundRecord]:
        for shard in dataset.manifest.splits[split].shards:
            records = read_records(layout.join(dataset.directory, shard.file))
            keys = read_index(dataset.directory, shard, ["key"])["key"]
            for record, key in zip(records, keys, strict=False):
                yield replace(record, key=key.as_py(), split=split)

    def _with_key(self, record: FoundRecord, shard: ShardEntry | None) -> FoundRecord:
        if self.dataset is None or shard is None:
            return record
        index = read_index(self.dataset.directory, shard, ["key", "split"])
        (row,) = index.slice(record.number, 1).to_pylist()
        return replace(record, **row)


def _at(dataset: Dataset, place: Place) -> FoundRecord:
    """Returns the record at a place.

    Raises:
        ProofError: if it is damaged.
    """
    file, start = dataset.shard_path(place), place.offset - HEADER_BYTES
    with uncompressed(file) as stream:
        stream.seek(start)
        framed = stream.read(place.length + FRAME_BYTES)
    try:
        (frame,) = read_frames(io.BytesIO(framed))
    except (FrameError, ValueError) as error:
        what = f"{file}: record {place.record} at byte {start}: {error}"
        raise ProofError(f"{what}; recordmill verify tells more") from error
    found = features_of(frame.data)
    return FoundRecord(file, place.record, start, frame.data, found, place.key, place.split)
