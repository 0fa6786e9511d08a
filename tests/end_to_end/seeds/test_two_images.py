"""The two images of TensorFlow's TFRecord tutorial: written, read back and displayed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipelines.dataset.load import load
from tests.end_to_end import readers
from tests.end_to_end.command import published
from tests.images import jpeg

DESCRIPTION = {  # the tutorial's image_feature_description
    "height": tf.io.FixedLenFeature([], tf.int64),
    "width": tf.io.FixedLenFeature([], tf.int64),
    "depth": tf.io.FixedLenFeature([], tf.int64),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "image_raw": tf.io.FixedLenFeature([], tf.string),
}
IMAGES = {  # name: (width, height, label), as the tutorial's two are
    "320px-Felis_catus-cat_on_snow.jpg": (320, 213, 0),
    "194px-New_East_River_Bridge_from_Brooklyn_det.4a09796u.jpg": (194, 233, 1),
}


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    """The two files: name to content."""
    return {name: jpeg(width, height, label) for name, (width, height, label) in IMAGES.items()}


@pytest.fixture(scope="module")
def dataset(images: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    for name, data in images.items():
        (folder / name).write_bytes(data)
    rows = [f"{name},{label}\n" for name, (_, _, label) in IMAGES.items()]
    (folder / "images.csv").write_text("image,label\n" + "".join(rows))
    return published(
        folder / "images.csv", folder / "out", "--schema", "tf_tutorial", name="images"
    )


def test_read_back_as_the_tutorial_does(images: dict[str, bytes], dataset: Path) -> None:
    files = [str(file) for file in readers.shards(dataset, "train")]
    raw = tf.data.TFRecordDataset(files)
    parsed = raw.map(lambda record: tf.io.parse_single_example(record, DESCRIPTION))
    by_label = {int(features["label"]): features for features in parsed}
    assert by_label.keys() == {0, 1}
    for name, (width, height, label) in IMAGES.items():
        features = by_label[label]
        size = [int(features[side]) for side in ("height", "width", "depth")]
        assert size == [height, width, 3]
        assert features["image_raw"].numpy() == images[name]


def test_shown(images: dict[str, bytes], dataset: Path) -> None:
    shown = {int(example["label"]): example["image_raw"].numpy() for example in load(dataset)}
    for name, (_, _, label) in IMAGES.items():
        expected = np.asarray(Image.open(io.BytesIO(images[name])), dtype=int)
        assert shown[label].shape == expected.shape
        assert np.abs(shown[label] - expected).mean() < 2  # TensorFlow decodes by a faster formula
