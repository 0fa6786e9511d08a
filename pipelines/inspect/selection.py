"""Which records to show: some of each split, one by its number, or one by its key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from recordmill.pipelines.inspect.record_files import FoundRecord, features_of, read_records
from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.records.framing import HEADER_BYTES
from recordmill.transforms.storage.dataset import Dataset, RecordLocation

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
            VerificationFailed: at the first that is damaged.
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
        location = self.dataset.find(key)
        if location is not None:
            return _at(self.dataset, location)
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
        return list(self.dataset.shards().values()) if self.dataset else [None] * len(self.files)

    def _of_split(self, dataset: Dataset, split: str) -> Iterator[FoundRecord]:
        for shard in dataset.manifest.splits[split].shards:
            records = read_records(dataset.path(shard.file))
            keys = dataset.index(shard, ["key"])["key"]
            for record, key in zip(records, keys, strict=False):
                yield replace(record, key=key.as_py(), split=split)

    def _with_key(self, record: FoundRecord, shard: ShardEntry | None) -> FoundRecord:
        if self.dataset is None or shard is None:
            return record
        index = self.dataset.index(shard, ["key", "split"])
        (row,) = index.slice(record.number, 1).to_pylist()
        return replace(record, **row)


def _at(dataset: Dataset, location: RecordLocation) -> FoundRecord:
    """Returns the record at a location.

    Raises:
        VerificationFailed: if it is damaged.
    """
    shard = dataset.splits[location.split].shards[location.shard]
    data = dataset.record(shard, location.record, (location.offset, location.length))
    return FoundRecord(
        file=dataset.path(shard.file),
        number=location.record,
        offset=location.offset - HEADER_BYTES,
        data=data,
        features=features_of(data),
        key=location.key,
        split=location.split,
    )
