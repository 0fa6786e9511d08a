"""Boxes that Supervision, Globox and pascal-voc-writer wrote, converted by their path alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.runs.environments import ROOT, environment, run
from tests.end_to_end import readers
from tests.end_to_end.command import published

PACKAGES = ["globox==2.9.0", "pascal-voc-writer==0.1.4", "supervision==0.31.2"]
LABEL = "image/object/class/label"
SIDES = ("xmin", "ymin", "xmax", "ymax")
WIDTH, HEIGHT = 40, 20


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with the exports, and what Supervision reads from its own."""
    folder = tmp_path_factory.mktemp("exports")
    venv = environment("annotations", PACKAGES, ROOT / "constraints.txt")
    script = Path(__file__).parent / "annotated_export.py"
    return folder, json.loads(run(venv / "bin" / "python", script, folder))


@pytest.mark.parametrize("name", ["yolo", "coco"])
def test_classes_splits_and_boxes_are_those_that_supervision_reads(
    name: str, exported: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = exported
    dataset = published(folder / name, tmp_path)
    assert objects(dataset) == expected["boxes"][name]
    assert classes(dataset) == expected["classes"]


def test_boxes_of_voc_are_those_in_its_files(
    exported: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = exported
    dataset = published(folder / "voc", tmp_path)
    # Supervision adds 1 to the left and top side when it writes them, and subtracts it when it
    # reads them. Globox, pascal-voc-writer and TFDS do neither.
    written = {
        split: {
            image: [[name, [x0 + 1, y0 + 1, x1, y1]] for name, (x0, y0, x1, y1) in found]
            for image, found in part.items()
        }
        for split, part in expected["boxes"]["voc"].items()
    }
    assert objects(dataset) == written
    assert classes(dataset) == ["cat", "owl"]  # VOC declares no classes


@pytest.mark.parametrize("name", ["globox_coco", "globox_yolo", "globox_voc", "voc_writer"])
def test_boxes_of_other_tools(
    name: str, exported: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = exported
    dataset = published(folder / name, tmp_path)
    everything = {
        image: o for part in expected["boxes"]["coco"].values() for image, o in part.items()
    }
    assert objects(dataset) == {"train": everything}


def classes(dataset: Path) -> list[str]:
    found: list[str] = json.loads((dataset / "manifest.json").read_text())["classes"][LABEL]
    return found


def objects(dataset: Path) -> dict[str, dict[str, list[list[Any]]]]:
    """Returns [class, box in pixels] of the objects in each image, by split and name."""
    names, found = classes(dataset), dict[str, dict[str, list[list[Any]]]]()
    for split in json.loads((dataset / "manifest.json").read_text())["splits"]:
        found[split] = {}
        for example in readers.examples(dataset, split):
            sides = zip(*(example[f"image/object/bbox/{side}"] for side in SIDES), strict=True)
            boxes = [
                [round(x * size, 3) for x, size in zip(box, (WIDTH, HEIGHT) * 2, strict=True)]
                for box in sides
            ]
            image = Path(example["image/filename"][0].decode()).name
            pairs = zip(example[LABEL], boxes, strict=True)
            found[split][image] = [[names[id_], box] for id_, box in pairs]
    return found
