"""Drawing of records: images with the shapes of their objects, captions, and contact sheets."""

from __future__ import annotations

import colorsys
import io
import json
import math
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFile, ImageFont
from pycocotools import mask as coco

from recordmill.schemas.features import Schema
from recordmill.schemas.masking import escaped
from recordmill.schemas.origins import BOX_SIDES, Origin
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_PIXELS
from recordmill.transforms.functional.images import codecs, pixels
from recordmill.transforms.functional.images.pixels import reduced
from recordmill.transforms.functional.rendering.infer_features import (
    INSTANCE_KEY,
    MASK_KEY,
    RAW_MODES,
    Features,
    image_key,
    is_image,
    raw_shape,
)
from recordmill.transforms.functional.values.boxes import TO_CORNERS, polygons_around
from recordmill.transforms.functional.values.boxes import Box as Corners

BOX_KEYS = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
CORNERS_KEY = "image/object/oriented_bbox"
KEYPOINT_KEYS = tuple(f"image/object/keypoint/{part}" for part in ("x", "y", "visibility"))
# Where the other images of a record are drawn from; no Example key of a schema is empty.
OTHERS_KEY = ""
BOX_TEXT_KEY, BOX_LABEL_KEY = "image/object/class/text", "image/object/class/label"

_MASK_OPACITY = 0.55
_VOID = 255
_GOLDEN = 0.618033988749895

# Fonts that Pillow finds by name on Linux, macOS and Windows, for glyphs not in its own font.
SYSTEM_FONTS = (
    "DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc", "Arial.ttf", "Arial Unicode.ttf", "segoeui.ttf",
)  # fmt: skip

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_PILLOW_FONT = ""

# A noncharacter, for which every font draws its glyph for missing characters.
_MISSING = "\U0010ffff"


# Characters of a text that are measured; no line has room for more.
_MAX_CHARACTERS = 2_000

TILE_SIDE = 240
_GUTTER = 4  # pixels between the images of a record
_GAP = 16
_TEXT_SIZE = 14
_LINE = 19
_INK, _PALE, _PAPER, _EMPTY = (32, 33, 36), (95, 99, 104), (255, 255, 255), (241, 243, 244)

# Width and height, in pixels.
_Size = tuple[int, int]

# The fraction of an image up to which oriented boxes are drawn; Pillow fails on large numbers.
_FAR = 100


class DrawnBox(NamedTuple):
    """A box as fractions of the image, and its class, whose number decides the color."""

    corners: tuple[tuple[float, float], ...]  # x and y of each, clockwise
    name: str
    number: int


# The keys by which the features of a schema are drawn, by their source.
_DRAWN_KEYS = {
    Origin.CORNERS: CORNERS_KEY,
    Origin.INSTANCE_PNG: INSTANCE_KEY,
    Origin.INSTANCE_RLE: INSTANCE_KEY,
    Origin.INSTANCE_IDS: MASK_KEY,  # unless there is a mask of classes
    Origin.MASK: MASK_KEY,
    Origin.SEGMENTATION: MASK_KEY,
    Origin.KEYPOINT_X: KEYPOINT_KEYS[0],
    Origin.KEYPOINT_Y: KEYPOINT_KEYS[1],
    Origin.KEYPOINT_VISIBILITY: KEYPOINT_KEYS[2],
}


def boxes_of(schema: Schema, record: Mapping[str, Sequence[Any]]) -> Iterator[Corners]:
    """Yields the boxes of a record as fractions of its image."""
    sides: dict[str, Sequence[float]] = {}
    for name, feature in schema.features.items():
        if feature.source.origin is Origin.BOX:
            values = [v for v in record.get(name, ()) if not isinstance(v, bytes)]
            order = feature.source.name
            if order in TO_CORNERS:
                # The concatenated boxes: the values i, i + 4, i + 8, … are the same side of each.
                parts = zip(*(values[side::4] for side in range(4)), strict=False)
                yield from (TO_CORNERS[order](*part) for part in parts)
                return
            sides[order] = values
    if len(sides) == len(BOX_SIDES):
        yield from zip(*(sides[side] for side in BOX_SIDES), strict=False)


