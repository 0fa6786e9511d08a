"""Writes the tables that baselines convert, and reads them for baselines without a CSV reader.

Each photograph is listed many times under different ids, so that a small folder of photographs
makes a large table. Every row costs a full read and decode; all baselines profit equally from the
page cache.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_SEED = 20_240_229
_WORDS = ("amber", "basalt", "cobalt", "dune", "ember", "fjord", "granite", "harbour")


class Row(NamedTuple):
    """One row of a table of photographs.

    Attributes:
        id: unique.
        image: path of the file.
        label: stem of the file name.
    """

    id: str
    image: str
    label: str


def photographs(folder: Path) -> list[Path]:
    """Returns the photographs in a folder, and reads each once to warm the page cache.

    Raises:
        ValueError: if the folder has no photographs.
    """
    found = sorted(p for p in folder.resolve().rglob("*") if p.suffix.lower() in _SUFFIXES)
    if not found:
        raise ValueError(f"--photos {folder}: found no {', '.join(sorted(_SUFFIXES))}")
    for path in found:
        path.read_bytes()
    return found


def write_table(path: Path, photos: Sequence[Path], count: int) -> Path:
    """Writes a table that lists photographs in turn; returns its path.

    Args:
        path: of the table.
        photos: paths of the photographs.
        count: number of rows.
    """
    chosen = ((number, photos[number % len(photos)]) for number in range(count))
    rows = (Row(f"{number:08d}-{photo.stem}", str(photo), photo.stem) for number, photo in chosen)
    return _write(path, Row._fields, rows)


def write_tabular(path: Path, count: int) -> Path:
    """Writes a table of random values without images; returns its path.

    Args:
        path: of the table.
        count: number of rows.
    """
    chance = random.Random(_SEED)  # noqa: S311 - not used for cryptography
    rows = (_tabular_row(number, chance) for number in range(count))
    return _write(path, ("id", "member", "visits", "name", "score"), rows)


def read_table(path: Path) -> list[Row]:
    """Returns the rows of a table of photographs."""
    with path.open(newline="", encoding="utf-8") as stream:
        return [Row(**row) for row in csv.DictReader(stream)]


def _tabular_row(number: int, chance: random.Random) -> tuple[object, ...]:
    name = f"{chance.choice(_WORDS)} {chance.choice(_WORDS)} {chance.randrange(10_000)}"
    member = "true" if chance.random() < 0.5 else "false"
    return f"row-{number:09d}", member, chance.randrange(10**9), name, chance.gauss(0, 100)


def _write(path: Path, header: Sequence[str], rows: Iterable[tuple[object, ...]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows(rows)
    return path
