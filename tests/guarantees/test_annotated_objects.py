"""Drawn images of every EXIF orientation, scaled, cropped and padded: keypoints and oriented
boxes within a thousandth of a pixel of an independent computation, masks of objects the same to the
pixel; and marks are found in the pixels where their keypoints are."""

from __future__ import annotations

import io
import json
import math
import os
from functools import cache

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from recordmill.schemas.example_pb2 import Example
from recordmill.schemas.features import Schema
from recordmill.schemas.records import ImageRef, StoredImage
from recordmill.schemas.settings import ImageSettings
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images.transcode import transcode
from recordmill.transforms.functional.records.examples import Masks, build_example
from tests.annotations import (
    SIDES,
    Case,
    expected_box,
    expected_mask,
    placement,
    seen_at,
    stored_at,
)

# Images of each orientation and mode; the masks of a fifth of them are compared.
IMAGES = int(os.environ.get("RECORDMILL_IMAGES", "10"))
MODES = ("fit", "pad", "crop", "exact")
MASK, RUNS, IDS, POINTS = "image/object/mask", "runs", "ids", "image/object/keypoint"


@cache
def shapes_schema(with_masks: bool) -> Schema:
    """Returns a schema with all shapes of objects."""
    names = ("keypoints", "oriented_boxes", *(("instance_segmentation",) if with_masks else ()))
    features = {name: f for one in names for name, f in preset(one).features.items()}
    if with_masks:
        features[RUNS] = {"kind": "bytes", "from": "instance_rle:segmentation", "shape": []}
        features[IDS] = {"kind": "bytes", "from": "instance_ids:segmentation"}
    return Schema.model_validate({"features": features})


def schema_of(case: Case, with_masks: bool = False) -> Schema:
    """Returns a schema with the image settings of a case."""
    schema = shapes_schema(with_masks)
    return schema.model_copy(
        update={
            "image": ImageSettings(**case.image),
            "boxes": schema.boxes.model_copy(update={"frame": case.frame}),
            "masks": schema.masks.model_copy(update={"frame": case.frame}),
        }
    )


def case_of(seed: int, orientation: int, mode: str) -> Case:
    """Returns the size and settings of an image by its number."""
    side = np.random.default_rng(seed).integers(4, 40, 4).tolist()
    turning = ("apply", "record")[seed % 3 == 2]
    image = {"resize": f"{side[2]}x{side[3]} {mode}", "orientation": turning}
    frame = ("displayed", "stored")[seed % 2]
    return Case(side[0], side[1], orientation, image, frame)


def built(case: Case, shapes: dict, boxes: list, outlines: list, image: StoredImage | None = None):
    """Returns the features of the example of an image, and its remarks."""
    schema = schema_of(case, bool(outlines))
    size = case.width, case.height
    stored = image or StoredImage(b"", "png", 1, 1, 3, "", source_size=size)._replace(
        orientation=case.orientation
    )
    values = tuple([] if feature.per_box else None for feature in schema.features.values())
    ref = ImageRef("k", "t", 1, "u", None, None, values)._replace(
        boxes=("pixel", [float(side) for box in boxes for side in box], None, shapes),
        outlines=("pixel", [(0, outline) for outline in outlines], None) if outlines else None,
    )
    made = build_example(schema, ref, stored, Masks())
    return Example.FromString(made.data).features.feature, made.remarks


def expected_point(x: float, y: float, case: Case) -> tuple[float, float]:
    """Returns a point of the annotated image in pixels of the record's image."""
    if case.frame == "displayed" and not case.turned:
        x, y = stored_at(x, y, case)
    if case.frame == "stored" and case.turned:
        x, y = seen_at(x, y, case)
    _, (across, down), (left, top) = placement(case)
    return float(across) * x + float(left), float(down) * y + float(top)


def drawn_objects(case: Case, seed: int) -> tuple[list, list, list, list]:
    """Returns boxes, keypoints, corners and outlines on the annotated image."""
    chance = np.random.default_rng(seed + 1000)
    width, height = case.annotated
    boxes, keypoints, corners, outlines = [], [], [], []
    for i in range(1 + seed % 3):
        xs, ys = sorted(chance.uniform(0, width, 2)), sorted(chance.uniform(0, height, 2))
        boxes.append((xs[0], ys[0], xs[1], ys[1]))
        points = chance.uniform(-0.1, 1.1, (4, 2)) * (width, height)
        seen = [2.0, 1.0, 0.0, 2.0]
        keypoints.append(
            [n for (x, y), v in zip(points.tolist(), seen, strict=True) for n in (x, y, v)]
        )
        angle = chance.uniform(0, math.pi)
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        rectangle = np.array([(-3, -2), (3, -2), (3, 2), (-3, 2)]) @ turn.T + (xs[0], ys[0])
        corners.append(rectangle.ravel().tolist())
        polygon = (chance.uniform(0, 1, (5, 2)) * (width, height)).ravel().tolist()
        drawn = coco.frPyObjects([polygon], height, width)[0]
        outlines.append([polygon] if i % 2 else drawn)
    return boxes, keypoints, corners, outlines


