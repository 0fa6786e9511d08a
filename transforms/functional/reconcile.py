"""Reconciles the counts of all stages: computes row counts, and finds mismatches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from recordmill.schemas.dataset_info import DatasetInfo, Problem, ShardVerification, WrittenShard
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.schemas.plan import Plan, RejectSum
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.row_counts import RowCounts, SplitCounts, mismatches
from recordmill.schemas.statistics import CopiedCounts, SplitTally


@dataclass(frozen=True)
class StageCounts:
    """The row counts of the stages up to the writing of shards."""

    rows: int  # rows of all tables, without those that could not be read
    unread: int
    assigned: Mapping[str, int]
    # (split, reason) to the sum of the rejects; the split is "" for rows rejected before
    # assignment.
    rejects: Mapping[tuple[str, str], RejectSum]
    # By split, what its writers counted, such as the rows that the base version has records of.
    tallies: Mapping[str, SplitTally]
    # The number of rows dropped as duplicate images, by split.
    dropped: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, SkippedInput] = field(default_factory=dict)

    def with_records(
        self, shards: Iterable[tuple[str, ShardEntry | SplitTally]], planned: Iterable[str]
    ) -> tuple[RowCounts, dict[str, SplitCounts]]:
        """Returns the row counts, in total and by split."""
        # rows = records + rejected + duplicates + unchanged holds for each split, if nothing was
        # lost. Copied records are both rows and records.
        records, frames = Counter[str](), Counter[str]()
        for split, shard in shards:
            records[split] += shard.records
            if shard.frames is not None:
                frames[split] += shard.frames
        rejected, reasons = Counter[str](), Counter[str]()
        for (split, reason), found in self.rejects.items():
            rejected[split] += found.count
            reasons[reason] += found.count
        copied = Counter({split: tally.copied.rows for split, tally in self.tallies.items()})
        unchanged = Counter({split: tally.unchanged for split, tally in self.tallies.items()})
        splits = {
            split: SplitCounts(
                rows=self.assigned.get(split, 0) + copied[split],
                records=records[split],
                rejected=rejected[split],
                duplicates=self.dropped.get(split, 0),
                unchanged=unchanged[split],
                frames=frames.get(split),
            )
            for split in sorted(
                {*planned, *self.assigned, *records, *rejected, *self.dropped} - {""}
            )
        }
        skipped = {kind: found.number for kind, found in self.skipped.items()}
        rows = self.rows + self.unread + copied.total()
        return RowCounts.of(rows, splits, rejected[""], reasons, skipped), splits


def reconcile(
    plan: Plan, stages: StageCounts, verified: Iterable[ShardVerification], base: Base | None = None
) -> DatasetInfo:
    """Returns the metadata of a written dataset, with all problems that prevent its publication."""
    shards, tallies = sorted(verified, key=lambda shard: (shard.split, shard.index)), stages.tallies
    counts, splits = found = stages.with_records(((s.split, s.entry) for s in shards), plan.shards)
    # Three independent counts must agree: the stages', the writers' and TensorFlow's.
    total = SplitTally.sum_of(tallies.values())
    by_writers, damage = stages.with_records(tallies.items(), plan.shards), [*_damage(plan, shards)]
    return DatasetInfo(
        plan=plan,
        counts=counts,
        splits=splits,
        shards=tuple(shards),
        problems=(
            *damage,
            *_changed_table(plan, stages.rows),
            *_unmatched(found, by_writers, damage),
        ),
        classes={split: _classes(tally, split, base) for split, tally in tallies.items()},
        reused=total.reused,
        linked=total.linked,
        copied=_copied(tallies, base),
        fingerprints={s.entry.file: s.fingerprint for s in shards if s.fingerprint},
        shapes=total.shapes,
        rejects=_first_rejects(stages.rejects),
        skipped=dict(sorted(stages.skipped.items())),
    )


def _unmatched(
    verified: tuple[RowCounts, Mapping[str, SplitCounts]],
    written: tuple[RowCounts, Mapping[str, SplitCounts]],
    damage: Sequence[Problem],
) -> Iterator[Problem]:
    # A damaged shard has too few verified records: report counts only if the writers' differ, too.
    wrong = "" if damage and not any(mismatches(*written)) else "; ".join(mismatches(*verified))
    if wrong:
        yield Problem("row counts", f"do not match: {wrong}")


def _copied(tallies: Mapping[str, SplitTally], base: Base | None) -> dict[str, CopiedCounts]:
    keeps_records = base is not None and base.keeps_records
    # Sorted, because engines sum the tallies of splits in any order.
    return {split: tally.copied for split, tally in sorted(tallies.items()) if keeps_records}


def _first_rejects(rejects: Mapping[tuple[str, str], RejectSum]) -> tuple[Reject, ...]:
    """Returns the first reject of each reason, in the order of the tables."""
    found: dict[str, list[Reject]] = {}
    for (_, reason), rejected in rejects.items():
        found.setdefault(reason, []).extend(rejected.examples)
    return tuple(min(found[reason]) for reason in sorted(found) if found[reason])


def _classes(tally: SplitTally, split: str, base: Base | None) -> dict[str, dict[int, int]]:
    """Returns the number of occurrences in a split by feature and class id, sorted.

    Shards that a base version keeps are not read: what the base counted is corrected by what was
    in the rewritten shards before.
    """
    entry = base.manifest.splits.get(split) if base and base.keeps_records else None
    total = {feature: Counter(counts) for feature, counts in tally.classes.items()}
    for feature, counts in (entry.classes if entry else {}).items():
        total.setdefault(feature, Counter()).update(counts)
    for feature, counts in tally.copied.base_classes.items():
        total.setdefault(feature, Counter()).subtract(counts)
    return {
        feature: {label: count for label, count in sorted(counts.items()) if count}
        for feature, counts in total.items()
    }


def _damage(plan: Plan, shards: Sequence[ShardVerification]) -> Iterator[Problem]:
    """Yields the problems of shards, and the shards that are missing or not planned."""
    for shard in shards:
        yield from shard.problems
    planned = {(split, i) for split, count in plan.shards.items() for i in range(count)}
    verified = {(shard.split, shard.index) for shard in shards}
    for split, index in sorted(planned ^ verified):
        yield Problem(split, f"shard {index} was not both written and verified exactly as planned")


def without_tally(written: WrittenShard, verified: ShardVerification) -> ShardVerification:
    """Returns the verification of a shard without what is summed, compared with its writer's."""
    return replace(
        verified,
        entry=verified.entry.model_copy(update={"images": dict(sorted(written.images.items()))}),
        # Problems make the counts differ, too.
        problems=verified.problems or tuple(_compare_shard(written, verified)),
        classes={},
        fingerprint=written.fingerprint,
    )


