"""Writes boxes with Supervision, Globox and pascal-voc-writer, in an environment of their own.

Prints the boxes of each image as Supervision reads them from the folders.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import supervision as sv
from globox import Annotation, AnnotationSet, BoundingBox
from pascal_voc_writer import Writer
from PIL import Image

CLASSES = ["owl", "cat", "ant"]  # no object is an ant
SPLITS = {"train": range(4), "valid": range(4, 6)}
SIZE = (40, 20)

folder = Path(sys.argv[1])
source = folder / "source"


def objects(i: int) -> list[tuple[int, list[float]]]:
    """Returns (class, box) of the objects in an image."""
    boxes = [(0, [i, 2.0, i + 10, 12.0]), (1, [i + 1, 0.0, i + 21, 20.0])]
    return boxes[: 1 + i % 2]


def detections(i: int) -> sv.Detections:
    """Returns the objects in an image as Supervision represents them."""
    classes, boxes = zip(*objects(i), strict=True)
    return sv.Detections(np.array(boxes, np.float32), class_id=np.array(classes))


def annotation_set(numbers: range) -> AnnotationSet:
    """Returns images as Globox represents them."""
    found = AnnotationSet()
    for i in numbers:
        boxes = [
            BoundingBox(
                label=CLASSES[id_], **dict(zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
            )
            for id_, box in objects(i)
        ]
        found.add(Annotation(f"{i}.jpg", SIZE, boxes))
    return found


def boxes_of(dataset: sv.DetectionDataset) -> dict[str, list[tuple[str, list[float]]]]:
    """Returns (class, box) of each object by the name of its image."""
    return {
        Path(path).name: [
            (dataset.classes[id_], [round(float(side), 3) for side in box])
            for id_, box in zip(found.class_id, found.xyxy, strict=True)
        ]
        for path, _, found in dataset
    }


def copy(numbers: range, target: Path) -> None:
    """Copies images, which Globox and pascal-voc-writer do not write."""
    target.mkdir(parents=True, exist_ok=True)
    for i in numbers:
        shutil.copy(source / f"{i}.jpg", target)


source.mkdir()
for i in range(6):
    Image.effect_noise(SIZE, 40 + i).convert("RGB").save(source / f"{i}.jpg")

reported: dict[str, dict[str, object]] = {"yolo": {}, "coco": {}, "voc": {}}
for split, numbers in SPLITS.items():
    paths = [str(source / f"{i}.jpg") for i in numbers]
    boxes = {path: detections(i) for path, i in zip(paths, numbers, strict=True)}
    dataset = sv.DetectionDataset(CLASSES, paths, boxes)
    yolo, coco = folder / "yolo", folder / "coco"
    yaml = str(yolo / "data.yaml")
    dataset.as_yolo(str(yolo / split / "images"), str(yolo / split / "labels"), yaml)
    read = sv.DetectionDataset.from_yolo(
        str(yolo / split / "images"), str(yolo / split / "labels"), yaml
    )
    reported["yolo"][split] = boxes_of(read)
    labels = str(coco / split / "_annotations.coco.json")
    dataset.as_coco(str(coco / split), labels)
    reported["coco"][split] = boxes_of(sv.DetectionDataset.from_coco(str(coco / split), labels))
    images, notes = folder / "voc" / "JPEGImages", folder / "voc" / "Annotations"
    dataset.as_pascal_voc(str(images), str(notes))
    lists = folder / "voc" / "ImageSets" / "Main"
    lists.mkdir(parents=True, exist_ok=True)
    (lists / f"{split}.txt").write_text("".join(f"{i}\n" for i in numbers))
    reported["voc"][split] = {
        name: found
        for name, found in boxes_of(
            sv.DetectionDataset.from_pascal_voc(str(images), str(notes))
        ).items()
        if int(Path(name).stem) in numbers
    }

for name in ("globox_coco", "globox_yolo", "globox_voc", "voc_writer"):
    (folder / name).mkdir()
everything = annotation_set(range(6))
ids = {label: id_ for id_, label in enumerate(CLASSES)}
everything.save_coco(folder / "globox_coco" / "annotations.json", label_to_id=ids, auto_ids=True)
copy(range(6), folder / "globox_coco" / "images")
(folder / "globox_yolo" / "labels").mkdir()
everything.save_yolo_v5(folder / "globox_yolo" / "labels", label_to_id=ids)
copy(range(6), folder / "globox_yolo" / "images")
(folder / "globox_yolo" / "classes.txt").write_text("\n".join(CLASSES))
(folder / "globox_voc" / "Annotations").mkdir()
everything.save_pascal_voc(folder / "globox_voc" / "Annotations")
copy(range(6), folder / "globox_voc" / "JPEGImages")
copy(range(6), folder / "voc_writer" / "images")
(folder / "voc_writer" / "annotations").mkdir()
for i in range(6):
    writer = Writer(str(folder / "voc_writer" / "images" / f"{i}.jpg"), *SIZE)
    for id_, box in objects(i):
        writer.addObject(CLASSES[id_], *map(int, box))
    writer.save(str(folder / "voc_writer" / "annotations" / f"{i}.xml"))

sys.stdout.write(json.dumps({"classes": CLASSES, "boxes": reported}))
