"""A dataset of three shards, for the tests of published datasets."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification, manifest_of
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.row_counts import RowCounts, SplitCounts
from recordmill.schemas.shard_format import SHARD_FORMATS
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.records.framing import _masked_crc32c
from recordmill.transforms.storage.published import commit_marker
from tests.shard_formats import packed

SHARDS = {
    ("test", 0): {"a.png": b"first"},
    ("train", 0): {"b.png": b"", "c.png": b"x" * 300},
    ("train", 1): {"d.png": b"last"},
}
SCHEMA = preset("image_classification")


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    length += struct.pack("<I", _masked_crc32c(length))
    return length + data + struct.pack("<I", _masked_crc32c(data))


def index_of(split: str, shard: int, records: dict[str, bytes]) -> pa.Table:
    lengths = [len(data) for data in records.values()]
    return pa.table(
        {
            "key": list(records),
            "split": [split] * len(records),
            "shard": [shard] * len(records),
            "index": list(range(len(records))),
            "offset": [12 + sum(lengths[:n]) + 16 * n for n in range(len(records))],
            "length": lengths,
            "sha256": pa.array([None] * len(records), pa.string()),
            "class": ["cat", "dog"][: len(records)],
        }
    )


def write(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def put(
    folder: Path,
    compression: str = "none",
    content: dict[tuple[str, int], dict[str, bytes]] = SHARDS,
) -> Path:
    """Writes a dataset of three shards and returns its folder."""
    shards = []
    for (split, number), records in content.items():
        name = layout.shard_name("birds", split, number, 2, compression)
        index = layout.records_name(split, number, 2)
        data = b"".join(map(framed, records.values()))
        digest = write(folder / name, packed(SHARD_FORMATS[compression], data))
        (folder / "records").mkdir(exist_ok=True)
        pq.write_table(index_of(split, number, records), folder / index)
        sha256 = hashlib.sha256((folder / index).read_bytes()).hexdigest()
        entry = ShardEntry(
            **{"file": name, "records": len(records), "bytes": len(data), "sha256": digest},
            **{"payload": 0, "crc32c": 0, "index_file": index, "index_sha256": sha256},
            images={},
        )
        shards.append(ShardVerification(split, number, entry, 0))
    resolved = ResolvedSchema(SCHEMA, {"label": ("cat", "dog"), "image": ()})
    splits = {
        split: SplitCounts(rows=rows, records=rows, rejected=0, duplicates=0)
        for split, rows in (("test", 1), ("train", 3))
    }
    plan, counts = Plan(resolved, {"test": 1, "train": 2}, 4), RowCounts.of(4, splits)
    info = DatasetInfo(plan, counts, splits, tuple(shards), problems=())
    config = ConvertConfig(
        inputs=("t.csv",), output=str(folder), name="birds", schema=SCHEMA, compression=compression
    )
    manifest = manifest_of(info, config, {}).to_json()
    write(folder / layout.MANIFEST, manifest)
    write(folder / layout.SUCCESS, commit_marker(manifest))
    return folder


def failing(action: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(VerificationFailed) as caught:
        action(*arguments)
    return str(caught.value)
