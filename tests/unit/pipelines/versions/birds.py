"""A dataset with one split and shard, for the tests of `forget`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.schemas.manifest import Manifest, ShardEntry, SplitEntry
from recordmill.schemas.row_counts import RowCounts
from recordmill.schemas.statistics import DuplicateStats
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.dataset import DatasetFolder

CONFIG = {"inputs": ["/in/t.csv"], "output": "/out", "name": "birds"}


class Birds(DatasetFolder):
    """A dataset with one split and shard, of which only the index is on disk."""

    def rejects(self) -> Iterator[dict[str, Any]]:
        yield {"key": "rejected.jpg"}

    def dropped(self) -> Iterator[dict[str, Any]]:
        yield {"key": "dropped.jpg", "repeats": "a.jpg"}


def dataset(folder: Path, rows: list[tuple[str, str, str | None]], **config: Any) -> Birds:
    """Returns a dataset with records (key, sha256, phash)."""
    index = folder / "birds/1.0.0/records/records-train-00000-of-00001.parquet"
    index.parent.mkdir(parents=True)
    names = ("key", "sha256", "phash")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    pq.write_table(pa.table({**columns, "index": list(range(len(rows)))}), index)
    shard = ShardEntry(
        file="birds-train.tfrecord-00000-of-00001",
        records=len(rows),
        bytes=0,
        payload=0,
        sha256="",
        crc32c=0,
        index_file=f"records/{index.name}",
        index_sha256=hashlib.sha256(index.read_bytes()).hexdigest(),
        images={},
    )
    train = SplitEntry(rows=len(rows), records=len(rows), rejected=0, duplicates=0, shards=(shard,))
    manifest = Manifest(
        format_version=1,
        name="birds",
        version="1.0.0",
        fingerprint="",
        config={**CONFIG, **config},
        dataset_schema=preset("image_classification"),
        classes={},
        input=RowCounts.of(len(rows), {"train": train}),
        images={},
        splits={"train": train},
        sidecars={},
        content=DuplicateStats(duplicates={}, leaks=()),
    )
    return Birds(str(folder / "birds/1.0.0"), manifest)
