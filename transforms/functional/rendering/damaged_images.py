"""Decodes what can be decoded of a damaged picture, to show it: never to store it."""

from __future__ import annotations

from PIL import Image, ImageFile

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_PIXELS
from recordmill.transforms.functional.images.pixels import canonical
from recordmill.transforms.functional.images.source_image import opened, sniffed_format
from recordmill.transforms.functional.rendering.drawing import shrunk, to_jpeg

_QUALITY = 70


def thumbnail_of_damaged(data: bytes, side: int) -> tuple[bytes, tuple[int, int]]:
    """Returns a small JPEG of what can be decoded of a file, and its width and height.

    Raises:
        RecordError: if nothing can.
    """
    picture = salvage(data, side)
    return to_jpeg(picture, _QUALITY), picture.size


def salvage(data: bytes, side: int) -> Image.Image:
    """Returns a damaged picture in RGB, gray where it is lost, no side longer than `side`.

    Only for a process apart: it changes how Pillow takes damage in all of a process while it runs.

    Raises:
        RecordError: if nothing can be decoded.
    """
    format_ = sniffed_format(data)
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        with opened(data, format_) as image:
            if image.width * image.height > MAX_PIXELS:
                raise RecordError(Reason.TOO_MANY_PIXELS, "are too many to show")
            image.draft(None, (2 * side, 2 * side))
            image.load()
            return shrunk(canonical(image), side)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
