"""Boxes and masks, drawn on the picture that they belong to.

Sources of the Example keys: the TensorFlow Object Detection API, and DeepLab.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from recordmill.transforms.functional.images.source_image import examine, opened
from recordmill.transforms.functional.rendering.captions import fitted

Features = Mapping[str, list[Any]]
"""Example key to values, as `read_features` returns them."""

MASK_KEY = "image/segmentation/class/encoded"
BOX_KEYS = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
BOX_TEXT_KEY, BOX_LABEL_KEY = "image/object/class/text", "image/object/class/label"

_MASK_OPACITY = 0.55
_VOID = 255
_GOLDEN = 0.618033988749895


class Box(NamedTuple):
    """A box in parts of the picture's width and height, 0 to 1, and its class in words."""

    left: float
    top: float
    right: float
    bottom: float
    name: str


def boxes_of(
    features: Features, size: tuple[int, int], class_names: Sequence[str] = ()
) -> list[Box]:
    """Returns the boxes of a record that are somewhere; of pixels they become parts of the size."""
    sides = [[v for v in features.get(key, []) if not isinstance(v, bytes)] for key in BOX_KEYS]
    if not any(sides):
        return []
    in_pixels = any(value > 2 for values in sides for value in values)
    width, height = size if in_pixels else (1, 1)
    names = _box_names(features, class_names)
    return [
        Box(x0 / width, y0 / height, x1 / width, y1 / height, names[i] if i < len(names) else "")
        for i, (x0, y0, x1, y1) in enumerate(zip(*sides, strict=False))
        if all(map(math.isfinite, (x0, y0, x1, y1)))
    ]


def _box_names(features: Features, class_names: Sequence[str]) -> list[str]:
    if texts := features.get(BOX_TEXT_KEY):
        return [t.decode("utf-8", "backslashreplace") for t in texts if isinstance(t, bytes)]
    ids = [i for i in features.get(BOX_LABEL_KEY, []) if isinstance(i, int)]
    return [class_names[i] if 0 <= i < len(class_names) else str(i) for i in ids]


def with_boxes(image: Image.Image, boxes: Sequence[Box]) -> Image.Image:
    """Returns a picture with boxes drawn on it, one colour a class, and their names."""
    if not boxes:
        return image
    drawn = image.copy()
    canvas = ImageDraw.Draw(drawn)
    colours = {name: colour(i) for i, name in enumerate(sorted({box.name for box in boxes}))}
    line = max(1, round(max(image.size) / 160))
    for box in boxes:
        x = sorted(_inside(part * image.width, image.width) for part in (box.left, box.right))
        y = sorted(_inside(part * image.height, image.height) for part in (box.top, box.bottom))
        canvas.rectangle((x[0], y[0], x[1], y[1]), outline=colours[box.name], width=line)
        _name_box(canvas, box.name, (x[0], y[0]), colours[box.name], image.size)
    return drawn


def _name_box(
    canvas: ImageDraw.ImageDraw,
    name: str,
    corner: tuple[float, float],
    ground: tuple[int, int, int],
    size: tuple[int, int],
) -> None:
    """Writes a class on its box, where there is room for letters that can be read."""
    height = round(max(size) / 24)
    if not name or height < 9:
        return
    text = fitted(name, size[0] / 2, height)
    left = max(0, min(corner[0], size[0] - text.width - 4))
    top = max(0, corner[1] - height - 4) if corner[1] > height + 4 else corner[1]
    canvas.rectangle((left, top, left + text.width + 4, top + height + 4), fill=ground)
    ink = (0, 0, 0) if _luminance(ground) > 0.4 else (255, 255, 255)
    text.draw(canvas, (left + 2, top + 1), ink)


def with_mask(image: Image.Image, data: bytes) -> Image.Image:
    """Returns a picture with the classes of a mask laid over it; 0 is ground, 255 is void.

    Raises:
        RecordError: if the mask cannot be decoded.
    """
    source = examine(data)
    with opened(data, source.format) as mask:
        mask.load()
        bands = mask if mask.mode in ("L", "P", "I;16", "1") else mask.convert("L")
        ids = np.asarray(bands.resize(image.size, Image.Resampling.NEAREST)).astype(np.int64)
    palette = np.array([(0, 0, 0), *(colour(i) for i in range(_VOID - 1)), (128, 128, 128)])
    layer = palette[np.where(ids > _VOID, 1 + ids % (_VOID - 1), ids)]
    shown = (ids > 0)[:, :, None] * _MASK_OPACITY
    mixed = np.asarray(image) * (1 - shown) + layer * shown
    return Image.fromarray(mixed.round().astype(np.uint8))


def colour(index: int) -> tuple[int, int, int]:
    """Returns one of a row of colours that are easy to tell apart.

    >>> colour(0), colour(1)
    ((235, 78, 78), (85, 135, 255))
    """
    level = (0.92, 1.0, 0.78)[index % 3]
    red, green, blue = colorsys.hsv_to_rgb(index * _GOLDEN % 1, 0.667, level)
    return round(red * 255), round(green * 255), round(blue * 255)


def _inside(value: float, limit: int) -> float:
    return min(max(value, 0), limit - 1)


def _luminance(rgb: tuple[int, int, int]) -> float:
    red, green, blue = (c / 255 for c in rgb)
    return float(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2)
