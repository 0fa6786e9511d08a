"""litData's optimize: copies image files into its own chunks, with a process per core."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from litdata import StreamingDataset, optimize  # type: ignore[import-not-found]

from benchmarks.baseline import Outcome, main
from benchmarks.rows import Row, read_table


def sample(row: Row) -> dict[str, Any]:
    """Returns the sample of a row."""
    return {"id": row.id, "image": Path(row.image).read_bytes(), "label": row.label}


def convert(table: Path, output: Path) -> Outcome:
    """Writes each image with its label to chunks of 64 MB."""
    folder, rows = str(output / "chunks"), read_table(table)
    workers = min(os.cpu_count() or 1, len(rows))
    optimize(sample, rows, folder, chunk_bytes="64MB", num_workers=workers)
    return Outcome(len(StreamingDataset(folder)))


if __name__ == "__main__":
    main(convert)
