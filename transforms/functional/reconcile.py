"""Reconciles the counts of all stages: computes the row counts, and detects mismatches."""

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
        rows: the number of rows of all tables, including unreadable rows.
        placed: the number of rows assigned to each split.
        rejects: the number of rejects by (split, reason), with the split "" before assignment.
        dropped: the number of rows of each split dropped as duplicate images.
        skipped: the number of skipped inputs by description.
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
            shards: the split and the counts of each shard.
            planned: the splits of the dataset.
        """
        # Invariant of each split, unless rows were lost: rows = records + rejected + duplicates.
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
        rows: the number of readable rows of all tables.
        unread: the number of unreadable rows of all tables.
        placed: the number of rows assigned to each split.
        rejects: the number of rejects by (split, reason), with the split "" before assignment.
        written: the shards as counted by their writers.
        verified: the shards as re-read by the verifier.
        dropped: the number of rows of each split dropped as duplicate images.
        skipped: the number of skipped inputs by description.
    """
    by_writer = {(shard.split, shard.index): shard for shard in written}
    shards = [
        _with_images(shard, by_writer.get((shard.split, shard.index)))
        for shard in sorted(verified, key=lambda shard: (shard.split, shard.index))
    ]
    stages = StageCounts(rows + unread, placed, rejects, dropped, skipped)
    counts, splits = stages.with_records(((s.split, s.entry) for s in shards), plan.shards)
    by_writers = stages.with_records(((s.split, s) for s in by_writer.values()), plan.shards)
    # Three independent counts must agree: those of the stages, the writers and the verifier.
    damage = [*_damage(plan, by_writer, shards)]
    # In a damaged shard, fewer records can be verified than were written. So if there is damage, a
    # mismatch is reported only if the counts of the writers do not agree either.
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
    """Adds the image treatments, which only the writer counts, to a verified shard."""
    images = dict(sorted(written.images.items())) if written else {}
    return replace(shard, entry=shard.entry.model_copy(update={"images": images}))


def _fingerprints(
    written: Mapping[tuple[str, int], WrittenShard], shards: Iterable[ShardVerification]
) -> dict[str, str]:
    """Returns the fingerprints of shards that have one, by file."""
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
    """Yields the problems of shards, and their differences from the shards as written."""
    for shard in shards:
        yield from shard.problems
    planned = {(split, i) for split, count in plan.shards.items() for i in range(count)}
    verified = {(shard.split, shard.index): shard for shard in shards}
    # Symmetric differences: shards that were planned, written or verified, but not all three.
    for split, index in sorted(planned ^ verified.keys() | planned ^ written.keys()):
        yield Problem(split, f"shard {index} was not both written and verified exactly as planned")
    for shard_id in sorted(written.keys() & verified.keys()):
        # In a shard with problems, the counts differ as a consequence.
        if not verified[shard_id].problems:
            yield from compare_shard(written[shard_id], verified[shard_id])


def compare_shard(written: WrittenShard, verified: ShardVerification) -> Iterator[Problem]:
    """Yields the differences between a shard as written and as re-read.

    Args:
        written: the shard as counted by its writer.
        verified: the shard as re-read by the verifier.
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
        yield Problem(entry.file, "classes: the re-read counts differ from the written counts")


def _changed_table(plan: Plan, rows: int) -> Iterator[Problem]:
    if plan.rows != rows:
        what = f"the first pass counted {plan.rows} rows, the second {rows}"
        yield Problem("input", f"{what}; a table changed during the run. Run again")
