"""JoinLabels: rows with labels are joined, rows without are rejects, other labels are counted."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.features import Feature
from recordmill.schemas.records import UNMATCHED_LABELS, Items, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.transforms.elements import RowCoder
from recordmill.transforms.functional.rows.columns import ColumnKinds
from recordmill.transforms.functional.values.typed import items_of, single_value
from recordmill.transforms.join_labels import JoinLabels, _join, _join_key, _join_row
from recordmill.transforms.read_rows import ReadOutcome
from tests.beam.direct import as_tuples, direct_pipeline


def row(line: int, place: Location | None = None, **values: Any) -> Row:
    return Row(values, "rows.jsonl", line, image=place)


def label(line: int, **values: Any) -> Row:
    return Row(values, "labels.csv", line, is_text=True)


def outcome(p: beam.Pipeline, name: str, rows: list[Row], unread: list[Reject]) -> ReadOutcome:
    return ReadOutcome(
        p | f"{name}Rows" >> beam.Create([rows[:2], rows[2:]]),
        p | f"{name}Rejects" >> beam.Create(unread),
        p | f"{name}SkippedInputs" >> beam.Create([(name, SkippedInput(name))]),
    )


def test_rows_are_joined_with_labels() -> None:
    place = Location("x.tar", 5, 9)
    rows = [
        row(1, place, id="a", image="a.jpg"),
        row(2, id="b", image="b.jpg", n=1),
        row(3, id=7, image="7.jpg"),
        row(4, id="a", image="a again.jpg"),
        row(5, id="none", image="none.jpg"),
        row(6, id="", image="empty.jpg"),
        row(7, id=1.5, image="float.jpg"),
    ]
    labels = [
        label(4, id="b", box="0.2", kind="x"),
        label(2, id="a", box="0.1", kind="x"),
        label(3, id="b", box="", kind="x"),
        label(5, id="7", n="2"),
        label(6, id="nobody"),
        label(7, id="nobody"),
        label(8, box="1"),
    ]
    unread = [Reject.of_malformed_row("labels.csv", 9, "why")]
    with direct_pipeline() as p:
        read = outcome(p, "of rows", rows, [])
        of_labels = outcome(p, "of labels", labels, unread)
        joined = read | JoinLabels(of_labels, ("id", "id"), "image")
        found = joined.read
        a = {"id": Items("a"), "box": Items(["0.1"]), "kind": Items("x")}
        b = {"id": Items("bb"), "box": Items(["", "0.2"]), "kind": Items("xx")}
        untyped = frozenset({"id", "box", "kind"})
        good = [
            Row({"image": "a.jpg", **a}, "rows.jsonl", 1, untyped, place),
            Row({"image": "a again.jpg", **a}, "rows.jsonl", 4, untyped),
            Row({"image": "b.jpg", "n": 1, **b}, "rows.jsonl", 2, untyped),
            Row({"image": "7.jpg", "id": Items("7"), "n": Items("2")}, "rows.jsonl", 3,
                frozenset({"id", "n"})),
        ]  # fmt: skip
        bad = [
            ("none.jpg", "", "rows.jsonl:5", "unmatched_join", ""),
            ("", "", "rows.jsonl:6", "missing_value", ""),
            ("", "", "rows.jsonl:7", "wrong_type", ""),
            ("", "", "labels.csv:8", "missing_value", ""),
            ("", "", "labels.csv:9", "malformed_row", ""),
        ]
        assert_that(found.good, equal_to([[row] for row in good]), label="Rows")
        assert_that(as_tuples(found.rejects, "ToTuples"), equal_to(bad), label="Rejects")
        skipped = [
            ("of rows", SkippedInput("of rows")),
            ("of labels", SkippedInput("of labels")),
            (UNMATCHED_LABELS, SkippedInput(UNMATCHED_LABELS, 2)),
        ]
        assert_that(found.skipped, equal_to(skipped), label="SkippedInputs")
        without = [("nobody", "", "labels.csv:6"), ("nobody", "", "labels.csv:7")]
        assert_that(joined.labels, equal_to(without), label="Labels")
        assert_that(joined.images, equal_to([("none", "none.jpg", "rows.jsonl:5")]), label="Images")


def test_tables_are_joined_on_columns_of_different_names() -> None:
    with direct_pipeline() as p:
        rows = [row(1, id="é", image="1.png"), row(2, id="b", image="2.png")]
        labels = [label(2, id_code="e\u0301", id="x"), label(3, id_code="b")]
        read = outcome(p, "of rows", rows, [])
        of_labels = outcome(p, "of labels", labels, [])
        joined = read | JoinLabels(of_labels, ("id", "id_code"), "image")
        one = {"image": "1.png", "id": Items("x"), "id_code": Items(["e\u0301"])}
        two = {"image": "2.png", "id": "b", "id_code": Items("b")}
        good = [
            [Row(one, "rows.jsonl", 1, frozenset({"id", "id_code"}))],
            [Row(two, "rows.jsonl", 2, frozenset({"id_code"}))],
        ]
        assert_that(joined.read.good, equal_to(good), label="Rows")
        assert_that(joined.labels, equal_to([]), label="Labels")
        assert_that(joined.images, equal_to([]), label="Images")


def test_join_keys_are_texts_or_integers() -> None:
    assert [_join_key(row(1, id=v), "id") for v in ("007", 7, Items(["x", "x"]))] == [
        "007",
        "7",
        "x",
    ]
    for value in (None, "", 1.5, True, b"x", "\ud800", Items(["x", "y"])):
        with pytest.raises(RecordError, match="column 'id': "):
            _join_key(row(1, id=value), "id")


LIST = Feature.model_validate({"kind": "bytes", "from": "column:x", "shape": []})


def test_several_labels_are_a_list_and_must_agree_for_a_single_value() -> None:
    made = _join_row(row(1, id="a"), [label(2, x="1|2", y="u"), label(1, x="3", y="u")])
    assert items_of(made.values["x"], LIST, is_text=True) == ["3", "1", "2"]
    assert single_value(made.values["y"]) == "u"
    with pytest.raises(RecordError) as raised:
        single_value(made.values["x"])
    assert raised.value.reason is Reason.WRONG_TYPE
    assert raised.value.detail == "expected one value, got several: '3', '1|2'"


def test_a_single_typed_label_is_also_a_list() -> None:
    made = _join_row(row(1, id="a"), [Row({"x": 5, "y": ["a", "b"]}, "l.jsonl", 1)])
    assert items_of(made.values["x"], LIST, is_text=False) == [5]
    assert items_of(made.values["y"], LIST, is_text=False) == ["a", "b"]
    assert single_value(made.values["x"]) == 5


def test_the_kinds_of_joined_columns_are_those_of_their_values() -> None:
    kinds = ColumnKinds()
    for labels in ([label(1, x="1", y="u")], [label(2, x="2", y="v"), label(3, x="3", y="v")]):
        made = _join_row(row(1, id="a"), labels)
        kinds.add([made])
    found = {name: (f.kind.value, f.shape) for name, f in kinds.features().items()}
    assert found == {"id": ("bytes", None), "x": ("int64", ()), "y": ("bytes", None)}


@pytest.mark.parametrize("is_text", [True, False, frozenset({"x"}), frozenset()])
@pytest.mark.parametrize("image", [None, Location("a"), Location("a.tar", 1, 2)])
def test_a_row_crosses_the_shuffle_unchanged(
    is_text: bool | frozenset[str], image: Location | None
) -> None:
    values = {"x": Items([1, "ü"]), "y": [0.5], "z": None, "b": b"\xff", "s": "\udcff"}
    made = Row(values, "t.csv", 3, is_text, image)
    coder = RowCoder()
    again = coder.decode(coder.encode(made))
    assert again == made
    assert type(again.values["x"]) is Items


@pytest.mark.parametrize(
    ("example", "hint"), [(None, ""), ("a.jpg", "; that of their first row is 'a.jpg'")]
)
def test_a_row_without_labels_is_compared_with_the_first_label(example: Any, hint: str) -> None:
    sides = {"rows": [row(1, id="a", image="a.jpg")], "labels": []}
    reject, _ = _join(("a", sides), "name", "image", example)
    detail = f"the labels have no row whose 'name' is 'a'{hint}"
    assert reject.value == Reject("a.jpg", "", "rows.jsonl:1", Reason.UNMATCHED_JOIN, detail)
