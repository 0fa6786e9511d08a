"""Draws what a record holds: its image, with boxes and masks where it has them.

The image is found by its Example key and by what its bytes are, so that records of any origin can
be drawn. Sources of the other keys: the TensorFlow Object Detection API, and DeepLab.
"""

from __future__ import annotations

import colorsys
import io
import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFile, ImageFont

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_PIXELS
from recordmill.transforms.functional.images import pixels
from recordmill.transforms.functional.images.pixels import canonical
from recordmill.transforms.functional.images.source_image import (
    MAX_WORK,
    examine,
    examine_in_process,
    opened,
    sniffed_format,
)
from recordmill.transforms.functional.rendering.infer_features import (
    MASK_KEY,
    RAW_MODES,
    Features,
    image_key,
    image_size,
    is_image,
    raw_shape,
)
from recordmill.transforms.functional.rendering.visible_text import escaped

BOX_KEYS = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
BOX_TEXT_KEY, BOX_LABEL_KEY = "image/object/class/text", "image/object/class/label"

_MASK_OPACITY = 0.55
_VOID = 255
_GOLDEN = 0.618033988749895

SYSTEM_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "LiberationSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "Arial.ttf",
    "Arial Unicode.ttf",
    "segoeui.ttf",
)
"""Where there are any, Pillow finds them by these names on Linux, macOS and Windows."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_PILLOW_FONT = ""
_MISSING = "\U0010ffff"
"""No character, so that a font draws its sign for what it lacks."""


_MAX_CHARACTERS = 2_000
"""Characters of a text that are looked at: no line has room for more."""

TILE_SIDE = 240
_GAP = 16
_TEXT_SIZE = 14
_LINE = 19
_INK, _PALE, _PAPER, _EMPTY = (32, 33, 36), (95, 99, 104), (255, 255, 255), (241, 243, 244)


class Box(NamedTuple):
    """A box in parts of the image's width and height, 0 to 1, and its class in words."""

    left: float
    top: float
    right: float
    bottom: float
    name: str


