"""Detects duplicate images and leaking groups, and drops duplicate images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import ShardVerification
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.statistics import Conflicts, Duplicate, DuplicateStats, GroupLeakage
from recordmill.transforms.elements import AssignedRows, ShardId, displayed
from recordmill.transforms.functional.duplicates import (
    Tally,
    distinct_splits,
    duplicate_stats,
    group_leakage,
    label_text,
    merge,
    num_buckets,
    split_by_bucket,
    tally_shard,
    with_dropped_row,
)
from recordmill.transforms.functional.records.index import row_class
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.shards.build_examples import new_executor
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.local_files import ImageRootGuard


@dataclass(eq=False)
class FindDuplicateImages(beam.PTransform):
    """Compares all images: PCollection[ShardVerification] → PCollection[DuplicateStats], its parts.

    The shuffle carries digests and keys, about a hundred bytes per image. They are read from the
    indexes of the shards, so shards reused from an earlier run are included without re-reading.
    """

    directory: str
    plan: PCollection[Plan]

    def expand(self, shards: PCollection[ShardVerification]) -> PCollection[DuplicateStats]:
        """Adds the comparison; images are compared in buckets that fit in memory."""
        return (
            shards
            | "ReadDigests"
            >> beam.FlatMap(_read, self.directory, AsSingleton(self.plan)).with_output_types(
                tuple[int, Tally]
            )
            | "GroupByBucket" >> beam.GroupByKey()  # (bucket, [Tally]), one tally per shard
            | "DuplicatesOfBucket" >> beam.Map(_duplicates_of_bucket)  # DuplicateStats, one each
        )


def shard_tally(path: str, split: str, shard: int) -> Tally:
    """Returns the tally of a shard's images, read from the index of its records."""
    table = read_index(path, ["key", "sha256", "class"])
    keys, digests, labels = (table[name].to_pylist() for name in ("key", "sha256", "class"))
    return tally_shard(split, shard, zip(keys, digests, map(label_text, labels), strict=True))


def _read(shard: ShardVerification, directory: str, plan: Plan) -> Iterator[tuple[int, Tally]]:
    # With problems, the index may be unreadable, and the dataset is not published.
    if plan.resolved.schema.has_image and not shard.problems:
        index = layout.join(directory, shard.entry.index_file)
        tally = shard_tally(index, shard.split, shard.index)
        yield from split_by_bucket(tally, num_buckets(plan.most_records)).items()


def _duplicates_of_bucket(bucket: tuple[int, Iterable[Tally]]) -> DuplicateStats:
    total: Tally = {}
    for tally in bucket[1]:
        merge(total, tally)
    return duplicate_stats(total)


@dataclass(eq=False)
class FindGroupLeaks(beam.PTransform):
    """Compares all groups: PCollection[AssignedRows] → PCollection[GroupLeakage], to be summed."""

    def expand(self, rows: PCollection[AssignedRows]) -> PCollection[GroupLeakage]:
        """Adds the comparison, which shuffles the names of groups and splits."""
        return (
            rows
            | "SplitOfGroup"
            >> beam.FlatMap(_splits_of_groups).with_output_types(tuple[str, tuple[str, ...]])
            | "SplitsByGroup" >> beam.CombinePerKey(distinct_splits)  # (group, splits)
            | "LeaksOfGroup" >> beam.FlatMapTuple(group_leakage)  # GroupLeakage, of one group
        )


def _splits_of_groups(assigned: AssignedRows) -> Iterator[tuple[str, tuple[str, ...]]]:
    (split, _), refs = assigned
    for group in filter(None, dict.fromkeys(refs.column("group"))):
        yield group, (split,)


# A shard, and the order hash and reference of one row in it.
AssignedRow: TypeAlias = tuple[ShardId, tuple[bytes, ImageRef]]

_DUPLICATES = "duplicates"
_CONFLICTS = "conflicts"

# References whose images are read concurrently, as one batch.
_BATCH_REFS = 256


class Deduplicated(NamedTuple):
    """The rows that are kept and the duplicates that are dropped."""

    rows: PCollection[AssignedRows]
    duplicates: PCollection[Duplicate]
    stats: PCollection[DuplicateStats]  # the label conflicts of images of which rows were dropped


@dataclass(eq=False)
class DropDuplicates(beam.PTransform):
    """Keeps one row of each image: PCollection[AssignedRows] → Deduplicated.

    The row with the smallest key is kept, whatever its split. Two images are duplicates if their
    files have the same bytes, so every image is read once for its digest. Rows whose image cannot
    be read are kept here and rejected when their shard is written.
    """

    config: ConvertConfig  # `deduplicate`, and the image root guard
    plan: PCollection[Plan]  # the resolved schema, for comparing labels
    # The base version, whose rows take precedence over new ones; None if there is none.
    base: Base | None = None
    # Whether embedded images are written to staging files by the read. A staging file is complete
    # when its bundle is, so digests are computed after all rows are assigned.
    staged: bool = False

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(self.config, "deduplicate")

    def expand(self, rows: PCollection[AssignedRows]) -> Deduplicated:
        """Adds the digests and a shuffle of references by digest."""
        barrier = []
        if self.staged:  # a side input is ready only when its whole PCollection is
            count = rows | "CountAssigned" >> beam.combiners.Count.Globally().without_defaults()
            barrier = [AsSingleton(count, 0)]
        kept: Deduplicated = (
            rows
            | "SingleRows" >> beam.FlatMap(_single_rows)  # ((split, shard), (order, ImageRef))
            | "BatchRows" >> beam.BatchElements(min_batch_size=1, max_batch_size=_BATCH_REFS)
            | "DigestImages"
            >> beam.ParDo(
                _DigestImages(ImageRootGuard(self.config.guard)), *barrier
            ).with_output_types(tuple[bytes, AssignedRow])
            | "KeepOne" >> KeepOne(self.plan, self.base)
        )
        return kept


