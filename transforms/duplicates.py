"""Detects duplicate images and leaking groups, and drops duplicate images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.statistics import Conflicts, Duplicate, DuplicateStats, GroupLeakage
from recordmill.transforms.assign_shards import AssignedRow
from recordmill.transforms.elements import displayed
from recordmill.transforms.functional.duplicates import (
    Tally,
    distinct_splits,
    duplicate_stats,
    group_leakage,
    label_text,
    merge,
    merge_duplicate_stats,
    merge_group_leaks,
    num_buckets,
    split_by_bucket,
    tally_shard,
    with_dropped_row,
)
from recordmill.transforms.functional.records.index import row_class
from recordmill.transforms.reconcile_counts import WriteLines
from recordmill.transforms.shards.build_examples import new_executor
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.local_files import UNRESTRICTED, ImageRootGuard


@dataclass(eq=False)
class FindDuplicateImages(beam.PTransform):
    """Compares all images: PCollection[WrittenShard] → PCollection[DuplicateStats], one element.

    The shuffle carries digests and keys, about a hundred bytes per image. They are read from the
    indexes of the shards, so shards reused from an earlier run are included without re-reading.

    Attributes:
        directory: the dataset's folder.
        plan: the number of shards and rows.
    """

    directory: str
    plan: PCollection[Plan]

    def expand(self, shards: PCollection[WrittenShard]) -> PCollection[DuplicateStats]:
        """Adds the comparison; images are compared in buckets that fit in memory."""
        return (
            shards
            | "ReadDigests"
            >> beam.FlatMap(_read, self.directory, AsSingleton(self.plan)).with_output_types(
                tuple[int, Tally]
            )
            | "GroupByBucket" >> beam.GroupByKey()  # (bucket, [Tally]), one tally per shard
            | "DuplicatesOfBucket" >> beam.Map(_duplicates_of_bucket)
            | "CombineDuplicates" >> beam.CombineGlobally(merge_duplicate_stats)
        )


def shard_tally(path: str, split: str) -> Tally:
    """Returns the tally of a shard's images, read from the index of its records.

    Args:
        path: the index file.
        split: the shard's split.
    """
    table = read_index(path, ["key", "sha256", "class"])
    keys, digests, labels = (table[name].to_pylist() for name in ("key", "sha256", "class"))
    return tally_shard(
        split,
        (
            (key, digest, label_text(label))
            for key, digest, label in zip(keys, digests, labels, strict=True)
            if digest
        ),
    )


def _read(info: WrittenShard, directory: str, plan: Plan) -> Iterator[tuple[int, Tally]]:
    if plan.resolved.schema.has_image:
        name = layout.records_name(info.split, info.index, plan.shards[info.split])
        tally = shard_tally(layout.join(directory, name), info.split)
        yield from split_by_bucket(tally, num_buckets(plan.rows)).items()


def _duplicates_of_bucket(bucket: tuple[int, Iterable[Tally]]) -> DuplicateStats:
    total: Tally = {}
    for tally in bucket[1]:
        merge(total, tally)
    return duplicate_stats(total)


@dataclass(eq=False)
class FindGroupLeaks(beam.PTransform):
    """Compares all groups: PCollection[AssignedRow] → PCollection[GroupLeakage], one element.

    Attributes:
        groups_may_span_splits: whether rows of one group can be in different splits, because a
            column or the base version decides the split of some.
    """

    groups_may_span_splits: bool

    def expand(self, rows: PCollection[AssignedRow]) -> PCollection[GroupLeakage]:
        """Adds the comparison where groups may span splits; shuffles group and split names."""
        if not self.groups_may_span_splits:
            return rows.pipeline | "NoGroupLeaks" >> beam.Create([GroupLeakage()])
        return (
            rows
            | "SplitOfGroup"
            >> beam.FlatMap(split_of_group).with_output_types(tuple[str, tuple[str, ...]])
            | "SplitsByGroup" >> beam.CombinePerKey(distinct_splits)  # (group, splits)
            | "LeaksOfGroup" >> beam.FlatMapTuple(group_leakage)
            | "CombineGroupLeaks" >> beam.CombineGlobally(merge_group_leaks)
        )


def split_of_group(row: AssignedRow) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields a row's group and split; nothing for a row without a group."""
    (split, _), (_, ref) = row
    if ref.group:
        yield ref.group, (split,)


_DUPLICATES = "duplicates"
_CONFLICTS = "conflicts"

# References whose images are read concurrently, as one batch.
_BATCH_REFS = 256


