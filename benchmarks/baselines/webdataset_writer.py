"""webdataset's ShardWriter: copies image files into tars without decoding them."""

from __future__ import annotations

from pathlib import Path

import webdataset  # type: ignore[import-not-found]

from benchmarks.baseline import Outcome, main
from benchmarks.rows import read_table

_SHARD_BYTES = 128 * 2**20


def convert(table: Path, output: Path) -> Outcome:
    """Writes each image and its class id to tars."""
    rows = read_table(table)
    class_ids = {label: number for number, label in enumerate(sorted({row.label for row in rows}))}
    pattern = str(output / "shard-%05d.tar")
    with webdataset.ShardWriter(pattern, maxsize=_SHARD_BYTES, verbose=0) as writer:
        for row in rows:
            path = Path(row.image)
            suffix = path.suffix.lstrip(".").lower()
            sample = {"__key__": row.id, suffix: path.read_bytes(), "cls": class_ids[row.label]}
            writer.write(sample)
    return Outcome(len(rows))


if __name__ == "__main__":
    main(convert)
