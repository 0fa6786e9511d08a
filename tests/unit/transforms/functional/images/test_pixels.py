"""Compares pixel conversions with their arithmetic in NumPy."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.geometry import geometry_of, target_size
from recordmill.transforms.functional.images.pixels import (
    Deep,
    canonical,
    encode,
    in_color,
    resized,
    to_8_bits,
    upright,
    without_alpha,
)
from tests.images import image, pixels

TURNED = {
    0: lambda a: a,
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),  # the camera was turned left: a quarter to the right
    7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}


def resized_by(image, settings):
    method = settings.resize.filter if settings.resize else "lanczos"
    return resized(image, geometry_of(image.size, 1, settings), method)


@pytest.mark.parametrize("orientation", TURNED)
def test_upright(orientation):
    drawn = pixels(5, 3, 1)
    found = np.asarray(upright(Image.fromarray(drawn), orientation))
    np.testing.assert_array_equal(found, TURNED[orientation](drawn))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("1", "L"),
        ("L", "L"),
        ("LA", "LA"),
        ("P", "RGB"),
        ("RGB", "RGB"),
        ("RGBA", "RGBA"),
        ("CMYK", "RGB"),
        ("YCbCr", "RGB"),
    ],
)
def test_canonical_modes(mode, expected):
    drawn = image(6, 5, 1, mode)
    made = canonical(drawn)
    assert (made.mode, made.size) == (expected, (6, 5))
    np.testing.assert_array_equal(np.asarray(made), np.asarray(drawn.convert(expected)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(np.array([[0, 255, 65535]], np.uint16), [0, 255, 65535], id="16 bits stay"),
        pytest.param(np.array([[0, 300, 65535]], np.int32), [0, 300, 65535], id="16 in 32 stay"),
        pytest.param(np.array([[0.0, 0.25, 1.0]], np.float32), [0, 16384, 65535], id="0 to 1"),
        pytest.param(np.array([[-10.0, 5, 10]], np.float32), [0, 49151, 65535], id="by range"),
        pytest.param(
            np.array([[0, 15 * 10**5, 2 * 10**6]], np.int32), [0, 49151, 65535], id="32 bits"
        ),
        pytest.param(np.array([[7.0, 7.0, 7.0]], np.float32), [0, 0, 0], id="of one value"),
    ],
)
def test_deep_gray_is_scaled_and_never_clipped(values, expected):
    made = canonical(Image.fromarray(values))
    assert made.samples[0, :, 0].tolist() == expected


def test_nan_and_infinity_are_accepted():
    values = np.array([[np.nan, np.inf, -np.inf, 0.0, 5.0]], np.float32)
    made = canonical(Image.fromarray(values)).samples[0, :, 0]
    assert made[3] == 0
    assert made[4] == 65535


def test_16_bits_to_8_round_to_the_nearest():
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    for deep in (Deep(values[:, :, None]), Image.fromarray(values)):
        found = np.asarray(to_8_bits(deep))
        np.testing.assert_array_equal(found, np.rint(values / 257).astype(np.uint8))
    drawn = image(6, 5, 1)
    assert to_8_bits(drawn) is drawn


def test_transparent_images_on_a_background():
    drawn = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], np.uint8)
    image = Image.fromarray(drawn, "RGBA")
    on_blue = np.asarray(without_alpha(image, (0, 0, 255))).astype(int)
    expected = [[200, 100, 0], [0, 0, 255], [40, 20, 204]]  # a fifth of one, four of the other
    assert np.abs(on_blue[0] - expected).max() <= 1
    assert np.asarray(without_alpha(image, None))[0].tolist() == [[200, 100, 0]] * 3


@pytest.mark.parametrize(
    ("mode", "color", "expected"),
    [
        ("L", "rgb", "RGB"),
        ("LA", "rgb", "RGBA"),
        ("RGB", "gray", "L"),
        ("RGBA", "gray", "LA"),
        ("RGB", "keep", "RGB"),
        ("LA", "keep", "LA"),
    ],
)
def test_color(mode, color, expected):
    assert in_color(image(4, 3, 1, mode), color).mode == expected


def test_deep_gray_in_color_is_scaled_and_not_clipped():
    deep = Deep(np.array([[[0], [257], [65535]]], np.uint16))
    color = in_color(deep, "rgb")
    assert color.samples.tolist() == [[[0] * 3, [257] * 3, [65535] * 3]]
    assert np.asarray(to_8_bits(color))[0].tolist() == [[0] * 3, [1] * 3, [255] * 3]


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        ((400, 300), {}, (400, 300)),
        ((400, 300), {"max_side": 400}, (400, 300)),
        ((400, 300), {"max_side": 200}, (200, 150)),
        ((300, 400), {"max_side": 200}, (150, 200)),
        ((1000, 1), {"max_side": 10}, (10, 1)),
        ((400, 300), {"resize": "100x100"}, (100, 75)),
        ((40, 30), {"resize": "100x100"}, (100, 75)),
        ((400, 300), {"resize": "100x100 pad"}, (100, 100)),
        ((400, 300), {"resize": "100x50 crop"}, (100, 50)),
        ((400, 300), {"resize": "7x9 exact"}, (7, 9)),
    ],
    ids=str,
)
def test_sizes(size, options, expected):
    settings = ImageSettings(**options)
    assert target_size(size, settings) == expected
    if max(size) <= 400:
        assert resized_by(image(*size), settings).size == expected


def test_padding_is_black_and_centered():
    white = Image.new("RGB", (40, 20), "white")
    found = np.asarray(resized_by(white, ImageSettings(resize="40x40 pad nearest")))[:, 0, 0]
    assert found.tolist() == [0] * 10 + [255] * 20 + [0] * 10


def test_deep_gray_keeps_its_depth_when_resized():
    deep = Deep(np.full((10, 10, 1), 40_000, np.uint16))
    found = resized_by(deep, ImageSettings(max_side=5))
    assert (found.samples.dtype, found.samples.shape) == (np.uint16, (5, 5, 1))
    assert np.unique(found.samples).tolist() == [40_000]


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_png_and_raw_lose_nothing(mode):
    drawn = image(6, 5, 1, mode)
    data = encode(drawn, "png", 95)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(drawn))
    assert encode(drawn, "raw", 95) == np.asarray(drawn).tobytes()


def test_jpeg_quality():
    drawn = image(64, 48, 1)
    sizes = []
    for quality in (30, 60, 95):
        data = encode(drawn, "jpeg", quality)
        sizes.append(len(data))
    assert sizes == sorted(sizes)
    difference = np.asarray(Image.open(io.BytesIO(data))).astype(int) - np.asarray(drawn)
    assert np.abs(difference).mean() < 5
