"""What LabelMe writes is, converted by its path alone, what LabelMe reads."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.deploy.runs.environments import ROOT, environment, run
from tests.end_to_end import readers
from tests.end_to_end.command import published

OBJECT = "image/object"
SIDES = ("xmin", "ymin", "xmax", "ymax")
SIZE = (60, 40)


@pytest.mark.skipif(
    "RECORDMILL_TORCHVISION" not in os.environ,
    reason="downloads 0.7 GB for Qt and ONNX Runtime: set RECORDMILL_TORCHVISION=1",
)
def test_labels_boxes_masks_and_splits_are_those_that_labelme_reads(tmp_path: Path) -> None:
    venv = environment("labelme", ["labelme==6.3.1"], ROOT / "constraints.txt")
    env = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    run(venv / "bin" / "python", Path(__file__).parent / "labelme_export.py", tmp_path, env=env)
    reported = json.loads((tmp_path / "reported.json").read_text())
    flags = ("--schema", "instance_segmentation")
    dataset = published(tmp_path / "labelme", tmp_path / "out", *flags)
    names = json.loads((dataset / "manifest.json").read_text())["classes"][f"{OBJECT}/class/label"]
    assert names == ["cat", "owl"]
    found = set[str]()
    for split in ("train", "val"):
        for example in readers.examples(dataset, split):
            name = example["image/filename"][0].decode()
            assert name.startswith(f"{split}/")
            found.add(name)
            shapes, classes = reported[name]["shapes"], np.zeros(SIZE[::-1], int)
            labels = [names[id_] for id_ in example[f"{OBJECT}/class/label"]]
            assert labels == [label for label, _ in shapes]
            for at, (label, box) in enumerate(shapes):
                sides = [example[f"{OBJECT}/bbox/{side}"][at] for side in SIDES]
                np.testing.assert_allclose(np.multiply(sides, SIZE * 2), box, atol=1e-4)
                mask = np.asarray(Image.open(io.BytesIO(example[f"{OBJECT}/mask"][at])))
                classes[mask > 0] = {"owl": 1, "cat": 2}[label]
            # LabelMe draws the pixels of the outline, too.
            assert (classes == reported[name]["classes"]).mean() >= 0.98
    assert found == reported.keys()
