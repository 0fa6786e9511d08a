"""Turns, scales, crops and pads annotations with torchvision, in an environment of its own.

Reads cases.json and masks.npz of a folder, and writes expected.json and expected.npz, with the
smallest IoU of the oriented boxes in records with those in torchvision, as Supervision computes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import supervision as sv
import torch
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as v2

folder = Path(sys.argv[1])
torch.set_num_threads(1)  # of tensors this small

# What displays an image with each EXIF orientation: clockwise quarter turns, and flips after them.
TURNS = {5: 270, 6: 270, 7: 270, 8: 90}
FLIPS = {2: "h", 3: "hv", 4: "v", 5: "h", 7: "v"}


def turned(values: Any, orientation: int) -> Any:
    if orientation in TURNS:
        values = v2.rotate(values, TURNS[orientation], expand=True)
    for flip in FLIPS.get(orientation, ""):
        values = v2.horizontal_flip(values) if flip == "h" else v2.vertical_flip(values)
    return values


def placed(values: Any, case: dict[str, Any]) -> Any:
    """Returns values of an upright image, scaled, and cropped or padded around the center."""
    (width, height), (wide, high) = case["content"], case["size"]
    values = v2.resize(values, [height, width], InterpolationMode.NEAREST_EXACT)
    left, top = (wide - width) // 2, (high - height) // 2
    if left < 0 or top < 0:
        return v2.crop(values, -top, -left, high, wide)
    return v2.pad(values, [left, top, wide - width - left, high - height - top])


def of(case: dict[str, Any], masks: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    canvas, orientation = tuple(case["stored"][::-1]), case["orientation"]
    sides = torch.tensor(case["boxes"], dtype=torch.float64)
    boxes = tv_tensors.BoundingBoxes(sides, format="XYXY", canvas_size=canvas)
    # An image, as torchvision does not scale masks by the centers of pixels.
    pixels = turned(tv_tensors.Image(torch.from_numpy(masks)), orientation)
    points = tv_tensors.KeyPoints(
        torch.tensor(case["points"], dtype=torch.float64), canvas_size=canvas
    )
    corners = tv_tensors.KeyPoints(
        torch.tensor(case["corners"], dtype=torch.float64), canvas_size=canvas
    )
    # Corners beyond the edges stay where they are; torchvision would move keypoints to the edge.
    scaled = v2.resize(of_edges(corners, orientation), case["content"][::-1])
    offset = (torch.tensor(case["size"]) - torch.tensor(case["content"])) // 2
    found = {
        "boxes": placed(turned(boxes, orientation), case).tolist(),
        "points": placed(of_edges(points, orientation), case).tolist(),
        "corners": (scaled.as_subclass(torch.Tensor) + offset).tolist(),
    }
    return found, placed(pixels, case).numpy()


def of_edges(points: tv_tensors.KeyPoints, orientation: int) -> tv_tensors.KeyPoints:
    """Returns keypoints that are turned as distances from the edges of the image.

    Flips take them for indexes of pixels, whose center is 0, and turns and scales do not.
    """
    if orientation in TURNS:
        points = v2.rotate(points, TURNS[orientation], expand=True)
    indexes = tv_tensors.wrap(points - 0.5, like=points)
    for flip in FLIPS.get(orientation, ""):
        indexes = v2.horizontal_flip(indexes) if flip == "h" else v2.vertical_flip(indexes)
    return tv_tensors.wrap(indexes + 0.5, like=indexes)


cases, masks = json.loads((folder / "cases.json").read_bytes()), np.load(folder / "masks.npz")
found, pixels, ious = {}, {}, list[float]()
for name, case in cases.items():
    found[name], pixels[name] = of(case, masks[case["image"]])
    ours, theirs = (
        np.array(one).reshape(-1, 4, 2) for one in (case["made"], found[name]["corners"])
    )
    for i, box in zip(case["kept"], ours, strict=True):
        ious.append(float(sv.oriented_box_iou_batch(box[None], theirs[i : i + 1])[0, 0]))
(folder / "expected.json").write_text(json.dumps({"iou": min(ious), "found": found}))
np.savez(folder / "expected.npz", **pixels)
