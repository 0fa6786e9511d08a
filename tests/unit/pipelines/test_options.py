"""Options that follow from the input."""

from __future__ import annotations

import pytest

from recordmill.pipelines.options import _unused_splits, _with_names, config_of
from recordmill.schemas.tables import TableFile
from recordmill.transforms.inputs.input_tables import InputTables


@pytest.mark.parametrize(
    ("columns", "label", "notes"),
    [
        (("image", " cat"), " cat", ["columns: label is ' cat', with its blanks"]),
        (("image", " cat", "cat"), "cat", []),
        (("image", " cat", "cat "), "cat", []),
        (("image", "dog"), "cat", []),
    ],
    ids=str,
)
def test_columns_are_named_without_the_blanks_at_their_ends_if_only_one_is_meant(
    columns: tuple[str, ...], label: str, notes: list[str]
) -> None:
    config = config_of({"input": ["a.csv"], "output": "o", "name": "x", "columns": "label=cat"})
    said: list[str] = []
    found = _with_names(config, columns, said)
    assert (found.columns, said) == ({"label": label}, notes)


@pytest.mark.parametrize("name", ["SPLIT", "splits", "Subset", "partition", "is_valid", "is_test"])
def test_columns_of_splits_that_nothing_reads_are_a_warning(name: str) -> None:
    tables = InputTables(("image", name), True, files=(TableFile("t.csv", "csv"),))
    (found,) = _unused_splits({}, tables)
    assert (found.kind, found.severity) == ("unused_splits", "warning")
    assert found.text == f"the column {name!r} does not decide the splits"
    assert not [*_unused_splits({"split_column": "none"}, tables)]


@pytest.mark.parametrize(
    ("names", "is_warned"),
    [
        (("a/train.csv", "b/test.csv"), True),
        (("pets-train-00.tar", "pets-validation-00.tar"), True),
        (("pets/train", "pets/test"), True),
        (("train_1.csv", "train_2.csv"), False),
        (("train_test_1.csv", "train_test_2.csv"), False),
        (("latest.csv", "trains.csv"), False),
    ],
)
def test_inputs_named_like_splits_that_nothing_reads_are_a_warning(
    names: tuple[str, ...], is_warned: bool
) -> None:
    formats = {"csv": "csv", "tar": "tar"}
    files = tuple(TableFile(name, formats.get(name[-3:], "folder")) for name in names)
    tables = InputTables(("image", "label"), True, files=files)
    shown = ", ".join(name.rpartition("/")[2] for name in names)
    expected = [f"the names of the inputs do not decide the splits ({shown})"] * is_warned
    assert [one.text for one in _unused_splits({}, tables)] == expected
    assert not [*_unused_splits({"split_column": "none"}, tables)]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({}, "--split_column Split takes them from it, and --split_column none does not"),
        (
            {"folds": 5},
            "--where \"Split == 'train'\" --split_column none makes folds of these rows alone",
        ),
    ],
)
def test_folds_beside_a_column_of_splits_are_of_its_rows_by_a_condition(
    options: dict[str, int], hint: str
) -> None:
    tables = InputTables(("image", "Split"), True, files=(TableFile("t.csv", "csv"),))
    assert [finding.hint for finding in _unused_splits(options, tables)] == [hint]
