"""Writes boxes, polygons and labels with Datumaro, in an environment of its own.

Prints the classes, splits and annotations of each export as Datumaro reads them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datumaro import AnnotationType, Dataset, DatasetItem
from datumaro.components.annotation import Bbox, Label, Polygon
from datumaro.components.media import Image
from PIL import Image as Pillow

CLASSES = ["owl", "cat", "ant"]
SPLITS = {"train": range(8), "val": range(8, 10), "test": range(10, 12)}
SIZE = (60, 40)
EXPORTS = {
    "boxes": ("voc", "voc_detection", "yolo", "yolo_ultralytics", "coco", "coco_instances", "cvat"),
    "outlines": ("coco", "coco_instances", "cvat"),
    "labels": ("imagenet_with_subset_dirs", "cvat", "vgg_face2"),
}
# Formats that Datumaro does not read back with their splits: what it wrote is what was given.
WRITTEN_ONLY = ("yolo_ultralytics", "imagenet_with_subset_dirs")


def annotations(kind: str, i: int) -> list[Any]:
    """Returns the annotations of an image, of which the sixth has none."""
    if kind == "labels":
        return [Label(i % 3)]
    if kind == "outlines":
        points = [2.5 + i, 3, 20 + i, 3, 20 + i, 20.25, 2 + i, 25]
        return [Polygon(points, label=i % 3, id=i + 1, group=i + 1)]
    boxes = [(2 + i, 3, 10.5, 12.25), (20, 5 + i, 15, 9.5)][: i % 2 + 1] if i != 5 else []
    return [Bbox(*b, label=(i + n) % 3, id=2 * i + n, group=2 * i + n) for n, b in enumerate(boxes)]


def items(kind: str) -> Iterator[DatasetItem]:
    """Yields the images with their annotations."""
    for split, numbers in SPLITS.items():
        for i in numbers:
            image = np.asarray(Pillow.effect_noise(SIZE, 30 + i).convert("RGB"))
            found = annotations(kind, i)
            media = Image.from_numpy(image)
            yield DatasetItem(f"im{i}", subset=split, media=media, annotations=found)


def objects_in(dataset: Dataset) -> dict[str, dict[str, list[list[Any]]]]:
    """Returns [class, box] of each annotation, by split and image; no box of a label."""
    names = [category.name for category in dataset.categories()[AnnotationType.label]]
    found: dict[str, dict[str, list[list[Any]]]] = {}
    for item in dataset:
        read = [
            [names[one.label], [] if isinstance(one, Label) else corners(one)]
            for one in item.annotations
        ]
        # Of COCO, Datumaro reads each object as an outline and as the box around it.
        unlike = [one for i, one in enumerate(read) if one not in read[:i]]
        found.setdefault(item.subset, {})[f"{Path(item.id).name}.jpg"] = unlike
    return found


def corners(annotation: Any) -> list[float]:
    """Returns the corners of the box around an annotation."""
    x, y, width, height = map(float, annotation.get_bbox())
    return [x, y, x + width, y + height]


folder = Path(sys.argv[1])
reported = {}
for kind, formats in EXPORTS.items():
    for format_ in formats:
        path = str(folder / f"{kind}_{format_}")
        given = Dataset.from_iterable(list(items(kind)), categories=CLASSES)
        given.export(path, format_, save_media=True)
        known = given if format_ in WRITTEN_ONLY else Dataset.import_from(path, format_)
        reported[f"{kind}_{format_}"] = objects_in(known)
(folder / "reported.json").write_text(json.dumps(reported))
