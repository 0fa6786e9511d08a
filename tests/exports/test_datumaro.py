"""What Datumaro exports, converted by its path alone, is what Datumaro reads from it.

A list of the class folders in another order stops the run: its message has the options.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.runs.environments import environment, run
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published

HERE = Path(__file__).parent
# Without its dependencies for inference, of more than a gigabyte.
PINS = HERE / "datumaro.txt"
SIDES = ("xmin", "ymin", "xmax", "ymax")
WIDTH, HEIGHT = 60, 40
CLASSES = ["owl", "cat", "ant"]

# {split: {image: [[class, box in pixels], …]}}
Found = dict[str, dict[str, list[list[Any]]]]

BOXES = [
    *(f"boxes_{name}" for name in ("yolo", "yolo_ultralytics", "coco", "coco_instances", "cvat")),
    *("outlines_coco", "outlines_coco_instances", "outlines_cvat"),
]
VOC = ["boxes_voc", "boxes_voc_detection"]
LABELS = ["labels_imagenet_with_subset_dirs", "labels_vgg_face2", "labels_cvat"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the exports, and `reported.json`, what Datumaro reads from them."""
    folder = tmp_path_factory.mktemp("datumaro")
    venv = environment("datumaro", ["--no-deps", "--requirement", str(PINS)], PINS)
    run(venv / "bin" / "python", HERE / "datumaro_export.py", folder)
    return folder


def reported(exported: Path, name: str) -> Found:
    """Returns the annotations that Datumaro reads from an export, sorted in each image."""
    everything: dict[str, Found] = json.loads((exported / "reported.json").read_text())
    return {
        split: {image: sorted(objects) for image, objects in images.items()}
        for split, images in everything[name].items()
    }


@pytest.mark.parametrize("name", BOXES)
def test_classes_splits_and_boxes(name: str, exported: Path, tmp_path: Path) -> None:
    dataset = published(exported / name, tmp_path)
    assert_equal(objects(dataset), reported(exported, name))
    assert classes(dataset) == CLASSES


@pytest.mark.parametrize("name", VOC)
def test_boxes_of_voc_leave_out_images_without_an_annotation(
    name: str, exported: Path, tmp_path: Path
) -> None:
    ended = convert(exported / name, tmp_path)
    assert ended.code == 0, ended.err
    dataset, expected = tmp_path / "birds" / "1.0.0", reported(exported, name)
    assert expected["train"].pop("im5.jpg") == []  # Datumaro writes no XML for it
    assert_equal(objects(dataset), expected)
    assert classes(dataset) == sorted(CLASSES)  # VOC declares no classes
    assert "1 image without an annotation" in ended.out


@pytest.mark.parametrize("name", LABELS)
def test_classes_and_splits_of_images(name: str, exported: Path, tmp_path: Path) -> None:
    listed, flags = exported / name / "labels.txt", list[object]()
    if name == "labels_vgg_face2":
        flags = ["--input_format", "folder", "--classes", listed]
        ended = convert(exported / name, tmp_path)
        assert (ended.code, " ".join(map(str, flags)) in ended.err) == (2, True)
    assert listed.exists() == bool(flags)
    dataset = published(exported / name, tmp_path, *flags)
    manifest = json.loads((dataset / "manifest.json").read_text())
    names = manifest["classes"]["label"]
    # The folders of ImageNet have no list of classes.
    assert names == (sorted(CLASSES) if "imagenet" in name else CLASSES)
    found = {
        split: {
            name_of(example): [[names[example["label"][0]], []]]
            for example in readers.examples(dataset, split)
        }
        for split in manifest["splits"]
    }
    assert found == reported(exported, name)


def name_of(example: dict[str, Any]) -> str:
    return Path(example["image/filename"][0].decode()).name


def classes(dataset: Path) -> list[str]:
    manifest = json.loads((dataset / "manifest.json").read_text())
    found: list[str] = manifest["classes"]["image/object/class/label"]
    return found


def objects(dataset: Path) -> Found:
    """Returns the objects in each image, sorted."""
    names, found = classes(dataset), Found()
    for split in json.loads((dataset / "manifest.json").read_text())["splits"]:
        found[split] = {}
        for example in readers.examples(dataset, split):
            sides = zip(*(example[f"image/object/bbox/{side}"] for side in SIDES), strict=True)
            boxes = [
                [x * size for x, size in zip(box, (WIDTH, HEIGHT) * 2, strict=True)]
                for box in sides
            ]
            labels = example["image/object/class/label"]
            pairs = zip(labels, boxes, strict=True)
            found[split][name_of(example)] = sorted([names[id_], box] for id_, box in pairs)
    return found


def assert_equal(found: Found, expected: Found) -> None:
    """Asserts that splits, images, classes and boxes are equal, boxes to 1e-4 of the image."""
    assert {split: {*images} for split, images in found.items()} == {
        split: {*images} for split, images in expected.items()
    }
    for split, images in expected.items():
        for image, objects_ in images.items():
            assert [label for label, _ in found[split][image]] == [label for label, _ in objects_]
            for (_, box), (_, asked) in zip(found[split][image], objects_, strict=True):
                assert box == pytest.approx(asked, abs=1e-4 * HEIGHT)
