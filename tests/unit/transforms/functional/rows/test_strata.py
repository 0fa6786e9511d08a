"""Strata: the labels of a row in a table, and of the same row once it is bound to class ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.plan import Plan, ResolvedSchema, SplitRanges
from recordmill.schemas.records import Row
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.analysis import Analysis, Analyzer, build_plan
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.columns import resolve_sources
from recordmill.transforms.functional.rows.strata import (
    ClassSampler,
    Strata,
    _label_set_of_stratum,
    class_positions,
    distributes_groups,
    label_set_of_values,
    with_class_ids,
)
from tests.binding import bind


def config(schema: str = "image_classification", **options: Any) -> ConvertConfig:
    options = {"split_method": "stratified", **options}
    return ConvertConfig(
        inputs=("/d/t.csv",), output="out", name="d", schema=preset(schema), **options
    )


def analyzer(settings: ConvertConfig) -> Analyzer:
    columns = ("image", "label", "labels")
    schema = resolve_sources(settings.dataset_schema, columns, settings, "/d/t.csv")
    ranges = SplitRanges.from_weights(settings.weights)
    return Analyzer(settings, schema, Binding.of(settings, schema), ranges)


def rows(column: str, labels: list[Any], is_text: bool) -> list[Row]:
    return [
        Row({"image": f"{i}.jpg", column: label}, "/d/t.csv", i + 2, is_text)
        for i, label in enumerate(labels)
    ]


@pytest.mark.parametrize(
    ("schema", "options", "labels", "is_text"),
    [
        ("image_classification", {}, ["cat", "dog", "cat"], True),
        ("image_classification", {}, ["7", "-3", "0"], True),
        ("image_classification", {}, [7, -3, 0], False),
        ("image_classification", {}, ["7", "07", "cat"], True),
        ("image_classification", {"classes": ("cat", "dog")}, ["1", "dog", "cat", "0"], True),
        ("image_classification", {"classes": ("1", "0")}, ["1", "0"], True),
        ("tf_slim", {}, ["cat", "dog"], True),
        ("tf_slim", {"classes": ("cat", "dog")}, ["1", "dog"], True),
        ("multi_label", {}, ["a|b", "b|a", "", "b"], True),
        ("multi_label", {}, [["b", "a", "a"], [], ["b"]], False),
    ],
    ids=str,
)
def test_the_stratum_in_the_table_is_the_one_of_the_bound_row(
    schema: str, options: dict[str, Any], labels: list[Any], is_text: bool
) -> None:
    asked = analyzer(config(schema, **options))
    table = rows("labels" if schema == "multi_label" else "label", labels, is_text)
    analysis = Analysis()
    for row in table:
        analysis.add([row], asked)
    resolved = build_plan(analysis, asked, {}).resolved
    binding = replace(asked.binding, resolved=resolved)
    bound = [bind(row, binding) for row in table]
    strata = [Strata(asked).of(row) for row in table]
    positions = class_positions(resolved.schema)
    expected = [label_set_of_values(ref.values, positions) for ref in bound]
    assert [_label_set_of_stratum(stratum, resolved) for stratum in strata] == expected
    # Rows have the same stratum exactly if they have the same classes.
    assert len(set(strata)) == len(set(expected)) == len(set(zip(strata, expected, strict=True)))


def test_labels_that_are_rejected_later_are_no_part_of_a_stratum() -> None:
    asked = analyzer(config(classes=("cat", "dog")))
    table = rows("label", ["emu", "\udcff", "9"], is_text=True)
    assert [Strata(asked).of(row) for row in table] == ["[]"] * 3
    known = ResolvedSchema(asked.schema, {"label": ("cat",)})
    assert _label_set_of_stratum('[[0, "cat"], [0, "emu"]]', known) == (0,)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (None, [[], [], ["label '7'"], ["label '7'"], [r"label '\ud800'"], [r"label 'K\xe4se'"]]),
        (("Käse", "cat"), [[], [], [], [], [], [r"label 'K\xe4se'"]]),
    ],
)
def test_the_groups_of_per_class_are_ascii(
    classes: tuple[str, ...] | None, expected: list[list[str]]
) -> None:
    asked = analyzer(config(per_class=1, classes=classes))
    sampler = ClassSampler(asked.binding, 0, analyzer=asked)
    table = rows("label", [None, -1, 7, 7.0, "\ud800", "Käse"], is_text=False)
    assert [sampler.groups(row) for row in table] == expected


def test_without_stratification_all_rows_have_one_stratum() -> None:
    asked = analyzer(config(split_method="exact"))
    assert Strata(asked).of(rows("label", ["cat"], is_text=True)[0]) == ""


@pytest.mark.parametrize("is_text", [True, False])
def test_remembered_strata_are_those_of_each_row(is_text: bool) -> None:
    labels = ["1", "cat", "1", "", None, *(() if is_text else (1, True, 1.0, 1, ["cat"]))]
    asked = analyzer(config())
    table, strata = rows("label", labels, is_text), Strata(asked)
    assert [strata.of(row) for row in table] == [Strata(asked).of(row) for row in table]


def test_the_strata_of_a_plan_become_class_ids() -> None:
    resolved = ResolvedSchema(preset("image_classification"), {"label": ("cat", "dog")})
    ranges = SplitRanges(("a", "b"), (1, 2**64), {'[[0, "dog"]]': (5, 2**64)})
    found = with_class_ids(Plan(resolved, {}, 0, ranges=ranges))
    assert found.ranges == SplitRanges(("a", "b"), (1, 2**64), {(1,): (5, 2**64)})
    assert with_class_ids(Plan(resolved, {}, 0)).ranges is None


@pytest.mark.parametrize(
    ("method", "column", "expected"),
    [
        ("hash", "who", False),
        ("exact", None, False),
        ("exact", "who", True),
        ("stratified", "who", True),
        ("stratified", None, False),
    ],
)
def test_groups_are_distributed_whole(method: str, column: str | None, expected: bool) -> None:
    settings = config(split_method=method, group_column=column)
    assert distributes_groups(settings, settings.dataset_schema) is expected
