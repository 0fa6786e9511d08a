"""Writes one shard and the index of its records, a batch of records at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import google_crc32c
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import CompressedFile, CompressionTypes

from recordmill.schemas.dataset_info import ImageFault, WrittenShard
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import BuiltFrame, CopiedRecord, SerializedExample, Unchanged
from recordmill.schemas.rejects import Reject
from recordmill.schemas.statistics import CopiedCounts, ImageTally
from recordmill.transforms.functional.records.examples import class_ids
from recordmill.transforms.functional.records.index import RecordIndex, label_ids
from recordmill.transforms.shards.base_shards import Merged, copied_images
from recordmill.transforms.storage.drafts import Draft
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.storage.stores.store import Version
from recordmill.transforms.workers.progress import BATCH_ROWS, advance, observe

_BUFFER_BYTES = 2**18


class MeteredFile:
    """A buffered file that counts the bytes written, and computes their CRC-32C once flushed."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        # Each write to the file releases the GIL, for which threads that decode compete: for small
        # records, waiting to get it back would take longer than everything else.
        self._pending: list[bytes] = []
        self._written = 0
        self.size = 0
        self.crc32c = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Writes all of `data`."""
        chunk = bytes(data)
        self.writelines([chunk])
        return len(chunk)

    def writelines(self, chunks: Sequence[bytes]) -> None:
        """Writes chunks one after the other."""
        self._pending += chunks
        self.size += sum(map(len, chunks))
        if self.size - self._written >= _BUFFER_BYTES:
            self._write_pending()

    def flush(self) -> None:
        """Flushes the file."""
        self._write_pending()
        self._handle.flush()

    def close(self) -> None:
        """Closes the file."""
        self._write_pending()
        self._handle.close()
        self.closed = True

    def _write_pending(self) -> None:
        data = b"".join(self._pending)  # a single chunk is not copied
        self._handle.write(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        self._pending, self._written = [], self.size


class _Frames(list[bytes]):
    """Collects what the sink writes: less work for each small record than in `MeteredFile`."""

    write = list.append


class ShardWriter:
    """Writes one shard and the index of its records.

    `faults` are the references rejected so far.
    """

    sizes: tuple[int, int]  # the bytes of the shard file and the index, once closed
    versions: tuple[Version, Version]  # the versions of both in an object store, once closed

    def __init__(
        self,
        sink: FileBasedSink,
        files: ShardFiles,
        plan: Plan,
        old: ShardEntry | None = None,
        hashed: bool = True,
    ) -> None:
        """Opens drafts of both files; records are copied from the base's shard, `old`, if any."""
        self._sink, self._files, self._plan, self._old = sink, files, plan, old
        self._drafts = [Draft(files.directory, name) for name in (files.file, files.records)]
        shard, records = self._drafts
        opened: Any = shard.open()
        if sink.compression_type != CompressionTypes.UNCOMPRESSED:
            opened = CompressedFile(opened, compression_type=sink.compression_type)
        self._shard = MeteredFile(opened)
        self._records = MeteredFile(records.open())
        self._record_index = RecordIndex(
            self._records, files.split, files.index, plan.resolved, hashed
        )
        self._number = 0
        self._classes: dict[str, Counter[int]] = {
            name: Counter() for name in plan.resolved.schema.class_features
        }
        self._images: Counter[str] = Counter()
        self._shapes = ImageTally()
        self._copied = CopiedCounts()
        self._payload = self._rows = self._unchanged = self._counted = 0
        self._examples: list[SerializedExample] = []  # to be written together
        self._waiting = 0  # their bytes
        self.faults: list[ImageFault] = []
        self._opened = time.monotonic_ns()

    @property
    def is_late(self) -> bool:
        """Whether another attempt had written the same shard, once closed."""
        return all(draft.is_late for draft in self._drafts)

    def write(self, built: Iterable[Merged]) -> Iterator[Reject]:
        """Writes the records in order and yields the rejects."""
        position = 0  # counts references: an example of a sequence has several, a copied one none
        for outcome in built:
            if isinstance(outcome, SerializedExample):
                position += len(outcome.frames) or 1
                self._examples.append(outcome)
                self._waiting += len(outcome.data)
                if len(self._examples) >= BATCH_ROWS or self._waiting >= _BUFFER_BYTES:
                    self._write_examples()
            elif isinstance(outcome, CopiedRecord):
                self._write_examples()
                self._copy(outcome)
            elif isinstance(outcome, Unchanged):
                self._unchanged += outcome.rows
                position += outcome.rows
            else:
                advance("rejected")
                fault = ImageFault(position=position, reason=outcome.reason, detail=outcome.detail)
                self.faults.append(fault)
                yield replace(outcome, split=self._files.split)
                position += 1
        self._write_examples()

    def close(self, replaced: Sequence[Version | None] = (None, None)) -> WrittenShard:
        """Closes the files and gives them their final names, the index last.

        Returns the shard's counts and checksums. `replaced` is the versions of both files left by
        an earlier run; None for each without one.
        """
        self._record_index.close()
        self._sink.close(self._shard)
        self._records.close()
        shard, records = self._drafts
        self.sizes = shard.size, records.size
        self.versions = shard.commit(replaced[0]), records.commit(replaced[1])
        self._advance()
        observe("shard_bytes", self._payload)
        observe("shard_ms", (time.monotonic_ns() - self._opened) // 10**6)
        if old := self._old:
            # The base counts treatments by shard: that of a single image is not known.
            removed = old.converted - self._copied.rows
            self._images.update(copied_images(old.images, old.converted, removed))
        rows = self._rows + self._copied.rows
        return WrittenShard(
            split=self._files.split,
            index=self._files.index,
            records=self._number,
            payload=self._payload,
            crc32c=self._shard.crc32c,
            index_crc32c=self._records.crc32c,
            classes=self._classes,
            frames=rows if self._plan.resolved.schema.sequence else None,
            images=dict(self._images),
            shapes=self._shapes,
            copied=self._copied,
            unchanged=self._unchanged,
        )

    def _copy(self, record: CopiedRecord) -> None:
        """Writes a record of the base version, unless it is removed."""
        features = self._plan.resolved.schema.features
        ids = class_ids(record.data, {name: features[name] for name in self._classes})
        for name, labels in ids.items():
            # Removed ones as well: all of these are subtracted from the counts of the base.
            self._copied.base_classes.setdefault(name, Counter()).update(labels)
        if record.is_removed:
            return
        self._write([record.data])
        self._record_index.copy(record)
        self._copied.records += 1
        self._copied.rows += record.rows
        for name, labels in ids.items():
            self._classes[name].update(labels)

    def _write(self, records: Sequence[bytes]) -> None:
        frames, write = _Frames(), self._sink.write_encoded_record
        for data in records:
            write(frames, data)
        self._shard.writelines(frames)
        self._number += len(records)
        self._payload += sum(map(len, records))

    def _write_examples(self) -> None:
        """Writes and counts the waiting examples: together, which is cheaper than one by one."""
        if not self._examples:
            return
        examples, self._examples, self._waiting = self._examples, [], 0
        self._write([example.data for example in examples])
        self._record_index.add(examples)
        schema = self._plan.resolved.schema
        # The first frame of a sequence counts all labels; the others repeat its context.
        self._count([e.frames[0] if e.frames else e for e in examples], schema.features)
        if schema.sequence is not None:
            self._count([frame for e in examples for frame in e.frames[1:]], schema.frame_features)
        self._rows += sum(example.rows for example in examples)
        self._advance()

    def _advance(self) -> None:
        done = self._rows + self._unchanged
        advance("written", done - self._counted)
        self._counted = done

    def _count(self, rows: Sequence[SerializedExample | BuiltFrame], names: Container[str]) -> None:
        """Counts the images of rows, and their labels in the features of the given names."""
        for row in rows:
            if row.treatment:
                self._images.update((row.treatment, *row.remarks))
            if row.shape:
                self._shapes.add(row.shape)
        for position, (name, feature) in enumerate(self._plan.resolved.schema.features.items()):
            if name in self._classes and name in names:
                labels = (label_ids(row.ref.values[position], feature) for row in rows)
                self._classes[name].update(chain.from_iterable(labels))
