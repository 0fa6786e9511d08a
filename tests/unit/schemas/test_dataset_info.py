"""Problems as text, and sums of row counts."""

from __future__ import annotations

import pytest

from recordmill.schemas.dataset_info import Problem


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
def test_a_problem_as_text(problem, expected):
    assert str(problem) == expected
