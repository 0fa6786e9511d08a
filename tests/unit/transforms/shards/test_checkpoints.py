"""Checkpoints: which shards are finished, and which of them stay."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import google_crc32c
import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import Checkpoint, WrittenShard
from recordmill.schemas.features import Schema
from recordmill.schemas.option import Affects, fields_that_affect
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.records import image_columns
from recordmill.transforms.functional.rows.batches import RefBatch
from recordmill.transforms.shards import build_examples
from recordmill.transforms.shards.checkpoints import (
    Checkpoints,
    Fingerprint,
    is_reusable,
    settings_fingerprint,
)
from recordmill.transforms.storage.shard_files import ShardFiles
from tests.unit.schemas.other_values import OPTIONS, config, with_and_without

SHARDS = [f"birds-a-b.tfrecord-{i:05d}-of-00003" for i in range(3)]
INDEXES = [f"records/records-a-b-{i:05d}-of-00003.parquet" for i in range(3)]
FILES = ShardFiles("", "a-b", 0, SHARDS[0], INDEXES[0])


def checkpoint(data: bytes = b"shard", index: bytes = b"index") -> Checkpoint:
    shard = WrittenShard(
        split="a-b",
        index=0,
        records=1,
        payload=9,
        crc32c=google_crc32c.value(data),
        index_crc32c=google_crc32c.value(index),
        classes={"label": Counter({0: 1})},
    )
    sizes = len(data), len(index)
    return Checkpoint(fingerprint="f", shard=shard, sizes=sizes, versions=({}, {}), faults=())


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """The checkpoints of three finished shards."""
    found = Checkpoints(str(tmp_path / "run/checkpoints"), str(tmp_path / "dataset"), "birds")
    (tmp_path / "dataset/records").mkdir(parents=True)
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    for shard, index in zip(SHARDS, INDEXES, strict=True):
        (tmp_path / "dataset" / shard).write_bytes(b"shard")
        (tmp_path / "dataset" / index).write_bytes(b"index")
        found.write(checkpoint(), shard)
    return found


def test_what_is_written_is_read_again(checkpoints: Checkpoints) -> None:
    assert checkpoints.read(SHARDS[0]) == checkpoint()
    assert checkpoints.read("birds-a-b.tfrecord-00003-of-00004") is None
    assert checkpoints.shards() == set(SHARDS)
    checkpoints.delete(SHARDS[0])
    assert checkpoints.read(SHARDS[0]) is None


def test_one_that_is_damaged_matches_no_shard_and_has_its_files_replaced(
    checkpoints: Checkpoints,
) -> None:
    path = Path(checkpoints.directory) / f"{SHARDS[0]}.json"
    path.write_bytes(path.read_bytes()[:-1])
    damaged = checkpoints.read(SHARDS[0])
    assert damaged is not None
    assert not is_reusable(damaged, "f", FILES)
    assert damaged.versions == ({}, {})


def test_all_others_are_deleted_with_their_files(checkpoints: Checkpoints) -> None:
    checkpoints.keep([SHARDS[1]])
    assert checkpoints.shards() == {SHARDS[1]}
    dataset = Path(checkpoints.dataset)
    left = {str(p.relative_to(dataset)) for p in dataset.rglob("*") if p.is_file()}
    assert left == {SHARDS[1], INDEXES[1]}


@pytest.mark.parametrize("name", [SHARDS[0], INDEXES[0]])
@pytest.mark.parametrize("data", [b"", b"shard1", b"shord", None])
def test_a_shard_is_complete_if_both_files_are_as_they_were(
    name: str, data: bytes | None, checkpoints: Checkpoints
) -> None:
    files = replace(FILES, directory=checkpoints.dataset)
    assert is_reusable(checkpoint(), "f", files)
    assert not is_reusable(checkpoint(), "g", files)
    path = Path(checkpoints.dataset, name)
    path.unlink() if data is None else path.write_bytes(data)
    assert not is_reusable(checkpoint(), "f", files)


CLASSIFIED = ResolvedSchema(preset("image_classification"), {"label": ("cat", "dog")})
REF = ImageRef("a", "/d/t.csv", 2, "/d/a.jpg", None, None, (None, b"a.jpg", 1))

# Pinned, because a run on another engine or machine must find the shards of an earlier one again.
DIGEST = "683bc1bcfe0ee777535a5b3cb31379e1278d3274aab33f239dba47ec147e6771"


def digest(ref: ImageRef) -> str:
    return Fingerprint("settings", "train", 0, RefBatch.of([ref]), ["tag"], CLASSIFIED).digest


@pytest.mark.parametrize(
    "field", [{"file": "u.csv"}, {"line": 3}, {"split": "test"}, {"group": "g"}, {"cluster": "c"}]
)
def test_what_only_places_a_row_is_not_in_a_fingerprint(field: dict[str, Any]) -> None:
    assert digest(REF._replace(**field)) == digest(REF) == DIGEST


@pytest.mark.parametrize(
    "field", [{"key": "b"}, {"uri": "/d/b.jpg"}, {"boxes": ("pixel", [1.0])}, {"staged": b"s"}]
)
def test_what_a_record_is_made_of_is_in_a_fingerprint(field: dict[str, Any]) -> None:
    assert digest(REF._replace(**field)) != DIGEST


def settings(config: ConvertConfig) -> str:
    resolved = ResolvedSchema(preset("image_classification"), {"label": ("cat", "dog")})
    return settings_fingerprint(config, resolved, {"Pillow": "12"})


@pytest.mark.parametrize("option", OPTIONS)
def test_the_settings_fingerprint_changes_with_each_option_that_affects_shards(option: str) -> None:
    other, without = map(settings, with_and_without(option))
    assert (other != without) is bool(OPTIONS[option].option.affects & Affects.SHARD)


@pytest.mark.parametrize("module", [build_examples, image_columns])
def test_options_that_records_are_built_with_affect_shards(module: ModuleType) -> None:
    """One that is declared otherwise would let a run with another value keep wrong shards."""
    used = set(re.findall(r"\bconfig\.(\w+)", inspect.getsource(module)))
    assert used
    assert used <= fields_that_affect(ConvertConfig, Affects.SHARD)


@pytest.mark.parametrize("origin", ["mask:mask", "segmentation:outlines"])
def test_the_number_of_classes_affects_shards_with_mask_files(origin: str) -> None:
    key = "image/segmentation/class/encoded"
    document = preset("segmentation").model_dump(by_alias=True)
    document["features"][key]["from"] = origin
    schema = Schema.model_validate(document)
    digests = {
        settings_fingerprint(config(), ResolvedSchema(schema, {key: names}), {})
        for names in (("a",), ("b",), ("a", "b"))
    }
    assert len(digests) == (2 if origin == "mask:mask" else 1)
