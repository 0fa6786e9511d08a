"""Converts the same rows from each library that holds rows in memory, and from a Parquet file.

Prints the digest of the records of each dataset.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import datasets
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import recordmill
from tests.images import jpeg

ROWS = 600
SCHEMA = """
name: measured
features:
  image: {kind: bytes, from: "image:bytes"}
  label: {kind: int64, from: "column:label", classes: true}
  weight: {kind: float, from: "column:weight"}
  count: {kind: int64, from: "column:count"}
  tags: {kind: bytes, from: "column:tags", shape: []}
"""

folder = Path(sys.argv[1])
(folder / "measured.yaml").write_text(SCHEMA)
for number in range(12):
    (folder / f"{number}.jpg").write_bytes(jpeg(8, 6, number))
rows = [
    {
        "id": f"{number:03d}",
        "image": str(folder / f"{number % 12}.jpg"),
        "label": ("ant", "bée", "cow")[number % 3],
        "weight": number / 7,
        "count": 2**53 + number,
        "tags": ["a", "b"][: number % 3],
    }
    for number in range(ROWS)
]
table = pa.Table.from_pylist(rows)
pq.write_table(table, folder / "rows.parquet")
held = datasets.Dataset.from_list(rows)
inputs = {
    "Parquet": folder / "rows.parquet",
    "list": rows,
    "Arrow": table,
    "pandas": pd.DataFrame(rows),
    "polars": pl.DataFrame(rows),
    "datasets": held,
    "datasets, images": held.cast_column("image", datasets.Image()),
    "datasets, selected": datasets.Dataset.from_list(rows[::-1]).select(range(ROWS)[::-1]),
}
digests = {}
for name, data in inputs.items():
    made = recordmill.convert(
        data,
        output=str(folder / name),
        name="birds",
        schema=str(folder / "measured.yaml"),
        key_column="id",
        splits={"train": 0.8, "test": 0.2},
        report=False,
    )
    shards = [shard.sha256 for shard in made.shards().values()]
    records = {split: found.records for split, found in made.splits.items()}
    digests[name] = [hashlib.sha256("".join(shards).encode()).hexdigest(), sum(records.values())]
sys.stdout.write(json.dumps(digests))
