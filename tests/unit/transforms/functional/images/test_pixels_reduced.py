"""Images reduced by whole factors."""

from __future__ import annotations

import pytest
from PIL import Image

from recordmill.transforms.functional.images.codecs import examine, opened
from recordmill.transforms.functional.images.pixels import reduced
from tests.corpus import lossless_jpeg
from tests.images import image, jpeg, pixels, png


def loaded(data: bytes, side: int) -> Image.Image:
    source = examine(data)
    with opened(data, source.family) as opened_image:
        source.load_reduced(opened_image, side)
        return opened_image


@pytest.mark.parametrize(
    ("data", "decoded", "size"),
    [
        (jpeg(500, 375), (250, 188), (250, 188)),  # although its shorter side is below 2 * 224
        (jpeg(449, 1), (449, 1), (225, 1)),
        (jpeg(4040, 100), (505, 13), (253, 7)),
        (png(500, 375), (500, 375), (250, 188)),
        (png(447, 20), (447, 20), (447, 20)),
        (png(40, 30), (40, 30), (40, 30)),
    ],
)
def test_an_image_is_reduced_by_a_whole_factor(
    data: bytes, decoded: tuple[int, int], size: tuple[int, int]
) -> None:
    found = loaded(data, 224)
    assert found.size == decoded
    assert reduced(found, 224).size == size


def test_a_lossless_jpeg_is_decoded_in_full() -> None:
    samples = pixels(40, 32)
    assert loaded(lossless_jpeg(samples), 10).tobytes() == samples.tobytes()


def test_blocks_of_pixels_are_averaged() -> None:
    assert reduced(Image.frombytes("L", (4, 2), bytes([0, 4, 9, 9, 4, 8, 9, 9])), 2).tobytes() == (
        bytes([4, 9])
    )


def test_a_small_image_is_returned_as_it_is() -> None:
    small = image(40, 30)
    assert reduced(small, 21) is small
