"""What Ultralytics' converters write is, converted by its path alone, what Ultralytics reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.runs.environments import ROOT, environment, run
from tests.end_to_end import readers
from tests.end_to_end.command import published
from tests.exports.test_torchvision import PACKAGES

ULTRALYTICS = "ultralytics==8.4.190"

OBJECT = "image/object"
SIDES = ("xmin", "ymin", "xmax", "ymax")
FLAGS = {"obb": ("--schema", "oriented_boxes")}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset per task, and `reported.json`, what Ultralytics reads from them."""
    if "RECORDMILL_TORCHVISION" not in os.environ:
        pytest.skip("downloads 3.7 GB for PyTorch: set RECORDMILL_TORCHVISION=1")
    folder = tmp_path_factory.mktemp("ultralytics")
    # With its OpenCV, the IoU of two equal boxes is 0, by which the test of torchvision compares.
    venv = environment("torchvision", [*PACKAGES, ULTRALYTICS], ROOT / "constraints.txt")
    script = Path(__file__).parent / "ultralytics_export.py"
    env = {**os.environ, "YOLO_CONFIG_DIR": str(folder / "settings")}
    run(venv / "bin" / "python", script, folder, env=env)
    return folder


@pytest.mark.parametrize("task", ["detect", "segment", "pose", "obb"])
def test_classes_splits_and_objects_are_those_that_ultralytics_reads(
    task: str, exported: Path, tmp_path: Path
) -> None:
    reported = json.loads((exported / "reported.json").read_text())[task]
    dataset = published(exported / task, tmp_path, *FLAGS.get(task, ()))
    names = json.loads((dataset / "manifest.json").read_text())["classes"][f"{OBJECT}/class/label"]
    assert names == ["plane", "ship", "storage-tank"]
    compared = 0
    for split, images in reported.items():
        examples = {
            Path(example["image/filename"][0].decode()).name: example
            for example in readers.examples(dataset, split)
        }
        assert examples.keys() == images.keys()
        for name, objects in images.items():
            example = examples[name]
            labels = [names[id_] for id_ in example[f"{OBJECT}/class/label"]]
            assert labels == [label for label, _, _ in objects]
            for at, (_, (x, y, width, height), points) in enumerate(objects):
                compared += 1
                if task == "pose":
                    axes = [
                        example[f"{OBJECT}/keypoint/{axis}"][2 * at : 2 * at + 2] for axis in "xy"
                    ]
                    seen = example[f"{OBJECT}/keypoint/visibility"][2 * at : 2 * at + 2]
                    found = np.array([*axes, seen]).T.ravel()
                    np.testing.assert_allclose(found, points, atol=1e-4)
                if task == "obb":  # of which Ultralytics has the turned rectangle as its box
                    found = example[f"{OBJECT}/oriented_bbox"][8 * at : 8 * at + 8]
                    np.testing.assert_allclose(found, points, atol=1e-4)
                else:
                    box = [example[f"{OBJECT}/bbox/{side}"][at] for side in SIDES]
                    half = width / 2, height / 2
                    expected = x - half[0], y - half[1], x + half[0], y + half[1]
                    np.testing.assert_allclose(box, expected, atol=1e-4)
    assert compared == 16
