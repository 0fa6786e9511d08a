"""200 random annotated images of each EXIF orientation, scaled, cropped and padded: boxes,
keypoints and oriented boxes are where torchvision puts them, and masks the same to the pixel."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from recordmill.schemas.yaml_files import preset
from tests.deploy.runs.environments import ROOT, environment, run
from tests.end_to_end import readers
from tests.end_to_end.command import published

PACKAGES = ["torchvision==0.23.0", "supervision==0.31.2"]
IMAGES = 200
SIZE = WIDE, HIGH = 48, 36
MODES = ("exact", "crop", "pad")
SIDES = ("xmin", "ymin", "xmax", "ymax")
OBJECT, POINTS = "image/object", "image/object/keypoint"


def upright_sizes(chance: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Yields sizes that scale to whole pixels, and are cropped and padded by the same on each side.

    torchvision crops and pads whole pixels only.
    """
    while True:
        p, q, k = (
            chance.choice([1, 2, 3, 6, 9]),
            chance.choice([1, 2, 3, 4, 6, 8]),
            chance.integers(1, 9),
        )
        if 1 / 3 < p / q < 3 and min(4 * p * k, 3 * q * k) >= 12 and max(p, q) * k <= 40:
            yield int(4 * p * k), int(3 * q * k)


def content_of(size: tuple[int, int], mode: str) -> list[int]:
    """Returns the size of the whole image after it is scaled."""
    scales = WIDE / size[0], HIGH / size[1]
    if mode == "exact":
        return list(SIZE)
    scale = max(scales) if mode == "crop" else min(scales)
    return [round(size[0] * scale), round(size[1] * scale)]


def annotations(size: tuple[int, int], chance: np.random.Generator) -> dict[str, Any]:
    """Returns two objects with all kinds of shapes on an image as it is stored."""
    row: dict[str, Any] = {name: [] for name in (*SIDES, "keypoints", "corners", "segmentation")}
    for _ in range(2):
        low, high = np.sort(chance.uniform(0, 1, (2, 2)) * size, axis=0)
        for name, side in zip(SIDES, (*low, *high), strict=True):
            row[name].append(float(side))
        # torchvision moves keypoints in the outer half of the pixels at the edge to their center.
        points = 1 + chance.uniform(0, 1, (3, 2)) * (np.array(size) - 2)
        row["keypoints"].append([[x, y, 2 - i % 2] for i, (x, y) in enumerate(points.tolist())])
        angle, half = chance.uniform(0, math.pi), chance.uniform(1, min(size) / 4, 2)
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        rectangle = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * half @ turn.T
        row["corners"].append((rectangle + np.array(size) / 2).ravel().tolist())
        row["segmentation"].append([(chance.uniform(0, 1, (5, 2)) * size).ravel().tolist()])
    return row | {"labels": ["a", "b"]}


def schema() -> dict[str, Any]:
    names = ("keypoints", "oriented_boxes", "instance_segmentation")
    features = {key: f for name in names for key, f in preset(name).features.items()}
    written = {
        key: {
            **json.loads(f.model_dump_json(exclude_defaults=True)),
            "from": [*map(str, f.sources)],
        }
        for key, f in features.items()
    }
    for feature in written.values():
        feature.pop("sources")
    frame = {"units": "pixel", "frame": "stored"}
    return {"name": "shapes", "features": written, "boxes": frame, "masks": frame}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the images, their annotations, and a dataset per mode."""
    folder = tmp_path_factory.mktemp("transforms")
    chance = np.random.default_rng(34)
    rows = []
    for i, size in zip(range(IMAGES), upright_sizes(chance), strict=False):
        for orientation in range(1, 9):
            stored = size if orientation < 5 else size[::-1]
            exif = Image.Exif()
            exif[274] = orientation
            name = f"{i}-{orientation}.png"
            Image.new("RGB", stored, (i, 9, 9)).save(folder / name, exif=exif)
            rows.append({"image": name, **annotations(stored, chance)})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "schema.yaml").write_text(json.dumps(schema()))
    for mode in MODES:
        flags = ("--schema", folder / "schema.yaml", "--image", f"resize={WIDE}x{HIGH} {mode}")
        published(folder / "rows.jsonl", folder / "out", *flags, "--no_report", name=mode)
    return folder


def case_of(row: dict[str, Any], size: tuple[int, int], mode: str, example: Any) -> dict[str, Any]:
    """Returns what torchvision needs, and the oriented boxes of the record in pixels."""
    boxes = [list(box) for box in zip(*(row[side] for side in SIDES), strict=True)]
    orientation = int(row["image"][-5])
    upright = size if orientation < 5 else size[::-1]
    return {
        "image": row["image"],
        "stored": size,
        "orientation": orientation,
        "content": content_of(upright, mode),
        "size": SIZE,
        "boxes": boxes,
        "points": [point[:2] for points in row["keypoints"] for point in points],
        "corners": [corners[i : i + 2] for corners in row["corners"] for i in range(0, 8, 2)],
        "made": scaled(example[f"{OBJECT}/oriented_bbox"]).tolist(),
    }


def scaled(values: list[float]) -> np.ndarray:
    """Returns fractions of the record's image as points in pixels."""
    return np.array(values, np.float64).reshape(-1, 2) * SIZE


