"""What every baseline has in common: it takes a table and a folder, and says what it did."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """What a baseline did.

    Attributes:
        records: rows that it went through to the end.
        bytes_shuffled: what crossed its GroupByKeys; None if it has none.
    """

    records: int
    bytes_shuffled: int | None = None


def main(convert: Callable[[Path, Path], Outcome]) -> None:
    """Runs a baseline on the command line's TABLE and OUTPUT; its last line is the outcome."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} TABLE OUTPUT")
    output = Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    print(json.dumps(convert(Path(sys.argv[1]), output)._asdict()))
