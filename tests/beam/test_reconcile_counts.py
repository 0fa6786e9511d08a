"""ReconcileBooks: where every row went, and what does not add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset_info import (
    Books,
    DatasetInfo,
    Problem,
    ShardAudit,
    ShardInfo,
    SplitBooks,
)
from recordmill.schemas.duplicates import Content, GroupLeaks, Repeat
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.functional.reconcile import mismatch
from recordmill.transforms.reconcile_counts import ReconcileBooks
from tests.beam.direct import direct_pipeline, plan

PLAN = plan(6, test=1, train=2)


def info(split: str, index: int, records: int) -> ShardInfo:
    classes, images = {"label": {0: records}}, {"png kept": records, f"{split} to png": 1}
    return ShardInfo(split, index, records, 100 * records, 11, 22, classes, images)


def audit(split: str, index: int, records: int) -> ShardAudit:
    file, index_file = f"birds-{split}-{index}", f"records/{split}-{index}"
    return ShardAudit(
        split=split,
        index=index,
        file=file,
        records=records,
        payload=100 * records,
        size=116 * records,
        sha256="aa",
        crc32c=11,
        index_file=index_file,
        index_sha256="bb",
        index_crc32c=22,
        classes={"label": {0: records}},
    )


def reject(reason: Reason, split: str) -> Reject:
    return Reject("key", "uri", "labels.csv:2", reason, "detail", split)


def case(**changes: Any) -> dict[str, Any]:
    """Returns books that balance: six rows read, one unread; four written, three rejected."""
    unread = [reject(Reason.MALFORMED_ROW, "")]
    return {
        "rows": [Row({}, "labels.csv", line) for line in range(6)],
        "unread": unread,
        "asides": [("hidden", 2), ("labels", 1), ("hidden", 1), ("labels", -1)],
        "placed": [("train", 4), ("test", 1)],
        "rejects": [
            *unread,
            reject(Reason.UNKNOWN_LABEL, ""),
            reject(Reason.CORRUPT, "train"),
        ],
        "written": [info("train", 0, 2), info("train", 1, 1), info("test", 0, 1)],
        "audits": [audit("test", 0, 1), audit("train", 1, 1), audit("train", 0, 2)],
        "contents": [Content(images=3), Content(images=1, duplicates={"train": 1})],
        "repeats": [],
        "group_leaks": [GroupLeaks()],
        **changes,
    }


BOOKS = Books(
    rows_read=7,
    unplaced=2,
    splits={
        "test": SplitBooks(rows=1, written=1),
        "train": SplitBooks(rows=4, written=3, rejected=1),
    },
    reasons={"corrupt": 1, "malformed_row": 1, "unknown_label": 1},
)
AUDITS = (audit("test", 0, 1), audit("train", 0, 2), audit("train", 1, 1))


def reconciled(
    p: beam.Pipeline, given: dict[str, Any], settled: beam.PCollection | None = None
) -> beam.PCollection[DatasetInfo]:
    made = {name: p | name >> beam.Create(elements) for name, elements in given.items()}
    audits = made.pop("audits")
    return audits | ReconcileBooks(plan=settled or p | "plan" >> beam.Create([PLAN]), **made)


def unbalanced(**changes: Any) -> Problem:
    """Returns the problem of row counts that do not match."""
    return Problem("row counts", mismatch(replace(BOOKS, **changes)))


def splits(**changes: SplitBooks) -> dict[str, SplitBooks]:
    return {**BOOKS.splits, **changes}


def test_books_that_balance_have_no_problem() -> None:
    with direct_pipeline() as p:
        expected = DatasetInfo(
            plan=PLAN,
            books=BOOKS,
            shards=AUDITS,
            images={"png kept": 4, "test to png": 1, "train to png": 2},
            problems=(),
            content=Content(images=4, duplicates={"train": 1}),
            asides={"hidden": 3},
        )
        assert_that(reconciled(p, case()), equal_to([expected]))


def test_a_dropped_row_is_in_the_books_of_its_split() -> None:
    with direct_pipeline() as p:
        settled = p | "settled" >> beam.Create([replace(PLAN, rows=7)])
        changed = case(
            rows=[Row({}, "labels.csv", line) for line in range(7)],
            placed=[("train", 5), ("test", 1)],
            repeats=[Repeat("b", "b.jpg", "labels.csv:3", "train", "a")],
        )
        found = reconciled(p, changed, settled) | beam.Map(lambda info: (info.problems, info.books))
        train = SplitBooks(rows=5, written=3, rejected=1, duplicates=1)
        assert_that(
            found, equal_to([((), replace(BOOKS, rows_read=8, splits=splits(train=train)))])
        )


def test_what_does_not_add_up_is_a_problem() -> None:
    """Every kind of problem is in the tests of `reconcile`; here, one of each PCollection."""
    counted = "the survey counted 6 rows, the conversion 5"
    lost = unbalanced(
        rows_read=6,
        splits=splits(train=SplitBooks(rows=4, written=3)),
        reasons={"malformed_row": 1, "unknown_label": 1},
    )
    changed = case(
        rows=case()["rows"][1:],
        rejects=case()["rejects"][:-1],
        audits=[replace(audit("test", 0, 1), index_crc32c=1), *case()["audits"][1:]],
    )
    expected = [
        Problem("records/test-0", "crc32c: wrote 22, re-read 1"),
        Problem("input", f"{counted}: a table changed while it was read; run again"),
        lost,
    ]
    with direct_pipeline() as p:
        found = reconciled(p, changed) | beam.Map(lambda info: list(info.problems))
        assert_that(found, equal_to([expected]))