@pytest.mark.skipif(
    "RECORDMILL_TORCHVISION" not in os.environ,
    reason="downloads 3.7 GB for PyTorch: set RECORDMILL_TORCHVISION=1",
)
def test_annotations_are_where_torchvision_puts_them(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    sizes = {row["image"]: Image.open(folder / row["image"]).size for row in rows}
    masks = {
        row["image"]: np.stack(
            [
                coco.decode(coco.frPyObjects(o, *sizes[row["image"]][::-1])[0])
                for o in row["segmentation"]
            ]
        )
        for row in rows
    }
    cases, made = {}, {}
    for mode in MODES:
        by_name = {
            e["image/filename"][0].decode(): e
            for e in readers.examples(folder / "out" / mode / "1.0.0", "train")
        }
        assert len(by_name) == 8 * IMAGES
        for row in rows:
            name, example = f"{mode} {row['image']}", by_name[row["image"]]
            made[name] = example
            cases[name] = case_of(row, sizes[row["image"]], mode, example)
            labels = example[f"{OBJECT}/class/text"]
            cases[name]["kept"] = [i for i, label in enumerate((b"a", b"b")) if label in labels]
    (folder / "cases.json").write_text(json.dumps(cases))
    np.savez(folder / "masks.npz", **masks)
    venv = environment("torchvision", PACKAGES, ROOT / "constraints.txt")
    run(venv / "bin" / "python", Path(__file__).parent / "torchvision_transforms.py", folder)
    expected = json.loads((folder / "expected.json").read_bytes())
    assert expected["iou"] > 0.9999
    pixels = np.load(folder / "expected.npz")
    seen = [
        check(made[name], case, expected["found"][name], rows[i % len(rows)], pixels[name])
        for i, (name, case) in enumerate(cases.items())
    ]
    objects, points, drawn = np.sum(seen, axis=0)
    assert objects > 8_000  # of 9,600 in all, of which the crop leaves some out
    assert points > 16_000
    assert drawn > 6_000


def check(
    example: dict[str, list[Any]],
    case: dict[str, Any],
    expected: dict[str, Any],
    row: dict[str, Any],
    pixels: np.ndarray,
) -> tuple[int, int, int]:
    """Compares a record; returns the number of objects, keypoints and masks with pixels."""
    boxes = np.array(expected["boxes"])
    kept = [i for i, box in enumerate(boxes) if (box[2:] - box[:2]).min() > 0]
    assert kept == case["kept"]
    found = np.array([example[f"{OBJECT}/bbox/{side}"] for side in SIDES]).T
    np.testing.assert_allclose(found * (*SIZE, *SIZE), boxes[kept], atol=1e-3)
    corners = np.array(expected["corners"]).reshape(2, 4, 2)[kept].reshape(-1, 2)
    np.testing.assert_allclose(np.array(case["made"]).reshape(-1, 2), corners, atol=1e-3)
    masks = example[f"{OBJECT}/mask"]
    for mask, target in zip(masks, pixels[kept], strict=True):
        decoded = np.asarray(Image.open(io.BytesIO(mask)))
        np.testing.assert_array_equal(decoded, target)
        ours, theirs = (coco.encode(np.asfortranarray(one)) for one in (decoded, target))
        assert coco.area(ours) == coco.area(theirs)
        assert not target.any() or coco.iou([ours], [theirs], [0]) == 1
    compared = 0
    points = np.array(expected["points"]).reshape(2, 3, 2)[kept].reshape(-1, 2)
    given = [point[2] for i in kept for point in row["keypoints"][i]]
    ours = np.stack([example[f"{POINTS}/{axis}"] for axis in "xy"], axis=1) * SIZE
    for at, target, visibility, labeled in zip(
        ours, points, example[f"{POINTS}/visibility"], given, strict=True
    ):
        # torchvision moves those that are cropped off to the index of the last pixel.
        if (target > 1).all() and (target < np.array(SIZE) - 1).all():
            assert visibility == labeled
            np.testing.assert_allclose(at, target, atol=1e-3)
            compared += 1
        elif not visibility:
            np.testing.assert_array_equal(at, (0, 0))
    return len(kept), compared, sum(bool(mask.any()) for mask in pixels[kept])
