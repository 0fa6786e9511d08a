"""Reconciles the counts of all stages: the books, and everything that does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from recordmill.schemas.dataset_info import (
    Books,
    DatasetInfo,
    Problem,
    ShardAudit,
    ShardInfo,
    SplitBooks,
)
from recordmill.schemas.plan import Plan
from recordmill.schemas.tallies import ImageTally, Timeline


def reconcile(
    plan: Plan,
    rows: int,
    unread: int,
    placed: Mapping[str, int],
    rejects: Mapping[tuple[str, str], int],
    written: Iterable[ShardInfo],
    audits: Iterable[ShardAudit],
    dropped: Mapping[str, int] = MappingProxyType({}),
    asides: Mapping[str, int] | None = None,
) -> DatasetInfo:
    """Returns what is known of a written dataset, and whatever speaks against publishing it.

    Args:
        plan: what it was written by.
        rows: rows of all tables that could be read.
        unread: rows of all tables that could not.
        placed: split to rows placed in it.
        rejects: (split, reason) to number; the split is "" for rows that were never placed.
        written: the shards as their writers know them.
        audits: the shards as TensorFlow re-read them.
        dropped: split to rows that were dropped for their image.
        asides: what the sources hold beside rows, to how many.
    """
    infos = list(written)
    shards = tuple(sorted(audits, key=lambda audit: (audit.split, audit.index)))
    count = partial(keep_books, rows + unread, placed, rejects, dropped=dropped)
    books = count(shards)
    problems = _problems(plan, rows, infos, shards, books, count(infos))
    return DatasetInfo(
        plan=plan,
        books=books,
        shards=shards,
        images=_treatments(infos),
        problems=problems,
        reused=sum(info.reused for info in infos),
        linked=sum(info.linked for info in infos),
        treatments={(info.split, info.index): info.images for info in infos},
        fingerprints=_fingerprints(infos, shards),
        asides={what: count for what, count in sorted((asides or {}).items()) if count},
        shapes=ImageTally.sum_of(info.shapes for info in infos),
        timeline=Timeline.sum_of(info.timeline for info in infos),
    )


def _problems(
    plan: Plan,
    rows: int,
    infos: list[ShardInfo],
    shards: Sequence[ShardAudit],
    books: Books,
    by_writers: Books,
) -> tuple[Problem, ...]:
    """Returns all problems, damaged records first, and none that only follows from another.

    Of a damaged shard not all records are counted: what its writer counted decides whether rows
    are missing beside that.
    """
    damage = [
        *(problem for shard in shards for problem in shard.problems),
        *_shard_differences(plan, infos, shards),
    ]
    explained = bool(damage) and by_writers.balanced
    unmatched = [] if books.balanced or explained else [Problem("row counts", mismatch(books))]
    return *damage, *_changed_table(plan, rows), *unmatched


def _fingerprints(infos: Iterable[ShardInfo], shards: Iterable[ShardAudit]) -> dict[str, str]:
    """Returns file to the fingerprint of what it was made from, for shards that have one."""
    marks = {(info.split, info.index): info.fingerprint for info in infos if info.fingerprint}
    found = {shard.file: marks.get((shard.split, shard.index), "") for shard in shards}
    return {file: mark for file, mark in found.items() if mark}


def _treatments(infos: Iterable[ShardInfo]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for info in infos:
        total.update(info.images)
    return dict(sorted(total.items()))


def keep_books(
    rows_read: int,
    placed: Mapping[str, int],
    rejects: Mapping[tuple[str, str], int],
    shards: Iterable[ShardAudit | ShardInfo],
    dropped: Mapping[str, int] = MappingProxyType({}),
) -> Books:
    """Returns where all rows went; records, and frames, count as written when re-read."""
    written: dict[str, int] = {}
    frames: dict[str, int] = {}
    for shard in shards:
        written[shard.split] = written.get(shard.split, 0) + shard.records
        if shard.frames is not None:
            frames[shard.split] = frames.get(shard.split, 0) + shard.frames
    rejected: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for (split, reason), count in rejects.items():
        rejected[split] = rejected.get(split, 0) + count
        reasons[reason] = reasons.get(reason, 0) + count
    splits = {
        split: SplitBooks(
            rows=placed.get(split, 0),
            written=written.get(split, 0),
            rejected=rejected.get(split, 0),
            duplicates=dropped.get(split, 0),
            frames=frames.get(split),
        )
        for split in sorted({*placed, *written, *rejected, *dropped} - {""})
    }
    return Books(rows_read, rejected.get("", 0), splits, dict(sorted(reasons.items())))


def _shard_differences(
    plan: Plan, written: list[ShardInfo], audits: Iterable[ShardAudit]
) -> Iterator[Problem]:
    """Yields where a shard on disk is not what its writer wrote, or is missing altogether."""
    infos = {(info.split, info.index): info for info in written}
    planned = {(split, i) for split, count in plan.shards.items() for i in range(count)}
    audited = {(audit.split, audit.index): audit for audit in audits}
    for split, index in sorted(planned ^ audited.keys() | planned ^ infos.keys()):
        yield Problem(split, f"shard {index} was not both written and verified exactly as planned")
    for place in sorted(infos.keys() & audited.keys()):
        if not audited[place].problems:  # else its other counts follow from those
            yield from compare_shard(infos[place], audited[place])


def compare_shard(info: ShardInfo, audit: ShardAudit) -> Iterator[Problem]:
    """Yields every difference between a shard as written and as read."""
    for what in ("records", "frames", "payload", "crc32c"):
        wrote, read = getattr(info, what), getattr(audit, what)
        if wrote != read:
            yield Problem(audit.file, f"{what}: wrote {wrote}, re-read {read}")
    if info.index_crc32c != audit.index_crc32c:
        wrote, read = info.index_crc32c, audit.index_crc32c
        yield Problem(audit.index_file, f"crc32c: wrote {wrote}, re-read {read}")
    if info.classes != audit.classes:
        yield Problem(audit.file, "the classes of its records are not those that were written")


def _changed_table(plan: Plan, rows: int) -> Iterator[Problem]:
    if plan.rows != rows:
        what = f"the survey counted {plan.rows} rows, the conversion {rows}"
        yield Problem("input", f"{what}: a table changed while it was read; run again")


def mismatch(books: Books) -> str:
    """Returns which row counts do not match, in words."""
    placed = sum(split.rows for split in books.splits.values())
    reasons = sum(books.reasons.values())
    found = [
        f"split {name!r}: {split.rows} rows placed, {split.converted} converted, "
        f"{split.rejected} rejected, {split.duplicates} dropped"
        for name, split in books.splits.items()
        if not split.balanced
    ]
    if books.rows_read != placed + books.unplaced:
        before = f"{books.unplaced} rejected before"
        found.append(f"{books.rows_read} rows read, {placed} placed in splits, {before}")
    if books.rejected != reasons:
        found.append(f"{books.rejected} rows rejected, {reasons} of them with a reason")
    return f"do not match: {'; '.join(found)}"
