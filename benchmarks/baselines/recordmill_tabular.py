"""recordmill on a table without images: what a row itself costs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.baseline import Outcome, main
from benchmarks.baselines.recordmill import run_command


def convert(table: Path, output: Path) -> Outcome:
    """Converts every column of a table, by its type."""
    return run_command(table, output, "--schema", "tabular")


if __name__ == "__main__":
    main(convert)