@dataclass(eq=False)
class KeepOne(beam.PTransform):
    """Keeps one row per image: PCollection[(image, AssignedRow)] → Deduplicated."""

    plan: PCollection[Plan]  # the resolved schema, for comparing labels
    # The base version, whose rows take precedence over new ones; None if there is none.
    base: Base | None = None
    reason: str = ""  # why the others are dropped, in their list; "" for identical images

    def expand(self, rows: PCollection[tuple[bytes, AssignedRow]]) -> Deduplicated:
        """Adds a shuffle of references by image."""
        kept = (
            rows
            | "GroupByImage" >> beam.GroupByKey()  # (digest or cluster, [AssignedRow])
            | "KeepFirst"
            >> beam.FlatMap(_keep_first, AsSingleton(self.plan), self.base, self.reason)
            .with_output_types(AssignedRows)  # so that the shuffle uses the references' coder
            .with_outputs(_DUPLICATES, _CONFLICTS, main="rows")
        )
        stats = kept[_CONFLICTS] | "StatsOfConflicts" >> beam.Map(_conflict_stats)
        return Deduplicated(kept.rows, kept[_DUPLICATES], stats)


def _digest_of(ref: ImageRef, guard: ImageRootGuard) -> bytes:
    """Returns the SHA-256 of a reference's image; a unique value for an unreadable image."""
    try:
        if not ref.staged:
            guard.check(ref.uri)
        return hashlib.sha256(read_bytes(ref.uri, ref.start, ref.stop)).digest()
    except RecordError:
        return repr((ref.key, ref.source)).encode("utf-8", "backslashreplace")


class _DigestImages(beam.DoFn):
    def __init__(self, guard: ImageRootGuard) -> None:
        self._digest = partial(_digest_of, guard=guard)
        self._shared = Shared()

    def setup(self) -> None:
        self._executor = self._shared.acquire(new_executor)

    def process(
        self, batch: list[AssignedRow], _rows: int = 0
    ) -> Iterator[tuple[bytes, AssignedRow]]:
        refs = [ref for _, (_, ref) in batch]
        return zip(self._executor.map(self._digest, refs), batch, strict=True)


def _keep_first(
    group: tuple[bytes, Iterable[AssignedRow]], plan: Plan, base: Base | None, reason: str
) -> Iterator[AssignedRows | TaggedOutput]:
    """Yields the row with the smallest key and the duplicates; iterates with one row in memory."""
    _, rows = group  # (digest, [AssignedRow]); the runner re-iterates rows, possibly from disk
    first = min(rows, key=lambda row: (_is_new(row, base), _name(row)))
    label = _label(first, plan)
    conflicts = Conflicts()
    kept = False
    for row in rows:
        # Dict rows have no file and line, so several rows can have the name of the first.
        if not kept and _name(row) == _name(first):
            kept = True
            shard, ordered = row
            yield shard, OrderedRefs.of([ordered])
        else:
            duplicate = _dropped_row(row, first, _label(row, plan), label, reason)
            conflicts = with_dropped_row(conflicts, duplicate)
            yield TaggedOutput(_DUPLICATES, duplicate)
    if conflicts.images:
        yield TaggedOutput(_CONFLICTS, conflicts)


def _is_new(row: AssignedRow, base: Base | None) -> bool:
    (split, index), _ = row
    return base is None or index >= len(base.shards(split))


def _name(row: AssignedRow) -> tuple[str, str, int]:
    _, (_, ref) = row
    return ref.key, ref.file, ref.line


def _label(row: AssignedRow, plan: Plan) -> str:
    _, (_, ref) = row
    return label_text(row_class(ref.values, plan.resolved))


def _dropped_row(
    row: AssignedRow, first: AssignedRow, label: str, kept_label: str, reason: str
) -> Duplicate:
    (split, _), (_, ref) = row
    _, (_, kept) = first
    differs = label != kept_label
    return Duplicate(
        key=ref.key,
        uri=ref.shown_uri,
        source=ref.source,
        split=split,
        kept=kept.key,
        label=label if differs else "",
        kept_label=kept_label if differs else "",
        reason=reason,
    )


def _single_rows(assigned: AssignedRows) -> Iterator[AssignedRow]:
    shard, refs = assigned
    for order, ref in refs:
        yield shard, (order, ref)


def _conflict_stats(conflicts: Conflicts) -> DuplicateStats:
    return DuplicateStats(dropped_conflicts=conflicts)
