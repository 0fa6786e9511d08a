"""Reconciles the counts of all stages: computes row counts, and finds mismatches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from recordmill.schemas.dataset_info import (
    DatasetInfo,
    Problem,
    ShardVerification,
    WrittenShard,
)
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import Plan
from recordmill.schemas.row_counts import RowCounts, ShardCounts, SplitCounts, mismatches
from recordmill.schemas.statistics import ImageTally, Timeline


@dataclass(frozen=True)
class StageCounts:
    """The row counts of the stages before shards are written.

    Attributes:
        rows: rows of all tables, including those that could not be read.
        placed: split to rows assigned to it.
        rejects: (split, reason) to number; the split is "" for rows rejected before assignment.
        dropped: split to rows dropped as duplicate images.
        skipped: description of skipped inputs to their number.
    """

    rows: int
    placed: Mapping[str, int]
    rejects: Mapping[tuple[str, str], int]
    dropped: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)

    def with_records(
        self, shards: Iterable[tuple[str, ShardCounts | ShardEntry]], planned: Iterable[str]
    ) -> tuple[RowCounts, dict[str, SplitCounts]]:
        """Returns the row counts, in total and by split.

        Args:
            shards: split and counts of each shard.
            planned: the splits of the dataset.
        """
        # rows = records + rejected + duplicates holds for each split, if nothing was lost.
        records, frames = Counter[str](), Counter[str]()
        for split, shard in shards:
            records[split] += shard.records
            if shard.frames is not None:
                frames[split] += shard.frames
        rejected, reasons = Counter[str](), Counter[str]()
        for (split, reason), count in self.rejects.items():
            rejected[split] += count
            reasons[reason] += count
        splits = {
            split: SplitCounts(
                rows=self.placed.get(split, 0),
                records=records[split],
                rejected=rejected[split],
                duplicates=self.dropped.get(split, 0),
                frames=frames.get(split),
            )
            for split in sorted({*planned, *self.placed, *records, *rejected, *self.dropped} - {""})
        }
        skipped = {what: count for what, count in self.skipped.items() if count}
        return RowCounts.of(self.rows, splits, rejected[""], reasons, skipped), splits


def reconcile(
    plan: Plan,
    rows: int,
    unread: int,
    placed: Mapping[str, int],
    rejects: Mapping[tuple[str, str], int],
    written: Iterable[WrittenShard],
    verified: Iterable[ShardVerification],
    dropped: Mapping[str, int] = MappingProxyType({}),
    skipped: Mapping[str, int] = MappingProxyType({}),
) -> DatasetInfo:
    """Returns the metadata of a written dataset, with all problems that prevent its publication.

    Args:
        plan: the plan of the run.
        rows: rows of all tables that could be read.
        unread: rows of all tables that could not be read.
        placed: split to rows assigned to it.
        rejects: (split, reason) to number; the split is "" for rows rejected before assignment.
        written: the shards as written.
        verified: the shards as re-read by TensorFlow.
        dropped: split to rows dropped as duplicate images.
        skipped: description of skipped inputs to their number.
    """
    by_writer = {(shard.split, shard.index): shard for shard in written}
    shards = [
        _with_images(shard, by_writer.get((shard.split, shard.index)))
        for shard in sorted(verified, key=lambda shard: (shard.split, shard.index))
    ]
    stages = StageCounts(rows + unread, placed, rejects, dropped, skipped)
    counts, splits = stages.with_records(((s.split, s.entry) for s in shards), plan.shards)
    by_writers = stages.with_records(((s.split, s) for s in by_writer.values()), plan.shards)
    # Three independent counts must agree: the stages', the writers' and TensorFlow's.
    damage = [*_damage(plan, by_writer, shards)]
    # A damaged shard has too few verified records: report counts only if the writers' differ, too.
    wrong = "" if damage and not _mismatch(*by_writers) else _mismatch(counts, splits)
    unmatched = [Problem("row counts", f"do not match: {wrong}")] if wrong else []
    return DatasetInfo(
        plan=plan,
        counts=counts,
        splits=splits,
        shards=tuple(shards),
        images=_treatments(by_writer.values()),
        problems=(*damage, *_changed_table(plan, rows), *unmatched),
        reused=sum(shard.reused for shard in by_writer.values()),
        linked=sum(shard.linked for shard in by_writer.values()),
        fingerprints=_fingerprints(by_writer, shards),
        shapes=ImageTally.sum_of(shard.shapes for shard in by_writer.values()),
        timeline=Timeline.sum_of(shard.timeline for shard in by_writer.values()),
    )


def _mismatch(counts: RowCounts, splits: Mapping[str, SplitCounts]) -> str:
    return "; ".join(mismatches(counts, splits))


def _with_images(shard: ShardVerification, written: WrittenShard | None) -> ShardVerification:
    """Returns a verified shard with its image treatments, which only the writer counts."""
    images = dict(sorted(written.images.items())) if written else {}
    return replace(shard, entry=shard.entry.model_copy(update={"images": images}))


def _fingerprints(
    written: Mapping[tuple[str, int], WrittenShard], shards: Iterable[ShardVerification]
) -> dict[str, str]:
    """Returns file to fingerprint, for shards that have one."""
    found = {shard.entry.file: written.get((shard.split, shard.index)) for shard in shards}
    return {file: own.fingerprint for file, own in found.items() if own and own.fingerprint}


def _treatments(written: Iterable[WrittenShard]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for shard in written:
        total.update(shard.images)
    return dict(sorted(total.items()))


def _damage(
    plan: Plan,
    written: Mapping[tuple[str, int], WrittenShard],
    shards: Sequence[ShardVerification],
) -> Iterator[Problem]:
    """Yields damage of the shards on disk, and differences from what was written."""
    for shard in shards:
        yield from shard.problems
    planned = {(split, i) for split, count in plan.shards.items() for i in range(count)}
    verified = {(shard.split, shard.index): shard for shard in shards}
    # Symmetric differences: shards that were planned, written or verified, but not all three.
    for split, index in sorted(planned ^ verified.keys() | planned ^ written.keys()):
        yield Problem(split, f"shard {index} was not both written and verified exactly as planned")
    for shard_id in sorted(written.keys() & verified.keys()):
        if not verified[shard_id].problems:  # problems make the counts differ, too
            yield from compare_shard(written[shard_id], verified[shard_id])


def compare_shard(written: WrittenShard, verified: ShardVerification) -> Iterator[Problem]:
    """Yields every difference between a shard as written and as re-read.

    Args:
        written: the shard as written.
        verified: the shard as re-read.
    """
    entry = verified.entry
    for what in ("records", "frames", "payload", "crc32c"):
        wrote, read = getattr(written, what), getattr(entry, what)
        if wrote != read:
            yield Problem(entry.file, f"{what}: wrote {wrote}, re-read {read}")
    if written.index_crc32c != verified.index_crc32c:
        wrote, read = written.index_crc32c, verified.index_crc32c
        yield Problem(entry.index_file, f"crc32c: wrote {wrote}, re-read {read}")
    if written.classes != entry.classes:
        yield Problem(entry.file, "classes: the records' classes are not those written")


def _changed_table(plan: Plan, rows: int) -> Iterator[Problem]:
    if plan.rows != rows:
        what = f"the first pass counted {plan.rows} rows, the second {rows}"
        yield Problem("input", f"{what}: a table changed during the run; run again")
