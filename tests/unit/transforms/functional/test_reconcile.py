"""The books: whatever does not fit is found, and told with where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.dataset_info import (
    Books,
    DatasetInfo,
    Problem,
    ShardAudit,
    ShardInfo,
    SplitBooks,
)
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.transforms.functional.reconcile import compare_shard, keep_books, reconcile

SCHEMA = ResolvedSchema(Schema(features={"n": Feature(kind="int64", sources="column:n")}))
PLAN = Plan(SCHEMA, {"train": 2, "test": 1}, rows=12)


def info(split, index, records):
    return ShardInfo(
        split=split,
        index=index,
        records=records,
        payload=10 * records,
        crc32c=100 + index,
        index_crc32c=200 + index,
        classes={"l": {0: 1}},
        images={"png kept": records, f"gif to png in {split}": 1},
    )


def audit(split, index, records):
    file = f"d-{split}.tfrecord-{index}"
    records_file = f"records/{split}-{index}.parquet"
    return ShardAudit(
        split=split,
        index=index,
        file=file,
        records=records,
        payload=10 * records,
        size=26 * records,
        sha256="ab",
        crc32c=100 + index,
        index_file=records_file,
        index_sha256="cd",
        index_crc32c=200 + index,
        classes={"l": {0: 1}},
    )


def facts(**changes):
    """Returns what a run without any fault reports, with some of it changed."""
    return {
        "plan": PLAN,
        "rows": 12,
        "unread": 1,
        "placed": {"train": 8, "test": 3},
        "rejects": {("", "malformed_row"): 1, ("", "wrong_type"): 1, ("train", "corrupt"): 2},
        "written": [info("train", 1, 2), info("test", 0, 3), info("train", 0, 4)],
        "audits": [audit("train", 1, 2), audit("test", 0, 3), audit("train", 0, 4)],
        **changes,
    }


BOOKS = Books(
    rows_read=13,
    unplaced=2,
    splits={"test": SplitBooks(3, 3, 0, 0), "train": SplitBooks(8, 6, 2, 0)},
    reasons={"corrupt": 2, "malformed_row": 1, "wrong_type": 1},
)
SHARDS = (audit("test", 0, 3), audit("train", 0, 4), audit("train", 1, 2))


def test_books_that_balance():
    images = {"gif to png in test": 1, "gif to png in train": 2, "png kept": 9}
    found = reconcile(**facts())
    assert found == DatasetInfo(PLAN, BOOKS, SHARDS, images=images, problems=())
    assert list(found.images) == sorted(images)
    assert BOOKS.balanced
    assert (BOOKS.written, BOOKS.rejected) == (9, 4)


def test_an_empty_dataset_balances():
    plan = Plan(SCHEMA, {}, 0)
    expected = DatasetInfo(plan, Books(0, 0, {}, {}), (), images={}, problems=())
    assert reconcile(plan, 0, 0, {}, {}, [], []) == expected


NOT_AS_PLANNED = "was not both written and verified exactly as planned"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"rows": 11, "placed": {"train": 7, "test": 3}},
            [
                Problem(
                    "input",
                    "the survey counted 12 rows, the conversion 11: "
                    "a table changed while it was read; run again",
                ),
                "row counts",
            ],
            id="rows gone since the survey",
        ),
        pytest.param({"unread": 2}, ["row counts"], id="a row unread without a reject"),
        pytest.param(
            {"placed": {"train": 9, "test": 3}}, ["row counts"], id="a row placed and lost"
        ),
        pytest.param(
            {"placed": {"train": 7, "test": 4}},
            ["row counts"],
            id="a row in the wrong split's books",
        ),
        pytest.param({"placed": {"train": 8}}, ["row counts"], id="a split without placed rows"),
        pytest.param(
            {"rejects": {("", "malformed_row"): 2}}, ["row counts"], id="rejects that are missing"
        ),
        pytest.param(
            {"rejects": {("", "malformed_row"): 2, ("test", "corrupt"): 2}},
            ["row counts"],
            id="rejects of another split",
        ),
        pytest.param(
            {"rejects": {("", "malformed_row"): 3, ("train", "corrupt"): 2}},
            ["row counts"],
            id="a reject too many",
        ),
        pytest.param(
            {"written": [info("train", 1, 2), info("test", 0, 3)]},
            [Problem("train", f"shard 0 {NOT_AS_PLANNED}")],
            id="a shard that nobody wrote",
        ),
        pytest.param(
            {"audits": [audit("train", 1, 2), audit("train", 0, 4)]},
            [Problem("test", f"shard 0 {NOT_AS_PLANNED}")],
            id="a shard that nobody verified",
        ),
        pytest.param(
            {
                "plan": replace(PLAN, shards={"train": 2, "test": 2}),
                "written": [*facts()["written"], info("test", 1, 0)],
            },
            [Problem("test", f"shard 1 {NOT_AS_PLANNED}")],
            id="an empty shard that nobody verified",
        ),
        pytest.param(
            {
                "written": [*facts()["written"], info("train", 2, 0)],
                "audits": [*facts()["audits"], audit("train", 2, 0)],
            },
            [Problem("train", f"shard 2 {NOT_AS_PLANNED}")],
            id="a shard that nobody planned",
        ),
        pytest.param(
            {"audits": [*facts()["audits"], audit("test", 0, 3)]},
            ["row counts"],
            id="a shard verified twice",
        ),
        pytest.param(
            {"audits": [audit("train", 1, 1), *facts()["audits"][1:]]},
            [
                Problem("d-train.tfrecord-1", "records: wrote 2, re-read 1"),
                Problem("d-train.tfrecord-1", "payload: wrote 20, re-read 10"),
            ],
            id="a record lost on the way to the disk",
        ),
    ],
)
def test_every_imbalance_is_found(changes, expected):
    problems = reconcile(**facts(**changes)).problems
    assert [p.file if p.file == "row counts" else p for p in problems] == expected


BROKEN = Problem("d-train.tfrecord-0", "Invalid PNG data (key 'a.png')", 3, 77)


def damaged():
    """Returns the audits, that of the first shard ending at a damaged record."""
    ended = {"records": 3, "payload": 30, "crc32c": 5, "classes": {}, "problems": (BROKEN,)}
    return [replace(a, **ended) if a is SHARDS[1] else a for a in SHARDS]


def test_what_follows_from_a_damaged_record_is_left_out():
    assert reconcile(**facts(audits=damaged())).problems == (BROKEN,)


def test_a_damaged_record_hides_no_other_fault():
    """It comes first; a row that was lost elsewhere and another shard's damage are still found."""
    other = [replace(a, crc32c=7) if a is SHARDS[0] else a for a in damaged()]
    problems = reconcile(**facts(audits=other, placed={"train": 8, "test": 4})).problems
    assert [str(problem) for problem in problems] == [
        "d-train.tfrecord-0: record 3 at byte 77: Invalid PNG data (key 'a.png')",
        "d-test.tfrecord-0: crc32c: wrote 100, re-read 7",
        "row counts: do not match: split 'test': 4 rows placed, 3 converted, 0 rejected, "
        "0 dropped; split 'train': 8 rows placed, 5 converted, 2 rejected, 0 dropped; "
        "13 rows read, 12 placed in splits, 2 rejected before",
    ]


