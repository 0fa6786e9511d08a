"""Datasets of which only the index files exist."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.schemas.manifest import Manifest, ShardEntry, SplitEntry
from recordmill.schemas.row_counts import RowCounts
from recordmill.schemas.statistics import DuplicateStats
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.dataset import DatasetFolder

CLASSES = ("cat", "dog", "cow")


def shard(split, index, labels):
    return ShardEntry(
        file=f"x-{split}-{index}",
        records=len(labels),
        bytes=1,
        payload=1,
        sha256="",
        crc32c=0,
        index_file=f"records/{split}-{index}.parquet",
        index_sha256="",
        images={},
    )


def dataset(folder: Path, splits, leaks=()):
    """Writes the index files of a dataset.

    Args:
        folder: the folder of the dataset.
        splits: split to shards of (label, image).
        leaks: for the manifest.
    """
    (folder / "records").mkdir(exist_ok=True)
    entries = {}
    for split, shards in splits.items():
        made = []
        for i, records in enumerate(shards):
            made.append(shard(split, i, [label for label, _ in records]))
            rows = [
                {
                    "key": f"{split}-{i}-{n}",
                    "split": split,
                    "shard": i,
                    "index": n,
                    "offset": 12,
                    "length": 1,
                    "sha256": hashlib.sha256(str(image).encode()).hexdigest(),
                    "class": CLASSES[label],
                }
                for n, (label, image) in enumerate(records)
            ]
            schema = pa.schema(
                [(n, pa.string()) for n in ("key", "split")]
                + [(n, pa.int64()) for n in ("shard", "index", "offset", "length")]
                + [(n, pa.string()) for n in ("sha256", "class")]
            )
            table = pa.Table.from_pylist(rows, schema=schema)
            pq.write_table(table, folder / made[-1].index_file, row_group_size=7)
        number = sum(len(records) for records in shards)
        entries[split] = SplitEntry(
            rows=number,
            records=number,
            rejected=0,
            duplicates=0,
            classes={"label": dict(Counter(label for found in shards for label, _ in found))},
            shards=tuple(made),
        )
    total = sum(entry.records for entry in entries.values())
    manifest = Manifest(
        format_version=1,
        name="x",
        version="1.0.0",
        fingerprint="",
        config={},
        dataset_schema=preset("image_classification"),
        classes={"label": CLASSES},
        input=RowCounts.of(total, entries),
        images={},
        splits=entries,
        sidecars={},
        content=DuplicateStats(duplicates={"train": 1}, leaks=leaks),
    )
    return DatasetFolder(str(folder), manifest)
