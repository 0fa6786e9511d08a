"""Writes one shard and the index of its records, record by record."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from schemas.dataset_info import ShardInfo
from schemas.plan import Plan
from schemas.records import SerializedExample
from schemas.rejects import Reject
from transforms.functional.record_index import RecordIndex, labels_of
from transforms.progress import PULSE
from transforms.shard_sinks import Sinks, TempDirs


class WrittenShard(NamedTuple):
    """A shard whose files are not yet in their place.

    Attributes:
        info: what it holds.
        shard: the temporary file.
        records: the temporary file of its index.
    """

    info: ShardInfo
    shard: str
    records: str


class ShardWriter:
    """Writes one shard and the index of its records to temporary files."""

    def __init__(
        self, sinks: Sinks, temp_dirs: TempDirs, plan: Plan, split: str, index: int
    ) -> None:
        """Opens the files; a name of its own for each attempt, in the order of the plan."""
        self._split, self._index, self._plan = split, index, plan
        uid = f"{index:05d}-{uuid.uuid4()}"
        self._shard = sinks.shards(split).open_writer(temp_dirs.shards, uid)
        self._records = sinks.records(split).open_writer(temp_dirs.records, uid)
        self._record_index = RecordIndex(self._records.temp_handle, split, index, plan.resolved)
        self._classes: dict[str, Counter[int]] = {
            name: Counter() for name in plan.resolved.schema.class_features
        }
        self._images: Counter[str] = Counter()
        self._payload = 0

    def write(self, built: Iterable[SerializedExample | Reject]) -> Iterator[Reject]:
        """Writes all examples in order, and yields the rejects among them."""
        for outcome in built:
            if isinstance(outcome, Reject):
                PULSE.rejected += 1
                yield replace(outcome, split=self._split)
            else:
                self._add(outcome)

    def close(self) -> WrittenShard:
        """Closes the files."""
        self._record_index.close()
        shard, records = self._shard.close(), self._records.close()
        info = ShardInfo(
            split=self._split,
            index=self._index,
            records=self._shard.num_records_written,
            payload=self._payload,
            crc32c=self._shard.temp_handle.crc32c,
            index_crc32c=self._records.temp_handle.crc32c,
            classes={name: dict(counts) for name, counts in self._classes.items()},
            images=dict(self._images),
        )
        return WrittenShard(info, shard, records)

    def _add(self, example: SerializedExample) -> None:
        self._shard.write(example.data)
        self._record_index.add(example)
        self._payload += len(example.data)
        if example.treatment:
            self._images[example.treatment] += 1
        features = self._plan.resolved.schema.features
        for name, value in zip(features, example.ref.values, strict=True):
            if name in self._classes:
                self._classes[name].update(labels_of(value))
        PULSE.written += 1
