"""Reads datasets with the decoders of other packages, which are on the path without what they need.

Prints what the Model Garden's decoder of detection and the package rlds return, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import official
import tensorflow as tf
import tensorflow_datasets as tfds

# The package itself imports all models, with 30 other packages, and rlds a server of replays.
vision = ModuleType("official.vision")
vision.__path__ = [os.path.join(official.__path__[0], "vision")]
sys.modules |= {"official.vision": vision, "reverb": MagicMock()}

import rlds  # noqa: E402
from official.vision.dataloaders.tf_example_decoder import TfExampleDecoder  # noqa: E402


def detected(dataset: Path) -> list[dict[str, Any]]:
    """Returns what the decoder of the Model Garden reads from each record."""
    decoder = TfExampleDecoder(include_mask=True)
    files = sorted(map(str, dataset.glob("*.tfrecord-*")))
    found = []
    for record in tf.data.TFRecordDataset(files):
        read = {name: value.numpy() for name, value in decoder.decode(record).items()}
        image, masks = read.pop("image"), read.pop("groundtruth_instance_masks")
        read.pop("groundtruth_instance_masks_png")
        values = {name: np.asarray(value).tolist() for name, value in read.items()}
        values["source_id"] = values["source_id"].decode()
        rows = ["".join(map(str, row)) for row in masks[0].astype(int).tolist()]
        found.append({**values, "image": image.shape, "masks": masks.shape, "first_mask": rows})
    return found


def played(dataset: Path) -> dict[str, Any]:
    """Returns figures of each episode, and its transitions, by the transformations of rlds."""
    found = {}
    for episode in tfds.builder_from_directory(dataset).as_dataset(split="train"):
        steps = episode[rlds.STEPS]
        rewards = rlds.transformations.sum_dataset(steps, lambda step: step[rlds.REWARD])
        pairs = rlds.transformations.batch(steps, size=2, shift=1, drop_remainder=True)
        found[episode["episode_id"].numpy().decode()] = {
            "length": int(rlds.transformations.episode_length(steps)),
            "return": float(rewards),
            "actions": [pair[rlds.ACTION].numpy().tolist() for pair in pairs],
            "wrist": [pair[rlds.OBSERVATION]["wrist"].shape.as_list() for pair in pairs],
            "ends": [bool(step[rlds.IS_LAST]) for step in steps],
        }
    return found


print(json.dumps({"detected": detected(Path(sys.argv[1])), "played": played(Path(sys.argv[2]))}))