def is_inside(x: float, y: float, case: Case) -> bool | None:
    """Returns whether a point is in the image and its crop; None within a rounding error."""
    (width, height), _, _ = placement(case)
    px, py = expected_point(x, y, case)
    away = min(px, py, width - px, height - py, x, y, case.annotated[0] - x, case.annotated[1] - y)
    return None if abs(away) < 1e-3 else away > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("orientation", SIDES)
def test_all_shapes_follow_their_image(orientation: int, mode: str) -> None:
    for seed in range(IMAGES):
        case = case_of(seed, orientation, mode)
        boxes, keypoints, corners, outlines = drawn_objects(case, seed)
        with_masks = seed % 5 == 0
        kept = [i for i, box in enumerate(boxes) if expected_box(box, case) is not None]
        shapes = {"keypoints": keypoints, "corners": corners}
        size = placement(case)[0]
        features, remarks = built(case, shapes, boxes, outlines if with_masks else [])
        x, y = (features[f"{POINTS}/{axis}"].float_list.value for axis in "xy")
        seen = list(features[f"{POINTS}/visibility"].int64_list.value)
        points = [tuple(keypoints[i][k : k + 3]) for i in kept for k in range(0, 12, 3)]
        assert len(points) == len(seen)
        outside = False
        for px, py, found, (ax, ay, given) in zip(x, y, seen, points, strict=True):
            inside = is_inside(ax, ay, case)
            if inside is not None:
                assert found == (given if inside else 0), (seed, case)
                outside |= bool(given and not inside)
            expected = expected_point(ax, ay, case) if found else (0, 0)
            assert (px * size[0], py * size[1]) == pytest.approx(expected, abs=1e-3), (seed, case)
        assert not outside or "keypoints outside" in remarks
        four = np.array(features["image/object/oriented_bbox"].float_list.value).reshape(-1, 2)
        expected_corners = [
            expected_point(*corners[i][k : k + 2], case) for i in kept for k in range(0, 8, 2)
        ]
        np.testing.assert_allclose(
            four * size, np.array(expected_corners).reshape(-1, 2), atol=1e-3
        )
        if with_masks:
            check_masks(features, [outlines[i] for i in kept], case)


def check_masks(features, outlines: list, case: Case) -> None:
    """Compares the three forms of the masks of objects with their pixels."""
    width, height = case.annotated
    numbers = np.zeros(placement(case)[0][::-1])
    pngs, runs = (features[name].bytes_list.value for name in (MASK, RUNS))
    for i, (outline, png, run) in enumerate(zip(outlines, pngs, runs, strict=True), start=1):
        rle = outline if isinstance(outline, dict) else coco.frPyObjects(outline, height, width)[0]
        expected = expected_mask(coco.decode(rle), case)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png))), expected, str(case))
        np.testing.assert_array_equal(coco.decode(json.loads(run)), expected)
        numbers[expected > 0] = i
    found = np.asarray(Image.open(io.BytesIO(features[IDS].bytes_list.value[0])))
    np.testing.assert_array_equal(found, numbers)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("orientation", SIDES)
def test_a_mark_is_found_in_the_pixels_where_its_keypoint_is(orientation: int, mode: str) -> None:
    # A bright disk in the file, seen by viewers after EXIF orientation, in which it is annotated.
    side = (160, 120)
    case = Case(*side, orientation, {"resize": f"90x100 {mode}"}, "displayed")
    at = (77.0, 53.0)
    ys, xs = np.mgrid[: side[1], : side[0]] + 0.5
    light = 255 * np.exp(-((xs - at[0]) ** 2 + (ys - at[1]) ** 2) / (2 * 6.0**2))
    stream, exif = io.BytesIO(), Image.Exif()
    exif[274] = orientation
    Image.fromarray(light.astype(np.uint8)).save(stream, "PNG", exif=exif)
    stored = transcode(stream.getvalue(), schema_of(case).image)
    keypoint = [*seen_at(*at, case), 2.0]
    box = (0.0, 0.0, *map(float, case.shown))
    shapes = {"keypoints": [keypoint], "corners": [[0.0] * 8]}
    features, _ = built(case, shapes, [box], [], stored)
    pixels = np.asarray(Image.open(io.BytesIO(stored.data)).convert("L"), float)
    ys, xs = np.mgrid[: stored.height, : stored.width] + 0.5
    found = [(axis * pixels).sum() / pixels.sum() for axis in (xs, ys)]
    x, y = (features[f"{POINTS}/{axis}"].float_list.value[0] for axis in "xy")
    assert (x * stored.width, y * stored.height) == pytest.approx(found, abs=0.25)
