"""Writes shards: `beam.io.WriteToTFRecord` with a plan.

Beam's sink stays: its framing, compression and renames. Its grouping is replaced: in place of a
shuffle of records by chance, one of references by plan, so that no shuffle carries image bytes and
every record's shard and place are settled beforehand. And its temporary directories are: finished
shards wait in a staging area, where the next run finds them if this one dies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.pvalue import AsIter, AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas import layout
from recordmill.schemas.base_version import Base
from recordmill.schemas.checkpoint import ImageFault, Receipt
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import ShardInfo
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef, SerializedExample
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tallies import Timeline
from recordmill.transforms.assign_shards import Placed, ShardId
from recordmill.transforms.build_examples import Pools, build_all
from recordmill.transforms.elements import REJECTS, Outcome, rejected
from recordmill.transforms.functional.rows.fingerprint import ShardMark, settings_fingerprint
from recordmill.transforms.functional.rows.sequences import arranged, assemble
from recordmill.transforms.shards.base_shards import link_shard
from recordmill.transforms.shards.checkpoints import Staging, versions
from recordmill.transforms.shards.writer import COMPRESSION, ShardWriter, Sinks, WrittenShard
from recordmill.transforms.storage.files import Stamps, is_local
from recordmill.transforms.storage.image_root import Fence
from recordmill.transforms.storage.stores.beam import request
from recordmill.transforms.storage.version_tags import stamps_of, take_stamps
from recordmill.transforms.verification.verifier_process import check_decodes
from recordmill.transforms.workers.progress import advance


class WriteShards(beam.io.WriteToTFRecord):
    """Writes planned shards: PCollection[Placed] → Outcome(ShardInfo)."""

    def __init__(
        self,
        config: ConvertConfig,
        staging: Staging,
        plan: PCollection[Plan],
        base: Base | None = None,
    ) -> None:
        """Makes a writer.

        Args:
            config: the name, compression and decoding.
            staging: where finished shards wait for all others, and the dataset's folder.
            plan: the number of shards, and the schema.
            base: a dataset whose shards are taken where they are the same, if any.
        """
        super().__init__(
            file_path_prefix=layout.join(staging.dataset, config.name),
            file_name_suffix=layout.shard_suffix(config.compression),
            compression_type=COMPRESSION[config.compression],
        )
        self._sinks = Sinks(staging.dataset, config.name, config.compression)
        self._config = config
        self._staging = staging
        self._plan = plan
        self._base = base

    def expand(self, placed: PCollection[Placed]) -> Outcome:
        """Adds the one shuffle, of references, the writing, and the renaming after all of it."""
        once = placed.pipeline | "DoOnce" >> beam.Create([None])
        plan = AsSingleton(self._plan)
        settings = AsSingleton(
            once | "InitializeWrite" >> beam.Map(initialize, self._staging, self._config, plan)
        )
        written = (
            placed
            | "GroupByShard" >> beam.GroupByKey()  # (split, shard), [(order, ImageRef)]
            | "WriteShard"
            >> beam.ParDo(
                _WriteShard(self._sinks, self._staging, self._config, self._base), settings, plan
            ).with_outputs(REJECTS, main="shards")
        )
        shards = once | "FinalizeWrite" >> beam.FlatMap(
            finalize, self._sinks, self._staging, plan, AsIter(written.shards)
        )
        return Outcome(shards, written[REJECTS])


def build_records(
    refs: Sequence[ImageRef],
    plan: Plan,
    config: ConvertConfig,
    pools: Pools,
    seen: Stamps,
    fence: Fence,
) -> Iterator[SerializedExample | Reject]:
    """Yields a shard's records and rejects, worked ahead on; of sequences, one is in memory."""
    check = check_decodes if config.verify == "decode" else None
    built: Iterator[Any] = build_all(refs, plan, config.decode, pools, seen, fence, check)
    schema = plan.resolved.schema
    return built if schema.sequence is None else assemble(built, refs, schema)


def initialize(_: None, staging: Staging, config: ConvertConfig, plan: Plan) -> str:
    """Makes the staging area ready, and returns the fingerprint of what holds for all shards."""
    settings = settings_fingerprint(config, plan.resolved, versions())
    staging.make(plan.shards)
    staging.drop_others(settings)
    return settings