def read_boxes(
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


def draw_boxes(image: Image.Image, boxes: Sequence[Box]) -> Image.Image:
    """Returns an image with boxes drawn on it, one colour a class, and their names."""
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


def draw_mask(image: Image.Image, data: bytes) -> Image.Image:
    """Returns an image with the classes of a mask laid over it; 0 is ground, 255 is void.

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


_GROUND = (255, 255, 255)
_DAMAGED_QUALITY = 70


def draw_record(features: Features, side: int, class_names: Sequence[str] = ()) -> Image.Image:
    """Returns a record's image in RGB, no side longer than `side`, with its boxes and its mask.

    Args:
        features: what the record holds.
        side: in pixels; smaller images stay as they are.
        class_names: names of the ids in `image/object/class/label`, where there is no text.

    Raises:
        RecordError: if there is no image, or it cannot be decoded.
        ValueError: also.
    """
    key = image_key(features)
    if key is None:
        raise ValueError("holds no image")
    image = _decoded(features, key, side)
    if MASK_KEY in features and is_image(next(iter(features[MASK_KEY]), None)):
        image = draw_mask(image, features[MASK_KEY][0])
    return draw_boxes(image, read_boxes(features, image_size(features, key), class_names))


def is_cheap_to_draw(features: Features) -> bool:
    """Returns whether a record can be drawn in this process: by the headers of its images.

    Raises:
        RecordError: if one is damaged.
    """
    values = (features.get(key or "", [None])[:1] for key in (image_key(features), MASK_KEY))
    found = [examine_in_process(value[0]) for value in values if value and is_image(value[0])]
    return all(source is not None and source.work <= MAX_WORK for source in found)


def _decoded(features: Features, key: str, side: int) -> Image.Image:
    data = features[key][0]
    if not is_image(data) and (raw := raw_shape(features, key)):
        size = (raw.width, raw.height)
        return shrunk(Image.frombytes(RAW_MODES[raw.channels], size, data), side)
    return decode(data, side)


def decode(data: bytes, side: int) -> Image.Image:
    """Returns an encoded image in RGB, no side longer than `side`.

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
    """Returns an image in RGB on white, no side longer than `side`."""
    plain = pixels.without_alpha(pixels.to_8_bits(image), _GROUND).convert("RGB")
    plain.thumbnail((side, side), Image.Resampling.LANCZOS)
    return plain


def to_jpeg(image: Image.Image, quality: int) -> bytes:
    """Returns an image as a small JPEG."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality, optimize=True)
    return stream.getvalue()


def error_detail(error: RecordError | ValueError) -> str:
    """Returns why an image cannot be drawn, in words."""
    return error.detail if isinstance(error, RecordError) else str(error)


def thumbnail_of_damaged(data: bytes, side: int) -> tuple[bytes, tuple[int, int]]:
    """Returns a small JPEG of what can be decoded of a file, and its width and height.

    Raises:
        RecordError: if nothing can.
    """
    image = decode_damaged(data, side)
    return to_jpeg(image, _DAMAGED_QUALITY), image.size


def decode_damaged(data: bytes, side: int) -> Image.Image:
    """Returns a damaged image in RGB, gray where it is lost, no side longer than `side`.

    Only for a separate process: it changes how all of Pillow treats damage while it runs.

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


class Tile(NamedTuple):
    """One image and what stands below it.

    Attributes:
        image: in RGB; None if there is none, or it cannot be decoded.
        title: the label.
        note: the key.
        fault: why there is no image.
    """

    image: Image.Image | None
    title: str
    note: str
    fault: str = ""


def contact_sheet(tiles: Sequence[Tile]) -> Image.Image:
    """Returns one image of all tiles, in rows of a width that makes the sheet about square."""
    columns = max(1, math.ceil(math.sqrt(len(tiles) * 1.2)))
    rows = max(1, math.ceil(len(tiles) / columns))
    step = (TILE_SIDE + _GAP, TILE_SIDE + 2 * _LINE + _GAP)
    sheet = Image.new("RGB", (columns * step[0] + _GAP, rows * step[1] + _GAP), _PAPER)
    for i, tile in enumerate(tiles):
        row, column = divmod(i, columns)
        _place(sheet, tile, (_GAP + column * step[0], _GAP + row * step[1]))
    return sheet


def _place(sheet: Image.Image, tile: Tile, corner: tuple[int, int]) -> None:
    left, top = corner
    canvas = ImageDraw.Draw(sheet)
    if tile.image is None:
        canvas.rectangle((left, top, left + TILE_SIDE - 1, top + TILE_SIDE - 1), fill=_EMPTY)
        why = fitted(tile.fault, TILE_SIDE - _GAP, _TEXT_SIZE)
        middle = (left + TILE_SIDE // 2, top + TILE_SIDE // 2)
        why.draw(canvas, middle, _PALE, anchor="mm")
    else:
        x = left + (TILE_SIDE - tile.image.width) // 2
        sheet.paste(tile.image, (x, top + TILE_SIDE - tile.image.height))
    below = top + TILE_SIDE + 4
    for line, (text, ink) in enumerate(((tile.title, _INK), (tile.note, _PALE))):
        fitted(text, TILE_SIDE, _TEXT_SIZE).draw(canvas, (left, below + line * _LINE), ink)


class Caption(NamedTuple):
    """A text that can be drawn.

    Attributes:
        text: what the font lacks in it is spelled out.
        font: draws it.
    """

    text: str
    font: Font

    @property
    def width(self) -> float:
        """In pixels."""
        return self.font.getlength(self.text)

    def draw(
        self,
        canvas: ImageDraw.ImageDraw,
        at: tuple[float, float],
        fill: tuple[int, int, int],
        anchor: str = "la",
    ) -> None:
        """Draws it onto an image."""
        canvas.text(at, self.text, fill=fill, font=self.font, anchor=anchor)


def make_caption(text: str, size: int) -> Caption:
    """Returns a text in letters of this height, by the first font that has the most of it."""
    best, missing = _PILLOW_FONT, len(text) + 1
    for name in (_PILLOW_FONT, *SYSTEM_FONTS):
        if (lacks := _lacks(name, text)) < missing:
            best, missing = name, lacks
        if not missing:
            break
    shown = "".join(c if _has_glyph(best, c) else escaped(c) for c in text)
    return Caption(shown, _font(best, size) or ImageFont.load_default(size))


def fitted(text: str, width: float, size: int) -> Caption:
    """Returns as much of a text as fits a width in pixels, with an ellipsis for the rest."""
    whole = make_caption(text[:_MAX_CHARACTERS], size)
    if whole.width <= width:
        return whole
    lengths = range(1, len(whole.text) + 1)
    kept = bisect_right(lengths, width, key=lambda n: whole.font.getlength(whole.text[:n] + "…"))
    return whole._replace(text=whole.text[:kept] + "…")


def _lacks(name: str, text: str) -> int:
    """Returns how many characters of a text a font lacks; all, if there is no such font."""
    if _font(name, 16) is None:
        return len(text) + 1
    return sum(not _has_glyph(name, character) for character in text)


@lru_cache
def _font(name: str, size: int) -> Font | None:
    """Returns Pillow's own font, or one of the system's; None if it has no such font."""
    if name == _PILLOW_FONT:
        return ImageFont.load_default(size)
    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return None


@lru_cache(maxsize=8192)
def _has_glyph(name: str, character: str) -> bool:
    face = _font(name, 16)
    if character == " ":
        return True
    if not character.isprintable() or not isinstance(face, ImageFont.FreeTypeFont):
        return character.isascii() and character.isprintable()
    drawn, missing = face.getmask(character), face.getmask(_MISSING)
    return drawn.size != missing.size or bytes(drawn) != bytes(missing)
