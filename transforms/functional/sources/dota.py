"""Reads folders of DOTA: four corners per object, in text files named like their images.

`labelTxt/P1.txt` is for the image `images/P1.png` beside it; splits are the folders named like
splits above both. A line has the corners in pixels, the class, and whether the object is difficult.

Format: https://captain-whu.github.io/DOTA/dataset.html, with a header of two optional lines.
"""

from __future__ import annotations

import posixpath
import re
from functools import partial
from typing import Any

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import SPLIT, Sources
from recordmill.transforms.functional.sources.annotated import Annotated
from recordmill.transforms.functional.sources.tree import Tree, first_files
from recordmill.transforms.functional.values import boxes
from recordmill.transforms.functional.values.typed import short_repr

COLUMNS = ("image", "id", *boxes.BOX_COLUMNS, "labels", "corners", "difficult", SPLIT)

# DOTA names the folder of annotations labelTxt or labelTxt-v1.5, and MMRotate annfiles.
_FOLDER = re.compile(r"(?<![^/])(?:labelTxt(?:-v[0-9.]+)?|annfiles)(?![^/])")
_HEADER = re.compile(r"(?:imagesource|gsd)\s*:")


def recognize_folder(tree: Tree) -> Sources | None:
    """Returns a folder that has text files in `labelTxt/`, beside `images/`; None for others."""
    for name in filter(FORMAT.is_annotation, first_files(tree)):
        if tree.entries(_images_of(posixpath.dirname(name))).files:
            return sources_in(tree)._replace(text=f"DOTA ({name}, …)")
    return None


def _images_of(path: str) -> str:
    """Returns the path of the images of a path of annotations.

    >>> _images_of("train/labelTxt-v1.0")
    'train/images'
    """
    return _FOLDER.sub("images", path)


def _parse(
    data: bytes, drops_boxes: bool = False, others: list[str] | None = None
) -> dict[str, Any]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except ValueError as error:
        raise RecordError(Reason.MALFORMED_ROW, f"is not text in UTF-8: {error}") from error
    values: dict[str, list[Any]] = {"labels": [], "corners": [], "difficult": []}
    around = list[boxes.Box]()
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or (number <= 2 and _HEADER.match(line)):
            continue
        if len(words) < 9:
            detail = f"line {number}: expected x1 y1 x2 y2 x3 y3 x4 y4 CLASS DIFFICULT"
            raise RecordError(Reason.MALFORMED_ROW, f"{detail}, got {short_repr(line)}")
        around.append(boxes.box_of(partial(_box, number, words[:8]), drops_boxes))
        is_dropped = around[-1] is boxes.NO_BOX
        values["corners"].append([0.0] * 8 if is_dropped else [*map(float, words[:8])])
        # Classes may have several words; the last one is 0 or 1.
        difficult = words.pop() if words[9:] and words[-1].isdecimal() else "0"
        if difficult not in ("0", "1"):
            detail = f"line {number}: expected 0 or 1 after the class, got {difficult!r}"
            raise RecordError(Reason.MALFORMED_ROW, detail)
        values["difficult"].append(int(difficult))
        values["labels"].append(" ".join(words[8:]))
    return {"image": "", **boxes.box_columns(around), **values}


def _box(line: int, corners: list[str]) -> boxes.Box:
    return boxes.box_around([boxes.number_of(corner, f"line {line}: corner") for corner in corners])


FORMAT = Annotated(
    "dota",
    ".txt",
    COLUMNS,
    "a folder of DOTA, with text in labelTxt/",
    _parse,
    preset="oriented_boxes",
    is_annotated=_FOLDER.search,
    id_of=lambda name: _images_of(posixpath.splitext(name)[0]),
    images_of=lambda tree, folder: _images_of(folder),
)

sources_in, probe, parts, read = FORMAT.sources_in, FORMAT.probe, FORMAT.parts, FORMAT.read