class _WriteShard(beam.DoFn):
    """Writes one shard: one shard's references and a window of images in memory, no more."""

    def __init__(
        self, sinks: Sinks, staging: Staging, config: ConvertConfig, base: Base | None
    ) -> None:
        self._sinks = sinks
        self._staging = staging
        self._config = config
        self._base = base
        self._fence = Fence(config.fence)
        self._shared = Shared()

    def setup(self) -> None:
        self._pools = self._shared.acquire(Pools)

    def process(
        self,
        element: tuple[ShardId, Iterable[tuple[bytes, ImageRef]]],
        settings: str,
        plan: Plan,
    ) -> Iterator[WrittenShard | TaggedOutput]:
        shard, placed = element  # ((split, shard), [(order, ImageRef)])
        refs, repeated = arranged(placed, plan.resolved)
        for reject in repeated:
            yield rejected(replace(reject, split=shard[0]))
        # A store is asked only where there is a tag to compare: else the tags come with the bytes.
        has_past = self._base is not None or self._staging.has(*shard)
        stamps = take_stamps(refs, self._fence, remote=has_past)
        mark = _mark(settings, shard, refs, plan, stamps)
        receipt = self._staging.find(*shard, mark.fingerprint) if mark else None
        if receipt is not None:
            yield from self._taken(receipt, refs)
        elif mark and (linked := self._linked(mark)):
            advance("written", linked.info.rows)
            yield linked
        else:
            writer, seen = ShardWriter(self._sinks, self._staging, plan, *shard), dict(stamps)
            built = build_records(refs, plan, self._config, self._pools, seen, self._fence)
            for reject in writer.write(built):
                yield rejected(reject)
            if seen != stamps:  # files of a store, or that have changed since
                mark = _mark(settings, shard, refs, plan, seen)
            yield self._closed(writer, mark, plan)

    def _linked(self, mark: ShardMark) -> WrittenShard | None:
        """Returns a shard of the base under another name; None if it is not what is wanted."""
        if self._base is None:
            return None
        entry = self._base.same_shard(mark.split, mark.index, mark.fingerprint)
        return link_shard(self._base, entry, self._staging, mark) if entry else None

    def _taken(
        self, receipt: Receipt, refs: list[ImageRef]
    ) -> Iterator[WrittenShard | TaggedOutput]:
        """Yields a shard that an earlier run has finished."""
        advance("written", receipt.info.rows)
        for reject in receipt.rejects(refs):
            advance("rejected")
            yield rejected(reject)
        shard, records = map(self._staging.path, receipt.files)
        info = replace(receipt.info, reused=True, timeline=Timeline())
        yield WrittenShard(info, shard, records)

    def _closed(self, writer: ShardWriter, mark: ShardMark | None, plan: Plan) -> WrittenShard:
        """Returns a shard that was written now; with its checkpoint, if it can be known again.

        Args:
            writer: has written all records.
            mark: what the shard was made from; None if a file of it has no version tag.
            plan: the number of shards.
        """
        written = writer.close()
        if mark is None:
            return written
        info = replace(written.info, fingerprint=mark.without(writer.faults))
        written = written._replace(info=info)
        if not any(fault.passing for fault in writer.faults):
            self._keep(written, mark, writer.faults, plan)
        return written

    def _keep(
        self, written: WrittenShard, mark: ShardMark, faults: Sequence[ImageFault], plan: Plan
    ) -> None:
        info, config, staged = written.info, self._config, self._staging.staged
        count = plan.shards[info.split]
        shard = layout.shard_name(config.name, info.split, info.index, count, config.compression)
        records = layout.records_name(info.split, info.index, count)
        receipt = Receipt(
            settings=mark.settings,
            fingerprint=mark.fingerprint,
            info=info,
            shard=staged(written.shard, shard, info.crc32c),
            records=staged(written.records, records, info.index_crc32c),
            faults=tuple(faults),
        )
        self._staging.keep(receipt)


def _mark(
    settings: str, shard: ShardId, refs: list[ImageRef], plan: Plan, taken: Stamps
) -> ShardMark | None:
    stamps = stamps_of(refs, taken)
    if stamps is None:
        return None
    return ShardMark(settings, *shard, list(zip(refs, stamps, strict=True)), plan.resolved)


def finalize(
    _: None,
    sinks: Sinks,
    staging: Staging,
    plan: Plan,
    written: Iterable[WrittenShard],
) -> Iterator[ShardInfo]:
    """Gives all files their names, and yields the shards, those without any row included."""
    by_split: dict[str, list[WrittenShard]] = {split: [] for split in plan.shards}
    for shard in written:
        by_split[shard.info.split].append(shard)
    for split, shards in by_split.items():
        shards += _empty_shards(sinks, staging, plan, split, shards)
        for kind, sink in (("shards", sinks.shards(split)), ("records", sinks.records(split))):
            files = [shard.shard if kind == "shards" else shard.records for shard in shards]
            _rename(sink, staging.folder(kind, split), files)
        yield from (shard.info for shard in shards)


def _empty_shards(
    sinks: Sinks, staging: Staging, plan: Plan, split: str, written: list[WrittenShard]
) -> list[WrittenShard]:
    present = {shard.info.index for shard in written}
    missing = [index for index in range(plan.shards[split]) if index not in present]
    return [ShardWriter(sinks, staging, plan, split, index).close() for index in missing]


def _rename(sink: FileBasedSink, folder: str, files: list[str]) -> None:
    """Has Beam's sink rename staged files; it numbers them in the order of their names."""

    def rename() -> None:
        deque(sink.finalize_write(folder, files, None), maxlen=0)  # skips what is renamed already

    if is_local(folder):
        rename()
    else:
        request(rename)
