"""Locations of sample records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipelines.report import samples
from recordmill.pipelines.report.samples import (
    Thumbnail,
    ThumbnailBudget,
    _sample_locations,
    _thumbnails,
)
from recordmill.schemas.features import Schema
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.dataset import DatasetFolder
from tests.unit.pipelines.report.index_only import CLASSES, dataset

RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=12)
SPLITS = st.fixed_dictionaries(
    {"test": st.lists(RECORDS, max_size=2), "train": st.lists(RECORDS, min_size=1, max_size=3)}
)


@settings(max_examples=40)
@given(SPLITS, st.integers(1, 3))
def test_samples_are_the_first_of_each_class_and_split(tmp_path_factory, splits, each):
    made = dataset(tmp_path_factory.mktemp("x"), splits)
    numbers = {split: dict.fromkeys(CLASSES, each) for split in splits}
    locations = _sample_locations(made, numbers)
    expected = defaultdict(list)
    for split, shards in splits.items():
        for i, records in enumerate(shards):
            for n, (label, _) in enumerate(records):
                if len(expected[split, CLASSES[label]]) < each:
                    expected[split, CLASSES[label]].append(f"{split}-{i}-{n}")
    keys = {cell: [at.key for at in found] for cell, found in locations.items()}
    assert keys == dict(expected)


def test_a_record_with_several_labels_of_a_class_is_one_sample_of_it(tmp_path, monkeypatch):
    made = dataset(tmp_path, {"train": [[(0, 1), (0, 2)]]})
    two_boxes = [at._replace(classes=("cat", "cat")) for at in made.locations(_only(made), {"cat"})]
    monkeypatch.setattr(DatasetFolder, "locations", lambda *_: iter(two_boxes))
    found = _sample_locations(made, {"train": {"cat": 4}})
    assert [at.key for at in found["train", "cat"]] == ["train-0-0", "train-0-1"]


STEREO = Schema.model_validate(
    {
        "features": {
            "left": {"kind": "bytes", "from": "image:bytes"},
            "right": {"kind": "bytes", "from": "image:right/bytes"},
        }
    }
)


@pytest.mark.parametrize(
    ("schema", "drawn"),
    [
        (preset("image_classification"), [0, 1, 0]),
        (preset("object_detection"), [0, 1, 2]),
        (preset("segmentation"), [0, 1, 2]),
        pytest.param(STEREO, [0, 1, 2], id="two images"),
    ],
)
def test_identical_images_are_drawn_once_unless_they_have_boxes_masks_or_others(
    tmp_path, monkeypatch, schema, drawn
):
    made = dataset(tmp_path, {"train": [[(0, "a"), (0, "b"), (1, "a")]]})
    manifest = made.manifest.model_copy(update={"dataset_schema": schema})
    monkeypatch.setattr(DatasetFolder, "record", lambda _, shard, number, span: str(number))
    monkeypatch.setattr(samples, "_draw", lambda record, schema, names: Thumbnail(url=record))
    budget = ThumbnailBudget(2)
    shown = _thumbnails(replace(made, manifest=manifest), made.locations(_only(made)), budget)
    assert [one.url for one in shown.values()] == [*map(str, drawn[:2]), ""]
    budget = ThumbnailBudget(3)
    shown = _thumbnails(replace(made, manifest=manifest), made.locations(_only(made)), budget)
    assert {at.record: one.url for at, one in shown.items()} == dict(enumerate(map(str, drawn)))


def _only(made):
    (shard,) = made.manifest.splits["train"].shards
    return shard