def tally_of(written: WrittenShard, verified: ShardVerification) -> tuple[str, SplitTally]:
    """Returns a shard's split, and its counts that are summed."""
    counts = {one.name: getattr(written, one.name) for one in fields(SplitTally)}
    counts["classes"] = {name: Counter(found) for name, found in verified.classes.items()}
    return written.split, SplitTally(**counts)


def _compare_shard(written: WrittenShard, verified: ShardVerification) -> Iterator[Problem]:
    entry = verified.entry
    for what in ("records", "frames", "payload", "crc32c"):
        wrote, read = getattr(written, what), getattr(entry, what)
        if wrote != read:
            yield Problem(entry.file, f"{what}: wrote {wrote}, re-read {read}")
    if written.index_crc32c != verified.index_crc32c:
        wrote, read = written.index_crc32c, verified.index_crc32c
        yield Problem(entry.index_file, f"crc32c: wrote {wrote}, re-read {read}")
    if not written.linked and written.classes != verified.classes:
        yield Problem(entry.file, "classes: the records' classes are not those written")


def _changed_table(plan: Plan, rows: int) -> Iterator[Problem]:
    if plan.rows != rows:
        what = f"the first pass counted {plan.rows} rows, the second {rows}"
        yield Problem("input", f"{what}: a table changed during the run. Run again.")
