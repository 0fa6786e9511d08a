"""Reduces images by whole factors, as far as their longest side remains above a minimum."""

from __future__ import annotations

from PIL import Image

from recordmill.transforms.functional.images.source_image import SourceImage


def load_reduced(image: Image.Image, source: SourceImage, side: int) -> None:
    """Loads the pixels of an opened image: those of a JPEG at 1/2, 1/4 or 1/8 of its size.

    `side` is the minimum of the longest side in pixels; smaller images keep their size.
    """
    # DCT scaling; not of the lossless process, where it would corrupt the heap of Pillow 12.3.
    if source.common:
        factor = _factor(image, side)
        image.draft(None, (max(1, image.width // factor), max(1, image.height // factor)))
    image.load()


def reduced(image: Image.Image, side: int) -> Image.Image:
    """Returns an image averaged over square blocks of pixels.

    `image` is the image, of 8 bits. `side` is the minimum of the longest side in pixels; smaller
    images are returned as they are.
    """
    factor = _factor(image, side)
    return image.reduce(factor) if factor > 1 else image


def _factor(image: Image.Image, side: int) -> int:
    return max(1, max(image.size) // side)
