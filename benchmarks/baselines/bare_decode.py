"""Decodes all images in a thread pool and discards them.

A converter that decodes every image cannot be much faster.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from benchmarks.baseline import Outcome, main
from benchmarks.rows import read_table


def convert(table: Path, output: Path) -> Outcome:
    """Decodes every image of a table; writes nothing."""
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        return Outcome(sum(executor.map(_decode, [row.image for row in read_table(table)])))


def _decode(path: str) -> int:
    with Image.open(path) as image:
        image.load()
    return 1


if __name__ == "__main__":
    main(convert)
