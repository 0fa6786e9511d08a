"""Converts COCO and DOTA with Ultralytics, in an environment of its own.

Writes `reported.json`: the classes, boxes and points of each folder as Ultralytics reads them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from PIL import Image
from ultralytics.data import YOLODataset
from ultralytics.data.converter import convert_coco, convert_dota_to_yolo_obb
from ultralytics.data.utils import check_det_dataset

CLASSES = ["plane", "ship", "storage-tank"]  # the first ones of DOTA
SPLITS = {"train": range(8), "val": range(8, 12)}
SIZE = WIDE, HIGH = 60, 40
TASKS = {"detect": {}, "segment": {"use_segments": True}, "pose": {"use_keypoints": True}}


def corners(i: int, n: int) -> list[float]:
    """Returns the corners of an object: a turned rectangle."""
    x, y = 20.5 + i + 10 * n, 8.25 + i / 2
    return [x, y, x + 8, y + 6, x + 2, y + 14, x - 6, y + 8]


def annotation(i: int, n: int) -> dict[str, Any]:
    """Returns an object as COCO has it."""
    points = corners(i, n)
    left, top = min(points[::2]), min(points[1::2])
    box = [left, top, max(points[::2]) - left, max(points[1::2]) - top]
    return {
        **{"id": 2 * i + n + 1, "image_id": i, "category_id": (i + n) % 3 + 1, "iscrowd": 0},
        **{"bbox": box, "area": box[2] * box[3], "segmentation": [points]},
        **{"keypoints": [points[0], points[1], 2, points[2], points[3], 1], "num_keypoints": 2},
    }


def objects(i: int) -> int:
    """Returns the number of objects in an image, of which the sixth has none."""
    return i % 2 + 1 if i != 5 else 0


def write_images(folder: Path, suffix: str) -> None:
    """Writes the images of all splits."""
    for split, numbers in SPLITS.items():
        (folder / "images" / split).mkdir(parents=True, exist_ok=True)
        for i in numbers:
            image = Image.effect_noise(SIZE, 30 + i).convert("RGB")
            image.save(folder / "images" / split / f"{i}{suffix}")


def read(task: str, folder: Path) -> dict[str, dict[str, list[Any]]]:
    """Returns [class, box, points] of each object by split and image, as fractions."""
    stated = {"path": str(folder), "train": "images/train", "val": "images/val"}
    pose = {"kpt_shape": [2, 3]} if task == "pose" else {}
    names = {"names": dict(enumerate(CLASSES))}
    (folder / "data.yaml").write_text(yaml.safe_dump({**stated, **names, **pose}))
    data = check_det_dataset(folder / "data.yaml", autodownload=False)
    found = dict[str, dict[str, list[Any]]]()
    for split in SPLITS:
        known = YOLODataset(img_path=data[split], data=data, task=task, augment=False, cache=False)
        found[split] = {
            Path(label["im_file"]).name: [
                [data["names"][int(id_)], box.tolist(), points.reshape(-1).tolist()]
                for id_, box, points in zip(
                    label["cls"][:, 0],
                    label["bboxes"],
                    label["keypoints"]
                    if task == "pose"
                    else label["segments"] or [label["bboxes"][:0]] * len(label["cls"]),
                    strict=True,
                )
            ]
            for label in known.labels
        }
    return found


top, reported = Path(sys.argv[1]), dict[str, Any]()
for split, numbers in SPLITS.items():
    (top / "coco").mkdir(exist_ok=True)
    document = {
        "images": [
            {"id": i, "file_name": f"{i}.jpg", "width": WIDE, "height": HIGH} for i in numbers
        ],
        "annotations": [annotation(i, n) for i in numbers for n in range(objects(i))],
        "categories": [{"id": id_, "name": name} for id_, name in enumerate(CLASSES, start=1)],
    }
    (top / "coco" / f"instances_{split}.json").write_text(json.dumps(document))
for task, options in TASKS.items():
    convert_coco(str(top / "coco"), str(top / task), cls91to80=False, **options)
    write_images(top / task, ".jpg")
    reported[task] = read(task, top / task)

write_images(top / "obb", ".png")
for split, numbers in SPLITS.items():
    labels = top / "obb" / "labels" / f"{split}_original"
    labels.mkdir(parents=True)
    for i in numbers:
        lines = (
            f"{' '.join(map(str, corners(i, n)))} {CLASSES[(i + n) % 3]} 0\n"
            for n in range(objects(i))
        )
        (labels / f"{i}.txt").write_text("".join(lines))
convert_dota_to_yolo_obb(str(top / "obb"))
reported["obb"] = read("obb", top / "obb")
(top / "reported.json").write_text(json.dumps(reported))
