"""The analyze pass does not depend on the distribution or the order of rows."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.records import Row
from recordmill.schemas.tables import DeclaredClasses
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows import analysis as analysis_module
from recordmill.transforms.functional.rows import feature_values
from recordmill.transforms.functional.rows.analysis import (
    SAMPLE_ROWS,
    Analysis,
    build_plan,
    sampled_rows,
)
from recordmill.transforms.functional.rows.placement import split_of
from tests.unit.transforms.functional.rows.analyzed import analyze, analyzer, text_rows

CLASSIFICATION = preset("image_classification")
WEIGHT = {"name": "weights", "features": {"weight": {"kind": "float", "from": "column:a"}}}


@pytest.mark.parametrize(
    ("labels", "is_text", "expected"),
    [
        pytest.param(["dog", "cat", "dog"], True, ("cat", "dog"), id="names"),
        pytest.param(["3", "1", "-1"], True, (), id="integers as text"),
        pytest.param([3, 1, True], False, (), id="integers"),
        pytest.param(["3", "007"], True, ("007", "3"), id="a leading zero makes names"),
        pytest.param(["3", "1"], False, ("1", "3"), id="typed text is names"),
        pytest.param(["cat", "", " "], True, ("cat",), id="empty fields are none"),
        pytest.param(["cat", None, 1.5, b"x", ["y"]], False, ("cat",), id="what can be no label"),
        pytest.param([1, "1"], False, ("1",), id="a number and its numeral"),
        pytest.param(["0.0", "1.0", ""], True, (), id="integers as pandas writes them"),
        pytest.param([0.0, 1.0, None, 2], False, (), id="also typed"),
        pytest.param(["1.0", "1.5"], True, ("1.0", "1.5"), id="a fraction makes names"),
        pytest.param([1.0, "cat"], False, ("1.0", "cat"), id="as does a name"),
    ],
)
def test_collected_labels(labels, is_text, expected):
    asked = analyzer(CLASSIFICATION)
    rows = [Row({"image": f"{i}", "label": v}, "t", i, is_text) for i, v in enumerate(labels)]
    assert build_plan(analyze(rows, asked), asked, {}).resolved.classes == {"label": expected}


@pytest.mark.parametrize(
    ("values", "is_doubtful"),
    [
        pytest.param(["1.234", "8", ""], True, id="each point may be between thousands"),
        pytest.param(["1.234", "0.234"], False, id="a zero before it shows a decimal point"),
        pytest.param(["1.234", "12.3456"], False, id="as do four digits after it"),
        pytest.param(["1.234", "-1.234,5"], True, id="a decimal comma is rejected, not the others"),
        pytest.param(["1.5", "8"], False, id="plain numbers"),
        pytest.param(["8", None, "nan"], False, id="no point"),
    ],
)
@pytest.mark.parametrize("delimiter", [";", None])
@pytest.mark.parametrize("schema", [preset("tabular"), Schema.model_validate(WEIGHT)])
def test_points_that_may_be_between_thousands(schema, delimiter, values, is_doubtful):
    asked = analyzer(schema, columns={"a": "kg"} if schema.features else {}, delimiter=delimiter)
    rows = text_rows(*({"kg": value} for value in values))
    findings = build_plan(analyze(rows, asked), asked, {}).source.findings
    found = [(one.kind, one.examples) for one in findings]
    is_text = schema.every_column and any("," in str(value) for value in values)
    expected = "numbers_as_text" if is_text else "doubtful_points"
    doubts = [expected] * (is_text or (is_doubtful and delimiter == ";"))
    doubts += ["missing_values"] * (schema.every_column and not {"", None}.isdisjoint(values))
    assert found == [(kind, ("kg",)) for kind in doubts]


@pytest.mark.parametrize(
    ("values", "is_doubtful"),
    [
        pytest.param(["1.5", "N/A", "3"], True, id="a mark of missing values"),
        pytest.param(["1,234", "2,500", ""], True, id="commas between thousands"),
        pytest.param(["12 %", "-"], True, id="percent"),
        pytest.param(["1\u202f234", "2\xa0500", "7’000"], True, id="spaces between thousands"),
        pytest.param(["\u22121,5", "€ 5", "5 €"], True, id="a minus of typesetting, currencies"),
        pytest.param([*map(str, range(19)), "error"], True, id="one other value of 20"),
        pytest.param(["1", "2", "#REF!"], True, id="an error of Excel"),
        pytest.param(["1.5", "N/A", "none"], False, id="mostly missing"),
        pytest.param(["K", "1", "2", "3"], False, id="grades of schools"),
        pytest.param(["2", "12a", "7"], False, id="house numbers"),
        pytest.param(["00701", "12345", "23456"], False, id="identifiers with leading zeros"),
        pytest.param(["2024-01-02", "1.2.3", "10:30", ""], False, id="dates and versions"),
        pytest.param(["1.5", "", "3"], False, id="numbers"),
        pytest.param(["", "", ""], False, id="empty"),
    ],
)
def test_columns_of_numbers_that_are_text(values, is_doubtful):
    asked = analyzer(preset("tabular"))
    rows = text_rows(*({"x": value} for value in values))
    whole = build_plan(analyze(rows, asked), asked, {}).source.findings
    is_missing = not is_doubtful and "3" in values and "" in values  # a number
    expected = ["numbers_as_text"] * is_doubtful + ["missing_values"] * is_missing
    assert [one.kind for one in whole] == expected
    parts = Analysis.sum_of([analyze([row], asked) for row in reversed(rows)])
    assert build_plan(parts, asked, {}).source.findings == whole


@pytest.mark.parametrize(
    ("values", "is_text", "is_rounded"),
    [
        pytest.param([1.5, None, 20231205.0], False, True, id="an integer that became a float"),
        pytest.param(["1.5", "", "20231205.0"], True, True, id="as text"),
        pytest.param([1700000000.25], False, True, id="seconds"),
        pytest.param([0.1, 20231204.0, 1e30, float("nan")], False, False, id="exact integers"),
        pytest.param(["0.123456789", "20231204.0"], True, False, id="exact integers as text"),
        pytest.param([1.5, 20231205], False, True, id="an integer among floats"),
        pytest.param(["20231205", "1.5"], True, True, id="an integer as text among floats"),
        pytest.param([20231205, 7], False, None, id="integers, if their feature is of floats"),
    ],
)
@pytest.mark.parametrize("schema", [preset("tabular"), Schema.model_validate(WEIGHT)])
def test_numbers_that_float32_rounds_to_other_integers(schema, values, is_text, is_rounded):
    asked = analyzer(schema, columns={"a": "day"} if schema.features else {})
    rows = [Row({"day": value}, "t", i, is_text) for i, value in enumerate(values)]
    findings = build_plan(analyze(rows, asked), asked, {}).source.findings
    found = [(one.kind, one.examples) for one in findings]
    expected = not schema.every_column if is_rounded is None else is_rounded
    is_missing = schema.every_column and not {"", None}.isdisjoint(values)
    kinds = ["rounded_numbers"] * expected + ["missing_values"] * is_missing
    assert found == [(kind, ("day",)) for kind in kinds]


def test_labels_in_lists_under_another_column_name():
    asked = analyzer(preset("multi_label"), columns={"labels": "tags"})
    rows = text_rows(
        {"image": "a", "tags": "dog|cat"},
        {"image": "b", "tags": '["a|b", "dog"]'},
        {"image": "c", "tags": ""},
        {"image": "d", "tags": "[broken"},
    )
    plan = build_plan(analyze(rows, asked), asked, {})
    assert plan.resolved.classes == {"labels": ("a|b", "cat", "dog")}


def test_groups_are_assigned_to_one_split():
    weights = {"train": "0.5", "test": "0.5"}
    asked = analyzer(CLASSIFICATION, splits=weights, group_column="who", seed=3)
    rows = text_rows(*({"image": f"{i}.jpg", "label": "1", "who": f"p{i % 9}"} for i in range(200)))
    expected = Counter(split_of(row.values["who"], asked.ranges, 3) for row in rows)
    assert analyze(rows, asked).splits == expected
    assert set(expected) == {"train", "test"}


def test_the_sample_is_the_rows_first_in_order():
    asked = analyzer(CLASSIFICATION, seed=5)
    rows = text_rows(*({"image": f"{i}.jpg", "label": "1"} for i in range(5000)))

    def order(row):
        return hashlib.sha256(f"5\0order\0{row.values['image']}".encode()).digest()[:16]

    expected = [(order(row), f"/d/{row.values['image']}") for row in sorted(rows, key=order)]
    found = [(order, uri) for order, uri, _ in sampled_rows(analyze(rows, asked))]
    assert found == expected[:SAMPLE_ROWS]


@pytest.mark.parametrize("seed", range(3))
def test_the_sample_does_not_depend_on_the_partition_of_rows(seed):
    asked = analyzer(CLASSIFICATION)
    rows = text_rows(*({"image": f"{i}.jpg", "label": "1"} for i in range(4000)))
    expected = sampled_rows(analyze(rows, asked))
    shuffler = random.Random(seed)
    shuffler.shuffle(rows)
    cut = shuffler.randrange(len(rows))
    total = Analysis.sum_of([analyze(rows[:cut], asked), analyze(rows[cut:], asked)])
    assert sampled_rows(total) == expected


def merged(*parts):
    return Analysis.sum_of(parts)


@pytest.mark.parametrize("by_merging", [False, True])
@pytest.mark.parametrize("limit", ["MAX_CLASSES", "MAX_CLASS_TEXT"])
def test_too_many_classes_end_the_analysis(limit, by_merging, monkeypatch):
    monkeypatch.setattr(feature_values, limit, 3)
    asked = analyzer(CLASSIFICATION)
    rows = text_rows(*({"image": f"{i}.jpg", "label": "abcabcd"[i]} for i in range(7)))
    assert analyze(rows[:6], asked).labels["label"].found == {*"abc"}
    parts = [analyze(rows[:6], asked), analyze(rows[6:], asked)]
    with pytest.raises(UsageError, match=r"^feature 'label': .* got more, such as 'a', 'b', 'c'"):
        _ = merged(*parts) if by_merging else analyze(rows, asked)


def test_text_that_is_no_class_name_is_not_collected():
    asked = analyzer(CLASSIFICATION)
    rows = text_rows(*({"image": "a.jpg", "label": f"two\nlines {i}"} for i in range(9)))
    assert analyze(rows, asked).labels["label"].found == set()


def test_given_classes_are_not_collected_from_rows(monkeypatch):
    monkeypatch.setattr(feature_values, "MAX_CLASSES", 0)
    asked = analyzer(CLASSIFICATION, classes=("dog",))
    assert analyze(text_rows({"image": "a.jpg", "label": "cat"}), asked).labels == {}


@pytest.mark.parametrize(
    ("limit", "schema", "options", "message"),
    [
        (
            "MAX_SPLITS",
            CLASSIFICATION,
            {"split_column": "part"},
            "--split_column: expected at most 3 splits, got more",
        ),
        ("MAX_COLUMNS", preset("tabular"), {}, "--input: expected at most 3 columns, got more"),
    ],
    ids=["splits", "columns"],
)
def test_splits_and_columns_are_limited(limit, schema, options, message, monkeypatch):
    monkeypatch.setattr(analysis_module, limit, 3)
    asked = analyzer(schema, **options)
    if options:
        rows = text_rows(*({"image": "a", "label": "x", "part": f"p{i}"} for i in range(4)))
    else:
        rows = text_rows(*({f"c{i}": "x"} for i in range(4)))
    parts = [analyze(rows[:3], asked), analyze(rows[1:], asked)]
    for grow in (lambda: analyze(rows, asked), lambda: merged(*parts)):
        with pytest.raises(UsageError, match=f"^{message}"):
            grow()


def test_classes_of_columns_that_no_feature_uses_are_left_out():
    asked = analyzer(preset("image_classification"))
    assert asked.with_source({"other": DeclaredClasses(((0, "a"),))}, ()).declared == {}
