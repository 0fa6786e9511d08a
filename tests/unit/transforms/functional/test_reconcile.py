"""Tests that differences between counts, and between written and re-read shards, are detected."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.dataset_info import DatasetInfo, Problem, ShardVerification, WrittenShard
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import Plan, RejectSum, ResolvedSchema
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.row_counts import RowCounts, SplitCounts, mismatches
from recordmill.schemas.statistics import SplitTally
from recordmill.transforms.functional.reconcile import (
    StageCounts,
    _compare_shard,
    _first_rejects,
    reconcile,
    tally_of,
    without_tally,
)

SCHEMA = ResolvedSchema(Schema(features={"n": Feature(kind="int64", sources="column:n")}))
PLAN = Plan(SCHEMA, {"train": 2, "test": 1}, rows=12)


def info(split, index, records):
    return WrittenShard(
        split=split,
        index=index,
        records=records,
        payload=10 * records,
        crc32c=100 + index,
        index_crc32c=200 + index,
        classes={"l": {0: 1}},
        images={"png kept": records, f"gif to png in {split}": 1},
    )


def verified(split, index, records, **images):
    entry = ShardEntry(
        file=f"d-{split}.tfrecord-{index}",
        records=records,
        payload=10 * records,
        bytes=26 * records,
        sha256="ab",
        crc32c=100 + index,
        index_file=f"records/{split}-{index}.parquet",
        index_sha256="cd",
        images=images,
    )
    return ShardVerification(split, index, entry, 200 + index, classes={"l": {0: 1}})


def changed(shard, **changes):
    """Returns the verification of a shard with changed counts."""
    of_shard = ("index_crc32c", "problems", "classes")
    own = {name: changes.pop(name) for name in of_shard if name in changes}
    return replace(shard, entry=shard.entry.model_copy(update=changes), **own)


def split(rows, records, rejected=0, duplicates=0):
    return SplitCounts(rows=rows, records=records, rejected=rejected, duplicates=duplicates)


def sums(counts):
    return {key: RejectSum(count) for key, count in counts.items()}


def counts_of_stages(**changes):
    """Returns the arguments of a run without problems, with some changes."""
    return {
        "plan": PLAN,
        "rows": 12,
        "unread": 1,
        "assigned": {"train": 8, "test": 3},
        "rejects": sums({("", "malformed_row"): 1, ("", "wrong_type"): 1, ("train", "corrupt"): 2}),
        "written": [info("train", 1, 2), info("test", 0, 3), info("train", 0, 4)],
        "verified": [verified("train", 1, 2), verified("test", 0, 3), verified("train", 0, 4)],
        **changes,
    }


def reconciled(plan, written, verified, base=None, **stages):
    """Returns what is reconciled after shards were compared and summed, as workers do."""
    by_shard = {(shard.split, shard.index): shard for shard in written}
    pairs = [(by_shard[shard.split, shard.index], shard) for shard in verified]
    tallies = {}
    for shard in written:
        found = next((v for w, v in pairs if w is shard), None)
        name, tally = tally_of(shard, found or replace(SHARDS[0], classes={}))
        tallies[name] = SplitTally.sum_of([tallies.get(name, SplitTally()), tally])
    shards = [without_tally(*pair) for pair in pairs]
    return reconcile(plan, StageCounts(**stages, tallies=tallies), shards, base)


SPLITS = {"test": split(3, 3), "train": split(8, 6, 2)}
REASONS = {"corrupt": 2, "malformed_row": 1, "wrong_type": 1}
COUNTS = RowCounts.of(13, SPLITS, unplaced=2, reasons=REASONS)
SHARDS = (verified("test", 0, 3), verified("train", 0, 4), verified("train", 1, 2))


def test_row_counts_that_match():
    shards = tuple(
        changed(s, images={f"gif to png in {s.split}": 1, "png kept": s.entry.records})
        for s in SHARDS
    )
    found = reconciled(**counts_of_stages())
    classes = {"test": {"l": {0: 1}}, "train": {"l": {0: 2}}}
    shards = tuple(replace(shard, classes={}) for shard in shards)
    assert found == DatasetInfo(PLAN, COUNTS, SPLITS, shards, problems=(), classes=classes)
    assert list(mismatches(COUNTS, SPLITS)) == []
    assert (COUNTS.records, COUNTS.rejected) == (9, 4)


def test_the_first_reject_of_each_reason_is_that_of_the_first_row():
    def rejects(reason, *lines):
        found = [Reject("", "", f"t.csv:{line}", reason, "detail") for line in lines]
        return RejectSum(9, found)

    counted = {
        ("train", "truncated"): rejects(Reason.TRUNCATED, 12, 20),
        ("test", "truncated"): rejects(Reason.TRUNCATED, 3),
        ("", "malformed_row"): rejects(Reason.MALFORMED_ROW, 100),
    }
    found = [(reject.reason, reject.source) for reject in _first_rejects(counted)]
    assert found == [(Reason.MALFORMED_ROW, "t.csv:100"), (Reason.TRUNCATED, "t.csv:3")]


def test_the_row_counts_of_an_empty_dataset_match():
    plan = Plan(SCHEMA, {}, 0)
    expected = DatasetInfo(plan, RowCounts.of(0, {}), {}, (), problems=())
    assert reconcile(plan, StageCounts(0, 0, {}, {}, {}), []) == expected


NOT_AS_PLANNED = "was not both written and verified exactly as planned"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"rows": 11, "assigned": {"train": 7, "test": 3}},
            [
                Problem(
                    "input",
                    "the first pass counted 12 rows, the second 11: "
                    "a table changed during the run. Run again.",
                ),
                "row counts",
            ],
            id="rows gone since the analyze pass",
        ),
        pytest.param({"unread": 2}, ["row counts"], id="a row unread without a reject"),
        pytest.param(
            {"assigned": {"train": 9, "test": 3}}, ["row counts"], id="a row assigned and lost"
        ),
        pytest.param(
            {"assigned": {"train": 7, "test": 4}},
            ["row counts"],
            id="a row counted in the wrong split",
        ),
        pytest.param({"assigned": {"train": 8}}, ["row counts"], id="a split without rows"),
        pytest.param(
            {"rejects": sums({("", "malformed_row"): 2})},
            ["row counts"],
            id="rejects that are missing",
        ),
        pytest.param(
            {"rejects": sums({("", "malformed_row"): 2, ("test", "corrupt"): 2})},
            ["row counts"],
            id="rejects of another split",
        ),
        pytest.param(
            {"rejects": sums({("", "malformed_row"): 3, ("train", "corrupt"): 2})},
            ["row counts"],
            id="a reject too many",
        ),
        pytest.param(
            {"verified": [verified("train", 1, 2), verified("train", 0, 4)]},
            [Problem("test", f"shard 0 {NOT_AS_PLANNED}")],
            id="a shard that nobody verified",
        ),
        pytest.param(
            {
                "plan": replace(PLAN, shards={"train": 2, "test": 2}),
                "written": [*counts_of_stages()["written"], info("test", 1, 0)],
            },
            [Problem("test", f"shard 1 {NOT_AS_PLANNED}")],
            id="an empty shard that nobody verified",
        ),
        pytest.param(
            {
                "written": [*counts_of_stages()["written"], info("train", 2, 0)],
                "verified": [*counts_of_stages()["verified"], verified("train", 2, 0)],
            },
            [Problem("train", f"shard 2 {NOT_AS_PLANNED}")],
            id="a shard that nobody planned",
        ),
        pytest.param(
            {"verified": [*counts_of_stages()["verified"], verified("test", 0, 3)]},
            ["row counts"],
            id="a shard verified twice",
        ),
        pytest.param(
            {"verified": [verified("train", 1, 1), *counts_of_stages()["verified"][1:]]},
            [
                Problem("d-train.tfrecord-1", "records: wrote 2, re-read 1"),
                Problem("d-train.tfrecord-1", "payload: wrote 20, re-read 10"),
            ],
            id="a record lost on the way to the disk",
        ),
    ],
)
def test_every_mismatch_is_detected(changes, expected):
    problems = reconciled(**counts_of_stages(**changes)).problems
    assert [p.file if p.file == "row counts" else p for p in problems] == expected


BROKEN = Problem("d-train.tfrecord-0", "Invalid PNG data (key 'a.png')", 3, 77)


def damaged():
    """Returns the verified shards, the first of which ends at a damaged record."""
    ended = {"records": 3, "payload": 30, "crc32c": 5, "classes": {}, "problems": (BROKEN,)}
    return [changed(s, **ended) if s is SHARDS[1] else s for s in SHARDS]


def test_consequences_of_a_damaged_record_are_omitted():
    assert reconciled(**counts_of_stages(verified=damaged())).problems == (BROKEN,)


def test_a_damaged_record_hides_no_other_fault():
    """A lost row and the damage of another shard are also reported."""
    other = [changed(s, crc32c=7) if s is SHARDS[0] else s for s in damaged()]
    problems = reconciled(
        **counts_of_stages(verified=other, assigned={"train": 8, "test": 4})
    ).problems
    assert [str(problem) for problem in problems] == [
        "d-test.tfrecord-0: crc32c: wrote 100, re-read 7",
        "d-train.tfrecord-0: record 3 at byte 77: Invalid PNG data (key 'a.png')",
        "row counts: do not match: split 'test': 4 rows assigned, 3 converted, 0 rejected, "
        "0 dropped; split 'train': 8 rows assigned, 5 converted, 2 rejected, 0 dropped; "
        "13 rows read, 12 assigned to splits, 2 rejected before",
    ]


@given(
    rows=st.integers(0, 3),
    unread=st.integers(0, 3),
    assigned=st.dictionaries(st.sampled_from(["train", "test", "x"]), st.integers(0, 9)),
    reasons=st.dictionaries(st.sampled_from(["corrupt", "timeout"]), st.integers(1, 9)),
    read=st.integers(0, 4),
    broken=st.booleans(),
)
def test_row_counts_that_do_not_match_are_stated_in_words(
    rows, unread, assigned, reasons, read, broken
):
    shards = [changed(SHARDS[1], records=read, problems=(BROKEN,) if broken else ())]
    rejects = sums({("train", reason): count for reason, count in reasons.items()})
    stages = {"rows": rows, "unread": unread, "assigned": assigned, "rejects": rejects}
    found = reconciled(**counts_of_stages(**stages, verified=shards))
    message = [str(problem) for problem in found.problems]
    assert not any(
        name in text for text in message for name in ("Counts", "(rows", "={", "frames=")
    )
    assert message or not [*mismatches(found.counts, found.splits)]
    assert not broken or message[0] == str(BROKEN)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"records": 5}, Problem("d-train.tfrecord-0", "records: wrote 4, re-read 5")),
        ({"payload": 41}, Problem("d-train.tfrecord-0", "payload: wrote 40, re-read 41")),
        ({"crc32c": 7}, Problem("d-train.tfrecord-0", "crc32c: wrote 100, re-read 7")),
        ({"index_crc32c": 8}, Problem("records/train-0.parquet", "crc32c: wrote 200, re-read 8")),
        (
            {"classes": {"l": {1: 1}}},
            Problem("d-train.tfrecord-0", "classes: the records' classes are not those written"),
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_difference_between_written_and_re_read_is_detected(change, problem):
    read = changed(verified("train", 0, 4), **change)
    assert list(_compare_shard(info("train", 0, 4), read)) == [problem]


def test_a_shard_read_as_it_was_written_has_no_difference():
    assert list(_compare_shard(info("train", 0, 4), verified("train", 0, 4))) == []


def test_records_are_counted_as_read_again():
    stages = StageCounts(12, 1, counts_of_stages()["assigned"], counts_of_stages()["rejects"], {})
    shards = [(shard.split, shard.entry) for shard in SHARDS]
    assert stages.with_records(shards, PLAN.shards) == (COUNTS, SPLITS)
    assert [*mismatches(*stages.with_records(shards[:2], PLAN.shards))] == [
        "split 'train': 8 rows assigned, 4 converted, 2 rejected, 0 dropped"
    ]
