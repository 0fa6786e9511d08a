"""Writes shards: a `beam.io.WriteToTFRecord` whose records are assigned to shards beforehand.

Framing, compression and renames are those of Beam's sink. Two things differ. Beam distributes
records over shards at random; here, references are grouped by their assigned shard, so the shuffle
carries no image bytes and the position of each record is fixed before it is built. Finished shards
are kept in a staging area instead of a temporary directory, so that a later run can resume.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.pvalue import AsIter, AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import Checkpoint, ImageFault, WrittenShard
from recordmill.schemas.layout import is_url
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef, SerializedExample
from recordmill.schemas.rejects import Reject
from recordmill.schemas.row_counts import ShardCounts
from recordmill.schemas.statistics import Timeline
from recordmill.transforms.assign_shards import AssignedRow, ShardId
from recordmill.transforms.elements import REJECTS, Outcome, rejected
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows.sequences import arrange_shard, assemble_sequences
from recordmill.transforms.shards.base_shards import link_shard
from recordmill.transforms.shards.build_examples import Pools, build_all
from recordmill.transforms.shards.checkpoints import (
    Fingerprint,
    Staging,
    settings_fingerprint,
    versions,
)
from recordmill.transforms.shards.writer import COMPRESSION, ShardWriter, Sinks
from recordmill.transforms.storage.files import (
    VersionTags,
    file_version_tags,
    is_local,
    ref_version_tags,
)
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.stores.beam import request
from recordmill.transforms.verification.verifier_process import check_decodes
from recordmill.transforms.workers.progress import advance


class WriteShards(beam.io.WriteToTFRecord):
    """Writes assigned rows to shards: PCollection[AssignedRow] → Outcome(WrittenShard)."""

    def __init__(
        self,
        config: ConvertConfig,
        staging: Staging,
        plan: PCollection[Plan],
        base: Base | None = None,
    ) -> None:
        """Creates the transform.

        Args:
            config: the name, compression, decoding and verification.
            staging: the staging area of finished shards, and the dataset's folder.
            plan: the number of shards, and the resolved schema.
            base: the base version, whose unchanged shards are linked; None without one.
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

    def expand(self, rows: PCollection[AssignedRow]) -> Outcome:
        """Adds a shuffle of references, the writing, and a final step that renames all files."""
        once = rows.pipeline | "DoOnce" >> beam.Create([None])
        plan = AsSingleton(self._plan)
        settings = AsSingleton(
            once | "InitializeWrite" >> beam.Map(initialize, self._staging, self._config, plan)
        )
        written = (
            rows
            | "GroupByShard" >> beam.GroupByKey()  # ((split, shard), [(order, ImageRef)])
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
    seen: VersionTags,
    guard: ImageRootGuard,
) -> Iterator[SerializedExample | Reject]:
    """Yields a shard's records and rejects in order; threads build a few of them ahead.

    Args:
        refs: the shard's references, in order.
        plan: the resolved schema.
        config: decoding and verification.
        pools: the threads that read and decode.
        seen: receives the version tags of the files that are read.
        guard: confines reads to the image root.
    """
    check = check_decodes if config.verify == "decode" else None
    built: Iterator[Any] = build_all(refs, plan, config.decode, pools, seen, guard, check)
    schema = plan.resolved.schema
    return built if schema.sequence is None else assemble_sequences(built, refs, schema)


def initialize(_: None, staging: Staging, config: ConvertConfig, plan: Plan) -> str:
    """Prepares the staging area and returns the settings fingerprint of all shards.

    Args:
        staging: the staging area.
        config: the settings.
        plan: the splits and the resolved schema.
    """
    settings = settings_fingerprint(config, plan.resolved, versions())
    staging.make(plan.shards)
    staging.drop_others(settings)
    return settings


