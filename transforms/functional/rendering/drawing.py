"""Draws what a record holds: its picture, with boxes and masks where it has them.

The picture is told by its Example key and by what its bytes are, so that records of any origin can
be drawn.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageFile

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_PIXELS
from recordmill.transforms.functional.images import pixels
from recordmill.transforms.functional.images.effort import MAX_WORK
from recordmill.transforms.functional.images.pixels import canonical
from recordmill.transforms.functional.images.sniffing import HEAD_BYTES, sniff
from recordmill.transforms.functional.images.source_image import (
    PILLOW_FORMATS,
    examine,
    examine_here,
    opened,
    sniffed_format,
)
from recordmill.transforms.functional.rendering.overlays import (
    MASK_KEY,
    Features,
    boxes_of,
    with_boxes,
    with_mask,
)

IMAGE_KEYS = ("image/encoded", "image", "image_raw", "encoded", "image/image_raw")
_HEIGHT_KEYS = ("image/height", "height")
_WIDTH_KEYS = ("image/width", "width")
_CHANNEL_KEYS = ("image/channels", "depth", "channels")
_RAW_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_GROUND = (255, 255, 255)
_DAMAGED_QUALITY = 70


class RawShape(NamedTuple):
    """The size of a picture that is stored as bare samples."""

    height: int
    width: int
    channels: int


def image_key(features: Features) -> str | None:
    """Returns the Example key of a record's picture, or None if it has none."""
    known = [key for key in IMAGE_KEYS if key in features]
    others = [key for key in features if key not in known and key != MASK_KEY]
    for key in [*known, *others]:
        if len(features[key]) == 1 and is_picture(features[key][0]):
            return key
    return next((key for key in known if raw_shape(features, key)), None)


def is_picture(value: object) -> bool:
    """Returns whether bytes begin as a picture that can be drawn does."""
    return isinstance(value, bytes) and sniff(value[:HEAD_BYTES]) in PILLOW_FORMATS


def raw_shape(features: Features, key: str) -> RawShape | None:
    """Returns the size of bare uint8 samples, if the record states one that fits their number."""
    value = features[key][0] if len(features[key]) == 1 else None
    stated = [_first_int(features, keys) for keys in (_HEIGHT_KEYS, _WIDTH_KEYS, _CHANNEL_KEYS)]
    if not isinstance(value, bytes) or None in stated[:2]:
        return None
    height, width, channels = (n or 0 for n in stated)
    if not channels and height * width > 0:
        channels = len(value) // (height * width)
    fits = 0 < height * width * channels == len(value) and channels in _RAW_MODES
    return RawShape(height, width, channels) if fits else None


def draw_record(features: Features, side: int, class_names: Sequence[str] = ()) -> Image.Image:
    """Returns a record's picture in RGB, no side longer than `side`, with its boxes and its mask.

    Args:
        features: what the record holds.
        side: in pixels; smaller pictures stay as they are.
        class_names: names of the ids in `image/object/class/label`, where there is no text.

    Raises:
        RecordError: if there is no picture, or it cannot be decoded.
        ValueError: likewise.
    """
    key = image_key(features)
    if key is None:
        raise ValueError("holds no picture")
    picture = _decoded(features, key, side)
    if MASK_KEY in features and is_picture(next(iter(features[MASK_KEY]), None)):
        picture = with_mask(picture, features[MASK_KEY][0])
    return with_boxes(picture, boxes_of(features, picture_size(features, key), class_names))


def is_little_work(features: Features) -> bool:
    """Returns whether a record can be drawn in this process: by the headers of its pictures.

    Raises:
        RecordError: if one is damaged.
    """
    values = (features.get(key or "", [None])[:1] for key in (image_key(features), MASK_KEY))
    found = [examine_here(value[0]) for value in values if value and is_picture(value[0])]
    return all(source is not None and source.work <= MAX_WORK for source in found)


def picture_size(features: Features, key: str) -> tuple[int, int]:
    """Returns the width and height of a record's picture, by its header.

    Raises:
        RecordError: if it has none.
    """
    if raw := raw_shape(features, key):
        return raw.width, raw.height
    source = examine(features[key][0])
    return source.width, source.height


def _decoded(features: Features, key: str, side: int) -> Image.Image:
    data = features[key][0]
    if not is_picture(data) and (raw := raw_shape(features, key)):
        size = (raw.width, raw.height)
        return shrunk(Image.frombytes(_RAW_MODES[raw.channels], size, data), side)
    return decode(data, side)


def decode(data: bytes, side: int) -> Image.Image:
    """Returns an encoded picture in RGB, no side longer than `side`.

    Raises:
        RecordError: if it cannot be decoded.
    """
    source = examine(data)
    if source.width * source.height > MAX_PIXELS:
        raise ValueError(f"{source.width} x {source.height} pixels are too many to draw")
    with opened(data, "jpeg" if source.format == "mpo" else source.format) as image:
        if source.format in ("jpeg", "mpo"):
            # decoded at a fraction of its size; its colours are then those of fewer pixels
            image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=1.0)
        image.load()
        return shrunk(pixels.canonical(image, source.bit_depth), side)


def shrunk(image: Image.Image, side: int) -> Image.Image:
    """Returns a picture in RGB on white, no side longer than `side`."""
    plain = pixels.without_alpha(pixels.to_8_bits(image), _GROUND).convert("RGB")
    plain.thumbnail((side, side), Image.Resampling.LANCZOS)
    return plain


def to_jpeg(image: Image.Image, quality: int) -> bytes:
    """Returns a picture as a small JPEG."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality, optimize=True)
    return stream.getvalue()


def fault_of(error: RecordError | ValueError) -> str:
    """Returns why a picture cannot be drawn, in words."""
    return error.detail if isinstance(error, RecordError) else str(error)


def _first_int(features: Features, keys: Sequence[str]) -> int | None:
    for key in keys:
        values = features.get(key, [])
        if len(values) == 1 and isinstance(values[0], int):
            return values[0]
    return None


def thumbnail_of_damaged(data: bytes, side: int) -> tuple[bytes, tuple[int, int]]:
    """Returns a small JPEG of what can be decoded of a file, and its width and height.

    Raises:
        RecordError: if nothing can.
    """
    picture = salvage(data, side)
    return to_jpeg(picture, _DAMAGED_QUALITY), picture.size


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
