"""FindImageIssues: similar images and images of low quality of several shards."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import numpy as np
from PIL import Image

from recordmill.schemas.dataset_info import Problem, ShardVerification
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.records import ImageShape, SerializedExample
from recordmill.schemas.statistics import ImageFindings, Leakage, RecordExample
from recordmill.transforms.functional.images.pixels import thumbnail_of
from recordmill.transforms.functional.records.index import RecordIndex
from recordmill.transforms.similar_rows import FindImageIssues
from tests.beam.direct import RESOLVED, direct_pipeline, plan, ref


def landscape(seed: int, offset: int = 0) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 200, (24, 32), dtype=np.uint8)
    return Image.fromarray(small + np.uint8(offset)).resize((160, 120), Image.Resampling.BICUBIC)


def write_index(folder: Path, split: str, images: dict[str, Image.Image]) -> ShardVerification:
    """Writes the index of the only shard of a split."""
    name = f"records/records-{split}-00000-of-00001.parquet"
    (folder / "records").mkdir(exist_ok=True)
    with (folder / name).open("wb") as stream:
        index = RecordIndex(stream, split, 0, RESOLVED)
        for number, (key, image) in enumerate(images.items()):
            shape = ImageShape("jpeg", *image.size, 3, 999, thumbnail_of(image))
            digest = f"{number:02}{split.encode().hex()}".ljust(64, "0")
            index.add([SerializedExample(ref(key, 1), b"record", digest, "jpeg kept", shape=shape)])
        index.close()
    entry = ShardEntry(
        **{"file": f"x-{split}", "records": len(images), "bytes": 0, "payload": 0, "sha256": ""},
        **{"crc32c": 0, "index_file": name, "index_sha256": "", "images": {}},
    )
    return ShardVerification(split=split, index=0, entry=entry, index_crc32c=0)


def findings(folder: Path, shards: list[ShardVerification]) -> ImageFindings:
    """Returns the findings, which the runner passes on only by a file."""
    with direct_pipeline() as p:
        resolved_plan = p | "Plan" >> beam.Create([plan(4, train=1, test=1)])
        parts = p | beam.Create(shards) | FindImageIssues(str(folder), resolved_plan)
        found = parts | beam.Flatten() | beam.CombineGlobally(ImageFindings.sum_of)
        _ = found | beam.Map(lambda one: (folder / "findings").write_bytes(pickle.dumps(one)))
    result: ImageFindings = pickle.loads((folder / "findings").read_bytes())  # noqa: S301 - ours
    return result


def test_similar_images_and_blank_ones_are_found(tmp_path: Path) -> None:
    train = {"a": landscape(1), "b": landscape(2), "black": Image.new("L", (160, 120))}
    shards = [
        write_index(tmp_path, "train", train),
        write_index(tmp_path, "test", {"c": landscape(3), "d": landscape(2, 20)}),
    ]
    found = findings(tmp_path, shards)
    near, quality = found.near_duplicates, found.quality
    assert (near.compared, near.groups, near.records, near.duplicates) == (4, 1, 2, {})
    leak = Leakage(splits=("test", "train"), images=1, records=2, examples=(("d", "b"),))
    assert near.leaks == (leak,)
    assert near.examples[0].examples == (
        RecordExample(key="d", split="test", shard=0, index=1),
        RecordExample(key="b", split="train", shard=0, index=1),
    )
    assert (quality.measured, quality.issues["blank"].images) == (5, {"train": 1})
    assert quality.issues["dark"].examples == (
        (0.0, RecordExample(key="black", split="train", shard=0, index=2)),
    )


def test_damaged_shards_are_left_out(tmp_path: Path) -> None:
    shard = write_index(tmp_path, "train", {"a": landscape(1), "b": landscape(1, 9)})
    damaged = replace(shard, problems=(Problem(shard.entry.index_file, "is missing"),))
    assert findings(tmp_path, [damaged]) == ImageFindings()
    assert findings(tmp_path, [shard]).near_duplicates.duplicates == {"train": 1}
