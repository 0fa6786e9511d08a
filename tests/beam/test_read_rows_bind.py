"""BindRows: a row becomes a typed reference, or a reject with its reason."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.records import ImageRef, Row
from recordmill.transforms.elements import CheckedRows
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.read_rows import BindRows
from tests.beam.direct import TABLE, as_tuples, config, direct_pipeline, plan

SETTINGS = config(
    columns={"image": "file"},
    key_column="id",
    split_column="split",
    group_column="bird",
    splits={"train": 1, "test": 1},
)


def row(line: int, **values: Any) -> Row:
    given = {"id": f"k{line}", "file": "a/1.jpg", "label": "dog", "split": "train", "bird": "b"}
    return Row({**given, **values}, TABLE, line, is_text=True)


def bound(p: beam.Pipeline, rows: list[Row]) -> CheckedRows:
    resolved_plan = p | "Plan" >> beam.Create([plan(len(rows), train=1, test=1)])
    binding = Binding.of(SETTINGS, SETTINGS.dataset_schema)
    return p | "Rows" >> beam.Create([rows]) | BindRows(binding, resolved_plan)


def test_rows_become_references_of_typed_values() -> None:
    rows = [row(2), row(3, file="/b/2.jpg", label="0", split="", bird="7")]
    with direct_pipeline() as p:
        outcome = bound(p, rows)
        expected = [
            ImageRef(
                key="k2",
                uri="/tables/a/1.jpg",
                start=None,
                stop=None,
                values=(None, b"a/1.jpg", 1),
                file=TABLE,
                line=2,
                split="train",
                group="b",
            ),
            ImageRef(
                key="k3",
                uri="/b/2.jpg",
                start=None,
                stop=None,
                values=(None, b"/b/2.jpg", 0),
                file=TABLE,
                line=3,
                split="",
                group="7",
            ),
        ]
        assert_that(outcome.good, equal_to([expected]), label="Refs")
        assert_that(outcome.rejects, equal_to([]), label="Rejects")


def test_rows_that_do_not_match_the_schema_are_rejected() -> None:
    rows = [
        row(2, label="cow"),
        row(3, label="2"),
        row(4, label=""),
        row(5, split="tset"),
        row(6, bird=""),
        row(7, file=""),
        row(8, id=None),
        row(9),
    ]
    with direct_pipeline() as p:
        outcome = bound(p, rows)
        uri = "/tables/a/1.jpg"
        expected = [
            ("k2", uri, f"{TABLE}:2", "unknown_label", ""),
            ("k3", uri, f"{TABLE}:3", "unknown_label", ""),
            ("k4", uri, f"{TABLE}:4", "missing_value", ""),
            ("k5", uri, f"{TABLE}:5", "unknown_split", ""),
            ("k6", uri, f"{TABLE}:6", "missing_value", ""),
            ("", "", f"{TABLE}:7", "missing_value", ""),
            ("", uri, f"{TABLE}:8", "missing_value", ""),
        ]
        keys = outcome.good | "Keys" >> beam.FlatMap(lambda refs: [ref.key for ref in refs])
        assert_that(keys, equal_to(["k9"]), label="Refs")
        assert_that(as_tuples(outcome.rejects, "ToTuples"), equal_to(expected), label="Rejects")
