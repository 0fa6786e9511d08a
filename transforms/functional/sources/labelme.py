"""Reads a folder of images with a JSON file of LabelMe beside each, at any depth.

Splits are the folders named like splits, such as train and val. Boxes are those of rectangles, and
those around polygons, in pixels.

Format: https://github.com/wkentaro/labelme. Images are read from their files, not from `imageData`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import SPLIT, Sources
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.sources.annotated import Annotated, unread_values
from recordmill.transforms.functional.sources.tree import Tree, first_files, head_of
from recordmill.transforms.functional.values import boxes
from recordmill.transforms.functional.values.documents import parse_json
from recordmill.transforms.functional.values.typed import has_surrogates, short_repr

COLUMNS = ("image", "id", "height", "width", *boxes.BOX_COLUMNS, "labels", "segmentation", SPLIT)

_FIELDS = ("label", "points", "shape_type", "flags", "group_id", "mask")
_MIN_POINTS = {"rectangle": 2, "polygon": 3}
_MAX_OPENED = 20
# `imagePath` may follow more shapes than the head has; `flags` and `version` precede them.
_SHAPES = re.compile(rb'"shapes"\s*:\s*\[')
_OTHERS = re.compile(rb'"(version|flags|imagePath|imageData|imageHeight|imageWidth)"\s*:')


def recognize_folder(tree: Tree) -> Sources | None:
    """Returns a folder with an annotation of LabelMe beside an image; None for others."""
    files = [*first_files(tree)]
    images = {FORMAT.id_of(name) for name in files if has_image_suffix(name)}
    beside = (name for name in files if FORMAT.is_annotation(name) and FORMAT.id_of(name) in images)
    for name in islice(beside, _MAX_OPENED):
        head = head_of(tree, name)
        if _SHAPES.search(head) and _OTHERS.search(head):
            return sources_in(tree)._replace(text=f"LabelMe ({name}, …)")
    return None


def _parse(
    data: bytes, drops_boxes: bool = False, others: list[str] | None = None
) -> dict[str, Any]:
    """Parses a JSON file to values by column; `others` collects shapes and fields not read."""
    try:
        found = parse_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise _malformed(f"is not a valid JSON file: {error}") from error
    if not isinstance(found, dict) or not isinstance(shapes := found.get("shapes"), list):
        raise _malformed("expected an object with a list 'shapes', as LabelMe writes it")
    others = [] if others is None else others
    others += _flags(found)
    corners, labels, outlines = list[boxes.Box](), list[str](), list[Any]()
    objects = [shape for shape in shapes if isinstance(shape, dict)]
    fields = (field for shape in objects for field in shape.items() if field[0] not in _FIELDS)
    others += unread_values(fields, (shape.get("group_id") for shape in objects))
    for number, shape in enumerate(shapes, start=1):
        if not isinstance(shape, dict):
            raise _malformed(f"shape {number}: expected an object, got {short_repr(shape)}")
        # Old versions have only polygons.
        kind = shape.get("shape_type", "polygon")
        if not isinstance(kind, str) or kind not in _MIN_POINTS:
            others.append(kind if isinstance(kind, str) else short_repr(kind))
            continue
        others += _flags(shape)
        corners.append(boxes.box_of(partial(_box, number, kind, shape.get("points")), drops_boxes))
        labels.append(_text(shape, "label", f"shape {number}: "))
        outline = boxes.polygons_around(corners[-1])
        if outline and kind == "polygon":
            outline = [[float(side) for point in shape["points"] for side in point]]
        outlines.append(outline)
    return {
        "image": _text(found, "imagePath"),
        "height": _side(found.get("imageHeight")),
        "width": _side(found.get("imageWidth")),
        **boxes.box_columns(corners),
        "labels": labels,
        "segmentation": outlines,
    }


def _flags(values: dict[str, Any]) -> Iterator[str]:
    if isinstance(flags := values.get("flags"), dict):
        yield from (f"flag {short_repr(name)}" for name, value in flags.items() if value is True)


def _box(number: int, kind: str, points: Any) -> boxes.Box:
    """Returns the box around points: those of an outline, or any two opposite corners."""
    least = _MIN_POINTS[kind]
    if not isinstance(points, list) or len(points) < least:
        detail = f"expected at least {least} points, got {short_repr(points)}"
        raise RecordError(Reason.BAD_BOX, f"shape {number}: {kind}: {detail}")
    for point in points:
        if not isinstance(point, list) or len(point) != 2:
            detail = f"expected points [x, y], got {short_repr(point)}"
            raise RecordError(Reason.BAD_BOX, f"shape {number}: {kind}: {detail}")
    sides = ((axis, side) for point in points for axis, side in zip("xy", point, strict=True))
    return boxes.box_around(
        [boxes.number_of(side, f"shape {number}: {axis}") for axis, side in sides]
    )


def _text(values: dict[str, Any], name: str, where: str = "") -> str:
    text = values.get(name)
    if not isinstance(text, str) or not text or has_surrogates(text):
        raise _malformed(f"{where}{name!r}: expected text, got {short_repr(text)}")
    return text


def _side(value: Any) -> int | None:
    """Returns the stated height or width in pixels; None if it is missing or not a number."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value < 10**9 else None


def _malformed(detail: str) -> RecordError:
    return RecordError(Reason.MALFORMED_ROW, detail)


FORMAT = Annotated("labelme", ".json", COLUMNS, "a folder of images with JSON of LabelMe", _parse)

sources_in, probe, parts, read = FORMAT.sources_in, FORMAT.probe, FORMAT.parts, FORMAT.read
