"""The interface of a baseline: it converts a table into a folder and prints its outcome."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """The outcome of a baseline.

    Attributes:
        records: number of rows converted.
        bytes_shuffled: bytes that crossed its GroupByKeys; None if it has none.
    """

    records: int
    bytes_shuffled: int | None = None


def main(convert: Callable[[Path, Path], Outcome]) -> None:
    """Runs a baseline on TABLE and OUTPUT of the command line; prints the outcome as JSON."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} TABLE OUTPUT")
    output = Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    print(json.dumps(convert(Path(sys.argv[1]), output)._asdict()))
