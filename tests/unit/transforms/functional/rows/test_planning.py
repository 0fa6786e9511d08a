"""The plan of a dataset: schema, class names and shards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import Base, Manifest
from recordmill.schemas.origins import Kind, Origin, Source
from recordmill.schemas.plan import Plan, ResolvedSchema, SourceEntry
from recordmill.schemas.records import Row
from recordmill.schemas.row_counts import RowCounts, SplitCounts
from recordmill.schemas.tables import DeclaredClasses
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.analysis import (
    Analysis,
    _num_shards,
    build_plan,
    check_shard_counts,
)
from tests.unit.transforms.functional.rows.analyzed import analyze, analyzer, text_rows

MIB = 2**20

CLASSIFICATION = preset("image_classification")


def test_a_plan():
    asked = analyzer(CLASSIFICATION, split_column="part")
    rows = text_rows(
        {"image": "a.jpg", "label": "dog", "part": "train"},
        {"image": "b.jpg", "label": "cat", "part": "train"},
        {"image": "c.jpg", "label": "dog", "part": "test"},
        {"image": "", "label": "owl", "part": "test"},  # counted, but it is no record
        {
            "image": "e.jpg",
            "label": "",
            "part": "",
        },  # the only split that there is without --splits
    )
    expected = Plan(
        ResolvedSchema(CLASSIFICATION, {"label": ("cat", "dog")}), {"test": 1, "train": 1}, 5
    )
    plan = build_plan(analyze(rows, asked), asked, {})
    assert replace(plan, source=expected.source) == expected
    assert plan.source is not None
    assert [finding.kind for finding in plan.source.findings] == ["rows_without_split"]


@pytest.mark.parametrize(
    ("label", "declared", "inputs", "ids"),
    [
        ("1", "", 2, "label"),
        ("1", "", 1, ""),
        ("1", "image/class/label", 1, "image/class/label"),
        ("1", "image/class/label", 2, "image/class/label"),
        ("cat", "", 2, ""),
    ],
)
def test_ids_that_nothing_names_are_noted_if_they_may_be_other_classes(
    label, declared, inputs, ids
):
    asked = analyzer(CLASSIFICATION)
    asked = replace(
        asked,
        config=asked.config.model_copy(update={"inputs": ("a", "b")[:inputs]}),
        declared={"label": DeclaredClasses((), unnamed=declared)} if declared else {},
    )
    rows = text_rows({"image": "a.jpg", "label": label}, {"image": "b.jpg", "label": label})
    found = build_plan(analyze(rows, asked), asked, {}).source.findings
    why = "are kept as they are, because nothing names them"
    assert [one.text for one in found] == [f"the class ids in {ids!r} {why}"] * bool(ids)
    hint = "if they differ, convert each input with its names as --classes FILE, then the datasets"
    assert [one.hint for one in found] == [hint * (inputs > 1)] * bool(ids)


def test_a_plan_counts_the_records_that_stay():
    asked = analyzer(CLASSIFICATION)
    splits = {"train": SplitCounts(rows=9, records=7, rejected=2, duplicates=0)}
    counts = RowCounts.of(9, splits)
    manifest = Manifest.model_construct(
        classes={}, splits={}, input=counts, dataset_schema=CLASSIFICATION
    )
    for keeps_records, kept in ((True, 7), (False, 0)):
        base = Base("b", "", manifest, {}, keeps_records)
        plan = build_plan(Analysis(rows=3), replace(asked, base=base), {})
        assert (plan.rows, plan.kept, plan.most_records) == (3, kept, 3 + kept)


def test_without_rows_columns_without_a_schema_are_those_of_the_base_version():
    features = {"n": Feature(kind=Kind.INT64, sources=(Source(origin=Origin.COLUMN, name="n"),))}
    every = Schema(features={}, every_column=True)
    old = every.model_copy(update={"features": features})
    manifest = Manifest.model_construct(
        classes={}, splits={}, input=RowCounts.of(0, {}), dataset_schema=old, source=None
    )
    base = Base("b", "", manifest, {}, keeps_records=True)
    plan = build_plan(Analysis(), replace(analyzer(every), base=base), {})
    assert plan.resolved.schema == old
    with pytest.raises(UsageError, match="the table has no columns"):
        build_plan(Analysis(rows=1), replace(analyzer(every), base=base), {})


def test_configured_classes_take_precedence():
    asked = analyzer(CLASSIFICATION, classes=("dog", "cat"))
    rows = text_rows({"image": "a", "label": "owl"})
    assert build_plan(analyze(rows, asked), asked, {}).resolved.classes == {"label": ("dog", "cat")}


def test_rows_without_columns_are_reported():
    asked = analyzer(preset("tabular"))
    with pytest.raises(
        UsageError, match=r"^--input t\.csv: the table has no columns\. Add a column\.$"
    ):
        build_plan(analyze([Row({}, "/d/t.jsonl", 1)], asked), asked, {})


def test_every_column_becomes_a_feature():
    asked = analyzer(preset("tabular"))
    rows = text_rows({"n": "1", "x": "0.5", "t": "a"}, {"n": "", "x": "2", "t": "b"})
    plan = build_plan(analyze(rows, asked), asked, {})
    assert plan.resolved.schema.features == {
        "n": Feature(kind="int64", sources="column:n", missing="empty"),
        "t": Feature(kind="bytes", sources="column:t"),
        "x": Feature(kind="float", sources="column:x"),
    }
    assert (plan.rows, plan.shards) == (2, {"train": 1})


@pytest.mark.parametrize(
    ("size", "requested", "split", "expected"),
    [
        (0, "auto", "train", 1),
        (1, "auto", "train", 1),
        (128 * MIB, "auto", "train", 1),
        (128 * MIB + 1, "auto", "train", 2),
        (1024 * MIB, "auto", "train", 8),
        (10**15 * MIB, "auto", "train", 99_999),
        (1024 * MIB, 3, "train", 3),
        (1024 * MIB, {"train": 5}, "train", 5),
        (1024 * MIB, {"train": 5}, "test", 8),
    ],
    ids=str,
)
def test_number_of_shards(size, requested, split, expected):
    config = analyzer(CLASSIFICATION, num_shards=requested).config
    assert _num_shards(size, config, split) == expected


def test_the_number_of_shards_depends_on_the_mean_size_of_readable_images():
    asked = analyzer(CLASSIFICATION, shard_size="1MiB")
    rows = text_rows(*({"image": f"{i}.jpg", "label": "1"} for i in range(100)))
    # 100 images of 100 KiB on average fill 9.77 shards of 1 MiB; the rest of a record is small.
    sizes = {f"/d/{i}.jpg": 1024 * (50 if i % 2 else 150) for i in range(0, 98)}
    assert build_plan(analyze(rows, asked), asked, sizes).shards == {"train": 10}


def test_text_counts_as_bytes_of_a_record():
    asked = analyzer(preset("tabular"), shard_size="1MiB")
    rows = text_rows(*({"t": "x" * 100_000} for _ in range(100)))  # 9.54 MiB
    assert build_plan(analyze(rows, asked), asked, {}).shards == {"train": 10}


FIELDS = st.fixed_dictionaries(
    {"image": st.sampled_from(["", "a.jpg", "b.jpg"]) | st.text("xyz", max_size=4)},
    optional={
        "label": st.sampled_from(["", "cat", "dog", "1", "2", "007", " cat"]),
        "part": st.sampled_from(["", "train", "test", "no split"]),
        "score": st.sampled_from(["", "0", "1.5", "x", "true"]),
    },
)
EVERYTHING = Schema(features=CLASSIFICATION.features, every_column=True)


@given(
    st.lists(FIELDS, max_size=30),
    st.randoms(use_true_random=False),
    st.integers(1, 5),
    st.sampled_from([CLASSIFICATION, EVERYTHING]),
)
@settings(max_examples=60)
def test_parts_merged_in_any_order_give_the_same_plan(fields, shuffler, parts, schema):
    weights = {"train": "0.5", "test": "0.5"}
    asked = analyzer(schema, split_column="part", splits=weights, shard_size=300)
    rows = text_rows(*fields)
    sizes = {"/d/a.jpg": 1000, "/d/b.jpg": 5000}
    expected = build_plan(analyze(rows, asked), asked, sizes)
    shuffler.shuffle(rows)
    pieces = [analyze(rows[i::parts], asked) for i in range(parts)]
    shuffler.shuffle(pieces)
    total = Analysis()
    while pieces:  # added up as a tree, as a runner with many workers does
        pair, pieces = pieces[:2], pieces[2:]
        total = Analysis.sum_of([total, Analysis.sum_of(pair)])
    assert build_plan(total, asked, sizes) == expected


def with_offset(schema):
    document = schema.model_dump(by_alias=True)
    for feature in document["features"].values():
        feature["label_offset"] = int(feature["classes"])
    return Schema.model_validate(document)


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (["dog", "cat"], None, ("background", "cat", "dog")),
        (["dog", "background"], None, ("background", "dog")),
        (["dog"], ("dog", "cat"), ("background", "dog", "cat")),
        (["dog"], ("background", "dog"), ("background", "dog")),
        (["3", "1"], None, ()),
    ],
)
def test_the_background_is_the_first_class_where_labels_are_offset(labels, classes, expected):
    asked = analyzer(with_offset(CLASSIFICATION), classes=classes)
    rows = text_rows(*({"image": "a", "label": label} for label in labels))
    assert build_plan(analyze(rows, asked), asked, {}).resolved.classes == {"label": expected}


def test_the_classes_of_a_mask_are_those_of_its_outlines_or_the_given_ones():
    mask = "image/segmentation/class/encoded"

    def classes(source, **options):
        document = preset("segmentation").model_dump(by_alias=True)
        document["features"][mask]["from"] = [source]
        asked = analyzer(Schema.model_validate(document), **options)
        rows = [Row({"image": "a", "labels": ["dog", "cat"], "mask": "m"}, "t", 1)]
        return build_plan(analyze(rows, asked), asked, {}).resolved.classes

    assert classes("segmentation:outlines") == {mask: ("background", "cat", "dog")}
    assert classes("mask:mask") == {mask: ()}
    assert classes("mask:mask", classes=("owl",)) == {mask: ("background", "owl")}


def test_the_shards_of_a_split_are_limited():
    check_shard_counts({"train": 99_999}, 1)
    with pytest.raises(RecordmillError, match="got 100000 for 'test'"):
        check_shard_counts({"train": 10, "test": 199_999}, 2)


def test_classes_that_the_source_declares_have_its_order_even_if_they_are_absent():
    declared = {"label": DeclaredClasses(((1, "z"), (7, "a"), (90, "m")))}
    asked = analyzer(preset("image_classification")).with_source(declared, ("read as a test",))
    rows = text_rows({"image": "1.jpg", "label": "m"}, {"image": "2.jpg", "label": "b"})
    plan = build_plan(analyze(rows, asked), asked, {})
    assert plan.resolved.classes == {"label": ("z", "a", "m", "b")}
    assert plan.source == SourceEntry(
        recognized=("read as a test",), class_ids={"label": {"z": 1, "a": 7, "m": 90}}
    )
    chosen = analyzer(preset("image_classification"), classes=("m", "b"))
    plan = build_plan(analyze(rows, asked), chosen.with_source(declared, ()), {})
    assert plan.resolved.classes == {"label": ("m", "b")}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["1.0", "0.0", ""], ("labels of 'label' such as 0.0 are read as integers",)),
        (["1", "0"], ()),
        (["1.0", "cat"], ()),
    ],
)
def test_integers_that_are_written_as_floats_are_noted(labels, expected):
    asked = analyzer(CLASSIFICATION)
    rows = text_rows(*({"image": f"{i}.jpg", "label": x} for i, x in enumerate(labels)))
    assert build_plan(analyze(rows, asked), asked, {}).source.recognized == expected
