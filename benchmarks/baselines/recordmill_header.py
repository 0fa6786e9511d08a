"""recordmill with `--decode header`: reads image headers only, verifies every record."""

from __future__ import annotations

from pathlib import Path

from benchmarks.baseline import Outcome, main
from benchmarks.baselines.recordmill import run_command


def convert(table: Path, output: Path) -> Outcome:
    """Converts a table of photographs without decoding them."""
    return run_command(table, output, "--key_column", "id", "--decode", "header")


if __name__ == "__main__":
    main(convert)