class Deduplicated(NamedTuple):
    """The rows that are kept and the duplicates that are dropped.

    Attributes:
        rows: the kept rows, as they were assigned.
        duplicates: the dropped rows.
        stats: the label conflicts of images of which rows were dropped.
        files: the path of the file that lists the duplicates.
    """

    rows: PCollection[AssignedRow]
    duplicates: PCollection[Duplicate]
    stats: PCollection[DuplicateStats]
    files: PCollection[str]


@dataclass(eq=False)
class DropDuplicates(beam.PTransform):
    """Keeps one row of each image: PCollection[AssignedRow] → Deduplicated.

    The row with the smallest key is kept, whatever its split. Two images are duplicates if their
    files have the same bytes, so every image is read once for its digest. Rows whose image cannot
    be read are kept here and rejected when their shard is written.

    Attributes:
        config: `deduplicate`, and the image root guard.
        directory: the dataset's folder.
        plan: the resolved schema, for comparing labels.
        base: the base version, whose rows take precedence over new ones; None if there is none.
        staged: whether embedded images are written to staging files by the read. A staging file
            is complete when its bundle is, so digests are computed after all rows are assigned.
    """

    config: ConvertConfig
    directory: str
    plan: PCollection[Plan]
    base: Base | None = None
    staged: bool = False

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(self.config, "deduplicate")

    def expand(self, rows: PCollection[AssignedRow]) -> Deduplicated:
        """Adds the digests and a shuffle of references by digest, if `deduplicate` is set."""
        if self.config.deduplicate == "none":
            nothing = rows.pipeline | "NoDuplicates" >> beam.Create([])
            return Deduplicated(rows, nothing, nothing, nothing)
        barrier = []
        if self.staged:  # a side input is ready only when its whole PCollection is
            barrier = [AsSingleton(rows | "CountAssigned" >> beam.combiners.Count.Globally())]
        dropping = (
            rows
            | "BatchRows" >> beam.BatchElements(min_batch_size=1, max_batch_size=_BATCH_REFS)
            | "DigestImages"
            >> beam.ParDo(
                _DigestImages(ImageRootGuard(self.config.guard)), *barrier
            ).with_output_types(tuple[bytes, AssignedRow])
            | "GroupByDigest" >> beam.GroupByKey()  # (digest, [AssignedRow])
            | "KeepFirst"
            >> beam.FlatMap(_keep_first, AsSingleton(self.plan), self.base).with_outputs(
                _DUPLICATES, _CONFLICTS, main="rows"
            )
        )
        # A tagged output has no type of its own; with one, the shuffle uses the references' coder.
        kept: PCollection[AssignedRow] = dropping.rows | "Kept" >> beam.Map(
            _same
        ).with_output_types(AssignedRow)
        stats = (
            dropping[_CONFLICTS]
            | "StatsOfConflicts" >> beam.Map(_conflict_stats)
            | "CombineConflicts" >> beam.CombineGlobally(merge_duplicate_stats)
        )
        files = dropping[_DUPLICATES] | "WriteDropped" >> WriteLines(self.directory, layout.DROPPED)
        return Deduplicated(kept, dropping[_DUPLICATES], stats, files)


def digest_of(ref: ImageRef, guard: ImageRootGuard = UNRESTRICTED) -> bytes:
    """Returns the SHA-256 of a reference's image; a unique value for an unreadable image.

    Args:
        ref: the reference.
        guard: confines reads to the image root.
    """
    try:
        if not ref.staged:
            guard.check(ref.uri)
        return hashlib.sha256(read_bytes(ref.uri, ref.start, ref.stop)).digest()
    except RecordError:
        return repr((ref.key, ref.source)).encode("utf-8", "backslashreplace")


class _DigestImages(beam.DoFn):
    def __init__(self, guard: ImageRootGuard) -> None:
        self._digest = partial(digest_of, guard=guard)
        self._shared = Shared()

    def setup(self) -> None:
        self._executor = self._shared.acquire(new_executor)

    def process(
        self, batch: list[AssignedRow], _rows: int = 0
    ) -> Iterator[tuple[bytes, AssignedRow]]:
        refs = [ref for _, (_, ref) in batch]
        return zip(self._executor.map(self._digest, refs), batch, strict=True)


def _keep_first(
    group: tuple[bytes, Iterable[AssignedRow]], plan: Plan, base: Base | None
) -> Iterator[AssignedRow | TaggedOutput]:
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
            yield row
        else:
            duplicate = _dropped_row(row, first, _label(row, plan), label)
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


def _dropped_row(row: AssignedRow, first: AssignedRow, label: str, kept_label: str) -> Duplicate:
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
    )


def _same(row: AssignedRow) -> AssignedRow:
    return row


def _conflict_stats(conflicts: Conflicts) -> DuplicateStats:
    return DuplicateStats(dropped_conflicts=conflicts)
