"""Makes the tables that baselines convert, and reads them for those that cannot.

A benchmark needs more rows than anyone keeps photographs for, so each photograph is listed many
times, each time under an id of its own. The copies cost as much to read and decode as others would,
and all baselines alike profit from the system's cache.
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
        id: no other row has it.
        image: path of the file.
        label: the file's stem.
    """

    id: str
    image: str
    label: str


def photographs(folder: Path) -> list[Path]:
    """Returns the photographs below a folder, read once so that no baseline finds them cold.

    Raises:
        ValueError: if there are none.
    """
    found = sorted(p for p in folder.resolve().rglob("*") if p.suffix.lower() in _SUFFIXES)
    if not found:
        raise ValueError(f"--photos {folder}: holds no {', '.join(sorted(_SUFFIXES))}")
    for path in found:
        path.read_bytes()
    return found


def write_table(path: Path, photos: Sequence[Path], count: int) -> Path:
    """Writes a table of `count` rows, going round the photographs; returns its path."""
    chosen = ((number, photos[number % len(photos)]) for number in range(count))
    rows = (Row(f"{number:08d}-{photo.stem}", str(photo), photo.stem) for number, photo in chosen)
    return _write(path, Row._fields, rows)


def write_tabular(path: Path, count: int) -> Path:
    """Writes a table of `count` rows without images, by a fixed seed; returns its path."""
    chance = random.Random(_SEED)  # noqa: S311 - nothing to keep secret
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
