"""Tests that color and alpha of 16 bits keep their samples when an image is encoded again."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, TiffImagePlugin

from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.codecs import _samples_of
from recordmill.transforms.functional.images.transcode import transcode
from tests.annotations import Case, expected_mask
from tests.corpus import png_of, tiff_of
from tests.images import SRGB, image, image_bytes, png_chunk


def samples(channels: int, height: int = 5, width: int = 7) -> np.ndarray:
    return np.random.default_rng(channels).integers(0, 65536, (height, width, channels), np.uint16)


def png_from(array: np.ndarray, *chunks: bytes) -> bytes:
    color_type = {1: 0, 2: 4, 3: 2, 4: 6}[array.shape[2]]
    data = png_of(array, color_type, 16)
    return data[:33] + b"".join(chunks) + data[33:]


def tiff_from(array: np.ndarray, order: str = "<", extra: Any = None) -> bytes:
    alpha = {338: (3, [2])} if array.shape[2] == 4 else {}
    return tiff_of(array, order=order, photometric=2, extra=alpha | (extra or {}))


def stored_samples(stored: StoredImage) -> np.ndarray:
    assert (stored.format, stored.data[24]) == ("png", 16)
    decoded: np.ndarray = tf.io.decode_png(stored.data, dtype=tf.uint16).numpy()
    assert decoded.shape == (stored.height, stored.width, stored.channels)
    return decoded


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("channels", [3, 4])
def test_16_bit_tiff_keeps_its_samples(order: str, channels: int) -> None:
    array = samples(channels)
    stored = transcode(tiff_from(array, order), ImageSettings())
    np.testing.assert_array_equal(stored_samples(stored), array)
    assert (stored.bit_depth, stored.treatment) == (16, "tiff to png")


def lzw(array: np.ndarray) -> bytes:
    """Returns the rows of an array as the LZW strip of a gray TIFF, which Pillow can write."""
    file = io.BytesIO()
    Image.fromarray(array.reshape(len(array), -1)).save(file, "TIFF", compression="tiff_lzw")
    with Image.open(file) as gray:
        assert isinstance(gray, TiffImagePlugin.TiffImageFile)
        (start,), (length,) = gray.tag_v2[273], gray.tag_v2[279]
    return file.getvalue()[start : start + length]


@pytest.mark.parametrize(
    ("compression", "compress"), [(8, lambda array: zlib.compress(array.tobytes())), (5, lzw)]
)
@pytest.mark.parametrize("channels", [3, 4])
def test_compressed_16_bit_tiff_keeps_its_samples(
    compression: int, compress: Callable[[np.ndarray], bytes], channels: int
) -> None:
    array = samples(channels)
    coded, start = compress(array), len(tiff_from(array))
    extra = {259: (3, [compression]), 273: (4, [start]), 279: (4, [len(coded)])}
    data = tiff_from(array, extra=extra) + coded
    np.testing.assert_array_equal(stored_samples(transcode(data, ImageSettings())), array)


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_turned_16_bit_png_keeps_its_samples(channels: int) -> None:
    array = samples(channels)
    exif = Image.Exif()
    exif[274] = 6
    data = png_from(array, png_chunk(b"eXIf", exif.tobytes()[6:]))
    stored = transcode(data, ImageSettings())
    np.testing.assert_array_equal(stored_samples(stored), np.rot90(array, -1))
    assert stored.treatment == "png to png, upright"


def test_16_bit_ppm_keeps_its_samples() -> None:
    array = samples(3)
    data = b"P6\n7 5\n65535\n" + array.astype(">u2").tobytes()
    np.testing.assert_array_equal(stored_samples(transcode(data, ImageSettings())), array)
    data = b"P6\n7 5\n1023\n" + (array >> 6).astype(">u2").tobytes()
    expected = np.rint((array >> 6) / 1023 * 65535)
    np.testing.assert_array_equal(stored_samples(transcode(data, ImageSettings())), expected)
    with pytest.raises(RecordError) as error:
        transcode(data[:-1], ImageSettings())
    assert error.value.reason == Reason.TRUNCATED


@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_color_of_16_bits_becomes_alpha(channels: int) -> None:
    array = samples(channels)
    clear = array[2, 3].astype(">u2").tobytes()
    exif = Image.Exif()
    exif[274] = 3
    data = png_from(array, png_chunk(b"tRNS", clear), png_chunk(b"eXIf", exif.tobytes()[6:]))
    found = stored_samples(transcode(data, ImageSettings()))[::-1, ::-1]
    np.testing.assert_array_equal(found[:, :, :-1], array)
    assert np.flatnonzero(found[:, :, -1] == 0).tolist() == [2 * 7 + 3]
    assert set(found[:, :, -1].ravel().tolist()) == {0, 65535}


@given(st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 255))
def test_alpha_is_blended_in_16_bits(gray: int, alpha: int, level: int) -> None:
    data = png_from(np.array([[[gray, alpha]]], np.uint16))
    settings = ImageSettings(alpha=f"composite #{level:02x}{level:02x}{level:02x}")
    (found,) = stored_samples(transcode(data, settings)).ravel().tolist()
    assert abs(found - (gray * alpha + 257 * level * (65535 - alpha)) / 65535) <= 0.51


def test_alpha_can_be_dropped_and_color_changed() -> None:
    array = samples(4)
    dropped = transcode(png_from(array), ImageSettings(alpha="drop"))
    np.testing.assert_array_equal(stored_samples(dropped), array[:, :, :3])
    gray = stored_samples(transcode(png_from(array), ImageSettings(color="gray")))
    luma = array[:, :, :3].astype(float) @ [0.299, 0.587, 0.114]
    assert np.abs(gray[:, :, 0] - luma).max() <= 1
    np.testing.assert_array_equal(gray[:, :, 1], array[:, :, 3])
    rgb = stored_samples(transcode(png_from(samples(1)), ImageSettings(color="rgb")))
    np.testing.assert_array_equal(rgb, samples(1).repeat(3, axis=2))
    on_red = stored_samples(
        transcode(png_from(samples(2)), ImageSettings(alpha="composite #ff0000"))
    )
    assert on_red.shape == (5, 7, 3)


def test_resizing_multiplies_color_by_alpha() -> None:
    array = np.zeros((4, 4, 4), np.uint16)
    array[:, :2] = (40_000, 300, 7, 65_535)
    array[:, 2:] = (65_535, 65_535, 65_535, 0)
    settings = ImageSettings(resize="1x1 exact bilinear")
    found = stored_samples(transcode(png_from(array), settings)).ravel().tolist()
    assert found[:3] == [40_000, 300, 7]
    assert abs(found[3] - 32_768) <= 1


@pytest.mark.parametrize(
    "resizing",
    [
        {"max_side": 20},
        {"resize": "20x30 pad"},
        {"resize": "13x19 crop"},
        {"resize": "50x60 exact"},
        {"resize": "9x9 fit nearest"},
    ],
    ids=lambda resizing: str(*resizing.values()),
)
def test_depth_is_resized_to_the_nearest_pixel(resizing: dict[str, Any]) -> None:
    array = samples(1, 27, 41)
    array[::2, ::3] = 0  # where depth is unknown
    stored = transcode(png_from(array), ImageSettings(bit_depth=16, **resizing))
    expected = expected_mask(array[:, :, 0], Case(41, 27, 1, resizing, "stored"))
    np.testing.assert_array_equal(stored_samples(stored)[:, :, 0], expected)


@pytest.mark.parametrize(
    "options",
    [{"bit_depth": 8}, {"format": "jpeg"}, {"format": "raw"}, {"color": "rgb", "bit_depth": 8}],
)
def test_a_cut_to_8_bits_is_a_treatment(options: dict[str, Any]) -> None:
    for data in (tiff_from(samples(3)), png_from(samples(1)), png_from(samples(3))):
        assert "8 bits" in transcode(data, ImageSettings(**options)).treatment


def test_an_srgb_profile_is_the_default_and_others_are_not_kept() -> None:
    array, exif = samples(3), Image.Exif()
    exif[274] = 3
    turned = png_chunk(b"eXIf", exif.tobytes()[6:])

    def with_profile(profile: bytes) -> bytes:
        return png_from(array, png_chunk(b"iCCP", b"a\0\0" + zlib.compress(profile)), turned)

    stored = transcode(with_profile(SRGB), ImageSettings())
    np.testing.assert_array_equal(stored_samples(stored)[::-1, ::-1], array)
    other = ImageCms.ImageCmsProfile(ImageCms.createProfile("XYZ")).tobytes()
    with pytest.raises(
        RecordError, match=r"a color profile other than sRGB.*bit_depth=8\."
    ) as error:
        transcode(with_profile(other), ImageSettings())
    assert error.value.reason == Reason.UNSUPPORTED_FEATURE


def test_color_of_which_16_bits_cannot_be_kept_is_named() -> None:
    cmyk = tiff_of(samples(4), photometric=5)
    premultiplied = tiff_of(samples(4), photometric=2, extra={338: (3, [1])})
    text = b"P3\n1 1\n65535\n1 2 65535\n"
    file = io.BytesIO()
    image(8, 8).save(file, "JPEG2000", irreversible=False)
    jpeg_2000 = bytearray(file.getvalue())
    at = jpeg_2000.index(b"\xff\x4f\xff\x51") + 42
    jpeg_2000[at : at + 9 : 3] = bytes([15] * 3)  # bits per sample - 1
    for data in (cmyk, premultiplied, text, bytes(jpeg_2000)):
        with pytest.raises(RecordError, match=r"16 bits cannot be kept.*bit_depth=8") as error:
            transcode(data, ImageSettings())
        assert error.value.reason == Reason.UNSUPPORTED_FEATURE
    for data in (cmyk, premultiplied, text):
        assert transcode(data, ImageSettings(bit_depth=8)).treatment.endswith("to png, 8 bits")


@pytest.mark.parametrize(("flags", "bits"), [(0, 8), (0x40, 10), (0x60, 12)])
def test_the_depth_of_avif_is_that_of_its_header(flags: int, bits: int) -> None:
    data = bytearray(image_bytes("AVIF", 16, 16))
    with Image.open(io.BytesIO(data)) as opened:
        data[data.index(b"av1C") + 6] |= flags
        assert _samples_of(opened, bytes(data)) == (bits, "")
