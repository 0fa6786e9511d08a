"""WriteShards: every planned shard has exactly its records, in order."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import google_crc32c
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import execution
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.records import ImageRef
from recordmill.schemas.shard_format import SHARD_FORMATS, ShardFormat
from recordmill.schemas.statistics import ImageTally
from recordmill.transforms.elements import CheckedRows, ShardId
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.shards import shard_task
from recordmill.transforms.shards.checkpoints import Checkpoints
from recordmill.transforms.write_shards import WriteShards
from tests.beam.direct import TABLE, as_tuples, config, direct_pipeline, example, plan, records, ref
from tests.images import jpeg
from tests.shard_formats import every_compression, unpacked

Assigned = tuple[ShardId, tuple[bytes, ImageRef]]

LAYOUT = {("train", 0): "dab", ("train", 2): "c", ("test", 0): "e"}
"""Shard to the names of its images, in their order; shard 1 of train has none."""

SHARDS = {"train": 3, "test": 1}


@pytest.fixture
def assigned(tmp_path: Path) -> list[Assigned]:
    """References in another order than in their shards."""
    elements = []
    for (split, shard), names in LAYOUT.items():
        for place, name in enumerate(names):
            (tmp_path / f"{name}.jpg").write_bytes(jpeg(seed=ord(name)))
            image = ref(f"{name}.jpg", ord(name), tmp_path, ord(name) % 2)
            elements.append(((split, shard), (bytes([9, place]), image)))
    return sorted(elements, key=lambda element: element[1][1].key, reverse=True)


def written(
    p: beam.Pipeline, assigned: list[Assigned], output: Path, **options: Any
) -> CheckedRows:
    resolved_plan = p | "Plan" >> beam.Create([plan(len(assigned), **SHARDS)])
    checkpoints = Checkpoints(f"{output}.checkpoints", str(output), "birds")
    writer = WriteShards(config(output, **options), checkpoints, resolved_plan)
    return (
        p | "AssignedRows" >> beam.Create([(s, OrderedRefs.of([r])) for s, r in assigned]) | writer
    )


def expected_records(folder: Path, names: str) -> list[bytes]:
    return [
        example(f"{name}.jpg", (folder / f"{name}.jpg").read_bytes(), ord(name) % 2)
        for name in names
    ]


def shard_file(split: str, shard: int, suffix: str = "") -> str:
    return f"birds-{split}.tfrecord-{shard:05d}-of-{SHARDS[split]:05d}{suffix}"


def index_file(split: str, shard: int) -> str:
    return f"records/records-{split}-{shard:05d}-of-{SHARDS[split]:05d}.parquet"


EVERY_SHARD = [(split, shard) for split, count in SHARDS.items() for shard in range(count)]


def assert_written(output: Path, images: Path, found: ShardFormat = SHARD_FORMATS["none"]) -> None:
    """Asserts that exactly the expected shards and indexes exist, with the expected content."""
    files = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    assert files == {
        name
        for split, shard in EVERY_SHARD
        for name in (shard_file(split, shard, found.suffix), index_file(split, shard))
    }
    for split, shard in EVERY_SHARD:
        names = LAYOUT.get((split, shard), "")
        path = output / shard_file(split, shard, found.suffix)
        if found.tensorflow is not None:
            assert records(path, found.tensorflow) == expected_records(images, names)
        index = pq.read_table(output / index_file(split, shard)).to_pylist()
        assert [(row["key"], row["split"], row["shard"], row["index"]) for row in index] == [
            (f"{name}.jpg", split, shard, i) for i, name in enumerate(names)
        ]


def test_every_shard_has_exactly_its_records_in_order(
    assigned: list[Assigned], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with direct_pipeline() as p:
        outcome = written(p, assigned, output)
        assert_that(outcome.rejects, equal_to([]))
    assert_written(output, tmp_path)


def tally_of(images: list[bytes]) -> ImageTally:
    """Returns the expected tally of JPEGs of 16 x 12 pixels."""
    number, sizes = len(images), list(map(len, images))
    return ImageTally(
        formats=Counter(jpeg=number) if images else Counter(),
        channels=Counter({3: number} if images else {}),
        widths=Counter({16: number} if images else {}),  # 2^(16/4)
        heights=Counter({14: number} if images else {}),  # 2^(14/4) = 11.3
        ratios=Counter({3: number} if images else {}),  # 2^(3/8) = 1.30
        sizes=Counter(int(4 * math.log2(size)) for size in sizes),
        extremes={"width": (16, 16), "height": (12, 12), "bytes": (min(sizes), max(sizes))}
        if images
        else {},
        total_bytes=sum(sizes),
    )


def test_the_infos_describe_the_files(assigned: list[Assigned], tmp_path: Path) -> None:
    output = tmp_path / "out"
    infos: list[WrittenShard] = []
    with direct_pipeline() as p:
        written(p, assigned, output)
    for split, shard in EVERY_SHARD:
        names = LAYOUT.get((split, shard), "")
        serialized = expected_records(tmp_path, names)
        labels = [ord(name) % 2 for name in names]
        infos.append(
            WrittenShard(
                split=split,
                index=shard,
                records=len(names),
                payload=sum(map(len, serialized)),
                crc32c=google_crc32c.value((output / shard_file(split, shard)).read_bytes()),
                index_crc32c=google_crc32c.value((output / index_file(split, shard)).read_bytes()),
                classes={"label": {label: labels.count(label) for label in sorted(set(labels))}},
                images={"jpeg kept": len(names)} if names else {},
                shapes=tally_of([(tmp_path / f"{name}.jpg").read_bytes() for name in names]),
            )
        )
    with direct_pipeline() as p:
        outcome = written(p, assigned, tmp_path / "again")
        shards = outcome.good | beam.Keys()
        assert_that(shards, equal_to(infos))


@every_compression
def test_compressed_shards_have_the_same_stream(
    assigned: list[Assigned], tmp_path: Path, found: ShardFormat
) -> None:
    plain, zipped = tmp_path / "plain", tmp_path / "zipped"
    with direct_pipeline() as p:
        written(p, assigned, plain)
    with direct_pipeline() as p:
        written(p, assigned, zipped, compression=found.name)
    assert_written(zipped, tmp_path, found)
    for split, shard in EVERY_SHARD:
        stored = (zipped / shard_file(split, shard, found.suffix)).read_bytes()
        assert unpacked(found, stored) == (plain / shard_file(split, shard)).read_bytes()


def test_a_retried_bundle_leaves_no_duplicate_files(
    assigned: list[Assigned], tmp_path: Path
) -> None:
    """Runs each bundle three times, like an engine with retries or speculative execution."""
    output = tmp_path / "out"
    with direct_pipeline(bundle_repeat=2) as p:
        written(p, assigned, output)
    assert_written(output, tmp_path)


def test_a_shard_that_another_attempt_has_left_stays_if_it_is_the_same(
    assigned: list[Assigned], tmp_path: Path
) -> None:
    """As an attempt leaves it whose worker is lost before the engine knows that it is done."""
    output = tmp_path / "out"
    with direct_pipeline() as p:
        written(p, assigned, output)
    shutil.rmtree(f"{output}.checkpoints")
    kept = output / shard_file("train", 0)
    before = kept.stat().st_ino
    with direct_pipeline() as p:
        written(p, assigned, output)
    assert kept.stat().st_ino == before
    assert_written(output, tmp_path)

    shutil.rmtree(f"{output}.checkpoints")
    kept.write_bytes(b"other")
    late = pytest.raises(RecordmillError, match="another attempt has written it with other bytes")
    with late, direct_pipeline() as p:
        written(p, assigned, output)
    assert kept.read_bytes() == b"other"


def test_an_attempt_that_ends_after_publication_leaves_no_checkpoint(
    assigned: list[Assigned], tmp_path: Path
) -> None:
    """As that of a worker in an object store which returns when all checkpoints are deleted."""
    output = tmp_path / "out"
    checkpoints = Path(f"{output}.checkpoints")
    with direct_pipeline() as p:
        written(p, assigned, output)
    shutil.rmtree(checkpoints)
    (output / "_SUCCESS").touch()
    with direct_pipeline() as p:
        written(p, assigned, output)
    assert list(checkpoints.iterdir()) == []
    (output / "_SUCCESS").unlink()
    with direct_pipeline() as p:
        written(p, assigned, output)
    assert len(list(checkpoints.iterdir())) == len(EVERY_SHARD)


def test_an_attempt_that_returns_after_a_local_run_has_published_creates_nothing(
    assigned: list[Assigned], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, build = tmp_path / ".1.0.0.run", shard_task._build_records
    run.mkdir()

    def publish_meanwhile(*arguments: Any) -> Iterator[Any]:
        shutil.rmtree(run / "dataset" / ".staging")
        (run / "dataset").rename(tmp_path / "1.0.0")
        shutil.rmtree(run)
        return build(*arguments)

    monkeypatch.setattr(shard_task, "_build_records", publish_meanwhile)
    before = {path.name for path in tmp_path.iterdir()}
    ended = pytest.raises(RecordmillError, match=r"not written, because the run's folder was ren")
    with ended, direct_pipeline() as p:
        written(p, assigned, run / "dataset")
    assert {path.name for path in tmp_path.iterdir()} == before - {run.name} | {"1.0.0"}


def test_all_shards_are_written_without_rows(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with direct_pipeline() as p:
        outcome = written(p, [], output)
        assert_that(outcome.rejects, equal_to([]))
    for split, shard in EVERY_SHARD:
        assert (output / shard_file(split, shard)).read_bytes() == b""
        assert pq.read_table(output / index_file(split, shard)).num_rows == 0


def test_bad_images_and_duplicate_keys_are_rejects_of_their_split(
    assigned: list[Assigned], tmp_path: Path
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(64, 48)[:-500])
    (tmp_path / "c.jpg").unlink()
    again = (("train", 0), (bytes([9, 2]), ref("b.jpg", 500, tmp_path)))
    output = tmp_path / "out"
    with direct_pipeline() as p:
        outcome = written(p, [again, *assigned], output)
        rejects = [
            ("a.jpg", f"{tmp_path}/a.jpg", f"{TABLE}:{ord('a')}", "truncated", "train"),
            ("b.jpg", f"{tmp_path}/b.jpg", f"{TABLE}:500", "duplicate_key", "train"),
            ("c.jpg", f"{tmp_path}/c.jpg", f"{TABLE}:{ord('c')}", "missing_file", "train"),
        ]
        assert_that(as_tuples(outcome.rejects, "ToTuples"), equal_to(rejects))
    assert records(output / shard_file("train", 0)) == expected_records(tmp_path, "db")
    assert records(output / shard_file("train", 2)) == []
    assert records(output / shard_file("test", 0)) == expected_records(tmp_path, "e")


def test_no_image_bytes_cross_a_shuffle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records all bytes that the runner keeps between stages, in groupings and elsewhere."""
    number, images = 200, [jpeg(256, 192, seed=i, quality=95) for i in range(5)]
    assert min(map(len, images)) > 10_000
    for i, image in enumerate(images):
        (tmp_path / f"{i}.jpg").write_bytes(image)
    refs = [ref(f"{i % 5}.jpg", i, tmp_path)._replace(key=f"key {i}") for i in range(number)]
    elements = [(("train", i % 3), (bytes([i]), one)) for i, one in enumerate(refs)]
    grouped, kept = [], []
    watch(monkeypatch, execution.GroupingBuffer, grouped.append)
    watch(monkeypatch, execution.ListBuffer, kept.append)
    with direct_pipeline() as p:
        written(p, elements, tmp_path / "out")
    assert sum(len(records(tmp_path / "out" / shard_file("train", i))) for i in range(3)) == number
    shuffled = b"".join(grouped)
    assert b"key 199" in shuffled
    assert len(shuffled) <= 1000 * number
    for data in (*grouped, *kept):
        assert not any(image[500:532] in data for image in images)


def watch(monkeypatch: pytest.MonkeyPatch, buffer: type, note: Callable[[bytes], None]) -> None:
    """Records all bytes that are added to a buffer of the runner."""
    append = buffer.append

    def noting(self: object, data: bytes) -> None:
        note(bytes(data))
        append(self, data)

    monkeypatch.setattr(buffer, "append", noting)
