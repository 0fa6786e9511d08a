"""Keypoints, masks of objects, oriented boxes and panoptic masks, each converted by one command and
read by TensorFlow Datasets, pycocotools, and as decoders of the Object Detection API read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageDraw
from pycocotools import mask as coco

from tests.end_to_end import readers
from tests.end_to_end.command import convert, published

SIZE = WIDTH, HEIGHT = 96, 64
# EXIF orientations, and how Pillow stores what is displayed.
STORED = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90}
BODY = [(20, 10), (60, 14), (56, 50), (16, 40)]
POINTS = [20, 10, 2, 56, 50, 1, 0, 0, 0]
NAMES = ["nose", "foot", "hand"]


def photos(folder: Path) -> list[str]:
    """Writes an image of each orientation."""
    folder.mkdir(parents=True, exist_ok=True)
    for orientation, method in STORED.items():
        image = Image.new("RGB", SIZE, (60, 80, 90))
        ImageDraw.Draw(image).polygon(BODY, (180, 120 + orientation, 60))
        exif = Image.Exif()
        exif[274] = orientation
        stored = image if method is None else image.transpose(method)
        stored.save(folder / f"{orientation}.jpg", exif=exif)
    return [f"{orientation}.jpg" for orientation in STORED]


def coco_file(path: Path, names: list[str], annotations: list[dict[str, Any]]) -> None:
    """Writes a COCO file, with the annotations of each image."""
    images = [
        {"id": i, "file_name": name, "width": WIDTH, "height": HEIGHT}
        for i, name in enumerate(names)
    ]
    category = {"id": 1, "name": "person", "keypoints": NAMES, "skeleton": [[1, 2]]}
    listed = [{**a, "id": i, "image_id": i} for i, a in enumerate(annotations)]
    categories = [category, {"id": 3, "name": "sky"}]
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"images": images, "annotations": listed, "categories": categories}
    path.write_text(json.dumps(document))


def person() -> dict[str, Any]:
    flat = [float(side) for point in BODY for side in point]
    whole = {"category_id": 1, "bbox": [16, 10, 44, 40], "area": 1500, "iscrowd": 0}
    return {**whole, "segmentation": [flat], "keypoints": POINTS, "num_keypoints": 2}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    coco_file(folder / "person_keypoints_val.json", photos(folder), [person()] * 3)
    return folder


def test_keypoints_of_coco(people: Path, tmp_path: Path) -> None:
    dataset = published(people, tmp_path, "--image", "resize=64x64 pad")
    _, examples = readers.loaded(dataset, "val")
    assert len(examples) == 3
    for example in examples:
        found = {name: example[f"image/object/keypoint/{name}"] for name in ("x", "y")}
        scale, content = 64 / WIDTH, round(HEIGHT * 64 / WIDTH)
        down, top = content / HEIGHT, round((64 - content) / 2)
        np.testing.assert_allclose(found["x"] * 64, [20 * scale, 56 * scale, 0], atol=1e-3)
        np.testing.assert_allclose(
            found["y"] * 64, [10 * down + top, 50 * down + top, 0], atol=1e-3
        )
        assert example["image/object/keypoint/visibility"].tolist() == [2, 1, 0]
        assert example["image/object/keypoint/num"].tolist() == [2]
        assert [t.decode() for t in example["image/object/keypoint/text"].tolist()] == NAMES


def test_masks_of_objects_as_their_decoders_read_them(people: Path, tmp_path: Path) -> None:
    dataset = published(people, tmp_path, "--schema", "instance_segmentation")
    (expected,) = [
        coco.decode(run) for run in coco.frPyObjects(person()["segmentation"], HEIGHT, WIDTH)
    ]
    spec = {
        "image/object/mask": tf.io.VarLenFeature(tf.string),
        "image/height": tf.io.FixedLenFeature((), tf.int64),
        "image/width": tf.io.FixedLenFeature((), tf.int64),
    }
    for record in readers.records(dataset, "val"):
        parsed = tf.io.parse_single_example(record, spec)
        # As TfExampleDecoder(include_mask=True) of the Model Garden does.
        decode = lambda data: tf.cast(tf.io.decode_png(data, channels=1), tf.float32)  # noqa: E731
        masks = tf.map_fn(decode, parsed["image/object/mask"].values, tf.float32)[..., 0].numpy()
        assert masks.shape == (1, HEIGHT, WIDTH)
        runs = coco.encode(np.asfortranarray(masks[0].astype(np.uint8)))
        assert coco.iou([runs], coco.frPyObjects(person()["segmentation"], HEIGHT, WIDTH), [0]) == 1
        assert coco.area(runs) == expected.sum()
    _, examples = readers.loaded(dataset, "val")
    for example in examples:
        np.testing.assert_array_equal(example["image/object/mask"][0][..., 0], expected)


def test_what_a_schema_leaves_out_is_shown(people: Path, tmp_path: Path) -> None:
    ended = convert(people, tmp_path, "--schema", "object_detection")
    assert ended.code == 0
    assert "3 images with keypoints that the schema leaves out" in ended.out + ended.err


def panoptic(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Writes a panoptic folder of COCO; returns the ids of a mask, and its colors."""
    names = photos(root / "val")
    folder = root / "annotations/panoptic_val"
    folder.mkdir(parents=True)
    ids, annotations = np.zeros((HEIGHT, WIDTH), np.uint32), []
    ids[:20], ids[30:50, 10:40] = 70_000, 7
    sides = [[0, 0, WIDTH, 20], [10, 30, 30, 20]]
    segments = [
        {"id": id_, "category_id": category, "area": box[2] * box[3], "iscrowd": 0, "bbox": box}
        for id_, category, box in zip((70_000, 7), (3, 1), sides, strict=True)
    ]
    colors = np.stack([ids % 256, ids // 256 % 256, ids // 65536], -1).astype(np.uint8)
    for i in range(len(names)):
        Image.fromarray(colors).save(folder / f"{i}.png")
        annotations.append({"file_name": f"{i}.png", "segments_info": segments})
    coco_file(root / "annotations/panoptic_val.json", names, annotations)
    return ids, colors


def test_a_panoptic_mask(tmp_path: Path) -> None:
    ids, colors = panoptic(tmp_path / "pan")
    dataset = published(tmp_path / "pan", tmp_path / "out")
    _, examples = readers.loaded(dataset, "val")
    assert len(examples) == 3
    for example in examples:
        classes = example["image/panoptic/category_mask"][..., 0]
        numbers = example["image/panoptic/instance_mask"][..., 0]
        np.testing.assert_array_equal(classes, np.select([ids == 70_000, ids == 7], [2, 1]))
        np.testing.assert_array_equal(numbers, np.select([ids == 70_000, ids == 7], [1, 2]))
        assert example["image/object/class/label"].tolist() == [2, 1]

    changed = tmp_path / "pan/annotations/panoptic_val/1.png"
    Image.fromarray(colors + np.uint8(1)).save(changed)
    again = published(tmp_path / "pan", tmp_path / "again", "--max_rejects", "1")
    (reject,) = readers.rejects(again)
    assert reject["reason"] == "wrong_type"
    assert "which no object has" in reject["detail"]


FRACTIONS = [side / SIZE[i % 2] for i, side in enumerate(s for point in BODY for s in point)]


def yolo(root: Path, task: str) -> None:
    """Writes a folder of YOLO, with keypoints ("pose") or four corners ("obb")."""
    names = photos(root / "images/train")
    labels = root / "labels/train"
    labels.mkdir(parents=True)
    pose = f"0 .4 .5 .5 .7 {20 / WIDTH} {10 / HEIGHT} 2 {56 / WIDTH} {50 / HEIGHT} 1 0 0 0"
    obb = " ".join(["0", *map(str, FRACTIONS)])
    for name in names:
        (labels / name.replace("jpg", "txt")).write_text(pose if task == "pose" else obb)
    points = "kpt_shape: [3, 3]\nkpt_names: {0: [nose, foot, hand]}\n" if task == "pose" else ""
    text = f"path: .\ntrain: images/train\nnames: [ship]\n{points}"
    (root / "data.yaml").write_text(text)


@pytest.mark.parametrize("task", ["pose", "obb"])
def test_a_folder_of_yolo(task: str, tmp_path: Path) -> None:
    yolo(tmp_path / "yolo", task)
    flags = [] if task == "pose" else ["--schema", "oriented_boxes"]
    dataset = published(tmp_path / "yolo", tmp_path / "out", *flags)
    _, examples = readers.loaded(dataset, "train")
    assert len(examples) == 3
    for example in examples:
        if task == "obb":
            found = example["image/object/oriented_bbox"]
            assert found.shape == (1, 8)
            np.testing.assert_allclose(found[0], FRACTIONS, atol=1e-6)
            continue
        x, y = (example[f"image/object/keypoint/{axis}"] for axis in "xy")
        np.testing.assert_allclose(x * WIDTH, [20, 56, 0], atol=1e-3)
        np.testing.assert_allclose(y * HEIGHT, [10, 50, 0], atol=1e-3)
        assert example["image/object/keypoint/visibility"].tolist() == [2, 1, 0]


def test_landmarks_without_boxes(tmp_path: Path) -> None:
    names = photos(tmp_path / "faces")
    table = tmp_path / "faces/table.jsonl"
    rows = [{"image": n, "keypoints": [[[20, 10], [56, 50]]]} for n in names]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    schema = tmp_path / "schema.yaml"
    schema.write_text(
        "name: landmarks\nfeatures:\n"
        '  image: {kind: bytes, from: "image:bytes"}\n'
        '  x: {kind: float, from: "keypoint_x:keypoints", shape: []}\n'
        '  y: {kind: float, from: "keypoint_y:keypoints", shape: []}\n'
    )
    dataset = published(table, tmp_path / "out", "--schema", schema)
    for example in readers.examples(dataset, "train"):
        assert np.array(example["x"]) * WIDTH == pytest.approx([20, 56], abs=1e-3)
        assert np.array(example["y"]) * HEIGHT == pytest.approx([10, 50], abs=1e-3)
    fractions = [{**row, "keypoints": [[[0.2, 0.1], [0.5, 0.5]]]} for row in rows]
    table.write_text("".join(json.dumps(row) + "\n" for row in fractions))
    ended = convert(table, tmp_path / "other", "--schema", schema)
    assert ended.code == 2
    assert "--boxes units=normalized" in ended.err
