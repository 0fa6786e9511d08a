"""Writes shards: a `beam.io.WriteToTFRecord` whose records are assigned to shards beforehand.

Files are opened and compressed by Beam's sink. Two things differ. Beam distributes records over
shards at random; here, references are grouped by their assigned shard, so the shuffle carries no
image bytes and the position of each record is fixed before it is built. Beam also renames all files
in one step on one worker; here, split, index and count of a shard are known before its first byte,
and the worker that writes it gives it its final name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import Checkpoint, WrittenShard
from recordmill.schemas.features import Schema
from recordmill.schemas.layout import is_url
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef, SerializedExample, StoredImage
from recordmill.schemas.rejects import Reject
from recordmill.schemas.row_counts import ShardCounts
from recordmill.schemas.statistics import Timeline
from recordmill.transforms.elements import (
    REJECTS,
    AssignedRows,
    OrderedRefs,
    Outcome,
    ShardId,
    displayed,
    rejected,
)
from recordmill.transforms.functional.records.examples import image_shape
from recordmill.transforms.functional.records.image_columns import check_quality
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows.sequences import arrange_shard, assemble_sequences
from recordmill.transforms.shards.base_shards import link_shard
from recordmill.transforms.shards.build_examples import Check, Pools, build_all
from recordmill.transforms.shards.checkpoints import (
    Checkpoints,
    Fingerprint,
    is_reusable,
    settings_fingerprint,
    versions,
)
from recordmill.transforms.shards.kept_shard import KeptShard
from recordmill.transforms.shards.writer import ShardWriter
from recordmill.transforms.storage.files import (
    VersionTags,
    exists,
    make_folders,
)
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.storage.stores.objects import Version
from recordmill.transforms.storage.version_tags import file_version_tags, ref_version_tags
from recordmill.transforms.verification.verifier_process import check_decodes
from recordmill.transforms.workers.progress import advance


class WriteShards(beam.io.WriteToTFRecord):
    """Writes assigned rows to shards: PCollection[AssignedRows] → Outcome((WrittenShard, Plan)).

    The plan is in every element, because engines do not fuse a step that has side inputs with the
    one before it. The step that verifies shards needs none, and so runs where they are written.
    """

    def __init__(
        self,
        config: ConvertConfig,
        checkpoints: Checkpoints,
        plan: PCollection[Plan],
        base: Base | None = None,
    ) -> None:
        """Creates the transform.

        Args:
            config: the name, compression, decoding and verification.
            checkpoints: the checkpoints of finished shards, and the dataset's folder.
            plan: the number of shards, and the resolved schema.
            base: the base version, whose unchanged shards are linked; None if there is none.
        """
        super().__init__(
            file_path_prefix=layout.join(checkpoints.dataset, config.name),
            file_name_suffix=layout.shard_suffix(config.compression),
            compression_type=_COMPRESSION[config.compression],
        )
        self._config = config
        self._checkpoints = checkpoints
        self._plan = plan
        self._base = base

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(self._config, "name", "version", "compression", "decode", "verify")

    def expand(self, rows: PCollection[AssignedRows]) -> Outcome:
        """Adds a shuffle of references, and the writing of all shards, including empty ones."""
        settings = self._plan | "InitializeWrite" >> beam.Map(
            initialize, self._checkpoints, self._config
        )
        # A shard without rows would not be an element of the grouping, but readers expect its file.
        planned = self._plan | "PlannedShards" >> beam.FlatMap(planned_shards).with_output_types(
            AssignedRows
        )
        write = _WriteShard(self._sink, self._checkpoints, self._config, self._base)
        written = (
            (rows, planned)
            | "WithEmptyShards" >> beam.Flatten().with_output_types(AssignedRows)
            | "GroupByShard" >> beam.GroupByKey()  # ((split, shard), [[(order, ImageRef)]])
            | "WriteShard"
            >> beam.ParDo(write, AsSingleton(settings), AsSingleton(self._plan)).with_outputs(
                REJECTS, main="shards"
            )
        )
        return Outcome(written.shards, written[REJECTS])


_COMPRESSION = {"none": CompressionTypes.UNCOMPRESSED, "gzip": CompressionTypes.GZIP}


def planned_shards(plan: Plan) -> Iterator[AssignedRows]:
    """Yields every shard of the plan, without rows."""
    for split, count in plan.shards.items():
        for index in range(count):
            yield (split, index), OrderedRefs()


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
    built: Iterator[Any] = build_all(
        refs, plan, config.decode, pools, seen, guard, check_of(config)
    )
    schema = plan.resolved.schema
    return built if schema.sequence is None else assemble_sequences(built, refs, schema)


def check_of(config: ConvertConfig) -> Check | None:
    """Returns the check of images before they are stored, if an option asks for one."""
    decodes = config.verify == "decode"
    if not config.reject_quality:
        return check_decodes if decodes else None

    def check(image: StoredImage, mask: bytes | None, schema: Schema) -> None:
        check_quality(image_shape(image), config.reject_quality)
        if decodes:
            check_decodes(image, mask, schema)

    return check


def initialize(plan: Plan, checkpoints: Checkpoints, config: ConvertConfig) -> str:
    """Deletes finished shards that are not planned; returns the settings fingerprint of all shards.

    Args:
        plan: the splits and the resolved schema.
        checkpoints: the checkpoints of finished shards.
        config: the settings.
    """
    checkpoints.keep(
        {
            layout.shard_name(config.name, split, index, count, config.compression)
            for split, count in plan.shards.items()
            for index in range(count)
        }
    )
    # Create the folders only now, because deleting files also deletes empty folders.
    make_folders(checkpoints.dataset, layout.STAGING, layout.RECORDS)
    make_folders(checkpoints.directory)
    return settings_fingerprint(config, plan.resolved, versions())


class _WriteShard(beam.DoFn):
    """Writes one shard per element; holds its references and a window of images in memory."""

    def __init__(
        self,
        sink: FileBasedSink,
        checkpoints: Checkpoints,
        config: ConvertConfig,
        base: Base | None,
    ) -> None:
        self._sink = sink
        self._checkpoints = checkpoints
        self._config = config
        self._base = base
        self._guard = ImageRootGuard(config.guard)
        self._shared = Shared()

    def setup(self) -> None:
        self._pools = self._shared.acquire(Pools)

    def process(
        self,
        element: tuple[ShardId, Iterable[OrderedRefs]],
        settings: str,
        plan: Plan,
    ) -> Iterator[tuple[WrittenShard, Plan] | TaggedOutput]:
        shard, rows = element  # ((split, shard), [[(order, ImageRef)]])
        files = ShardFiles.planned(self._checkpoints.dataset, self._config, plan, *shard)
        old = KeptShard.of(self._base, *shard)
        assigned = chain.from_iterable(rows)
        refs, duplicates = arrange_shard(
            old.take_removals(assigned) if old else assigned, plan.resolved
        )
        settings = old.fingerprint(settings) if old else settings
        for reject in duplicates:
            yield rejected(replace(reject, split=shard[0]))
        checkpoint = self._checkpoints.read(files.file)
        # Version tags of remote files cost one request each, so they are requested only if a
        # checkpoint or base shard may match. Otherwise reading the images yields them for free.
        may_match = bool(checkpoint or (self._base and not old))
        tags = file_version_tags(refs, self._guard, remote=may_match)
        fingerprint = _fingerprint(settings, shard, refs, plan, tags)
        if checkpoint and fingerprint and is_reusable(checkpoint, fingerprint.digest, files):
            advance("written", checkpoint.shard.converted)
            for reject in checkpoint.rejects(refs):
                advance("rejected")
                yield rejected(reject)
            yield replace(checkpoint.shard, reused=True, timeline=Timeline()), plan
            return
        if checkpoint:  # before its files are replaced, so that it never describes others
            self._checkpoints.delete(files.file)
        replaced = checkpoint.versions if checkpoint else (None, None)
        if old and not refs and not old.removed:
            yield old.link(files, replaced), plan
            return
        if fingerprint and (linked := self._linked(fingerprint, files, replaced)):
            advance("written", linked.converted)
            yield linked, plan
            return
        hashed = self._config.near_duplicates != "none"
        writer = ShardWriter(self._sink, files, plan, old.entry if old else None, hashed)
        seen = dict(tags)
        built = build_records(refs, plan, self._config, self._pools, seen, self._guard)
        for reject in writer.write(old.merged(built) if old else built):
            yield rejected(reject)
        if seen != tags:  # reading has added version tags
            fingerprint = _fingerprint(settings, shard, refs, plan, seen)
        yield self._finished(writer, writer.close(replaced), files, fingerprint), plan

    def _linked(
        self, fingerprint: Fingerprint, files: ShardFiles, replaced: Sequence[Version | None]
    ) -> WrittenShard | None:
        """Returns the identical shard of the base version, linked; None if the base has none."""
        if self._base is None:
            return None
        split, index = fingerprint.split, fingerprint.index
        entry = self._base.reusable_shard(split, index, fingerprint.digest)
        return link_shard(self._base, entry, files, fingerprint, replaced) if entry else None

    def _finished(
        self,
        writer: ShardWriter,
        written: WrittenShard,
        files: ShardFiles,
        fingerprint: Fingerprint | None,
    ) -> WrittenShard:
        """Returns a newly written shard with its fingerprint, after writing its checkpoint.

        Args:
            writer: the closed writer of the shard.
            written: the shard.
            files: its files.
            fingerprint: the fingerprint of its inputs; None if a version tag is unknown.
        """
        if fingerprint is None:
            return written
        faults = writer.faults
        shard = replace(written, fingerprint=fingerprint.without(faults))
        # A checkpoint that is written after another attempt has published would stay forever.
        marker = layout.join(self._checkpoints.dataset, layout.SUCCESS)
        is_published = writer.is_late and exists(marker)
        # After a transient fault (a timeout, say) the next run must try the image again.
        if not is_published and not any(fault.is_transient for fault in faults):
            checkpoint = Checkpoint(
                fingerprint=fingerprint.digest,
                shard=shard,
                sizes=writer.sizes,
                versions=writer.versions,
                faults=tuple(faults),
            )
            self._checkpoints.write(checkpoint, files.file)
        return shard


def _fingerprint(
    settings: str, shard: ShardId, refs: list[ImageRef], plan: Plan, versions: VersionTags
) -> Fingerprint | None:
    """Returns the fingerprint of a shard; None if the version tag of an image is unknown."""
    tags = ref_version_tags(refs, versions)
    if tags is None:
        return None
    return Fingerprint(settings, *shard, list(zip(refs, tags, strict=True)), plan.resolved)


# The counts of a planned shard, the number of its remote images, and its first references.
ShardForecast: TypeAlias = tuple[ShardCounts, int, Sequence[ImageRef]]


@dataclass(eq=False)
class ForecastShards(beam.PTransform):
    """Forecasts each shard for a dry run: PCollection[AssignedRows] → Outcome(ShardForecast).

    Attributes:
        plan: the number of shards, and the resolved schema.
        sample: the number of references to keep, over all shards, for building examples.
    """

    plan: PCollection[Plan]
    sample: int

    def expand(self, rows: PCollection[AssignedRows]) -> Outcome:
        """Adds the same grouping by shard as `WriteShards`, which brings duplicate keys together.

        Returns:
            One forecast per shard that has rows, and the rejects of duplicate keys.
        """
        found = (
            rows
            | "GroupByShard" >> beam.GroupByKey()  # ((split, shard), [[(order, ImageRef)]])
            | "Forecast"
            >> beam.FlatMap(forecast, AsSingleton(self.plan), self.sample).with_outputs(
                REJECTS, main="shards"
            )
        )
        return Outcome(found.shards, found[REJECTS])


def forecast(
    element: tuple[ShardId, Iterable[OrderedRefs]], plan: Plan, sample: int
) -> Iterator[ShardForecast | TaggedOutput]:
    """Yields the forecast of a shard and the rejects of its duplicate keys.

    Args:
        element: ((split, shard), [[(order, ImageRef)]]).
        plan: the number of shards, and the resolved schema.
        sample: the number of references to keep, over all shards.
    """
    (split, index), rows = element
    refs, duplicates = arrange_shard(chain.from_iterable(rows), plan.resolved)
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
