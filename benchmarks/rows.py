"""Writes the tables that baselines convert, and reads them for baselines without a CSV reader.

Each photograph is listed many times under different ids, so that a small folder of photographs
makes a large table. Every row costs a full read and decode; all baselines profit equally from the
page cache.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

CLASSES = 1_000
TINY_CLASSES = 10
TINY_SIDE = 32
"""Pixels of the width and height of a tiny image, as in CIFAR."""

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_SEED = 20_240_229
_WORDS = ("amber", "basalt", "cobalt", "dune", "ember", "fjord", "granite", "harbour")


class Row(NamedTuple):
    """One row of a table of images.

    Attributes:
        id: unique.
        image: path of the file.
        label: one of `CLASSES`.
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
    rows = (
        Row(f"{number:08d}-{photo.stem}", str(photo), f"class {number % CLASSES:04d}")
        for number, photo in chosen
    )
    return _write(path, Row._fields, rows)


def write_tiny_images(path: Path, count: int) -> Path:
    """Writes random PNGs to class folders, and a table that lists them; returns its path.

    Args:
        path: of the table; `image_folder` returns the folder.
        count: number of images.
    """
    rows = []
    for number in range(count):
        label = f"class {number % TINY_CLASSES}"
        image = image_folder(path) / label / f"{number:08d}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(_random_png(number))
        rows.append(Row(f"{number:08d}", str(image), label))
    return _write(path, Row._fields, rows)


def image_folder(table: Path) -> Path:
    """Returns the folder of the class folders that a table of tiny images lists."""
    return table.with_suffix("")


def _random_png(seed: int) -> bytes:
    from PIL import Image  # not at the top: some baselines have an environment without Pillow

    chance = random.Random(seed)  # noqa: S311 - not used for cryptography
    # A small random image, enlarged: compresses about as well as a photograph of that size.
    pixels = Image.frombytes("RGB", (8, 8), chance.randbytes(8 * 8 * 3))
    stream = io.BytesIO()
    pixels.resize((TINY_SIDE, TINY_SIDE), Image.Resampling.BICUBIC).save(stream, "PNG")
    return stream.getvalue()


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
    """Returns the rows of a table of images."""
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
