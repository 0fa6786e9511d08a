"""Reconciles the counts of all stages: the row counts, and all that does not match."""

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
from recordmill.schemas.tallies import ImageTally, Timeline


@dataclass(frozen=True)
class StageCounts:
    """The rows that the stages before the writing have counted.

    Attributes:
        rows: of all tables, those that could not be read included.
        placed: split to rows placed in it.
        rejects: (split, reason) to number; the split is "" for rows that were never placed.
        dropped: split to rows that were dropped for their image.
        skipped: what the sources hold that is not a row, to how many.
    """

    rows: int
    placed: Mapping[str, int]
    rejects: Mapping[tuple[str, str], int]
    dropped: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)

    def with_records(
        self, shards: Iterable[tuple[str, ShardCounts | ShardEntry]], planned: Iterable[str]
    ) -> tuple[RowCounts, dict[str, SplitCounts]]:
        """Returns where all rows went, in all and by split.

        Args:
            shards: split and counts of each shard.
            planned: the splits of the dataset.
        """
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
    """Returns what is known of a written dataset, and all that must keep it from being published.

    Args:
        plan: what it was written by.
        rows: rows of all tables that could be read.
        unread: rows of all tables that could not.
        placed: split to rows placed in it.
        rejects: (split, reason) to number; the split is "" for rows that were never placed.
        written: the shards as their writers know them.
        verified: the shards as TensorFlow re-read them.
        dropped: split to rows that were dropped for their image.
        skipped: what the sources hold that is not a row, to how many.
    """
    by_writer = {(shard.split, shard.index): shard for shard in written}
    shards = [
        _with_images(shard, by_writer.get((shard.split, shard.index)))
        for shard in sorted(verified, key=lambda shard: (shard.split, shard.index))
    ]
    stages = StageCounts(rows + unread, placed, rejects, dropped, skipped)
    counts, splits = stages.with_records(((s.split, s.entry) for s in shards), plan.shards)
    by_writers = stages.with_records(((s.split, s) for s in by_writer.values()), plan.shards)
    damage = [*_damage(plan, by_writer, shards)]
    # Not all records of a damaged shard are counted: are rows missing beside those?
    wrong = "" if damage and not _in_words(*by_writers) else _in_words(counts, splits)
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


def _in_words(counts: RowCounts, splits: Mapping[str, SplitCounts]) -> str:
    return "; ".join(mismatches(counts, splits))


def _with_images(shard: ShardVerification, written: WrittenShard | None) -> ShardVerification:
    """Returns a shard with its image treatments, which only its writer knows."""
    images = dict(sorted(written.images.items())) if written else {}
    return replace(shard, entry=shard.entry.model_copy(update={"images": images}))


def _fingerprints(
    written: Mapping[tuple[str, int], WrittenShard], shards: Iterable[ShardVerification]
) -> dict[str, str]:
    """Returns file to the fingerprint of what it was made from, for shards that have one."""
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
    """Yields what is wrong with the shards on disk, or is not what their writers wrote."""
    for shard in shards:
        yield from shard.problems
    planned = {(split, i) for split, count in plan.shards.items() for i in range(count)}
    verified = {(shard.split, shard.index): shard for shard in shards}
    for split, index in sorted(planned ^ verified.keys() | planned ^ written.keys()):
        yield Problem(split, f"shard {index} was not both written and verified exactly as planned")
    for place in sorted(written.keys() & verified.keys()):
        if not verified[place].problems:  # else its other counts follow from those
            yield from compare_shard(written[place], verified[place])


def compare_shard(written: WrittenShard, verified: ShardVerification) -> Iterator[Problem]:
    """Yields every difference between a shard as written and as read."""
    entry = verified.entry
    for what in ("records", "frames", "payload", "crc32c"):
        wrote, read = getattr(written, what), getattr(entry, what)
        if wrote != read:
            yield Problem(entry.file, f"{what}: wrote {wrote}, re-read {read}")
    if written.index_crc32c != verified.index_crc32c:
        wrote, read = written.index_crc32c, verified.index_crc32c
        yield Problem(entry.index_file, f"crc32c: wrote {wrote}, re-read {read}")
    if written.classes != entry.classes:
        yield Problem(entry.file, "the classes of its records are not those that were written")


def _changed_table(plan: Plan, rows: int) -> Iterator[Problem]:
    if plan.rows != rows:
        what = f"the survey counted {plan.rows} rows, the conversion {rows}"
        yield Problem("input", f"{what}: a table changed while it was read; run again")
