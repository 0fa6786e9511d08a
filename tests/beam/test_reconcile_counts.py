"""ReconcileCounts: the counts of every step, and their mismatches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset_info import DatasetInfo, Problem, ShardVerification
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.row_counts import RowCounts, SplitCounts, mismatches
from recordmill.schemas.statistics import (
    Duplicate,
    DuplicateStats,
    GroupLeakage,
    ImageFindings,
    SplitTally,
)
from recordmill.transforms.reconcile_counts import ReconcileCounts
from tests.beam.direct import direct_pipeline, plan

PLAN = plan(6, test=1, train=2)
ROW = "a row"


def tally(records: int) -> SplitTally:
    return SplitTally(records=records, classes={"label": Counter({0: records})})


def verified(split: str, index: int, records: int, **images: int) -> ShardVerification:
    entry = ShardEntry(
        file=f"birds-{split}-{index}",
        records=records,
        payload=100 * records,
        bytes=116 * records,
        sha256="aa",
        crc32c=11,
        index_file=f"records/{split}-{index}",
        index_sha256="bb",
        images=images,
    )
    return ShardVerification(split, index, entry, 22)


def counts(rows: int, records: int, rejected: int = 0, duplicates: int = 0) -> SplitCounts:
    return SplitCounts(rows=rows, records=records, rejected=rejected, duplicates=duplicates)


def reject(reason: Reason, split: str) -> Reject:
    return Reject("key", "uri", "labels.csv:2", reason, "detail", split)


def case(**changes: Any) -> dict[str, Any]:
    """Returns counts that match: six rows read, one unread; four written, three rejected."""
    unread = [reject(Reason.MALFORMED_ROW, "")]
    return {
        "rows": [[ROW] * 2, [ROW] * 4],
        "unread": unread,
        "skipped": [
            ("hidden", SkippedInput("hidden", 2, (".a", ".c"))),
            ("hidden", SkippedInput("hidden", 2, (".b", ".d"))),
        ],
        "assigned": [(("train", 0), [ROW] * 3), (("test", 0), [ROW]), (("train", 1), [ROW])],
        "rejects": [
            *unread,
            reject(Reason.UNKNOWN_LABEL, ""),
            reject(Reason.CORRUPT, "train"),
        ],
        "tallies": [("train", tally(3)), ("test", tally(1))],
        "verifications": [VERIFIED[0], VERIFIED[2], VERIFIED[1]],
        "content": [DuplicateStats(images=3), DuplicateStats(images=1, duplicates={"train": 1})],
        "dropped": [],
        "group_leaks": [GroupLeakage()],
        "findings": [ImageFindings()],
        **changes,
    }


SPLITS = {"test": counts(1, 1), "train": counts(4, 3, rejected=1)}
REASONS = {"corrupt": 1, "malformed_row": 1, "unknown_label": 1}
SKIPPED = {"hidden": 4}
COUNTS = RowCounts.of(7, SPLITS, 2, REASONS, SKIPPED)
VERIFIED = (
    verified("test", 0, 1, **{"png kept": 1, "test to png": 1}),
    verified("train", 0, 2, **{"png kept": 2, "train to png": 1}),
    verified("train", 1, 1, **{"png kept": 1, "train to png": 1}),
)


def reconciled(
    p: beam.Pipeline, given: dict[str, Any], resolved_plan: beam.PCollection | None = None
) -> beam.PCollection[DatasetInfo]:
    made = {
        name: [p | f"{name}{part}" >> beam.Create(elements[part::2]) for part in range(2)]
        for name, elements in given.items()
    }
    verifications = made.pop("verifications") | beam.Flatten()
    plans = resolved_plan or p | "plan" >> beam.Create([PLAN])
    return verifications | ReconcileCounts(plans, made)


def test_matching_counts_give_no_problem() -> None:
    with direct_pipeline() as p:
        expected = DatasetInfo(
            plan=PLAN,
            counts=COUNTS,
            splits=SPLITS,
            shards=VERIFIED,
            problems=(),
            classes={"train": {"label": {0: 3}}, "test": {"label": {0: 1}}},
            content=DuplicateStats(images=4, duplicates={"train": 1}),
            rejects=tuple(sorted(case()["rejects"], key=lambda reject: reject.reason)),
            skipped={
                "hidden": SkippedInput("hidden", 4, (".a", ".b", ".c")),
            },
        )
        assert_that(reconciled(p, case()), equal_to([expected]))


def test_a_dropped_row_is_counted_in_its_split() -> None:
    with direct_pipeline() as p:
        resolved_plan = p | "resolved_plan" >> beam.Create([replace(PLAN, rows=7)])
        changed = case(
            rows=[[ROW] * 7],
            assigned=[(("train", 0), [ROW] * 5), (("test", 0), [ROW])],
            dropped=[Duplicate("b", "b.jpg", "labels.csv:3", "train", "a")],
        )
        found = reconciled(p, changed, resolved_plan)
        counted = found | beam.Map(lambda info: (info.problems, info.counts))
        splits = {**SPLITS, "train": counts(5, 3, rejected=1, duplicates=1)}
        assert_that(counted, equal_to([((), RowCounts.of(8, splits, 2, REASONS, SKIPPED))]))


def test_mismatches_are_problems() -> None:
    """One mismatch per PCollection; the tests of `reconcile` have every kind of problem."""
    counted = "the first pass counted 6 rows, the second 5"
    splits = {**SPLITS, "train": counts(4, 3)}
    lost = "; ".join(mismatches(RowCounts.of(6, splits, 2, REASONS | {"corrupt": 0}), splits))
    changed = case(
        rows=[[ROW] * 5],
        rejects=case()["rejects"][:-1],
        verifications=[
            replace(VERIFIED[0], problems=(Problem("records/test-0", "broken"),)),
            *VERIFIED[1:],
        ],
    )
    expected = [
        Problem("records/test-0", "broken"),
        Problem("input", f"{counted}: a table changed during the run. Run again."),
        Problem("row counts", f"do not match: {lost}"),
    ]
    with direct_pipeline() as p:
        found = reconciled(p, changed) | beam.Map(lambda info: list(info.problems))
        assert_that(found, equal_to([expected]))
