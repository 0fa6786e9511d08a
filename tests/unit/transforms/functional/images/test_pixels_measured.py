"""Tests how images with signed, 32-bit and float samples are rejected, or mapped to 16 bits."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.codecs import examine
from recordmill.transforms.functional.images.transcode import transcode
from tests.corpus import tiff_of
from tests.images import png_16_bit

PGM_16 = b"P5 3 1 65535\n" + np.array([0, 300, 65535], ">u2").tobytes()


def tiff(samples: np.ndarray, orientation: int = 1) -> bytes:
    height, width, channels = (*samples.shape, 1)[:3]
    return tiff_of(
        samples.reshape(height, width, channels),
        photometric=2 if channels == 3 else 1,
        extra={274: (3, [orientation])},
    )


def gray(values: list[float], dtype: str) -> bytes:
    return tiff(np.array([values], dtype))


def pixels(stored: StoredImage) -> list[int]:
    with Image.open(io.BytesIO(stored.data)) as image:
        assert (stored.format, image.mode) == ("png", "I;16")
        return np.asarray(image)[0].tolist()


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (gray([-5, 0, 9], "i1"), "signed 8-bit samples with values from -5 to 9"),
        (gray([-1000, 0, 3000], "i2"), "signed 16-bit samples with values from -1000 to 3000"),
        (gray([0, 1, 2], "i2"), "signed 16-bit samples with values from 0 to 2"),
        (gray([-7, 0, 70000], "i4"), "signed 32-bit samples with values from -7 to 70000"),
        (gray([0, 5, 2**32 - 1], "u4"), "unsigned 32-bit samples with values from 0 to 4.29"),
        (gray([0, 0.5, 1], "f4"), "float 32-bit samples with values from 0 to 1"),
        (gray([np.nan, 2.5, np.inf], "f4"), "float 32-bit samples with values from 2.5 to 2.5"),
        (gray([np.nan, np.nan], "f4"), "float 32-bit samples without any number"),
        (b"Pf\n2 1\n-1.0\n" + np.array([-1, 3], "<f4").tobytes(), "float 32-bit samples with"),
    ],
)
def test_values_outside_of_16_bits_are_rejected_with_their_range(data: bytes, detail: str) -> None:
    with pytest.raises(RecordError) as error:
        transcode(data, ImageSettings())
    assert error.value.reason == Reason.UNSUPPORTED_FEATURE
    assert error.value.detail.startswith(detail)
    assert "--image window=LOW:HIGH" in error.value.detail
    assert error.value.detail.endswith("--image rescale=per_image.")


@pytest.mark.parametrize(
    ("array", "detail"),
    [
        (np.zeros((2, 2), "f2"), "TIFF of 1 x float 16-bit samples per pixel"),
        (np.zeros((2, 2), "f8"), "TIFF of 1 x float 64-bit samples per pixel"),
        (np.zeros((2, 2), "i8"), "TIFF of 1 x signed 64-bit samples per pixel"),
        (np.zeros((2, 2, 3), "i2"), "TIFF of 3 x signed 16-bit samples per pixel"),
        (np.zeros((2, 2, 3), "f4"), "TIFF of 3 x float 32-bit samples per pixel"),
        (np.zeros((2, 2, 2), "u2"), "TIFF of 2 x unsigned 16-bit samples per pixel"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"window": (0, 1)}, {"rescale": "per_image"}])
def test_other_layouts_are_named(array: np.ndarray, detail: str, options: dict) -> None:
    with pytest.raises(RecordError) as error:
        transcode(tiff(array), ImageSettings(**options))
    assert error.value.args == (f"unsupported_feature: {detail}",)


@pytest.mark.parametrize("options", [{}, {"rescale": "per_image"}])
@pytest.mark.parametrize("data", [gray([0, 300, 65535], "u2"), PGM_16])
def test_unsigned_16_bit_values_are_kept(data: bytes, options: dict) -> None:
    stored = transcode(data, ImageSettings(**options))
    assert pixels(stored) == [0, 300, 65535]
    assert (stored.bit_depth, stored.treatment.endswith(" to png")) == (16, True)


@given(
    st.lists(st.integers(-(2**15), 2**15 - 1), min_size=1, max_size=8),
    st.integers(-(2**16), 2**16),
    st.integers(1, 2**16),
    st.sampled_from(["i2", "i4", "f4"]),
)
def test_a_window_maps_each_value_as_fractions_do(values, low, width, dtype) -> None:
    stored = transcode(gray(values, dtype), ImageSettings(window=(low, low + width)))
    exact = [Fraction(min(max(v - low, 0), width) * 65535, width) for v in values]
    assert all(
        abs(e - f) <= Fraction(500001, 10**6) for e, f in zip(exact, pixels(stored), strict=True)
    )
    assert stored.treatment == "tiff to png, window"


@pytest.mark.parametrize(
    "data",
    [
        gray([-1000, 0, 1000], "i2"),
        gray([-1000, 0, 3000], "i4"),
        gray([-999.5, 0, 8], "f4"),
        gray([1, 0, 65535], "u2"),
    ],
)
def test_equal_values_of_all_types_stay_equal_in_a_window(data: bytes) -> None:
    assert pixels(transcode(data, ImageSettings(window=(-1000, 3000))))[1] == 16384


def test_a_window_applies_to_16_bit_png_as_well() -> None:
    data = png_16_bit(4, 3, channels=1)
    stored = transcode(data, ImageSettings(window=(0, 255)))
    assert stored.treatment == "png to png, window"
    assert transcode(data, ImageSettings()).data == data


@pytest.mark.parametrize(("dtype", "low", "high"), [("i2", -5, 7), ("i4", -5, 7), ("u2", 5, 7)])
def test_images_with_pixels_outside_the_window_are_marked(dtype: str, low: int, high: int) -> None:
    def is_clipped(*values: int, **settings: Any) -> bool:
        return transcode(gray([*values], dtype), ImageSettings(**settings)).is_clipped

    window = (low, high)
    assert not is_clipped(low, high, window=window)
    assert is_clipped(low, high + 1, window=window)
    assert is_clipped(low - 1, high, window=window, bit_depth=8)


def test_rescaling_per_image_maps_its_own_range() -> None:
    stored = transcode(gray([-10, 5, 10], "i2"), ImageSettings(rescale="per_image"))
    assert pixels(stored) == [0, 49151, 65535]
    assert (stored.treatment, stored.is_clipped) == ("tiff to png, rescaled per image", False)
    assert pixels(transcode(gray([7, 7], "f4"), ImageSettings(rescale="per_image"))) == [0, 0]


def test_a_window_of_8_bits() -> None:
    stored = transcode(gray([-10, 0, 10], "i2"), ImageSettings(window=(-10, 10), bit_depth=8))
    with Image.open(io.BytesIO(stored.data)) as image:
        assert (image.mode, np.asarray(image)[0].tolist()) == ("L", [0, 128, 255])
    assert stored.treatment == "tiff to png, window, 8 bits"


@pytest.mark.parametrize("options", [{"window": (0, 9)}, {"rescale": "per_image"}])
def test_nan_and_infinity_are_rejected(options: dict) -> None:
    with pytest.raises(RecordError, match="2 NaN or infinite values in float 32-bit samples") as e:
        transcode(gray([np.nan, 1, -np.inf], "f4"), ImageSettings(**options))
    assert e.value.reason == Reason.UNSUPPORTED_FEATURE


@pytest.mark.parametrize("size", [(3, 2), (2, 3)])
def test_rotated_signed_images_are_mapped_upright(size: tuple[int, int]) -> None:
    values = np.arange(6, dtype="i2").reshape(size)
    stored = transcode(tiff(values, 6), ImageSettings(window=(0, 65535)))
    with Image.open(io.BytesIO(stored.data)) as image:
        np.testing.assert_array_equal(np.asarray(image), np.rot90(values, -1))


def test_settings_of_numbers_are_checked() -> None:
    for options in (
        {"window": (1, 1)},
        {"window": (0, float("nan"))},
        {"window": "5"},
        {"window": (0, 1), "rescale": "per_image"},
        {"rescale": "all"},
    ):
        with pytest.raises(ValidationError):
            ImageSettings(**options)
    assert ImageSettings(window="-1000:3000.5").window == (-1000, 3000.5)
    assert not {"window", "rescale"} & ImageSettings().model_dump().keys()
    stated = ImageSettings(window=(-1, 2))
    assert ImageSettings.model_validate_json(stated.model_dump_json()) == stated


def test_bit_depth_is_that_of_the_file() -> None:
    assert examine(PGM_16).bit_depth == 16
    assert examine(gray([0], "i2")).bit_depth == 16
    assert examine(gray([0], "f4")).bit_depth == 32
    assert examine(tiff(np.zeros((2, 2, 3), "u2"))).bit_depth == 16
    assert examine(tiff(np.zeros((2, 2, 3), "u1"))).bit_depth == 8
