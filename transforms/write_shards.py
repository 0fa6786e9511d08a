"""Writes shards: `beam.io.WriteToTFRecord` with a plan.

Beam's sink stays: its framing, compression, temporary directories and renames. Only its grouping is
replaced: in place of a shuffle of records by chance, one of references by plan, so that no shuffle
carries image bytes and every record's shard and place are settled beforehand.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.tfrecordio import _TFRecordSink
from apache_beam.pvalue import AsIter, AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from schemas import layout
from schemas.config import ConvertConfig
from schemas.dataset_info import ShardInfo
from schemas.plan import Plan
from schemas.records import ImageRef, SerializedExample
from schemas.rejects import Reject
from transforms.build_examples import build_all, new_executor
from transforms.functional.record_index import RecordIndex, labels_of
from transforms.functional.shard_order import in_order
from transforms.metered_file import MeteredFile
from transforms.outcome import REJECTS, Outcome, rejected
from transforms.place_records import Placed, ShardId
from transforms.progress import PULSE

_COMPRESSION = {"none": CompressionTypes.UNCOMPRESSED, "gzip": CompressionTypes.GZIP}


class TempDirs(NamedTuple):
    """Where a split's files are written before they get their names.

    Attributes:
        shards: directory of its shards.
        records: directory of their indexes.
    """

    shards: str
    records: str


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


class WriteShards(beam.io.WriteToTFRecord):
    """Writes planned shards: PCollection[Placed] → Outcome(ShardInfo)."""

    def __init__(self, config: ConvertConfig, directory: str, plan: PCollection[Plan]) -> None:
        """Makes a writer.

        Args:
            config: the name, compression and decoding.
            directory: the dataset's folder.
            plan: the number of shards, and the schema.
        """
        super().__init__(
            file_path_prefix=layout.join(directory, config.name),
            file_name_suffix=layout.shard_suffix(config.compression),
            compression_type=_COMPRESSION[config.compression],
        )
        self._sinks = Sinks(directory, config.name, config.compression)
        self._decode = config.decode
        self._plan = plan

    def expand(self, placed: PCollection[Placed]) -> Outcome:
        """Adds the one shuffle, of references, the writing, and the renaming after all of it."""
        once = placed.pipeline | "DoOnce" >> beam.Create([None])
        plan = AsSingleton(self._plan)
        temp_dirs = AsSingleton(once | "InitializeWrite" >> beam.Map(initialize, self._sinks, plan))
        written = (
            placed
            | "GroupByShard" >> beam.GroupByKey()  # (split, shard), [(order, ImageRef)]
            | "WriteShard"
            >> beam.ParDo(_WriteShard(self._sinks, self._decode), temp_dirs, plan).with_outputs(
                REJECTS, main="shards"
            )
        )
        shards = once | "FinalizeWrite" >> beam.FlatMap(
            finalize, self._sinks, temp_dirs, plan, AsIter(written.shards)
        )
        return Outcome(shards, written[REJECTS])


class _MeteredTFRecordSink(_TFRecordSink):
    """Beam's TFRecord sink, with a handle that knows the uncompressed stream's checksum."""

    def open(self, temp_path: str) -> MeteredFile:
        return MeteredFile(super().open(temp_path))


class _RecordsSink(FileBasedSink):
    """Beam's file sink, for the indexes of records: opened, renamed, never written by record."""

    def open(self, temp_path: str) -> MeteredFile:
        return MeteredFile(super().open(temp_path))


@dataclass(frozen=True)
class Sinks:
    """The Beam sinks of a dataset: two a split, since a sink numbers its files from 0.

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
            compression_type=_COMPRESSION[self.compression],
        )

    def records(self, split: str) -> _RecordsSink:
        """Returns the sink of the indexes of a split's shards."""
        return _RecordsSink(
            layout.join(self.directory, layout.RECORDS, f"records-{split}"),
            BytesCoder(),
            ".parquet",
            compression_type=CompressionTypes.UNCOMPRESSED,
        )


def initialize(_: None, sinks: Sinks, plan: Plan) -> dict[str, TempDirs]:
    """Makes the temporary directories of all splits."""
    return {
        split: TempDirs(
            sinks.shards(split).initialize_write(), sinks.records(split).initialize_write()
        )
        for split in plan.shards
    }


class _WriteShard(beam.DoFn):
    """Writes one shard: one shard's references and a window of images in memory, no more."""

    def __init__(self, sinks: Sinks, decode: Any) -> None:
        self._sinks = sinks
        self._decode = decode
        self._shared = Shared()

    def setup(self) -> None:
        self._executor = self._shared.acquire(new_executor)

    def process(
        self,
        element: tuple[ShardId, Iterable[tuple[bytes, ImageRef]]],
        temp_dirs: Mapping[str, TempDirs],
        plan: Plan,
    ) -> Iterator[WrittenShard | TaggedOutput]:
        (split, index), placed = element
        refs, repeated = in_order(placed)
        shard = ShardWriter(self._sinks, temp_dirs[split], plan, split, index)
        built = build_all(refs, plan, self._decode, self._executor)
        for reject in shard.write(built):
            yield rejected(reject)
        for reject in repeated:
            yield rejected(replace(reject, split=split))
        yield shard.close()


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


def finalize(
    _: None,
    sinks: Sinks,
    temp_dirs: Mapping[str, TempDirs],
    plan: Plan,
    written: Iterable[WrittenShard],
) -> Iterator[ShardInfo]:
    """Gives all files their names, and yields the shards, those without any row included."""
    by_split: dict[str, list[WrittenShard]] = {split: [] for split in plan.shards}
    for shard in written:
        by_split[shard.info.split].append(shard)
    for split, shards in by_split.items():
        shards += _empty_shards(sinks, temp_dirs[split], plan, split, shards)
        _rename(sinks.shards(split), temp_dirs[split].shards, [s.shard for s in shards])
        _rename(sinks.records(split), temp_dirs[split].records, [s.records for s in shards])
        yield from (shard.info for shard in shards)


def _empty_shards(
    sinks: Sinks, temp_dirs: TempDirs, plan: Plan, split: str, written: list[WrittenShard]
) -> list[WrittenShard]:
    present = {shard.info.index for shard in written}
    missing = [index for index in range(plan.shards[split]) if index not in present]
    return [ShardWriter(sinks, temp_dirs, plan, split, index).close() for index in missing]


def _rename(sink: FileBasedSink, temp_dir: str, files: list[str]) -> None:
    """Has Beam's sink rename temporary files; it numbers them in the order of their names."""
    for _ in sink.finalize_write(temp_dir, files, None):
        pass