class _WriteShard(beam.DoFn):
    """Writes one shard per element; holds its references and a window of images in memory."""

    def __init__(
        self, sinks: Sinks, staging: Staging, config: ConvertConfig, base: Base | None
    ) -> None:
        self._sinks = sinks
        self._staging = staging
        self._config = config
        self._base = base
        self._guard = ImageRootGuard(config.guard)
        self._shared = Shared()

    def setup(self) -> None:
        self._pools = self._shared.acquire(Pools)

    def process(
        self,
        element: tuple[ShardId, Iterable[tuple[bytes, ImageRef]]],
        settings: str,
        plan: Plan,
    ) -> Iterator[WrittenShard | TaggedOutput]:
        shard, rows = element  # ((split, shard), [(order, ImageRef)])
        refs, duplicates = arrange_shard(rows, plan.resolved)
        for reject in duplicates:
            yield rejected(replace(reject, split=shard[0]))
        # Version tags of remote files cost one request each, so they are requested only if a
        # checkpoint or base shard may match. Otherwise reading the images yields them for free.
        may_match = self._base is not None or self._staging.has(*shard)
        tags = file_version_tags(refs, self._guard, remote=may_match)
        fingerprint = _fingerprint(settings, shard, refs, plan, tags)
        checkpoint = fingerprint and self._staging.find(*shard, fingerprint.digest)
        if checkpoint:
            yield from self._reused(checkpoint, refs)
        elif fingerprint and (linked := self._linked(fingerprint)):
            advance("written", linked.converted)
            yield linked
        else:
            writer, seen = ShardWriter(self._sinks, self._staging, plan, *shard), dict(tags)
            built = build_records(refs, plan, self._config, self._pools, seen, self._guard)
            for reject in writer.write(built):
                yield rejected(reject)
            if seen != tags:  # reading has added version tags
                fingerprint = _fingerprint(settings, shard, refs, plan, seen)
            yield self._finished(writer.close(), fingerprint, writer.faults, plan)

    def _linked(self, fingerprint: Fingerprint) -> WrittenShard | None:
        """Returns the identical shard of the base version, linked; None if the base has none."""
        if self._base is None:
            return None
        split, index = fingerprint.split, fingerprint.index
        entry = self._base.reusable_shard(split, index, fingerprint.digest)
        return link_shard(self._base, entry, self._staging, fingerprint) if entry else None

    def _reused(
        self, checkpoint: Checkpoint, refs: list[ImageRef]
    ) -> Iterator[WrittenShard | TaggedOutput]:
        """Yields the shard and the rejects of a checkpoint, as an earlier run left them."""
        advance("written", checkpoint.shard.converted)
        for reject in checkpoint.rejects(refs):
            advance("rejected")
            yield rejected(reject)
        yield replace(checkpoint.shard, reused=True, timeline=Timeline())

    def _finished(
        self,
        written: WrittenShard,
        fingerprint: Fingerprint | None,
        faults: Sequence[ImageFault],
        plan: Plan,
    ) -> WrittenShard:
        """Returns a newly written shard with its fingerprint, after writing its checkpoint.

        Args:
            written: the shard.
            fingerprint: the fingerprint of its inputs; None if a version tag is unknown.
            faults: the references that were rejected.
            plan: the number of shards.
        """
        if fingerprint is None:
            return written
        shard = replace(written, fingerprint=fingerprint.without(faults))
        # After a transient fault (a timeout, say) the next run must try the image again.
        if not any(fault.is_transient for fault in faults):
            split, index, count = shard.split, shard.index, plan.shards[shard.split]
            name, compression = self._config.name, self._config.compression
            checkpoint = Checkpoint(
                settings=fingerprint.settings,
                fingerprint=fingerprint.digest,
                shard=shard,
                final=(
                    layout.shard_name(name, split, index, count, compression),
                    layout.records_name(split, index, count),
                ),
                sizes=self._staging.sizes(shard),
                faults=tuple(faults),
            )
            self._staging.keep(checkpoint)
        return shard


def _fingerprint(
    settings: str, shard: ShardId, refs: list[ImageRef], plan: Plan, versions: VersionTags
) -> Fingerprint | None:
    """Returns the fingerprint of a shard; None if the version tag of an image is unknown."""
    tags = ref_version_tags(refs, versions)
    if tags is None:
        return None
    return Fingerprint(settings, *shard, list(zip(refs, tags, strict=True)), plan.resolved)


