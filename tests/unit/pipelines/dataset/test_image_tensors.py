"""Resizing of images and masks, against Keras."""

from __future__ import annotations

import io
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipelines.dataset.image_tensors import Fill, ImageDecoder, TensorResize
from recordmill.pipelines.dataset.load import load
from recordmill.schemas.errors import UsageError
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.dataset import DatasetFolder
from tests.images import pixels
from tests.unit.transforms.storage.test_dataset import put

shaped = TensorResize._shaped

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
    resize = TensorResize(size, fill, antialias)
    compiled = tf.function(resize.image, input_signature=[tf.TensorSpec((None, None, 3), tf.uint8)])
    for height, width in SHAPES:
        image = pixels(width, height, 1, 3)
        options = {**IN_KERAS[fill], "antialias": antialias}
        expected = keras.ops.image.resize(image.astype("float32"), size, "bilinear", **options)
        expected = np.rint(np.asarray(expected)).clip(0, 255).astype(np.uint8)
        assert np.array_equal(compiled(image), expected), (height, width)


def _photograph(format_: str, height: int, width: int) -> bytes:
    """Returns smooth shades with an edge, as photographs have; noise is not."""
    rows, columns = np.mgrid[0:height, 0:width]
    shades = np.stack([rows * 255 / height, columns * 255 / width, 90 + 60 * np.sin(rows / 9)], 2)
    shades[height // 3 : height // 2, width // 4 : width // 2] = (250, 20, 90)
    stream = io.BytesIO()
    Image.fromarray(shades.astype(np.uint8)).save(stream, format_, quality=95)
    return stream.getvalue()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("fill", IN_KERAS)
@pytest.mark.parametrize(
    ("format_", "height", "width", "ratio"),
    [
        ("JPEG", 96, 200, 2),  # each pixel of 24 x 24 is made from two, along each side
        ("JPEG", 200, 95, 1),
        ("JPEG", 389, 271, 4),
        ("JPEG", 400, 385, 8),
        ("JPEG", 900, 801, 8),
        ("PNG", 400, 385, 1),
    ],
)
def test_large_jpegs_are_decoded_reduced(
    format_: str,
    height: int,
    width: int,
    ratio: int,
    fill: Fill,
    channels: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = _photograph(format_, height, width)
    whole = tf.io.decode_image(data, channels=channels, expand_animations=False)
    resized, resize = [], TensorResize((24, 24), fill)
    monkeypatch.setattr(
        TensorResize, "_shaped", lambda self, image: resized.append(image) or shaped(self, image)
    )
    decoder = ImageDecoder.of(preset("image_classification"), channels, resize)
    found = decoder.decode({"image": data}).numpy().astype(int)
    assert resized[0].shape[:2] == (-(-height // ratio), -(-width // ratio))
    difference = np.abs(found - resize.image(whole).numpy()).mean()
    assert difference < 6 if ratio > 1 else difference == 0


def test_coarse_pixels_are_those_of_the_whole_jpeg() -> None:
    data, resize = _photograph("JPEG", 400, 400), TensorResize((24, 24), antialias=False)
    decoder = ImageDecoder.of(preset("image_classification"), 3, resize)
    expected = resize.image(tf.io.decode_image(data, 3, expand_animations=False))
    assert np.array_equal(decoder.decode({"image": data}), expected)


def test_masks_keep_their_ids_and_the_frame_of_the_image() -> None:
    ids = tf.fill((30, 50, 1), tf.constant(200, tf.uint8))
    masks = {fill: TensorResize((24, 24), fill).mask(ids).numpy()[:, :, 0] for fill in IN_KERAS}
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
        TensorResize.of(*options)


def test_no_size_is_no_resize() -> None:
    assert TensorResize.of(None, "stretch", antialias=True) is None
    assert TensorResize.of(24, "pad", antialias=False) == TensorResize(
        (24, 24), "pad", antialias=False
    )


def test_boxes_are_not_cropped(tmp_path: Path) -> None:
    dataset = DatasetFolder.open(put(tmp_path))
    manifest = dataset.manifest.model_copy(update={"dataset_schema": preset("object_detection")})
    with_boxes = DatasetFolder(dataset.directory, manifest)
    with pytest.raises(UsageError, match=r"resize='crop' moves what is in image/object/bbox/xmin"):
        load(with_boxes, image_size=24, resize="crop")
    load(with_boxes, image_size=24)
    load(with_boxes, image_size=24, resize="crop", features=["image/encoded"])
