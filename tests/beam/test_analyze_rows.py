"""AnalyzeRows: splits, classes, kinds and sizes become one plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Missing
from recordmill.schemas.origins import Kind
from recordmill.schemas.plan import Plan, SplitRanges
from recordmill.schemas.records import Row
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.analyze_rows import AnalyzeRows
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.placement import POSITION_BYTES, order_of
from tests.beam.direct import TABLE, config, direct_pipeline


def analyzer(settings: ConvertConfig) -> Analyzer:
    schema = settings.dataset_schema
    ranges = SplitRanges.from_weights(settings.weights)
    return Analyzer(settings, schema, Binding.of(settings, schema), ranges)


def row(line: int, is_text: bool = True, **values: Any) -> Row:
    return Row(values, TABLE, line, is_text)


def summary(plan: Plan) -> tuple[dict[str, tuple[str, ...]], dict[str, int], int]:
    return dict(plan.resolved.classes), dict(plan.shards), plan.rows


ROWS = [
    row(2, image="1.jpg", label="dog", split="train"),
    row(3, image="2.jpg", label="cat", split="test"),
    row(4, image="1.jpg", label="dog", split="test"),
    row(5, image="", label="no image, so no class", split="train"),
    row(6, image="3.jpg", label=" ", split=""),
    row(7, image="1.jpg", label="emu", split="train"),
]


def test_the_plan_has_classes_shards_and_rows() -> None:
    settings = config(split_column="split", num_shards={"test": 5})
    with direct_pipeline() as p:
        plan = p | beam.Create([ROWS[:4], ROWS[4:]]) | AnalyzeRows(analyzer(settings))
        expected = ({"label": ("cat", "dog", "emu")}, {"test": 5, "train": 1}, 6)
        assert_that(plan | beam.Map(summary), equal_to([expected]))


def test_given_classes_take_precedence_over_found_classes() -> None:
    settings = config(classes=("yak", "dog"))
    with direct_pipeline() as p:
        plan = p | beam.Create([ROWS[:4], ROWS[4:]]) | AnalyzeRows(analyzer(settings))
        expected = ({"label": ("yak", "dog")}, {"train": 1}, 6)
        assert_that(plan | beam.Map(summary), equal_to([expected]))


def test_integer_labels_have_no_names() -> None:
    rows = [row(2, image="1.jpg", label="7"), row(3, image="2.jpg", label="-3")]
    with direct_pipeline() as p:
        plan = p | beam.Create([rows]) | AnalyzeRows(analyzer(config()))
        assert_that(plan | beam.Map(summary), equal_to([({"label": ()}, {"train": 1}, 2)]))


def test_a_sample_has_the_classes_and_splits_of_all_rows() -> None:
    settings = config(splits={"train": 3, "test": 1}, split_method="exact")
    kept = [row(2, image="1.jpg", label="emu"), row(3, image="2.jpg", label="cat")]
    others = [row(line, image=f"{line}.jpg", label=f"c{line}") for line in range(4, 10)]
    with direct_pipeline() as p:
        every = p | "All" >> beam.Create([kept, others])
        plan = p | "Sample" >> beam.Create([kept]) | AnalyzeRows(analyzer(settings), every)
        all_of_them = every | "Whole" >> AnalyzeRows(analyzer(settings))
        names = ("c4", "c5", "c6", "c7", "c8", "c9", "cat", "emu")
        both = (plan, all_of_them) | beam.Flatten()
        ranges = both | beam.Map(lambda plan: (plan.resolved.classes, plan.ranges.bounds))
        rows = plan | "Rows" >> beam.Map(lambda plan: plan.rows)
        assert_that(rows, equal_to([2]), label="Rows of the sample")
        assert_that(ranges, _equal_ones({"label": names}), label="Same plan")


def _equal_ones(classes: dict[str, tuple[str, ...]]) -> Any:
    def check(found: list[Any]) -> None:
        (one, other) = found
        assert one == other
        assert one[0] == classes

    return check


def test_the_number_of_shards_follows_the_size_of_the_images(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(bytes(10_000))
    rows = [row(2, image="1.jpg", label="a"), row(3, image="nowhere.jpg", label="a")]
    settings = config(image_root=str(tmp_path), shard_size=4_000)
    with direct_pipeline() as p:
        plan = p | beam.Create([rows]) | AnalyzeRows(analyzer(settings))
        # two records of 10,000 bytes and less than 1,000 of names, labels and framing
        expected = ({"label": ("a",)}, {"train": 6}, 2)
        assert_that(plan | beam.Map(summary), equal_to([expected]))


def test_the_kind_of_a_column_fits_all_its_values() -> None:
    settings = config(dataset_schema=preset("tabular"))
    rows = [
        row(2, n="1", f="1", flag="true", text="1", code="007", gap="1"),
        row(3, n="-2", f="2.5", flag="False", text="x", code="8", gap=""),
        row(4, n="3", f="1e3", flag="TRUE", text="", code="9"),
    ]

    def kinds(plan: Plan) -> dict[str, tuple[Kind, Missing]]:
        features = plan.resolved.schema.features.items()
        return {name: (feature.kind, feature.missing) for name, feature in features}

    expected = {
        "code": (Kind.BYTES, Missing.REQUIRED),
        "f": (Kind.FLOAT, Missing.REQUIRED),
        "flag": (Kind.INT64, Missing.REQUIRED),
        "gap": (Kind.INT64, Missing.EMPTY),
        "n": (Kind.INT64, Missing.REQUIRED),
        "text": (Kind.BYTES, Missing.REQUIRED),
    }
    with direct_pipeline() as p:
        plan = p | beam.Create([rows]) | AnalyzeRows(analyzer(settings))
        assert_that(plan | beam.Map(kinds), equal_to([expected]))


def test_an_analyze_pass_without_rows_plans_nothing() -> None:
    with direct_pipeline() as p:
        rows = p | beam.Create([])
        plan = rows | AnalyzeRows(analyzer(config()))
        assert_that(plan | beam.Map(summary), equal_to([({"label": ()}, {}, 0)]))


@pytest.mark.parametrize("records", [1, 3, 50, 100])
def test_shard_starts_equal_those_of_one_sorted_list(
    records: int,
) -> None:
    settings = config(split_column="split", records_per_shard=records)
    rows = [
        row(i, image=f"{i % 90}.jpg", label="a", split=("test", "train")[i % 3 > 0])
        for i in range(180)  # each key occurs twice
    ]
    starts = {}
    for split in ("test", "train"):
        keys = [r.values["image"] for r in rows if r.values["split"] == split]
        positions = sorted(
            {int.from_bytes(order_of(key, seed=0)[:POSITION_BYTES], "big") for key in keys}
        )
        starts[split] = tuple(positions[records::records])
    with direct_pipeline() as p:
        plan = p | beam.Create([rows]) | AnalyzeRows(analyzer(settings))
        shards = {split: len(found) + 1 for split, found in starts.items()}
        found = plan | beam.Map(lambda plan: (dict(plan.starts), dict(plan.shards)))
        assert_that(found, equal_to([(starts, shards)]))