def finalize(
    _: None,
    sinks: Sinks,
    staging: Staging,
    plan: Plan,
    written: Iterable[WrittenShard],
) -> Iterator[WrittenShard]:
    """Renames all files to their final names and yields all shards, including empty ones.

    Args:
        sinks: Beam's sinks, which rename files.
        staging: the staging area that holds the files.
        plan: the number of shards of each split.
        written: the shards that have rows.
    """
    by_split: dict[str, list[WrittenShard]] = {split: [] for split in plan.shards}
    for shard in written:
        by_split[shard.split].append(shard)
    for split, shards in by_split.items():
        # A shard without rows is not an element of any grouping, but readers expect its file.
        shards += _empty_shards(sinks, staging, plan, split, shards)
        files = [staging.paths(shard) for shard in shards]  # [(shard file, index file)]
        for i, kind, sink in ((0, "shards", sinks.shards), (1, "records", sinks.records)):
            _rename(sink(split), staging.folder(kind, split), [pair[i] for pair in files])
        yield from shards


def _empty_shards(
    sinks: Sinks, staging: Staging, plan: Plan, split: str, written: list[WrittenShard]
) -> list[WrittenShard]:
    present = {shard.index for shard in written}
    missing = [index for index in range(plan.shards[split]) if index not in present]
    return [ShardWriter(sinks, staging, plan, split, index).close() for index in missing]


def _rename(sink: FileBasedSink, folder: str, files: list[str]) -> None:
    """Renames staged files with Beam's sink, which numbers them in the order of their names."""

    def rename() -> None:
        # Consumes a generator. On a retry, Beam skips files that already have their final names.
        deque(sink.finalize_write(folder, files, None), maxlen=0)

    if is_local(folder):
        rename()
    else:
        request(rename)


ShardForecast: TypeAlias = tuple[ShardCounts, int, Sequence[ImageRef]]
"""The counts of a planned shard, the number of its remote images, and its first references."""


@dataclass(eq=False)
class ForecastShards(beam.PTransform):
    """Forecasts each shard for a dry run: PCollection[AssignedRow] → Outcome(ShardForecast).

    Attributes:
        plan: the number of shards, and the resolved schema.
        sample: the number of references to keep, over all shards, for building examples.
    """

    plan: PCollection[Plan]
    sample: int

    def expand(self, rows: PCollection[AssignedRow]) -> Outcome:
        """Adds the same grouping by shard as `WriteShards`, which brings duplicate keys together.

        Returns:
            One forecast per shard that has rows, and the rejects of duplicate keys.
        """
        found = (
            rows
            | "GroupByShard" >> beam.GroupByKey()  # ((split, shard), [(order, ImageRef)])
            | "Forecast"
            >> beam.FlatMap(forecast, AsSingleton(self.plan), self.sample).with_outputs(
                REJECTS, main="shards"
            )
        )
        return Outcome(found.shards, found[REJECTS])


def forecast(
    element: tuple[ShardId, Iterable[tuple[bytes, ImageRef]]], plan: Plan, sample: int
) -> Iterator[ShardForecast | TaggedOutput]:
    """Yields the forecast of a shard and the rejects of its duplicate keys.

    Args:
        element: ((split, shard), [(order, ImageRef)]).
        plan: the number of shards, and the resolved schema.
        sample: the number of references to keep, over all shards.
    """
    (split, index), rows = element
    refs, duplicates = arrange_shard(rows, plan.resolved)
    schema = plan.resolved.schema
    classes = {name: Counter[int]() for name in plan.resolved.schema.class_features}
    seen = set[str]()
    for ref in refs:
        # The context features of a sequence are counted once, with its first frame.
        names = schema.frame_features if ref.record_key in seen else schema.features
        seen.add(ref.record_key)
        for name, value in zip(schema.features, ref.values, strict=True):
            if name in classes and name in names:
                classes[name].update(label_ids(value))
    share = -(-sample // sum(plan.shards.values()))  # rounded up
    remote = sum(is_url(ref.uri) for ref in refs)
    frames = len(refs) if schema.sequence else None
    counts = ShardCounts(
        split=split, index=index, records=len(seen), classes=classes, frames=frames
    )
    yield counts, remote, refs[:share]
    for reject in duplicates:
        yield rejected(replace(reject, split=split))
