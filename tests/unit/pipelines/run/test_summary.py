"""Notes on class names that look like numbers, and on leakage between many splits."""

from __future__ import annotations

import pytest

from recordmill.pipelines.run.summary import (
    class_name_notes,
    duplicate_notes,
    encoding_notes,
    id_notes,
    number_notes,
    shard_notes,
)
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.plan import SourceEntry
from recordmill.schemas.settings import ImageSettings
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


@pytest.mark.parametrize(
    ("config", "notes"),
    [
        ({"classes": None, "num_classes": None}, 1),
        ({"classes": ["0", "1"]}, 0),
        ({"num_classes": 2}, 0),
    ],
)
def test_numeric_class_names_that_options_set_are_not_noted(
    config: dict[str, object], notes: int
) -> None:
    manifest = Manifest.model_construct(config=config, classes={"x": ("0", "1")}, splits={})
    assert len(class_name_notes(manifest)) == notes


def test_of_many_pairs_of_leaking_splits_some_are_listed_and_the_others_counted() -> None:
    leak = Leakage(splits=("a", "b"), images=1, records=2)
    lines = duplicate_notes(DuplicateStats(leaks=(leak,) * 44_850))
    assert len(lines) == 12
    assert lines[10] == "warning: 44,840 more pairs of splits share images"


@pytest.mark.parametrize(
    ("settings", "images", "notes"),
    [
        ({"max_side": 9}, {"jpeg kept": 3, "webp to png, resized": 1}, []),
        (
            {"max_side": 9, "quality": 80},
            {"jpeg kept": 3, "jpeg to jpeg, resized": 2, "mpo to jpeg, resized": 1},
            [
                "encoded: 3 images as JPEG with quality 80; "
                "--image format=png resizes without further loss"
            ],
        ),
        (
            {"format": "jpeg"},
            {"png to jpeg, jpeg": 1},
            ["encoded: 1 image as JPEG with quality 95"],
        ),
    ],
)
def test_images_encoded_with_loss_are_noted(
    settings: dict[str, object], images: dict[str, int], notes: list[str]
) -> None:
    features = {"image": Feature.model_validate({"kind": "bytes", "from": "image:bytes"})}
    schema = Schema(features=features, image=ImageSettings.model_validate(settings))
    manifest = Manifest.model_construct(dataset_schema=schema, images=images)
    assert encoding_notes(manifest) == notes


@pytest.mark.parametrize(
    ("names", "ids", "notes"),
    [
        (("a", "b"), {"a": 0, "b": 1}, []),
        (("background", "a", "b"), {"a": 1, "b": 2}, []),
        (("a", "b", "new"), {"a": 0, "b": 1}, []),
        (
            ("z", "a", "m"),
            {"z": 1, "a": 7, "m": 90},
            [
                "note: 3 class ids of 'x' differ from the source (z 1 → 0, a 7 → 1, m 90 → 2), "
                "because ids count from 0 without gaps"
            ],
        ),
        (
            ("a", "b"),
            {"a": 1, "b": 2},
            [
                "note: 2 class ids of 'x' differ from the source (a 1 → 0, b 2 → 1), "
                "because ids count from 0 without gaps",
                "      (--label_offset 1 keeps the ids of the source)",
            ],
        ),
    ],
)
def test_class_ids_that_differ_from_the_source_are_noted(
    names: tuple[str, ...], ids: dict[str, int], notes: list[str]
) -> None:
    assert id_notes("x", names, SourceEntry(class_ids={"x": ids})) == notes


def test_contradicting_class_ids_are_noted() -> None:
    source = SourceEntry(class_ids={"x": {"a": 0}}, conflicts={"x": "b.yaml: id 0 is 'b'"})
    assert id_notes("x", ("a", "b"), source) == [
        "note: b.yaml: id 0 is 'b'. The classes of 'x' are in the order of the files."
    ]


@pytest.mark.parametrize(
    ("records", "noted"), [([1] * 9 + [0] * 11, True), ([1] * 12 + [0] * 12, False), ([0], False)]
)
def test_splits_with_mostly_empty_shards_are_noted(records: list[int], noted: bool) -> None:
    expected = (
        f"warning: {records.count(0)} of the {len(records)} shards of 'train' are empty. "
        "Lower --num_shards, or give --shard_size a unit, as in 128MiB."
    )
    assert shard_notes({"train": records}) == ([expected] if noted else [])
