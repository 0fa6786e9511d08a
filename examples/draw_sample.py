"""Draws a small dataset to try recordmill on: colored shapes, and a table with faults.

    python examples/draw_sample.py FOLDER

writes FOLDER/images/, FOLDER/clean.csv (columns image, label) and FOLDER/labels.csv, which also has
a row with each kind of fault; the same in every run.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle")
COLORS = ("crimson", "darkorange", "gold", "seagreen", "royalblue", "purple", "sienna")
SIZES = ((64, 64), (96, 72), (120, 160), (200, 150))
IMAGES = 60

Row = tuple[str, str]
"""A row of the table: the path of the image and its label."""


def draw_sample(folder: Path) -> list[Row]:
    """Draws all images, valid and faulty, and writes both tables; returns labels.csv's rows."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    clean = [draw_image(folder, number) for number in range(IMAGES)]
    rows = [*clean, *add_faults(folder)]
    for name, written in (("clean.csv", clean), ("labels.csv", rows)):
        with (folder / name).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerows([("image", "label"), *written])
    return rows


def draw_image(folder: Path, number: int) -> Row:
    """Draws a valid image; every fifth is a PNG, every eighth is gray.

    Args:
        folder: of the table.
        number: of the image.
    """
    shape = SHAPES[number % len(SHAPES)]
    suffix = "png" if number % 5 == 4 else "jpg"
    name = f"images/{shape}-{number:02d}.{suffix}"
    image = shape_on_ground(number)
    if number % 8 == 5:
        image = image.convert("L")
    image.save(folder / name, quality=90)
    return name, shape


def shape_on_ground(number: int) -> Image.Image:
    """Returns a shape on clouds, of a color, size and position that depend on its number."""
    random = Random(1000 + number)  # noqa: S311 - no two of the sample are alike
    width, height = size = SIZES[number // len(SHAPES) % len(SIZES)]
    clouds = Image.frombytes("RGB", (4, 4), bytes(random.choices(range(190, 256), k=3 * 4 * 4)))
    image = clouds.resize(size, Image.Resampling.BICUBIC)
    radius = random.uniform(0.25, 0.38) * min(size)
    x, y = width * random.uniform(0.4, 0.6), height * random.uniform(0.4, 0.6)
    box = (x - radius, y - radius, x + radius, y + radius)
    color = COLORS[number % len(COLORS)]
    canvas = ImageDraw.Draw(image)
    match SHAPES[number % len(SHAPES)]:
        case "circle":
            canvas.ellipse(box, fill=color)
        case "square":
            canvas.rectangle(box, fill=color)
        case _:
            left, top, right, bottom = box
            canvas.polygon([(left, bottom), (right, bottom), (x, top)], fill=color)
    return image


def add_faults(folder: Path) -> Iterator[Row]:
    """Yields the rows that must be rejected, one of each kind, and writes their files."""
    images = folder / "images"
    whole = (images / "circle-00.jpg").read_bytes()
    (images / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (images / "text.jpg").write_text("This is not an image.\n", encoding="utf-8")
    (images / "empty.jpg").write_bytes(b"")
    (images / "unlabelled.jpg").write_bytes(whole)
    (images / "missing.jpg").unlink(missing_ok=True)
    yield "images/missing.jpg", "circle"
    yield "images/truncated.jpg", "circle"
    yield "images/text.jpg", "square"
    yield "images/empty.jpg", "triangle"
    yield "images/unlabelled.jpg", ""
    yield "images/circle-00.jpg", "square"  # the first row has the same key


def main() -> None:
    """Draws the sample into the folder given on the command line."""
    parser = argparse.ArgumentParser(description="Draw sample images and a table with faults.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    rows = draw_sample(folder)
    faults = len(rows) - IMAGES
    print(f"drew {folder}/clean.csv: {IMAGES} rows; {folder}/labels.csv: {faults} faulty ones more")


if __name__ == "__main__":
    main()