def of_first_step(schema: Schema, features: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Returns the features of a record; those of an episode are of its first step."""
    steps = schema.frame_features if schema.has_steps else {}
    sizes = {
        name: math.prod(n or 1 for n in feature.shape or ()) for name, feature in steps.items()
    }
    return {name: values[: sizes.get(name)] for name, values in features.items()}


def with_drawn_keys(schema: Schema, features: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Adds shapes, labels, masks and other images of a record under the keys they are drawn by."""
    features, found = of_first_step(schema, features), dict[str, list[Any]]()
    if schema.has_boxes:
        boxes = list(boxes_of(schema, features))
        found = {key: [box[side] for box in boxes] for side, key in enumerate(BOX_KEYS)}
    if (label := box_label_of(schema)) is not None:
        found[BOX_LABEL_KEY] = features.get(label, [])
    keys = {n: k for n, f in schema.features.items() if (k := _DRAWN_KEYS.get(f.source.origin))}
    for name, key in keys.items():
        if key != MASK_KEY or schema.mask_feature in (None, name):
            found[key] = features.get(name, [])
    images = [name for name, image in schema.stored_images.items() if image]
    if images:
        found[OTHERS_KEY] = [value for name in images for value in features.get(name, [])[:1]]
    drawn = {*images, *keys}
    others = {name: values for name, values in features.items() if name not in drawn}
    return {**others, **found}


def box_label_of(schema: Schema) -> str | None:
    """Returns the Example key of the classes of boxes, or None."""
    return next((name for name, f in schema.features.items() if f.per_box and f.classes), None)


def _read_boxes(
    features: Features, size: tuple[int, int], class_names: Sequence[str] = ()
) -> list[DrawnBox]:
    """Returns the boxes of a record with finite coordinates, as fractions of the image."""
    lists = (features.get(key, []) for key in (*BOX_KEYS, CORNERS_KEY))
    *sides, corners = ([v for v in values if not isinstance(v, bytes)] for values in lists)
    if not any(sides):
        return []
    # The keys of the Object Detection API are for fractions, yet some datasets store pixels there.
    in_pixels = any(value > 2 for values in sides for value in values)
    scale = (*size, *size) if in_pixels else (1, 1, 1, 1)
    names = _box_names(features, class_names)
    numbers = _box_ids(features) or [zlib.crc32(name.encode()) for name in names]
    found = []
    for i, box in enumerate(zip(*sides, strict=False)):
        if all(map(math.isfinite, box)):
            inside = tuple(np.clip(np.divide(box, scale), 0, 1).tolist())
            four = corners[8 * i : 8 * i + 8]
            if len(four) < 8 or not all(abs(number) < _FAR for number in four):  # or NaN
                four = polygons_around(inside)[0]
            name, number = names[i] if i < len(names) else "", numbers[i] if i < len(numbers) else 0
            found.append(DrawnBox(tuple(zip(four[::2], four[1::2], strict=True)), name, number))
    return found


def _box_names(features: Features, class_names: Sequence[str]) -> list[str]:
    if texts := features.get(BOX_TEXT_KEY):
        return [t.decode("utf-8", "backslashreplace") for t in texts if isinstance(t, bytes)]
    return [class_names[i] if 0 <= i < len(class_names) else str(i) for i in _box_ids(features)]


def _box_ids(features: Features) -> list[int]:
    return [i for i in features.get(BOX_LABEL_KEY, []) if isinstance(i, int)]


def _draw_boxes(canvas: ImageDraw.ImageDraw, boxes: Sequence[DrawnBox], size: _Size) -> None:
    """Draws boxes and their names, one color per class."""
    line = max(1, round(max(size) / 160))
    for box in boxes:
        points = [(_pixel(x, size[0]), _pixel(y, size[1])) for x, y in box.corners]
        color = _class_color(box.number)
        canvas.polygon(points, outline=color, width=line)
        _name_box(canvas, box.name, tuple(map(min, *points)), color, size)


def _draw_keypoints(
    canvas: ImageDraw.ImageDraw, features: Features, objects: int, size: _Size
) -> None:
    """Draws labeled keypoints, one color for each of an object; hidden ones are rings."""
    xs, ys, visibility = (features.get(key, []) for key in KEYPOINT_KEYS)
    each, radius = max(1, len(xs) // max(1, objects)), max(2.0, max(size) / 90)
    for i, (x, y) in enumerate(zip(xs, ys, strict=False)):
        seen, color = visibility[i] if i < len(visibility) else 2, _class_color(i % each)
        if seen and all(map(math.isfinite, (x, y))):
            fill, ring = (color, _PAPER) if seen > 1 else (None, color)
            canvas.circle((x * size[0], y * size[1]), radius, fill, ring)


def _layers(features: Features, size: _Size) -> Iterator[np.ndarray]:
    """Yields the mask of the classes of a record, and that of its objects, as (height, width)."""
    if is_image(next(iter(features.get(MASK_KEY, [])), None)):
        yield _ids_of(features[MASK_KEY][0], size)
    if masks := features.get(INSTANCE_KEY, []):
        numbers = np.zeros(size[::-1], np.int64)
        for i, data in enumerate(masks, start=1):
            numbers[_ids_of(data, size) > 0] = i
        yield numbers


def _name_box(
    canvas: ImageDraw.ImageDraw,
    name: str,
    corner: tuple[float, float],
    ground: tuple[int, int, int],
    size: tuple[int, int],
) -> None:
    height = round(max(size) / 24)
    if not name or height < 9:
        return
    text = _fit_caption(name, size[0] / 2, height)
    left = max(0, min(corner[0], size[0] - text.width - 4))
    top = corner[1] - height - 4 if corner[1] > height + 4 else max(0, corner[1])
    canvas.rectangle((left, top, left + text.width + 4, top + height + 4), fill=ground)
    # Black or white text, whichever has more contrast with the color of the box.
    ink = (0, 0, 0) if _luminance(ground) > 0.4 else (255, 255, 255)
    text.draw(canvas, (left + 2, top + 1), ink)


def _ids_of(data: bytes, size: tuple[int, int]) -> np.ndarray:
    """Decodes a mask, a PNG or COCO's run lengths in JSON, to ids of (height, width)."""
    if data.startswith(b"{"):
        try:
            mask = Image.fromarray(coco.decode(json.loads(data)))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError("the run lengths of a mask are damaged") from error
        return np.asarray(mask.resize(size, Image.Resampling.NEAREST)).astype(np.int64)
    source = codecs.examine(data)
    with codecs.opened(data, source.format) as mask:
        mask.load()
        bands = mask if mask.mode in ("L", "P", "I;16", "1") else mask.convert("L")
        return np.asarray(bands.resize(size, Image.Resampling.NEAREST)).astype(np.int64)


def _blend(image: Image.Image, ids: np.ndarray) -> Image.Image:
    """Returns an image blended with the colors of ids; 0 is background, 255 is void."""
    palette = np.array([(0, 0, 0), *map(_class_color, range(1, _VOID)), (128, 128, 128)])
    # Class ids beyond the palette wrap around, except to the background color.
    layer = palette[np.where(ids > _VOID, 1 + ids % (_VOID - 1), ids)]
    shown = (ids > 0)[:, :, None] * _MASK_OPACITY
    mixed = np.asarray(image) * (1 - shown) + layer * shown
    return Image.fromarray(mixed.round().astype(np.uint8))


def _class_color(index: int) -> tuple[int, int, int]:
    """Returns the color of a class; neighbors differ in hue by the golden ratio.

    >>> _class_color(0), _class_color(1)
    ((235, 78, 78), (85, 135, 255))
    """
    level = (0.92, 1.0, 0.78)[index % 3]
    red, green, blue = colorsys.hsv_to_rgb(index * _GOLDEN % 1, 0.667, level)
    return round(red * 255), round(green * 255), round(blue * 255)


def _pixel(part: float, side: int) -> float:
    """Returns a coordinate in pixels; the far edge of an image is in its last one."""
    return min(part * side, side - 1) if part <= 1 else part * side


def _luminance(rgb: tuple[int, int, int]) -> float:
    red, green, blue = (c / 255 for c in rgb)
    return float(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2)


_GROUND = (255, 255, 255)
_DAMAGED_QUALITY = 70

# As sharp as Pillow's default in thumbnails, and a third faster.
_FILTER = Image.Resampling.HAMMING


def draw_record(features: Features, side: int, class_names: Sequence[str] = ()) -> Image.Image:
    """Returns a record's images in RGB, side by side, the first with its objects and masks.

    No side is longer than `side` pixels, and none is enlarged. Raises RecordError if an image
    cannot be decoded, and ValueError if there is none, or it has too many pixels.
    """
    others = [data for data in features.get(OTHERS_KEY, []) if is_image(data)]
    if others:
        number = math.ceil(math.sqrt(1 + len(others)))
        first = {name: values for name, values in features.items() if name != OTHERS_KEY}
        side = (side - _GUTTER * (number - 1)) // number
        images = [_decode(data, codecs.examine(data), side, is_stretched=True) for data in others]
        return _side_by_side([draw_record(first, side, class_names), *images], number)
    image, size = _record_image(features, side)
    for ids in _layers(features, image.size):
        image = _blend(image, ids)
    boxes, canvas = _read_boxes(features, size, class_names), ImageDraw.Draw(image)
    _draw_boxes(canvas, boxes, image.size)
    _draw_keypoints(canvas, features, len(boxes), image.size)
    return image


def _side_by_side(images: Sequence[Image.Image], number: int) -> Image.Image:
    """Returns images in rows of a number, in cells as large as the largest of them."""
    width, height = (max(sides) + _GUTTER for sides in zip(*(i.size for i in images), strict=True))
    rows = math.ceil(len(images) / number)
    drawn = Image.new("RGB", (number * width - _GUTTER, rows * height - _GUTTER), _PAPER)
    for i, image in enumerate(images):
        drawn.paste(image, (i % number * width, i // number * height))
    return drawn


def _record_image(features: Features, side: int) -> tuple[Image.Image, tuple[int, int]]:
    """Returns the thumbnail of a record's image, and the size at which the image is stored."""
    key = image_key(features)
    if key is None:
        raise ValueError("the record has no image")
    data = features[key][0]
    if not is_image(data) and (raw := raw_shape(features, key)):
        size = (raw.width, raw.height)
        return _thumbnail(Image.frombytes(RAW_MODES[raw.channels], size, data), side), size
    source = codecs.examine(data)
    return _decode(data, source, side), (source.width, source.height)


def is_cheap_to_draw(features: Features) -> bool:
    """Returns whether the images of a record are within the work limits, by their headers."""
    single = (features.get(key or "", [])[:1] for key in (image_key(features), MASK_KEY))
    values = chain(*single, features.get(INSTANCE_KEY, []), features.get(OTHERS_KEY, []))
    found = [codecs.examine_in_process(value) for value in values if is_image(value)]
    return all(source is not None and source.work <= codecs.MAX_WORK for source in found)


def _decode(
    data: bytes, source: codecs.SourceImage, side: int, is_stretched: bool = False
) -> Image.Image:
    """Returns an image in RGB; gray of 16 bits with the range of its values, if it is stretched."""
    if source.width * source.height > MAX_PIXELS:
        raise ValueError(f"{source.width} x {source.height} pixels are too many to draw")
    with codecs.opened(data, source.family) as image:
        source.load_reduced(image, side)
        if source.family == "jpeg":
            # Pixels of all modes of JPEG can be averaged before the conversion by a color profile,
            # which takes longer than the scaling.
            image.thumbnail((side, side), _FILTER)
        found = pixels.canonical(image, source.bit_depth)
        if is_stretched and isinstance(found, pixels.Deep) and found.channels == 1:
            # Depth rarely fills 16 bits, and would be black.
            found = pixels.mapped(found.samples, *np.percentile(found.samples, (1, 99)))
        return _thumbnail(found, side)


def _thumbnail(image: pixels.Pixels, side: int) -> Image.Image:
    """Returns an image in RGB on white, no side longer than `side`."""
    plain = pixels.to_8_bits(pixels.without_alpha(image, _GROUND)).convert("RGB")
    small = reduced(plain, side)
    small.thumbnail((side, side), _FILTER)
    return small


def to_jpeg(image: Image.Image, quality: int) -> bytes:
    """Returns an image as a JPEG."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality, optimize=True)
    return stream.getvalue()


def error_detail(error: RecordError | ValueError) -> str:
    """Returns the reason why an image cannot be drawn."""
    return error.detail if isinstance(error, RecordError) else str(error)


def thumbnail_of_damaged(data: bytes, side: int) -> tuple[bytes, tuple[int, int]]:
    """Returns a JPEG thumbnail of a damaged image, and its size; RecordError if nothing is left."""
    image = _decode_damaged(data, side)
    return to_jpeg(image, _DAMAGED_QUALITY), image.size


def _decode_damaged(data: bytes, side: int) -> Image.Image:
    """Returns a damaged image in RGB, with gray for lost parts, no side longer than `side`.

    Only for a separate process: it sets the global `LOAD_TRUNCATED_IMAGES` of Pillow while it runs.
    """
    format_ = codecs.sniffed_format(data)
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        with codecs.opened(data, format_) as image:
            if image.width * image.height > MAX_PIXELS:
                raise RecordError(
                    Reason.TOO_MANY_PIXELS,
                    f"{image.width} x {image.height} pixels are too many to draw",
                )
            image.draft(None, (2 * side, 2 * side))
            image.load()
            return _thumbnail(pixels.canonical(image), side)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False


class Tile(NamedTuple):
    """A tile of a contact sheet: an image and its caption."""

    image: Image.Image | None  # the image in RGB; None if it is missing or cannot be decoded
    title: str  # first line of the caption, the label
    note: str  # second line of the caption, the key
    problem: str = ""  # text in place of a missing image


def contact_sheet(tiles: Sequence[Tile]) -> Image.Image:
    """Returns an image of all tiles, in a grid that is about square."""
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
        why = _fit_caption(tile.problem, TILE_SIDE - _GAP, _TEXT_SIZE)
        middle = (left + TILE_SIDE // 2, top + TILE_SIDE // 2)
        why.draw(canvas, middle, _PALE, anchor="mm")
    else:
        x = left + (TILE_SIDE - tile.image.width) // 2
        sheet.paste(tile.image, (x, top + TILE_SIDE - tile.image.height))
    below = top + TILE_SIDE + 4
    for line, (text, ink) in enumerate(((tile.title, _INK), (tile.note, _PALE))):
        _fit_caption(text, TILE_SIDE, _TEXT_SIZE).draw(canvas, (left, below + line * _LINE), ink)


class Caption(NamedTuple):
    """A text with a font that can draw it."""

    text: str  # the text; characters that the font lacks are escaped
    font: Font

    @property
    def width(self) -> float:
        """Width in pixels."""
        return self.font.getlength(self.text)

    def draw(
        self,
        canvas: ImageDraw.ImageDraw,
        at: tuple[float, float],
        fill: tuple[int, int, int],
        anchor: str = "la",
    ) -> None:
        """Draws the text on an image."""
        canvas.text(at, self.text, fill=fill, font=self.font, anchor=anchor)


def _make_caption(text: str, size: int) -> Caption:
    # Fonts are tried in order until one has all characters; otherwise the first of those that lack
    # the fewest is used.
    best, missing = _PILLOW_FONT, len(text) + 1
    for name in (_PILLOW_FONT, *SYSTEM_FONTS):
        if (lacks := _lacks(name, text)) < missing:
            best, missing = name, lacks
        if not missing:
            break
    shown = "".join(c if _has_glyph(best, c) else escaped(c) for c in text)
    return Caption(shown, _font(best, size) or ImageFont.load_default(size))


def _fit_caption(text: str, width: float, size: int) -> Caption:
    whole = _make_caption(text[:_MAX_CHARACTERS], size)
    if whole.width <= width:
        return whole
    lengths = range(1, len(whole.text) + 1)
    # Binary search, as the width grows with the length: measuring every prefix is quadratic.
    kept = bisect_right(lengths, width, key=lambda n: whole.font.getlength(whole.text[:n] + "…"))
    return whole._replace(text=whole.text[:kept] + "…")


def _lacks(name: str, text: str) -> int:
    """Returns the number of characters that a font lacks; more than all, if it is not installed."""
    if _font(name, 16) is None:
        return len(text) + 1
    return sum(not _has_glyph(name, character) for character in text)


@lru_cache
def _font(name: str, size: int) -> Font | None:
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
    # Pillow does not expose a font's character map: a missing character has the glyph of a
    # noncharacter.
    drawn, missing = face.getmask(character), face.getmask(_MISSING)
    return drawn.size != missing.size or bytes(drawn) != bytes(missing)
