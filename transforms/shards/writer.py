"""Writes one shard and the index of its records, record by record, to Beam's file sinks.

Each split has a sink for its shards and one for their indexes. Sinks open temporary files and later
rename them, numbered in the order of the temporary names.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c
from apache_beam.coders import BytesCoder
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.tfrecordio import _TFRecordSink

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import ImageFault, WrittenShard
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import BuiltFrame, SerializedExample
from recordmill.schemas.rejects import Reject
from recordmill.schemas.statistics import ImageTally, Timeline
from recordmill.transforms.functional.records.index import RecordIndex, label_ids
from recordmill.transforms.shards.checkpoints import Staging
from recordmill.transforms.workers.progress import advance


class MeteredFile:
    """A file wrapper that counts the bytes written and computes their checksum.

    Attributes:
        size: the number of bytes written so far.
        crc32c: their CRC-32C.
        closed: whether the file is closed.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.size = 0
        self.crc32c = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Writes all of `data`."""
        chunk = bytes(data)
        self._handle.write(chunk)
        self.size += len(chunk)
        self.crc32c = google_crc32c.extend(self.crc32c, chunk)
        return len(chunk)

    def flush(self) -> None:
        """Flushes the file."""
        self._handle.flush()

    def close(self) -> None:
        """Closes the file."""
        self._handle.close()
        self.closed = True


COMPRESSION = {"none": CompressionTypes.UNCOMPRESSED, "gzip": CompressionTypes.GZIP}


class _MeteredTFRecordSink(_TFRecordSink):
    """Beam's TFRecord sink, with a handle that computes the uncompressed stream's checksum."""

    def open(self, temp_path: str) -> MeteredFile:
        return MeteredFile(super().open(temp_path))


class _RecordsSink(FileBasedSink):
    """Beam's file sink for indexes of records, used to open and rename their files only."""

    def open(self, temp_path: str) -> MeteredFile:
        return MeteredFile(super().open(temp_path))


@dataclass(frozen=True)
class Sinks:
    """The Beam sinks of a dataset: two per split, because a sink numbers its files from 0.

    Attributes:
        directory: the dataset's folder.
        name: the dataset's name.
        compression: "none" or "gzip".
    """

    directory: str
    name: str
    compression: str

    def shards(self, split: str) -> _MeteredTFRecordSink:
        """Returns the sink of a split's shards."""
        return _MeteredTFRecordSink(
            layout.join(self.directory, layout.shard_stem(self.name, split)),
            BytesCoder(),
            layout.shard_suffix(self.compression),
            num_shards=0,
            shard_name_template=None,
            compression_type=COMPRESSION[self.compression],
        )

    def records(self, split: str) -> _RecordsSink:
        """Returns the sink of the indexes of a split's shards."""
        return _RecordsSink(
            layout.join(self.directory, layout.RECORDS, f"records-{split}"),
            BytesCoder(),
            ".parquet",
            compression_type=CompressionTypes.UNCOMPRESSED,
        )


class ShardWriter:
    """Writes one shard and the index of its records to files in the staging area.

    Attributes:
        faults: the references rejected so far.
    """

    def __init__(self, sinks: Sinks, staging: Staging, plan: Plan, split: str, index: int) -> None:
        """Opens the files.

        Args:
            sinks: the dataset's sinks.
            staging: the staging area.
            plan: the resolved schema.
            split: the shard's split.
            index: the shard's number in the split.
        """
        self._split, self._index, self._plan, self._staging = split, index, plan, staging
        # Unique, because Beam may run two attempts at a shard concurrently; and sorted by shard
        # number, because the sink numbers files in the order of these names.
        uid = f"{index:05d}-{uuid.uuid4()}"
        self._shard = sinks.shards(split).open_writer(staging.folder("shards", split), uid)
        self._records = sinks.records(split).open_writer(staging.folder("records", split), uid)
        self._record_index = RecordIndex(self._records.temp_handle, split, index, plan.resolved)
        self._classes: dict[str, Counter[int]] = {
            name: Counter() for name in plan.resolved.schema.class_features
        }
        self._images: Counter[str] = Counter()
        self._shapes = ImageTally()
        self._timeline = Timeline()
        self._payload = self._rows = 0
        self.faults: list[ImageFault] = []

    def write(self, built: Iterable[SerializedExample | Reject]) -> Iterator[Reject]:
        """Writes the examples in order and yields the rejects."""
        position = 0  # in references: an example of a sequence has several
        for outcome in built:
            if isinstance(outcome, Reject):
                advance("rejected")
                fault = ImageFault(position=position, reason=outcome.reason, detail=outcome.detail)
                self.faults.append(fault)
                yield replace(outcome, split=self._split)
                position += 1
            else:
                self._add(outcome)
                position += outcome.rows

    def close(self) -> WrittenShard:
        """Closes the files and returns the shard's counts, checksums and staged files."""
        self._record_index.close()
        shard, records = self._shard.close(), self._records.close()
        return WrittenShard(
            split=self._split,
            index=self._index,
            records=self._shard.num_records_written,
            payload=self._payload,
            crc32c=self._shard.temp_handle.crc32c,
            index_crc32c=self._records.temp_handle.crc32c,
            classes={name: dict(counts) for name, counts in self._classes.items()},
            frames=self._rows if self._plan.resolved.schema.sequence else None,
            images=dict(self._images),
            shapes=self._shapes,
            timeline=self._timeline,
            staged=(self._staging.relative(shard), self._staging.relative(records)),
        )

    def _add(self, example: SerializedExample) -> None:
        self._shard.write(example.data)
        self._record_index.add(example)
        self._payload += len(example.data)
        self._timeline.add(time.time())
        schema = self._plan.resolved.schema
        # The first frame of a sequence counts all labels; the others repeat its context.
        self._count(example.frames[0] if example.frames else example, schema.features)
        for frame in example.frames[1:]:
            self._count(frame, schema.frame_features)
        self._rows += example.rows
        advance("written", example.rows)

    def _count(self, row: SerializedExample | BuiltFrame, names: Container[str]) -> None:
        """Counts a row's image, and its labels in the features of the given names."""
        if row.treatment:
            self._images.update((row.treatment, *row.remarks))
        if row.shape:
            self._shapes.add(row.shape)
        features = self._plan.resolved.schema.features
        for name, value in zip(features, row.ref.values, strict=True):
            if name in self._classes and name in names:
                self._classes[name].update(label_ids(value))
