"""FindSplits: exact counts of rows, of each class, and of whole groups, whatever the bundles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.plan import Plan, SplitRanges
from recordmill.schemas.records import Row
from recordmill.transforms import analyze_rows
from recordmill.transforms.analyze_rows import (
    AnalyzeFn,
    AnalyzeRows,
    GroupSizes,
    _allocate,
    _bounds_of_counts,
    _group_ranges,
    _label_sets,
    _merged_rows,
    _shortened,
    _sizes_of,
    _whole_weights,
)
from recordmill.transforms.functional.rows import analysis
from recordmill.transforms.functional.rows.analysis import Analysis, Analyzer
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.placement import split_of
from tests.beam.direct import TABLE, config, direct_pipeline

WEIGHTS = {"train": "0.7", "validation": "0.2", "test": "0.1"}
NAMES = ("train", "validation", "test")


def analyzer(settings: ConvertConfig) -> Analyzer:
    schema = settings.dataset_schema
    ranges = SplitRanges.from_weights(settings.weights)
    return Analyzer(settings, schema, Binding.of(settings, schema), ranges)


def table(number: int) -> list[Row]:
    """Returns rows of classes with 1, 2, 3, … records, in 40 groups; each key occurs twice."""
    labels = [str(size) for size in range(1, number) for _ in range(size)][:number]
    once = [
        Row({"image": f"{i}.jpg", "label": f"c{label}", "who": str(i % 40)}, TABLE, i, True)
        for i, label in enumerate(labels)
    ]
    return [*once, *once]


_plans = list[Plan]()


def _keep(plans: list[Plan]) -> None:
    _plans[:] = plans


def found_plan(settings: ConvertConfig, rows: Iterable[Row]) -> Plan:
    """Returns the plan of an analyze pass over rows in bundles of batches."""
    every = list(rows)
    batches = [RowBatch.of(every[start::7]) for start in range(min(7, len(every)))]
    with direct_pipeline() as p:
        plan = p | beam.Create(batches) | beam.Reshuffle() | AnalyzeRows(analyzer(settings))
        assert_that(plan, _keep)
    (found,) = _plans
    return found


def splits_of(plan: Plan, rows: Iterable[Row], by: str = "image") -> dict[str, str]:
    """Returns the split of each key."""
    ranges = plan.ranges
    assert ranges is not None
    return {
        row.values["image"]: split_of(
            row.values[by], ranges, 0, (int(row.values["label"][1:]),) if ranges.strata else None
        )
        for row in rows
    }


def test_exact_splits_have_the_asked_counts() -> None:
    rows = table(405)
    plan = found_plan(config(splits=WEIGHTS, split_method="exact"), rows)
    counts = Counter(splits_of(plan, rows).values())
    # Of 405, 283.5, 81 and 40.5: the sum is kept.
    assert counts["validation"] == 81
    assert (counts["train"], counts["test"]) in {(283, 41), (284, 40)}
    assert plan.shards == {"test": 1, "train": 1, "validation": 1}


def test_stratified_splits_have_the_share_of_each_class() -> None:
    rows = table(400)
    settings = config(splits=WEIGHTS, split_method="stratified")
    plan = found_plan(settings, rows)
    names = sorted({row.values["label"] for row in rows})
    ids = [
        row._replace(values={**row.values, "label": f"c{names.index(row.values['label'])}"})
        for row in rows
    ]
    assert plan.ranges
    assert set(plan.ranges.strata) == {(number,) for number in range(len(names))}
    splits, by_class = splits_of(plan, ids), defaultdict[str, Counter[str]](Counter)
    for row in rows[:400]:
        by_class[row.values["label"]][splits[row.values["image"]]] += 1
    for counts in by_class.values():
        for name, weight in WEIGHTS.items():
            assert abs(counts[name] - float(weight) * counts.total()) < 1
    total = Counter(splits.values())
    for name, weight in WEIGHTS.items():
        assert abs(total[name] - float(weight) * 400) <= 1


@pytest.mark.parametrize("method", ["exact", "stratified"])
def test_groups_are_whole_and_close_to_the_shares(method: str) -> None:
    rows = table(400)
    settings = config(splits=WEIGHTS, split_method=method, group_column="who")
    plan = found_plan(settings, rows)
    assert plan.ranges
    assert (len(plan.ranges.groups), plan.ranges.group_bits) == (40, 64)
    total = Counter(splits_of(plan, rows, by="who").values())
    # Groups have 10 rows, and so the shares are 28, 8 and 4 groups.
    assert [total[name] for name in NAMES] == [280, 80, 40]


@pytest.mark.parametrize("group", [None, "who"])
def test_shards_with_a_number_of_records_follow_the_splits(group: str | None) -> None:
    settings = config(
        splits=WEIGHTS, split_method="exact", records_per_shard=40, group_column=group
    )
    plan = found_plan(settings, table(400))
    assert plan.shards == {"test": 1, "train": 7, "validation": 2}
    assert {split: len(starts) + 1 for split, starts in plan.starts.items()} == plan.shards


def test_rows_with_a_split_of_their_own_do_not_count() -> None:
    rows = table(400)
    own = [
        row._replace(values={**row.values, "split": "test" if i % 2 else ""})
        for i, row in enumerate(rows)
    ]
    settings = config(splits=WEIGHTS, split_method="exact", split_column="split")
    plan = found_plan(settings, own)
    others = [row for row in own if not row.values["split"]]
    total = Counter(splits_of(plan, others).values())
    assert [total[name] for name in NAMES] == [140, 40, 20]


def test_without_rows_there_are_no_splits() -> None:
    for options in ({}, {"group_column": "who"}):
        settings = config(splits=WEIGHTS, split_method="exact", **options)
        assert found_plan(settings, []).shards == {}


def test_rows_of_the_base_version_count_towards_the_shares() -> None:
    asked = analyzer(config(splits={"a": "0.5", "b": "0.5"}, split_method="exact"))
    assert _allocate({"": 10}, {("", "a"): 8, ("", "gone"): 5}, asked) == {"": [1, 10]}


def test_a_split_without_a_row_has_an_empty_range() -> None:
    assert _bounds_of_counts([0, 3, 3]) == (0, 2**64, 2**64)
    assert _bounds_of_counts([]) == (2**64,)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"a": "0.8", "b": "0.15", "c": "0.05"}, [16, 3, 1]),
        ({"a": "8", "b": "2", "none": "0"}, [4, 1]),
        ({"a": "0.333", "b": "0.667"}, [333, 667]),
        ({"a": "6", "b": "4", "c": "9"}, [6, 4, 9]),
    ],
    ids=str,
)
def test_weights_become_whole_numbers(weights: dict[str, str], expected: list[int]) -> None:
    names, found = _whole_weights(analyzer(config(splits=weights)))
    assert (len(names), found) == (len(expected), expected)


def test_too_many_combinations_of_labels_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MAX_STRATA", 1)
    asked = analyzer(config(split_method="stratified"))
    with pytest.raises(UsageError, match="at most 1 different combinations of labels, got 2"):
        _allocate({"[]": 1, '[[0, "a"]]': 1}, {}, asked)


@pytest.mark.parametrize(
    ("options", "columns"),
    [({}, {}), ({"group_column": "group"}, None), ({"split_column": "split"}, None)],
    ids=["stratified", "groups", "stated splits"],
)
def test_too_many_classes_are_an_error_before_the_rows_are_counted(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], columns: dict[str, str] | None
) -> None:
    monkeypatch.setattr(analysis, "MAX_STRATA", 2)
    rows = [
        Row({"image": str(n), "label": f"class {n}", "group": "a", "split": "train"}, "t", n)
        for n in range(3)
    ]
    asked = analyzer(config(split_method="stratified", **options))
    combine = AnalyzeFn(asked)
    parts = [combine.add_input(Analysis(), RowBatch.of(rows[:2]))]
    parts.append(combine.add_input(Analysis(), RowBatch.of(rows[2:])))
    if columns is None:  # strata are of groups, or of the rows without a split
        assert combine.merge_accumulators(parts).rows == 3
        return
    with pytest.raises(UsageError, match="at most 2 different combinations of labels, got 3"):
        combine.merge_accumulators(parts)
    with pytest.raises(UsageError, match="at most 2 different combinations of labels, got 3"):
        combine.add_input(Analysis(), RowBatch.of(rows))


def test_labels_of_different_types_are_different() -> None:
    assert len(set(_label_sets(["[[0, 7]]", '[[0, "7"]]', "[]", "[[1, 7]]"]).values())) == 4


def test_groups_above_the_limit_are_merged_by_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyze_rows, "group_bits", lambda *sizes: 2)
    asked: Any = analyzer(config(splits=WEIGHTS, split_method="exact", group_column="who"))
    groups = [(bytes([i]) + bytes(7), ({"": 1, "[0, 1]": 1}, {})) for i in range(256)]
    sizes = GroupSizes.sum_of(map(_sizes_of, groups))
    assert (sizes.groups, sizes.group_labels, sizes.labels) == (256, 512, {"", "[0, 1]"})
    merged = defaultdict(list)
    for key, rows in (_shortened(group, sizes) for group in groups):
        merged[key].append(rows)
    fewer = [(key, _merged_rows(rows)) for key, rows in merged.items()]
    assert [rows for _, rows in fewer] == [({"": 64, "[0, 1]": 64}, {})] * 4
    ranges = _group_ranges(sizes, fewer, asked)
    assert (sorted(ranges.groups), ranges.group_bits) == ([0, 1, 2, 3], 2)


def test_sizes_of_groups_are_summed() -> None:
    one = _sizes_of((b"", ({"": 3, "x": 2}, {})))
    assert GroupSizes.sum_of([one, one, GroupSizes()]) == GroupSizes(2, 4, frozenset({"", "x"}))
    assert GroupSizes.sum_of([]) == GroupSizes()
