"""Writes shapes with LabelMe, in an environment of its own.

Writes `reported.json`: [label, box] of each shape as LabelMe reads it, and its classes by pixel.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import labelme
from labelme import utils
from PIL import Image

SIZE = WIDE, HIGH = 60, 40
NAMES = {"_background_": 0, "owl": 1, "cat": 2}

top, reported = Path(sys.argv[1]), {}
for i in range(6):
    folder = top / "labelme" / ("train" if i < 4 else "val")
    folder.mkdir(parents=True, exist_ok=True)
    Image.effect_noise(SIZE, 30 + i).convert("RGB").save(folder / f"{i}.jpg")
    others = {"flags": {}, "group_id": None, "description": "", "mask": None}
    corners, outline = [[30.5, 20], [5 + i, 3]], [[10, 5], [40, 6 + i], [20, 30]]
    shapes = [
        {"label": ["owl", "cat"][i % 2], "points": corners, "shape_type": "rectangle", **others},
        {"label": "cat", "points": outline, "shape_type": "polygon", **others},
    ][: 1 + i % 2]
    path = str(folder / f"{i}.json")
    labelme.LabelFile().save(path, shapes, f"{i}.jpg", HIGH, WIDE)
    read = labelme.LabelFile(path).shapes
    classes, _ = utils.shapes_to_label((HIGH, WIDE), read, NAMES)
    sides = [[*zip(*shape["points"], strict=True)] for shape in read]
    boxes = [[*map(min, one), *map(max, one)] for one in sides]
    found = [[shape["label"], box] for shape, box in zip(read, boxes, strict=True)]
    reported[f"{folder.name}/{i}.jpg"] = {"shapes": found, "classes": classes.tolist()}
(top / "reported.json").write_text(json.dumps(reported))
