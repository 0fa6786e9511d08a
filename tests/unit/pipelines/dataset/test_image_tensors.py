"""Resizing of images and masks, against Keras."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from recordmill.pipelines.dataset.image_tensors import Fill, Resize
from recordmill.pipelines.dataset.load import load
from recordmill.schemas.errors import UsageError
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.dataset import Dataset
from tests.images import pixels
from tests.unit.transforms.storage.test_dataset import put

SHAPES = [(30, 50), (50, 30), (41, 40), (7, 100), (1, 9), (24, 24)]  # (height, width)
IN_KERAS = {
    "stretch": {},
    "crop": {"crop_to_aspect_ratio": True},
    "pad": {"pad_to_aspect_ratio": True},
}


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("fill", IN_KERAS)
@pytest.mark.parametrize("size", [(24, 24), (10, 31)])
def test_images_are_resized_as_by_keras(fill: Fill, size: tuple[int, int], antialias: bool) -> None:
    resize = Resize(size, fill, antialias)
    compiled = tf.function(resize.image, input_signature=[tf.TensorSpec((None, None, 3), tf.uint8)])
    for height, width in SHAPES:
        image = pixels(width, height, 1, 3)
        options = {**IN_KERAS[fill], "antialias": antialias}
        expected = keras.ops.image.resize(image.astype("float32"), size, "bilinear", **options)
        expected = np.rint(np.asarray(expected)).clip(0, 255).astype(np.uint8)
        assert np.array_equal(compiled(image), expected), (height, width)


def test_masks_keep_their_ids_and_the_frame_of_the_image() -> None:
    ids = tf.fill((30, 50, 1), tf.constant(200, tf.uint8))
    masks = {fill: Resize((24, 24), fill).mask(ids).numpy()[:, :, 0] for fill in IN_KERAS}
    assert (masks["stretch"] == 200).all()
    assert (masks["crop"] == 200).all()
    rows = np.array([0] * 5 + [200] * 14 + [0] * 5)  # 24 * 30 / 50 of 24 rows
    assert np.array_equal(masks["pad"], np.repeat(rows[:, None], 24, axis=1))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((None, "crop", True), "resize='crop': needs a size"),
        ((24, "fit", True), "resize='fit': expected one of stretch, crop, pad"),
        (((3,), "stretch", True), r"image_size=\(3,\): expected \(height, width\)"),
    ],
)
def test_invalid_options_are_usage_errors(options: tuple, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Resize.of(*options)


def test_no_size_is_no_resize() -> None:
    assert Resize.of(None, "stretch", antialias=True) is None
    assert Resize.of(24, "pad", antialias=False) == Resize((24, 24), "pad", antialias=False)


def test_boxes_are_not_cropped(tmp_path: Path) -> None:
    dataset = Dataset.open(put(tmp_path))
    manifest = dataset.manifest.model_copy(update={"dataset_schema": preset("object_detection")})
    with_boxes = Dataset(dataset.directory, manifest)
    with pytest.raises(UsageError, match=r"resize='crop' moves what is in image/object/bbox/xmin"):
        load(with_boxes, image_size=24, resize="crop")
    load(with_boxes, image_size=24)
    load(with_boxes, image_size=24, resize="crop", features=["image/encoded"])
