"""The content of manifest.json, and its round trip through JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification, manifest_of
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import Manifest, ShardEntry, SplitEntry
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.row_counts import RowCounts, SplitCounts
from recordmill.schemas.statistics import Conflicts, DuplicateStats, GroupLeakage, Leakage
from recordmill.schemas.yaml_files import preset, preset_names


def verified(split, index, records, images):
    entry = ShardEntry(
        file=f"birds-{split}.tfrecord-{index}",
        records=records,
        payload=10 * records,
        bytes=26 * records,
        sha256=f"{index}a" * 32,
        crc32c=100 + index,
        index_file=f"records/{split}-{index}.parquet",
        index_sha256=f"{index}b" * 32,
        images=images,
    )
    return ShardVerification(split, index, entry, 200 + index)


SCHEMA = preset("image_classification")
RESOLVED = ResolvedSchema(SCHEMA, {"label": ("cat", "dög")})
CONFIG = ConvertConfig(
    inputs=("t.csv",),
    output="gs://bucket/out",
    name="birds",
    schema=SCHEMA,
    splits={"train": "0.9", "test": "0.1"},
    max_rejects={"amount": "0.5", "percent": True},
    if_exists="replace",
)
SPLITS = {
    "test": SplitCounts(rows=3, records=2, rejected=0, duplicates=1),
    "train": SplitCounts(rows=8, records=6, rejected=2, duplicates=0),
}
INFO = DatasetInfo(
    plan=Plan(RESOLVED, {"test": 1, "train": 2}, 12),
    counts=RowCounts.of(
        13, SPLITS, 2, {"corrupt": 2, "wrong_type": 2}, {"hidden files and folders": 3}
    ),
    splits=SPLITS,
    shards=(
        verified("test", 0, 2, {"gif to png": 1}),
        verified("train", 0, 4, {"jpeg kept": 7}),
        verified("train", 1, 2, {}),
    ),
    classes={"test": {"label": {1: 2}}, "train": {"label": {0: 1, 1: 3}}},
    content=DuplicateStats(
        images=5,
        duplicates={"train": 2},
        leaks=(Leakage(splits=("test", "train"), images=1, records=3, examples=(("a", "b"),)),),
        conflicts=Conflicts(images=1, records=2, examples=(("b", "c"),)),
    ),
    problems=(),
)
SIDECARS = {"features.json": "cd" * 32, "label.labels.txt": "ef" * 32}


def without_rows(resolved):
    plan = Plan(resolved, {}, 0)
    return DatasetInfo(plan, RowCounts.of(0, {}), {}, (), problems=())


def shard_document(shard, images):
    records, index = shard.entry.records, shard.index
    return {
        "file": f"birds-{shard.split}.tfrecord-{index}",
        "records": records,
        "bytes": 26 * records,
        "payload": 10 * records,
        "sha256": f"{index}a" * 32,
        "crc32c": 100 + index,
        "index_file": f"records/{shard.split}-{index}.parquet",
        "index_sha256": f"{index}b" * 32,
        "images": images,
    }


def test_the_complete_document():
    document = json.loads(manifest_of(INFO, CONFIG, SIDECARS).to_json())
    schema = document.pop("dataset_schema")
    config = document.pop("config")
    assert document == {
        "format_version": FORMAT_VERSION,
        "name": "birds",
        "version": "1.0.0",
        "fingerprint": CONFIG.fingerprint,
        "classes": {"label": ["cat", "dög"]},
        "input": {
            "rows": 13,
            "records": 8,
            "rejected": 4,
            "duplicates": 1,
            "unplaced": 2,
            "reasons": {"corrupt": 2, "wrong_type": 2},
            "asides": {"hidden files and folders": 3},
        },
        "splits": {
            "test": {
                "rows": 3,
                "records": 2,
                "rejected": 0,
                "duplicates": 1,
                "classes": {"label": {"1": 2}},
                "shards": [shard_document(INFO.shards[0], {"gif to png": 1})],
            },
            "train": {
                "rows": 8,
                "records": 6,
                "rejected": 2,
                "duplicates": 0,
                "classes": {"label": {"0": 1, "1": 3}},
                "shards": [
                    shard_document(INFO.shards[1], {"jpeg kept": 7}),
                    shard_document(INFO.shards[2], {}),
                ],
            },
        },
        "images": {"gif to png": 1, "jpeg kept": 7},
        "content": {
            "images": 5,
            "duplicates": {"train": 2},
            "leaks": [
                {"splits": ["test", "train"], "images": 1, "records": 3, "examples": [["a", "b"]]}
            ],
            "conflicts": {"images": 1, "records": 2, "examples": [["b", "c"]]},
            "dropped_conflicts": {"images": 0, "records": 0, "examples": []},
        },
        "shares": {
            "test": {"asked": 0.1, "actual": 0.25},
            "train": {"asked": 0.9, "actual": 0.75},
        },
        "sidecars": SIDECARS,
        "lines": {},
        "base": None,
    }
    # The names in their order: the text is the same in every run, and in every release.
    assert list(document["input"])[:4] == ["rows", "records", "rejected", "duplicates"]
    assert list(document["splits"]["test"])[:2] == ["rows", "records"]
    assert list(document["splits"]["test"]["shards"][0])[:4] == [
        *("file", "records", "bytes", "payload")
    ]
    assert Schema.model_validate(schema) == SCHEMA
    assert config["splits"] == {"train": "0.9", "test": "0.1"}
    # The same input and options give the same bytes, wherever they are written to.
    assert "output" not in config
    assert "if_exists" not in config


def test_a_manifest_survives_a_round_trip_through_json():
    manifest = manifest_of(INFO, CONFIG, SIDECARS)
    again = Manifest.model_validate_json(manifest.to_json())
    assert again == manifest
    assert again.resolved == RESOLVED
    assert again.to_json() == manifest.to_json()


def test_leaking_groups_are_written_if_there_are_any():
    leaks = GroupLeakage(groups=7, examples=(("p1", ("test", "train")),))
    manifest = manifest_of(replace(INFO, group_leaks=leaks), CONFIG, SIDECARS)
    document = json.loads(manifest.to_json())
    assert document["group_leaks"] == {"groups": 7, "examples": [["p1", ["test", "train"]]]}
    assert Manifest.model_validate_json(manifest.to_json()).group_leaks == leaks


@pytest.mark.parametrize("name", [name for name in preset_names() if preset(name).features])
def test_every_preset_survives_a_round_trip_through_json(name):
    resolved = ResolvedSchema(preset(name), {})
    info = without_rows(resolved)
    manifest = manifest_of(info, CONFIG, {})
    assert Manifest.model_validate_json(manifest.to_json()).resolved == resolved


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "bytes", "default": "7"},
        {"kind": "float", "default": 0.1},
        {"kind": "int64", "default": 0},
        {"kind": "float", "shape": [4], "separator": ";"},
        {"kind": "int64", "missing": "empty"},
    ],
    ids=str,
)
def test_every_option_of_a_feature_survives_a_round_trip_through_json(options):
    schema = Schema(features={"f": Feature(**{"sources": ("column:a", "key"), **options})})
    info = without_rows(ResolvedSchema(schema))
    again = Manifest.model_validate_json(manifest_of(info, CONFIG, {}).to_json())
    assert again.resolved.schema == schema
    assert again.dataset_schema.features["f"].default == options.get("default")


def test_the_manifest_does_not_depend_on_the_output_folder():
    elsewhere = CONFIG.model_copy(update={"output": "/tmp/x", "if_exists": "fail"})  # noqa: S108
    assert manifest_of(INFO, elsewhere, SIDECARS) == manifest_of(INFO, CONFIG, SIDECARS)


def test_a_file_that_is_not_a_manifest_is_rejected():
    document = json.loads(manifest_of(INFO, CONFIG, SIDECARS).to_json())
    with pytest.raises(ValidationError, match="hue"):
        Manifest.model_validate({**document, "hue": "red"})
    del document["splits"]
    with pytest.raises(ValidationError, match="splits"):
        Manifest.model_validate(document)


def test_a_later_format_version_is_rejected():
    document = json.loads(manifest_of(INFO, CONFIG, SIDECARS).to_json())
    with pytest.raises(ValidationError, match="format_version"):
        Manifest.model_validate({**document, "format_version": FORMAT_VERSION + 1})


def test_a_split_is_shown_in_a_line():
    split = SplitEntry(rows=2, records=2, rejected=0, duplicates=0, shards=())
    assert repr({"train": split}) == "{'train': SplitEntry(records=2, shards=0)}"
