"""Row counts: their sums, and each way in which they do not match."""

from __future__ import annotations

import pytest

from recordmill.schemas.row_counts import RowCounts, SplitCounts, mismatches


def split(
    rows: int, records: int, rejected: int = 0, duplicates: int = 0, frames: int | None = None
) -> SplitCounts:
    return SplitCounts(
        rows=rows, records=records, rejected=rejected, duplicates=duplicates, frames=frames
    )


SPLITS = {"test": split(5, 3, 1, 1), "train": split(8, 6, 2)}
REASONS = {"corrupt": 3, "malformed_row": 2}
COUNTS = RowCounts.of(15, SPLITS, unplaced=2, reasons=REASONS, skipped={"hidden": 1})


def test_the_counts_of_all_rows_are_sums_over_the_splits() -> None:
    assert COUNTS.model_dump() == {
        "rows": 15,
        "records": 9,
        "rejected": 5,
        "duplicates": 1,
        "unplaced": 2,
        "reasons": REASONS,
        "asides": {"hidden": 1},
    }
    assert list(mismatches(COUNTS, SPLITS)) == []


def test_rows_of_sequences_are_counted_by_frames() -> None:
    splits = {"train": split(10, 2, 3, frames=7), "test": split(4, 1, frames=4)}
    counts = RowCounts.of(14, splits, reasons={"corrupt": 3})
    assert (counts.records, counts.frames, counts.converted) == (3, 11, 11)
    assert list(mismatches(counts, splits)) == []
    assert RowCounts.of(0, {}).frames is None


@pytest.mark.parametrize(
    ("counts", "match"),
    [
        (split(0, 0), True),
        (split(5, 3, 1, 1), True),
        (split(5, 5), True),
        (split(5, 2, 1, 2), True),
        (split(5, 2, 1, 1), False),
        (split(5, 4), False),
        (split(5, 5, 1), False),
        (split(5, 1, frames=5), True),
        (split(5, 5, frames=4), False),
    ],
    ids=str,
)
def test_the_counts_of_a_split_match_if_each_of_its_rows_is_accounted_for(
    counts: SplitCounts, match: bool
) -> None:
    assert counts.match is match


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rows": 16}, ["16 rows read, 13 assigned to splits, 2 rejected before"]),
        ({"reasons": {"corrupt": 3}}, ["5 rows rejected, 3 of them with a reason"]),
        ({"records": 8}, ["records: 8 in all, 9 in the splits"]),
        ({"duplicates": 0}, ["duplicates: 0 in all, 1 in the splits"]),
        ({"frames": 9}, ["frames: 9 in all, None in the splits"]),
        (
            {"rejected": 6},
            ["6 rows rejected, 5 of them with a reason", "rejected: 6 in all, 5 in the splits"],
        ),
    ],
    ids=str,
)
def test_each_count_of_all_rows_that_does_not_match_is_named(
    changes: dict[str, object], expected: list[str]
) -> None:
    assert list(mismatches(COUNTS.model_copy(update=changes), SPLITS)) == expected


def test_mismatches_of_two_splits_that_cancel_out_are_found() -> None:
    splits = {"test": split(5, 2, 1, 1), "train": split(8, 7, 2)}
    assert list(mismatches(COUNTS, splits)) == [
        "split 'test': 5 rows assigned, 2 converted, 1 rejected, 1 dropped",
        "split 'train': 8 rows assigned, 7 converted, 2 rejected, 0 dropped",
    ]
