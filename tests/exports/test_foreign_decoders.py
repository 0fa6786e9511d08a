"""What the Model Garden's decoder of detection and rlds read from records with masks and steps."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco

from tests.deploy.runs.environments import packages, run
from tests.docs.test_several_images import STEPS, episodes
from tests.end_to_end.command import published
from tests.sources.test_objects import HEIGHT, WIDTH, people, person

__all__ = ["episodes", "people"]  # fixtures

# Without what they require: the tensorflow of the tests reads, and the rest is not imported.
PACKAGES = ["tf-models-official==2.20.0", "tf-keras==2.21.0", "rlds==0.1.8"]


def test_masks_and_steps_are_those_of_other_decoders(
    people: Path,
    episodes: Path,
    tmp_path: Path,
) -> None:
    masks = published(people, tmp_path, "--schema", "instance_segmentation", "--label_offset", "1")
    robot = episodes / "datasets/robot/1.0.0"
    path = {**os.environ, "PYTHONPATH": str(packages("decoders", PACKAGES))}
    script = Path(__file__).parent / "foreign_decoders.py"
    found = json.loads(run(sys.executable, script, masks, robot, env=path))

    (outline,) = coco.frPyObjects(person()["segmentation"], HEIGHT, WIDTH)
    rows = ["".join(map(str, row)) for row in coco.decode(outline).tolist()]
    assert sorted(one.pop("source_id") for one in found["detected"]) == ["0", "1", "2"]
    for one in found["detected"]:
        (box,) = one.pop("groundtruth_boxes")
        expected = np.array([10 / HEIGHT, 16 / WIDTH, 50 / HEIGHT, 60 / WIDTH], np.float32)
        assert box == pytest.approx(expected.tolist(), abs=1e-7)
        assert one == {
            "height": HEIGHT,
            "width": WIDTH,
            "image": [HEIGHT, WIDTH, 3],
            "groundtruth_classes": [1],
            "groundtruth_is_crowd": [False],
            "groundtruth_area": [1500.0],
            "masks": [1, HEIGHT, WIDTH],
            "first_mask": rows,
        }

    assert found["played"].keys() == STEPS.keys() - {"bad"}
    for name, one in found["played"].items():
        count = STEPS[name]
        actions = [[i / 2, -1.0] for i in range(count)]
        assert one == {
            "length": count,
            "return": sum(i / 4 for i in range(count)),
            "actions": [actions[i : i + 2] for i in range(count - 1)],
            "wrist": [[2, 12, 16, 3]] * (count - 1),
            "ends": [False] * (count - 1) + [True],
        }
