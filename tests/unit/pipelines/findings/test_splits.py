"""Splits that miss their share, lack classes, or have mostly empty shards."""

from __future__ import annotations

import pytest

from recordmill.pipelines.findings import (
    Outcome,
    _alike_splits,
    _missed_shares,
    _missing_classes,
    _stratification,
    empty_shards,
)
from recordmill.schemas.findings import lines
from recordmill.schemas.manifest import Manifest, Share, SplitEntry
from recordmill.schemas.yaml_files import preset


def entry(records: int = 1, classes: dict[int, int] | None = None) -> SplitEntry:
    return SplitEntry(
        rows=records,
        records=records,
        rejected=0,
        duplicates=0,
        classes={"label": classes or {}},
        shards=(),
    )


@pytest.mark.parametrize(
    ("method", "remedy"),
    [("hash", ". For exact shares, set --split_method exact."), ("stratified", "")],
)
@pytest.mark.parametrize(
    ("actual", "warned"), [(0.081, False), (0.079, True), (0.119, False), (0.121, True)]
)
def test_a_split_that_misses_its_share_by_a_fifth_of_it_is_a_warning(
    actual: float, warned: bool, method: str, remedy: str
) -> None:
    manifest = Manifest.model_construct(
        config={"splits": {"test": "0.1"}, "split_method": method},
        shares={"test": Share(asked=0.1, actual=actual)},
        splits={"test": entry(1000)},
    )
    expected = [f"warning: test has {actual:.1%} of the records; expected 10.0%{remedy}"]
    assert list(lines(_missed_shares(Outcome(manifest)))) == (expected if warned else [])


@pytest.mark.parametrize(
    ("method", "actual", "is_missed"),
    [("hash", 0.15, False), ("hash", 0.17, True), ("exact", 0.15, True)],
)
def test_a_hash_may_miss_a_share_of_few_records_by_chance(
    method: str, actual: float, is_missed: bool
) -> None:
    manifest = Manifest.model_construct(  # the standard deviation is 3 of 100 records
        config={"splits": {"test": "0.1"}, "split_method": method},
        shares={"test": Share(asked=0.1, actual=actual)},
        splits={"test": entry(100)},
    )
    assert [f.kind for f in _missed_shares(Outcome(manifest))] == ["missed_share"] * is_missed


@pytest.mark.parametrize(
    ("folds", "warned"),
    [((1, 2, 1, 2, 1), []), ((1, 1, 1, 1, 3), ["fold4"]), ((0, 2), ["fold0", "fold1"])],
)
def test_a_share_that_whole_records_cannot_have_is_not_missed(
    folds: tuple[int, ...], warned: list[str]
) -> None:
    names = [f"fold{number}" for number in range(len(folds))]
    shares = [round(records / sum(folds), 6) for records in folds]
    manifest = Manifest.model_construct(
        config={"split_method": "exact"},
        shares={
            n: Share(asked=1 / len(folds), actual=s) for n, s in zip(names, shares, strict=True)
        },
        splits={name: entry(records) for name, records in zip(names, folds, strict=True)},
    )
    assert [found.splits[0] for found in _missed_shares(Outcome(manifest))] == warned


def test_a_split_without_rows_is_noted_once() -> None:
    manifest = Manifest.model_construct(
        config={"splits": {"test": "0.1", "none": "0"}},
        shares={"test": Share(asked=0.1, actual=0)},
        splits={},
    )
    assert list(lines(_missed_shares(Outcome(manifest)))) == [
        "note: no row was assigned to split 'test'; it was not written"
    ]


def test_a_split_lacks_a_class_only_if_each_split_could_have_it() -> None:
    # Class 3 has a single record, so that one of the two splits cannot have it.
    manifest = Manifest.model_construct(
        config={},
        dataset_schema=preset("image_classification"),
        classes={"label": ("a", "b", "c", "d", "e")},
        splits={
            "test": entry(classes={0: 1, 4: 9}),
            "train": entry(classes={0: 8, 1: 5, 2: 3, 3: 1}),
            "validation": entry(records=0),
        },
    )
    assert list(lines(_missing_classes(Outcome(manifest)))) == [
        "warning: train lacks 1 of the 4 classes of 'label' with a record for each split (e)",
        "warning: test lacks 2 of the 4 classes of 'label' with a record for each split (b, c)",
    ]


def test_the_largest_difference_from_the_share_of_a_class_is_noted() -> None:
    manifest = Manifest.model_construct(
        config={"split_method": "stratified"},
        dataset_schema=preset("image_classification"),
        classes={"label": ("a", "b")},
        shares={
            "test": Share(asked=0.25, actual=0.25),
            "train": Share(asked=0.75, actual=0.75),
            "none": Share(asked=0.0, actual=0),
        },
        splits={"test": entry(classes={0: 4, 1: 5}), "train": entry(classes={0: 5, 1: 15})},
    )
    assert list(lines(_stratification(Outcome(manifest)))) == [
        "note: the classes of 'label' miss their shares by up to 1.8 records "
        "(a in train: 5, share 6.8)"
    ]
    splits = {"test": entry(classes={0: 2, 1: 5}), "train": entry(classes={0: 7, 1: 15})}
    rounded = manifest.model_copy(update={"splits": splits})
    assert list(lines(_stratification(Outcome(rounded)))) == []
    other = manifest.model_copy(update={"config": {"split_method": "exact"}})
    assert list(lines(_stratification(Outcome(other)))) == []


def test_the_splits_of_a_sample_are_those_of_all_rows_as_they_happen() -> None:
    manifest = Manifest.model_construct(
        config={"splits": {"train": "0.5", "test": "0.5"}, "sample": "1%"}
        | {"split_method": "stratified"},
        dataset_schema=preset("image_classification"),
        classes={"label": ("a", "b")},
        shares={"train": Share(asked=0.5, actual=0.9), "test": Share(asked=0.5, actual=0.1)},
        splits={"train": entry(9, {0: 4, 1: 5}), "test": entry(1, {0: 1})},
    )
    outcome = Outcome(manifest)
    for finder in (_missed_shares, _stratification, _missing_classes):
        assert list(finder(outcome)) == []


@pytest.mark.parametrize(
    ("records", "noted"), [([1] * 9 + [0] * 11, True), ([1] * 12 + [0] * 12, False), ([0], False)]
)
def test_splits_with_mostly_empty_shards_are_noted(records: list[int], noted: bool) -> None:
    expected = (
        f"warning: {records.count(0)} of the {len(records)} shards of 'train' are empty. "
        "Lower --num_shards, or give --shard_size a unit, as in 128MiB."
    )
    assert list(lines(empty_shards({"train": records}))) == ([expected] if noted else [])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("train", "val", "test", "eval", "x"), []),
        (
            ("Train", "train", "VALID", "val", "validation", "dev", "test"),
            ["train, Train; validation, val, VALID, dev"],
        ),
        (("fold-1", "Fold 1", "fold2"), ["Fold 1, fold-1"]),
    ],
)
def test_splits_with_names_of_one_meaning_are_a_warning(
    names: tuple[str, ...], found: list[str]
) -> None:
    outcome = Outcome(Manifest.model_construct(splits=dict.fromkeys(names, entry())))
    hint = "      (if they are one split, give it one name in the input)"
    assert list(lines(_alike_splits(outcome))) == [
        line
        for shown in found
        for line in (f"warning: splits whose names mean the same: {shown}", hint)
    ]
