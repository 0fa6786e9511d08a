"""Writes a dataset with Hugging Face Datasets, in its own environment; prints what it holds.

Prints what it reads from a folder with metadata files, too.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from datasets import Image, load_dataset

folder = Path(sys.argv[1])
loaded = load_dataset("imagefolder", data_dir=str(folder / "pets"))
loaded.save_to_disk(str(folder / "saved"))
for split, part in loaded.items():
    part.to_parquet(str(folder / "hub" / "data" / f"{split}-00000-of-00001.parquet"))


def rows_of(dataset):
    """Returns the digest of each image and its label, by split."""
    rows = {}
    for split, part in dataset.items():
        rows[split] = []
        for row in part.cast_column("image", Image(decode=False)):
            data = row["image"]["bytes"] or Path(row["image"]["path"]).read_bytes()
            rows[split].append((hashlib.sha256(data).hexdigest(), row["label"]))
        rows[split].sort()
    return rows


names = loaded["train"].features["label"].names
labeled = load_dataset("imagefolder", data_dir=str(folder / "labeled"))
found = {"names": names, "rows": rows_of(loaded), "labeled": rows_of(labeled)}
sys.stdout.write(json.dumps(found))
