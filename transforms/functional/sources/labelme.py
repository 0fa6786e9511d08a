"""Reads a folder of images with a JSON file of LabelMe beside each, at any depth.

Splits are the folders named like splits, such as train and val. Boxes are those of rectangles, and
those around polygons, in pixels.

Format: https://github.com/wkentaro/labelme. Images are read from their files, not from `imageData`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import SPLIT, Part, Probe, Projection, Sources, TableFile
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.sources.tree import (
    NO_SPLIT,
    OTHER_SHAPES,
    Tree,
    annotated_parts,
    row_of_file,
    split_folders,
    split_named,
)
from recordmill.transforms.functional.values.bounded_json import parse_json
from recordmill.transforms.functional.values.boxes import (
    BOX_COLUMNS,
    Box,
    box_columns,
    box_of,
    number_of,
)
from recordmill.transforms.functional.values.typed import has_surrogates, short_repr

COLUMNS = ("image", "id", "height", "width", *BOX_COLUMNS, "labels", SPLIT)

UNANNOTATED = "images without a JSON file"

_MIN_POINTS = {"rectangle": 2, "polygon": 3}
# Files that are searched for an annotation, as of class folders with a million images.
_MAX_FILES = 5_000
_MAX_OPENED = 20
_HEAD_BYTES = 2**16
# `imagePath` may follow more shapes than the head has; `flags` and `version` precede them.
_SHAPES = re.compile(rb'"shapes"\s*:\s*\[')
_OTHERS = re.compile(rb'"(version|flags|imagePath|imageData|imageHeight|imageWidth)"\s*:')


@dataclass(frozen=True)
class LabelmeOptions:
    """What is known of a folder of annotations before it is read."""

    has_split_folders: bool = False  # whether folders named like splits are the splits


def recognize_folder(tree: Tree) -> Sources | None:
    """Returns a folder with an annotation of LabelMe beside an image; None for others."""
    files = [n for n in islice(tree.walk(), _MAX_FILES) if isinstance(n, str)]
    images = {_stem(name) for name in files if has_image_suffix(name)}
    beside = (name for name in files if _is_annotation(name) and _stem(name) in images)
    for name in islice(beside, _MAX_OPENED):
        with tree.open(name) as stream:
            head = stream.read(_HEAD_BYTES)
        if _SHAPES.search(head) and _OTHERS.search(head):
            return sources_in(tree)._replace(text=f"LabelMe ({name}, …)")
    return None


def sources_in(tree: Tree) -> Sources:
    """Returns a folder of annotations as a source."""
    has_splits = bool(split_folders(tree, _is_annotation))
    return Sources((TableFile(tree.root, "labelme", options=LabelmeOptions(has_splits)),))


def probe(tree: Tree, file: TableFile) -> Probe:
    """Returns the columns of annotations of LabelMe.

    Raises UsageError if the folder contains no JSON file.
    """
    if not any(isinstance(name, str) and _is_annotation(name) for name in tree.walk()):
        raise UsageError(
            f"{file.path}: has no JSON file; expected a folder of images with JSON of LabelMe"
        )
    has_splits = file.options_of(LabelmeOptions).has_split_folders
    splits = split_folders(tree, _is_annotation) if has_splits else ()
    return Probe(COLUMNS, has_rows=True, splits=splits, preset="object_detection")


def parts(tree: Tree, file: TableFile) -> Iterator[Part | Reject | SkippedInput]:
    """Yields parts of the JSON files, then rejects and skipped inputs."""
    return annotated_parts(tree, file, _is_annotation, _stem, UNANNOTATED)


def read(tree: Tree, part: Part, projection: Projection) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each annotated image, or its reject, and the shapes that have no box."""
    has_split_folders = part.file.options_of(LabelmeOptions).has_split_folders
    by_folder = projection.has(SPLIT) and has_split_folders
    for name in part.names:
        split = split_named(name) if by_folder else None
        if by_folder and split is None:
            yield SkippedInput.named(NO_SPLIT, [name])
            continue
        others: list[str] = []
        found = row_of_file(
            tree,
            name,
            projection,
            partial(_parse, drops_boxes=projection.drops_boxes, others=others),
            folder=posixpath.dirname(name),
            split=split,
            has_folders=True,  # a/1.jpg and b/1.jpg are different images
        )
        yield found
        if others and isinstance(found, Row):
            yield SkippedInput.named(OTHER_SHAPES, [f"{name}: {other}" for other in others])


def _parse(
    data: bytes, drops_boxes: bool = False, others: list[str] | None = None
) -> dict[str, Any]:
    """Parses one JSON file to values by column.

    `others` collects the types of shapes without a box. Raises RecordError: malformed_row if the
    annotation is not valid, or bad_box if a box is not, and invalid boxes are not dropped.
    """
    try:
        found = parse_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise _malformed(f"is not a valid JSON file: {error}") from error
    if not isinstance(found, dict) or not isinstance(shapes := found.get("shapes"), list):
        raise _malformed("expected an object with a list 'shapes', as LabelMe writes it")
    boxes, labels = list[Box](), list[str]()
    for number, shape in enumerate(shapes, start=1):
        if not isinstance(shape, dict):
            raise _malformed(f"shape {number}: expected an object, got {short_repr(shape)}")
        # Old versions have only polygons.
        kind = shape.get("shape_type", "polygon")
        if not isinstance(kind, str) or kind not in _MIN_POINTS:
            if others is not None:
                others.append(kind if isinstance(kind, str) else short_repr(kind))
            continue
        boxes.append(box_of(partial(_box, number, kind, shape.get("points")), drops_boxes))
        labels.append(_text(shape, "label", f"shape {number}: "))
    return {
        # Paths of Windows have backslashes.
        "image": _text(found, "imagePath").replace("\\", "/"),
        "height": _side(found.get("imageHeight")),
        "width": _side(found.get("imageWidth")),
        **box_columns(boxes),
        "labels": labels,
    }


def _box(number: int, kind: str, points: Any) -> Box:
    """Returns the box around points: those of an outline, or any two opposite corners."""
    least = _MIN_POINTS[kind]
    if not isinstance(points, list) or len(points) < least:
        detail = f"expected at least {least} points, got {short_repr(points)}"
        raise RecordError(Reason.BAD_BOX, f"shape {number}: {kind}: {detail}")
    for point in points:
        if not isinstance(point, list) or len(point) != 2:
            detail = f"expected points [x, y], got {short_repr(point)}"
            raise RecordError(Reason.BAD_BOX, f"shape {number}: {kind}: {detail}")
    xs, ys = (
        [number_of(point[axis], f"shape {number}: {'xy'[axis]}") for point in points]
        for axis in (0, 1)
    )
    return min(xs), min(ys), max(xs), max(ys)


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


def _stem(path: str) -> str:
    """Returns a path without its last suffix."""
    return posixpath.splitext(path)[0]


def _is_annotation(name: str) -> bool:
    """Returns whether a file is an annotation by its suffix."""
    return name.lower().endswith(".json")
