"""VerifyShards: the counts of each shard as TensorFlow reads it, and its problems."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import google_crc32c
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset_info import Problem, ShardVerification, WrittenShard
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.removal import digest_of_key
from recordmill.schemas.statistics import SplitTally
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.shards.checkpoints import Checkpoints
from recordmill.transforms.verification.verify_shard import Removed
from recordmill.transforms.verify_shards import FindRemovedRecords, Verified, VerifyShards
from recordmill.transforms.write_shards import WriteShards
from tests.beam.direct import RESOLVED, config, direct_pipeline, example, plan, ref
from tests.images import jpeg, png

FILES = [f"birds-train.tfrecord-{i:05d}-of-00002" for i in range(2)]
INDEXES = [f"records/records-train-{i:05d}-of-00002.parquet" for i in range(2)]
LABELS = [[0, 1, 0], [1]]


def written_shard(dataset: Path, index: int) -> WrittenShard:
    """Returns the shard as its writer counted it."""
    found = verify_index(dataset, index)
    return WrittenShard(
        split="train",
        index=index,
        records=found.entry.records,
        payload=found.entry.payload,
        crc32c=found.entry.crc32c,
        index_crc32c=found.index_crc32c,
        classes={"label": {label: LABELS[index].count(label) for label in set(LABELS[index])}},
        images={"png kept": len(LABELS[index])},
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A folder with two shards."""
    elements = []
    for shard, labels in enumerate(LABELS):
        for place, label in enumerate(labels):
            name = f"{shard}{place}.png"
            (tmp_path / name).write_bytes(png(seed=place) if label else jpeg(seed=place))
            one = bytes([place]), ref(name, 2, tmp_path, label)
            elements.append((("train", shard), OrderedRefs.of([one])))
    with direct_pipeline() as p:
        resolved_plan = p | "Plan" >> beam.Create([plan(4, train=2)])
        target = str(tmp_path / "out")
        _ = (
            p
            | beam.Create(elements)
            | WriteShards(
                config(), Checkpoints(f"{target}.checkpoints", target, "birds"), resolved_plan
            )
        )
    return tmp_path / "out"


def verify_index(dataset: Path, index: int) -> ShardVerification:
    """Returns the expected verification of a shard, computed from its file and images."""
    shard, records = (dataset / FILES[index]).read_bytes(), (dataset / INDEXES[index]).read_bytes()
    examples = [
        example(name, (dataset.parent / name).read_bytes(), label)
        for place, label in enumerate(LABELS[index])
        for name in [f"{index}{place}.png"]
    ]
    entry = ShardEntry(
        file=FILES[index],
        records=len(examples),
        payload=sum(map(len, examples)),
        bytes=len(shard),
        sha256=hashlib.sha256(shard).hexdigest(),
        crc32c=google_crc32c.value(shard),
        index_file=INDEXES[index],
        index_sha256=hashlib.sha256(records).hexdigest(),
        images={"png kept": len(examples)},
    )
    return ShardVerification("train", index, entry, google_crc32c.value(records))


def verify_indexes(
    p: beam.Pipeline, dataset: Path, shards: Sequence[WrittenShard], **options: str
) -> Verified:
    written = p | "Shards" >> beam.Create([(shard, plan(4, train=2)) for shard in shards])
    return written | VerifyShards(config(**options), str(dataset))


@pytest.mark.parametrize("verify", ["parse", "decode"])
def test_a_good_shard_has_no_problems(verify: str, dataset: Path) -> None:
    shards = [written_shard(dataset, index) for index in (0, 1)]
    with direct_pipeline() as p:
        verified = verify_indexes(p, dataset, shards, verify=verify)
        expected = [verify_index(dataset, 0), verify_index(dataset, 1)]
        assert_that(verified.shards, equal_to(expected))
        total = SplitTally(records=4, classes={"label": Counter({0: 2, 1: 2})})
        assert_that(verified.tallies, equal_to([("train", total)]), label="Tallies")


