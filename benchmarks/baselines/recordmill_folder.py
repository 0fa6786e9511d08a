"""recordmill with its default checks, on images in class folders."""

from __future__ import annotations

from pathlib import Path

from benchmarks.baseline import Outcome, main
from benchmarks.baselines.recordmill import run_command
from benchmarks.rows import image_folder


def convert(table: Path, output: Path) -> Outcome:
    """Converts the class folders that the table lists."""
    return run_command(image_folder(table), output)


if __name__ == "__main__":
    main(convert)
