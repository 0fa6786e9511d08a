"""Inputs of engine tests: generated tables and images, with all common kinds of faults.

To add a kind of input, add a function to `KINDS` that writes files to a folder and returns the
flags of `recordmill convert`.
"""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.images import image_bytes, jpeg, png

ROWS = 2_400
DIFFERENT = 1_900
REASONS = {"empty_file", "missing_value", "not_an_image", "truncated"}
"""Of rejects, whatever the kind of input."""

PLACEMENT = (
    *("--splits", "train=0.7,validation=0.2,test=0.1"),
    *("--num_shards", "train=6,validation=2,test=1", "--max_rejects", "10%"),
)


def files(folder: Path) -> tuple[str, ...]:
    """A CSV table that names images."""
    return _table(folder, rows(folder))


def _table(folder: Path, listed: Iterator[dict[str, str]]) -> tuple[str, ...]:
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["image", "label"])
        writer.writeheader()
        writer.writerows(listed)
    return ("--input", str(folder / "labels.csv"))


def similar(folder: Path) -> tuple[str, ...]:
    """A table of images, every fifth of which is half the size of the one before; none is split."""
    return (*_table(folder, rows(folder, draw=draw_similar)), "--near_duplicates", "keep_together")


def distinct(folder: Path) -> tuple[str, ...]:
    """The same, without the smaller ones."""
    return (*_table(folder, rows(folder, draw=draw_similar)), "--near_duplicates", "drop")


def embedded(folder: Path) -> tuple[str, ...]:
    """A Parquet table of embedded images; duplicates are dropped, and splits are exact."""
    listed = [
        {
            "image": {"bytes": _content(folder / "drawn" / row["image"]), "path": row["image"]},
            "label": row["label"] or None,
        }
        for row in rows(folder / "drawn")
    ]
    table = pa.Table.from_pylist(listed)
    pq.write_table(table, folder / "labels.parquet", row_group_size=500)
    placed = ("--deduplicate", "content", "--split_method", "exact")
    return ("--input", str(folder / "labels.parquet"), *placed)


def tars(folder: Path) -> tuple[str, ...]:
    """Tars of images with labels, by which splits are stratified."""
    for number, listed in enumerate(_parts(list(rows(folder / "drawn")))):
        with tarfile.open(folder / f"part-{number}.tar", "w") as tar:
            for row in listed:
                image = folder / "drawn" / row["image"]
                _add(tar, row["image"], _content(image))
                _add(tar, str(Path(row["image"]).with_suffix(".cls")), row["label"].encode())
    return ("--input", str(folder / "part-*.tar"), "--split_method", "stratified")


def _parts(listed: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    each = len(listed) // 4
    return [listed[start : start + each] for start in range(0, len(listed), each)]


def _content(image: Path) -> bytes | None:
    return image.read_bytes() if image.exists() else None


def _add(tar: tarfile.TarFile, name: str, data: bytes | None) -> None:
    if data is not None:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))


KINDS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "files": files,
    "embedded": embedded,
    "tars": tars,
    "similar": similar,
    "distinct": distinct,
}
MISSING = dict.fromkeys(KINDS, "missing_file") | {"tars": "malformed_row"}
"""What an image that is not there is rejected for."""


def draw_noise(i: int) -> bytes:
    """Returns one of `DIFFERENT` small images; one in a hundred must be transcoded."""
    i %= DIFFERENT
    width, height = 24 + i % 17, 20 + i % 13
    if i % 100 == 50:
        return image_bytes("GIF", width, height, i, "P")
    return (jpeg if i % 4 else png)(width, height, i)


def draw_similar(i: int) -> bytes:
    """Returns an image that has a perceptual hash; every fifth is half of that before."""
    is_copy = i % 5 == 4
    small = np.random.default_rng(i - is_copy).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    size = (48, 36) if is_copy else (96, 72)
    stream = io.BytesIO()
    drawn = Image.fromarray(small).resize((96, 72), Image.Resampling.BICUBIC).resize(size)
    drawn.save(stream, "JPEG" if i % 4 else "PNG")
    return stream.getvalue()


def rows(
    folder: Path, number: int = ROWS, draw: Callable[[int], bytes] = draw_noise
) -> Iterator[dict[str, str]]:
    """Yields the rows of a table, and draws an image for each."""
    (folder / "pictures").mkdir(parents=True)  # codespell:ignore pictures
    for i in range(number):
        name = f"pictures/{i:05d}.{'jpg' if i % 4 else 'png'}"  # codespell:ignore pictures
        data = faulty(i, draw(i))
        if data is not None:
            (folder / name).write_bytes(data)
        yield {"image": name, "label": "" if i % 113 == 112 else f"class {i % 7}"}


def faulty(i: int, data: bytes) -> bytes | None:
    """Returns the file of an image; some are truncated, empty, text, or missing."""
    if i % 97 == 96:
        return data[: len(data) // 2]
    if i % 101 == 100:
        return b""
    if i % 103 == 102:
        return b"no image"
    return None if i % 89 == 88 else data