@given(
    rows=st.integers(0, 3),
    unread=st.integers(0, 3),
    placed=st.dictionaries(st.sampled_from(["train", "test", "x"]), st.integers(0, 9)),
    reasons=st.dictionaries(st.sampled_from(["corrupt", "timeout"]), st.integers(1, 9)),
    read=st.integers(0, 4),
    broken=st.booleans(),
)
def test_row_counts_that_do_not_match_are_stated_in_words(
    rows, unread, placed, reasons, read, broken
):
    audits = [replace(SHARDS[1], records=read, problems=(BROKEN,) if broken else ())]
    rejects = {("train", reason): count for reason, count in reasons.items()}
    found = reconcile(PLAN, rows, unread, placed, rejects, facts()["written"], audits)
    told = [str(problem) for problem in found.problems]
    assert not any(name in text for text in told for name in ("Books", "(rows", "={", "frames="))
    assert told or found.books.balanced
    assert not broken or told[0] == str(BROKEN)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"records": 5}, Problem("d-train.tfrecord-0", "records: wrote 4, re-read 5")),
        ({"payload": 41}, Problem("d-train.tfrecord-0", "payload: wrote 40, re-read 41")),
        ({"crc32c": 7}, Problem("d-train.tfrecord-0", "crc32c: wrote 100, re-read 7")),
        ({"index_crc32c": 8}, Problem("records/train-0.parquet", "crc32c: wrote 200, re-read 8")),
        (
            {"classes": {"l": {1: 1}}},
            Problem(
                "d-train.tfrecord-0", "the classes of its records are not those that were written"
            ),
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_difference_between_written_and_read_is_found(change, problem):
    assert list(compare_shard(info("train", 0, 4), replace(audit("train", 0, 4), **change))) == [
        problem
    ]


def test_a_shard_read_as_it_was_written_has_no_difference():
    assert list(compare_shard(info("train", 0, 4), audit("train", 0, 4))) == []


def test_books_count_what_was_read_again_and_not_what_was_said_to_be_written():
    books = keep_books(13, facts()["placed"], facts()["rejects"], SHARDS)
    assert books == BOOKS
    assert keep_books(13, facts()["placed"], facts()["rejects"], SHARDS[:2]).balanced is False


@pytest.mark.parametrize(
    "books",
    [
        replace(BOOKS, rows_read=14),
        replace(BOOKS, unplaced=1),
        replace(BOOKS, reasons={"corrupt": 2}),
        replace(BOOKS, splits={**BOOKS.splits, "test": SplitBooks(3, 2, 0, 0)}),
        # Two splits whose errors cancel out in the total:
        replace(BOOKS, splits={"test": SplitBooks(3, 2, 0), "train": SplitBooks(8, 7, 2)}),
    ],
    ids=["rows", "unplaced", "reasons", "one split", "two splits"],
)
def test_books_that_do_not_balance(books):
    assert not books.balanced


def test_duplicates_count_as_accounted_for():
    assert SplitBooks(rows=5, written=2, rejected=1, duplicates=2).balanced
    assert not SplitBooks(rows=5, written=2, rejected=1, duplicates=1).balanced
