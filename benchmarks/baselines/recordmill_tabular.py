"""recordmill on a table without images: the cost of a row."""

from __future__ import annotations

from pathlib import Path

from benchmarks.baseline import Outcome, main
from benchmarks.baselines.recordmill import run_command


def convert(table: Path, output: Path) -> Outcome:
    """Converts a table with the preset `tabular`."""
    return run_command(table, output, "--key_column", "id", "--schema", "tabular")


if __name__ == "__main__":
    main(convert)
