"""Writes shards: `beam.io.WriteToTFRecord` with a plan.

Beam's sink stays: its framing, compression, temporary directories and renames. Only its grouping is
replaced: in place of a shuffle of records by chance, one of references by plan, so that no shuffle
carries image bytes and every record's shard and place are settled beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import apache_beam as beam
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.pvalue import AsIter, AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from schemas import layout
from schemas.config import ConvertConfig, Decode
from schemas.dataset_info import ShardInfo
from schemas.plan import Plan
from schemas.records import ImageRef
from transforms.build_examples import build_all, new_executor
from transforms.functional.shard_order import in_order
from transforms.outcome import REJECTS, Outcome, rejected
from transforms.place_records import Placed, ShardId
from transforms.shard_sinks import COMPRESSION, Sinks, TempDirs
from transforms.shard_writer import ShardWriter, WrittenShard


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
            compression_type=COMPRESSION[config.compression],
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

    def __init__(self, sinks: Sinks, decode: Decode) -> None:
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