@pytest.mark.parametrize("change", [{"records": 2}, {"crc32c": 5}, {"classes": {"label": {0: 3}}}])
def test_a_shard_that_differs_from_the_one_written_is_a_problem(
    change: dict[str, Any], dataset: Path
) -> None:
    shard = replace(written_shard(dataset, 0), **change)
    with direct_pipeline() as p:
        verified = verify_indexes(p, dataset, [shard])
        problems = verified.shards | beam.FlatMap(lambda found: found.problems)
        named = problems | beam.Map(lambda one: (one.file, one.message.partition(":")[0]))
        assert_that(named, equal_to([(FILES[0], name) for name in change]))


def test_damage_is_located_by_record_and_byte(dataset: Path) -> None:
    shards = [written_shard(dataset, index) for index in (0, 1)]
    shard = dataset / FILES[0]
    data = bytearray(shard.read_bytes())
    second = 16 + int.from_bytes(data[:8], "little")
    data[second + 100] ^= 1
    shard.write_bytes(data)
    with direct_pipeline() as p:
        places = verify_indexes(p, dataset, shards).shards | beam.FlatMap(
            lambda found: [(p.file, p.record, p.offset) for p in found.problems if p.record]
        )
        assert_that(places, equal_to([(FILES[0], 1, second)]))


def test_a_class_without_a_name_is_a_problem(dataset: Path) -> None:
    one_class = plan(4, train=2)
    one_class = replace(one_class, resolved=replace(one_class.resolved, classes={"label": ("a",)}))
    with direct_pipeline() as p:
        found = (
            p
            | "Shards" >> beam.Create([(written_shard(dataset, 1), one_class)])
            | VerifyShards(config(), str(dataset))
        ).shards
        problems = found | beam.FlatMap(lambda verification: verification.problems)
        what = "feature 'label' holds class id 1; there are 1 classes"
        assert_that(problems, equal_to([Problem(FILES[1], what)]))


def test_a_missing_shard_fails_the_run(dataset: Path) -> None:
    shards = [written_shard(dataset, index) for index in (0, 1)]
    (dataset / FILES[1]).unlink()
    p = direct_pipeline()
    verify_indexes(p, dataset, shards)
    with pytest.raises(Exception, match="No such file"):
        p.run()


def test_removed_records_are_found_in_all_shards(dataset: Path) -> None:
    image = hashlib.sha256((dataset.parent / "01.png").read_bytes()).hexdigest()
    removed = Removed(frozenset({digest_of_key("10.png")}), frozenset({image}), RESOLVED)
    damaged = replace(verify_index(dataset, 1), problems=(Problem(FILES[1], "is damaged"),))
    shards = [verify_index(dataset, 0), verify_index(dataset, 1), damaged]
    key = "its key '10.png' is one that removal.json states as removed"
    second = "its image is one that removal.json states as removed (key '01.png')"
    first_frame = 16 + len(example("00.png", (dataset.parent / "00.png").read_bytes()))
    expected = [
        replace(shards[0], problems=(Problem(FILES[0], second, 1, first_frame),)),
        replace(shards[1], problems=(Problem(FILES[1], key, 0, 0),)),
        damaged,  # it may be unreadable
    ]
    with direct_pipeline() as p:
        found = p | beam.Create(shards) | FindRemovedRecords(str(dataset), removed)
        assert_that(found, equal_to(expected))


def test_a_shard_that_cannot_be_searched_is_a_problem(dataset: Path) -> None:
    shard = verify_index(dataset, 1)
    (dataset / INDEXES[1]).write_bytes(b"")
    with direct_pipeline() as p:
        found = p | beam.Create([shard])
        found |= FindRemovedRecords(str(dataset), Removed(frozenset(), frozenset(), RESOLVED))
        message = (
            f"cannot be searched for removed records: {dataset}/{INDEXES[1]}: is not the file that "
            "manifest.json lists: its sha256 differs. Restore it from a backup."
        )
        assert_that(found, equal_to([replace(shard, problems=(Problem(FILES[1], message),))]))
