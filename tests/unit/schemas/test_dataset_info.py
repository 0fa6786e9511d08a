"""The words for what is wrong, and the sums over the books."""

from __future__ import annotations

import pytest

from recordmill.schemas.dataset_info import Books, Problem, SplitBooks


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Problem("d-train", "is gone"), "d-train: is gone"),
        (Problem("d-train", "is cut", 0, 0), "d-train: record 0 at byte 0: is cut"),
        (Problem("d-train", "is cut", 17, 4096), "d-train: record 17 at byte 4096: is cut"),
        (Problem("x\n  d-train: is cut", "is foreign"), "x\\n  d-train: is cut: is foreign"),
    ],
    ids=["file", "first record", "record", "name with a newline"],
)
def test_a_problem_in_words(problem, expected):
    assert str(problem) == expected


def test_sums():
    books = Books(10, 2, {"a": SplitBooks(5, 3, 1, 1), "b": SplitBooks(3, 3)}, {"corrupt": 3})
    assert (books.written, books.rejected, books.balanced) == (6, 3, True)


@pytest.mark.parametrize(
    ("split", "balanced"),
    [
        (SplitBooks(), True),
        (SplitBooks(5, 3, 1, 1), True),
        (SplitBooks(5, 5), True),
        (SplitBooks(5, 4), False),
        (SplitBooks(5, 5, 1), False),
        (SplitBooks(5, 6, -1), True),  # arithmetic: that counts are not negative is others' to see
    ],
    ids=str,
)
def test_a_split_balances_when_each_of_its_rows_is_accounted_for(split, balanced):
    assert split.balanced is balanced
