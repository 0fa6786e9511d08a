"""Tests of the measures of images: the perceptual hash, brightness, entropy and sharpness."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.records import StoredImage
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.pixels import Deep, thumbnail_of
from recordmill.transforms.functional.images.transcode import transcode
from recordmill.transforms.functional.records.image_columns import (
    HASH_BYTES,
    MIN_HASHED_SIDE,
    _measure,
    _perceptual_hashes,
    describe,
)


def landscape(seed: int = 0, size: tuple[int, int] = (320, 240)) -> Image.Image:
    """Returns an image with structure of all sizes, as photographs have: smoothed noise."""
    small = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def encoded(image: Image.Image, format_: str = "JPEG", **options: int) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_, **options)
    return stream.getvalue()


def described(image: StoredImage) -> dict[str, Any]:
    return describe([image.shape]).to_pylist()[0]


def measures_of(data: bytes, **settings: Any) -> dict[str, Any]:
    return described(transcode(data, ImageSettings(**settings)))


def measured(image: Image.Image) -> dict[str, float]:
    found = _measure(thumbnail_of(image), np.array([min(image.size)]))
    return {name: values[0].item() for name, values in found._asdict().items() if name != "phash"}


def distance(one: str, other: str) -> int:
    return (int(one, 16) ^ int(other, 16)).bit_count()


def gray(values: object) -> Image.Image:
    return Image.fromarray(np.asarray(values, np.uint8))


ORIGINAL = measures_of(encoded(landscape(), quality=95))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (encoded(landscape(), quality=30), 10),
        (encoded(landscape(), "PNG"), 10),
        (encoded(landscape(), "BMP"), 10),
        (encoded(landscape().convert("L")), 10),
        (encoded(landscape().resize((160, 120))), 10),
        (encoded(landscape().resize((631, 477))), 10),
        (encoded(landscape().crop((2, 2, 318, 238))), 40),
    ],
    ids=["quality 30", "PNG", "BMP", "gray", "half the size", "twice the size", "cropped"],
)
def test_similar_images_have_similar_hashes(data, expected):
    assert distance(measures_of(data)["phash"], ORIGINAL["phash"]) <= expected


def test_different_images_have_different_hashes():
    hashes = [measures_of(encoded(landscape(seed)))["phash"] for seed in range(20)]
    distances = [distance(a, b) for i, a in enumerate(hashes) for b in hashes[:i]]
    assert min(distances) > 80  # 128 are expected of independent bits


def test_a_hash_is_that_of_the_low_frequencies():
    y, x = np.mgrid[:64, :64]
    wave = np.rint(100 * np.cos(np.pi / 64 * 3 * (x + 0.5)) * np.cos(np.pi / 64 * 2 * (y + 0.5)))
    bits = np.unpackbits(_perceptual_hashes((128 + wave).astype(np.uint8)[None])[0])
    inverse = np.unpackbits(_perceptual_hashes((128 - wave).astype(np.uint8)[None])[0])
    # The rows of the hash are vertical frequencies, from 1; its columns horizontal ones.
    assert (bits.size, bits.reshape(16, 16)[1, 2], inverse.reshape(16, 16)[1, 2]) == (256, 1, 0)


@pytest.mark.parametrize(
    ("image", "hashed"),
    [
        (landscape(size=(MIN_HASHED_SIDE, MIN_HASHED_SIDE)), True),
        (landscape(size=(MIN_HASHED_SIDE - 1, 200)), False),
        (Image.new("RGB", (200, 200), (7, 70, 170)), False),
    ],
    ids=["smallest", "too small", "uniform"],
)
def test_images_without_structure_have_no_hash(image, hashed):
    phash = measures_of(encoded(image, "PNG"))["phash"]
    assert (phash and len(phash)) == (2 * HASH_BYTES if hashed else None)


def test_measures_of_a_uniform_image():
    assert measured(gray(np.full((50, 40), 77))) == {
        **{"hashed": False, "luma_p5": 77, "luma_p99": 77, "luma_std": 0.0, "entropy": 0.0},
        "sharpness": 0.922,  # as in cleanvision: all pixels have one level, as in graphics
    }


def test_measures_of_two_halves():
    found = measured(gray(np.repeat([[0], [200]], 32, axis=0).repeat(64, axis=1)))
    names = ("luma_p5", "luma_p99", "luma_std", "entropy")
    assert [found[name] for name in names] == [0, 200, 100.0, 1.0]


def test_edges_make_an_image_sharp_and_gradients_do_not():
    smooth = gray(np.arange(0, 256, 4)[None].repeat(64, axis=0))
    shuffled = gray(np.random.default_rng(0).permuted(np.asarray(smooth), axis=1))
    assert (measured(smooth)["sharpness"] < 0.29, measured(shuffled)["sharpness"] > 0.6) == (
        True,
        True,
    )


def test_the_box_excludes_the_rest_of_the_image():
    inner = landscape().convert("L")
    outer = Image.new("L", (400, 240))
    outer.paste(inner, (0, 0))
    found, expected = (
        np.frombuffer(thumbnail_of(image, box), np.uint8).reshape(64, 64)
        for image, box in ((outer, (0, 0, 320, 240)), (inner, None))
    )
    assert np.array_equal(found[:, :-1], expected[:, :-1])  # the filter reaches beyond the box


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_mode_converts_to_gray(mode):
    image = landscape().convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        samples = np.asarray(image, np.uint16)
        found = np.frombuffer(thumbnail_of(Image.fromarray(samples * 257)), np.uint8).astype(int)
        gray = np.frombuffer(thumbnail_of(landscape().convert("L")), np.uint8).astype(int)
        stretched = (gray - gray.min()) * 255 / np.ptp(gray)
        assert abs(found - stretched).max() <= 2
        # The measures do not depend on the part of the range that is used.
        for image in (Image.fromarray(9 * samples + 4000), Deep(16 * samples[:, :, None])):
            few = np.frombuffer(thumbnail_of(image), np.uint8).astype(int)
            assert abs(found - few).max() <= 2
        assert set(thumbnail_of(Image.fromarray(0 * samples + 4000))) == {0}
    assert len(thumbnail_of(image)) == 64 * 64


def test_a_header_check_measures_nothing():
    stored = described(transcode(encoded(landscape()), ImageSettings(), "header"))
    assert stored == dict.fromkeys(stored) | {"width": 320, "height": 240}


def test_a_transcoded_image_is_measured_as_stored():
    data = encoded(landscape(), "PNG")
    cropped = measures_of(data, resize="64x64 crop")
    assert cropped == measures_of(transcode(data, ImageSettings(resize="64x64 crop")).data)
