"""Compares the decoding of stored images with TensorFlow."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.images.codecs import examine
from recordmill.transforms.functional.records.example_reader import (
    _decode_stored,
    decode_reduced,
    reshape_raw,
)
from tests.images import SWAPPED, image, jpeg, pixels, png, png_16_bit


def with_transparency(mode: str, color: object) -> bytes:
    file = io.BytesIO()
    image(9, 7, 1, mode).save(file, "PNG", transparency=color)
    return file.getvalue()


PNGS = {
    **{mode: png(9, 7, 1, mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")},
    **{f"16 bits of {channels}": png_16_bit(9, 7, 1, channels) for channels in (1, 2, 3, 4)},
    "palette with a transparent color": with_transparency("P", 3),
    "gray with a transparent value": with_transparency("L", 3),
    "RGB with a transparent color": with_transparency("RGB", (1, 2, 3)),
}


@pytest.mark.parametrize("channels", [0, 1, 3])
@pytest.mark.parametrize("data", PNGS.values(), ids=PNGS)
def test_a_png_decodes_as_in_tensorflow(data: bytes, channels: int) -> None:
    expected = tf.io.decode_image(data, channels, expand_animations=False).numpy()
    found = _decode_stored(data, channels)
    assert (found.dtype, found.shape) == (np.uint8, expected.shape)
    # Gray of color is rounded by one and cut by the other.
    assert np.abs(found.astype(int) - expected).max() <= int(channels == 1)


@pytest.mark.parametrize("channels", [0, 1, 3])
@pytest.mark.parametrize("data", PNGS.values(), ids=PNGS)
def test_a_png_decodes_to_16_bits_as_in_tensorflow(data: bytes, channels: int) -> None:
    expected = tf.io.decode_png(data, channels, tf.uint16).numpy()
    found = _decode_stored(data, channels, "uint16")
    assert (found.dtype, found.shape) == (np.uint16, expected.shape)
    assert found.flags.writeable
    # Gray of color of 8 bits is rounded before it is widened.
    error = {True: 1, False: 2 * 257}[data[24] == 16] if channels == 1 else 0
    assert np.abs(found.astype(int) - expected).max() <= error


def test_white_of_8_bits_is_white_of_16() -> None:
    file = io.BytesIO()
    Image.new("L", (2, 2), 255).save(file, "JPEG")
    assert _decode_stored(file.getvalue(), 1, "uint16").tolist() == [[[65535]] * 2] * 2


@pytest.mark.parametrize("channels", [0, 1, 3])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_decodes_as_in_tensorflow_up_to_rounding(mode: str, channels: int) -> None:
    data = jpeg(40, 30, 1, mode)
    expected = tf.io.decode_image(data, channels, expand_animations=False).numpy()
    found = _decode_stored(data, channels)
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= 3


@pytest.mark.parametrize("data", [b"", b"not an image", jpeg()[:-200], png()[:60], b"GIF89a"])
def test_invalid_images_are_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be decoded"):
        _decode_stored(data)


@pytest.mark.parametrize("data", PNGS.values(), ids=PNGS)
def test_a_reduced_image_has_the_averages_of_the_decoded_one(data: bytes) -> None:
    whole = Image.fromarray(_decode_stored(data))
    assert decode_reduced(data, examine(data), 9).tobytes() == whole.tobytes()
    assert decode_reduced(data, examine(data), 4).tobytes() == whole.reduce(2).tobytes()


def test_a_reduced_jpeg_differs_by_rounding_and_ignores_its_color_profile() -> None:
    file = io.BytesIO()
    image(64, 48, 1).resize((640, 480)).save(file, "JPEG", quality=95, icc_profile=SWAPPED)
    data = file.getvalue()
    found = np.asarray(decode_reduced(data, examine(data), 160)).astype(int)
    blocks = (
        tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE")
        .numpy()
        .reshape(120, 4, 160, 4, 3)
        .mean(axis=(1, 3))
    )
    assert np.abs(found - blocks).max() <= 6
    assert np.abs(found - blocks).mean() < 1


def test_damage_is_found_in_a_reduced_image() -> None:
    data = png(40, 30)
    with pytest.raises(RecordError, match="truncated"):
        decode_reduced(data[:-100], examine(data), 10)


@pytest.mark.parametrize("stored", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [0, 1, 3])
def test_raw_pixels_decode_as_a_png_of_them(stored: int, channels: int) -> None:
    drawn = pixels(9, 7, 1, stored)
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[stored]
    assert np.array_equal(
        reshape_raw(drawn.tobytes(), 7, 9, channels), _decode_stored(png(9, 7, 1, mode), channels)
    )


@pytest.mark.parametrize("size", [0, 62, 64, 5 * 63])
def test_raw_pixels_of_another_size_are_rejected(size: int) -> None:
    with pytest.raises(ValueError, match="not an image of 9 x 7"):
        reshape_raw(bytes(size), 7, 9)
