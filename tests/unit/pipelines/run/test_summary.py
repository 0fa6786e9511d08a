"""Notes on class names that look like numbers, and on leakage between many splits."""

from __future__ import annotations

import pytest

from recordmill.pipelines.run.summary import duplicate_notes, number_notes, split_and_class_notes
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.statistics import DuplicateStats, Leakage
from recordmill.transforms.functional.rows.labels import sorted_class_names

TAIL = ". If the labels are ids, write all of them as plain integers (7, not 07 or text), or set"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 1, 2, "07"], "4 of the 4 class names of 'x' are numbers, and the id of '07' is 1"),
        ([5, 7, "5"], "2 of the 2 class names of 'x' are numbers, and the id of '5' is 0"),
        ([3, "cat"], "1 of the 2 class names of 'x' are numbers, and the id of '3' is 0"),
        (["-1", "+2", "1.0"], "3 of the 3 class names of 'x' are numbers, and the id of '+2' is 0"),
        (["0", "1"], "2 of the 2 class names of 'x' are numbers"),
    ],
    ids=str,
)
def test_class_names_that_look_like_numbers_are_noted(labels: list[str | int], said: str) -> None:
    assert number_notes("x", sorted_class_names(labels)) == [f"note: {said}{TAIL} --classes."]


@pytest.mark.parametrize("labels", [[0, 7], ["cat", "n02123"], ["1 cat", "²"]], ids=str)
def test_other_class_names_are_not_noted(labels: list[str | int]) -> None:
    assert number_notes("x", sorted_class_names(labels)) == []


@pytest.mark.parametrize(("classes", "notes"), [(None, 1), (["0", "1"], 0)])
def test_numeric_class_names_from_a_file_are_not_noted(
    classes: list[str] | None, notes: int
) -> None:
    manifest = Manifest.model_construct(
        config={"classes": classes}, classes={"x": ("0", "1")}, splits={}
    )
    assert len(split_and_class_notes(manifest)) == notes


def test_of_many_pairs_of_leaking_splits_some_are_listed_and_the_others_counted() -> None:
    leak = Leakage(splits=("a", "b"), images=1, records=2)
    lines = duplicate_notes(DuplicateStats(leaks=(leak,) * 44_850))
    assert len(lines) == 12
    assert lines[10] == "warning: 44,840 more pairs of splits share images"
