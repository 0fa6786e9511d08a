"""Masks: images whose pixels are class ids, from a file or drawn from objects' outlines.

Ids are kept exactly: no colour is ever converted. Outlines are as COCO writes them: polygons, and
run lengths, compressed or not. Runs go down the columns, from left to right, and begin with the
background. Source: cocoapi, common/maskApi.c; polygons are filled by that code itself.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from PIL import Image
from pycocotools import mask as coco

from recordmill.schemas.features import Schema
from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MaskSettings
from recordmill.transforms.functional.images import png
from recordmill.transforms.functional.images.geometry import (
    Geometry,
    Size,
    geometry_of,
    inverse_orientation,
)
from recordmill.transforms.functional.images.sniffing import WorkLimitError
from recordmill.transforms.functional.images.source_image import (
    MAX_FILE_BYTES,
    MAX_WORK,
    opened,
    sniffed_format,
)
from recordmill.transforms.functional.values.typed import shown, to_number

_BITS, _MORE, _SIGN, _FIRST = 5, 0x20, 0x10, 48
_MAX_BITS = 60
_POINTS_A_PIXEL = 5
"""COCO's code holds that many points of a polygon's edge for each pixel of its length."""

MAX_EDGE_POINTS = 2**25
"""Of all polygons of an image: COCO's code needs 16 bytes for each, and is lost without them."""

MAX_DRAWN_PIXELS = 2**33
"""Of all objects of an image, those that others are drawn over included: some seconds of work."""

Outline: TypeAlias = "list[list[float]] | dict[str, Any]"
"""Polygons, each a flat list of x and y; or run lengths: {size: [height, width], counts}, where
counts are bytes if they are compressed, or else integers."""


def checked_outlines(values: Iterable[Any]) -> list[Outline]:
    """Returns objects' outlines as a row has them, in values that can cross a shuffle.

    Raises:
        RecordError: wrong_type, if one is not an outline.
    """
    outlines = []
    for i, value in enumerate(values):
        try:
            outlines.append(_checked(value))
        except RecordError as error:
            raise RecordError(error.reason, f"outline {i}: {error.detail}") from None
    return outlines


def _checked(value: Any) -> Outline:
    if isinstance(value, Mapping):
        return {"size": _size_of(value), "counts": _counts_of(value)}
    if not isinstance(value, list | tuple) or not value:
        raise _no_outline(value)
    return [_polygon(polygon) for polygon in value]


def _polygon(value: Any) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) < 6 or len(value) % 2:
        raise _no_outline(value)
    polygon = [to_number(number, is_text=False) for number in value]
    if not all(map(math.isfinite, polygon)):
        raise _no_outline(value)
    return polygon


def _size_of(outline: Mapping[str, Any]) -> list[int]:
    size = outline.get("size")
    if not isinstance(size, list | tuple) or not all(map(_is_count, size)):
        raise _no_outline(outline)
    return list(size)


def _counts_of(outline: Mapping[str, Any]) -> bytes | list[int]:
    counts = outline.get("counts")
    if isinstance(counts, str):
        return counts.encode("ascii", "replace")
    if isinstance(counts, bytes):
        return counts
    if not isinstance(counts, list | tuple) or not all(map(_is_count, counts)):
        raise _no_outline(outline)
    return list(counts)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def drawn(segments: list[tuple[int, Outline]], size: Size) -> np.ndarray:
    """Returns the class of each pixel, the later objects over the earlier: uint16, (height, width).

    Args:
        segments: class id, up to 65535, and outline of each object; what is in none is 0.
        size: width and height of the image that the outlines were drawn on.

    Raises:
        RecordError: wrong_type, for points far from the image, or run lengths that do not fill
            it; invalid_dimensions, for run lengths of another size; too_many_pixels, for outlines
            that are too much work.
    """
    width, height = size
    by_columns = np.zeros(width * height, np.uint16)
    edge_points = pixels = 0
    for i, (class_id, outline) in enumerate(segments):
        try:
            edge_points += _check_place(outline, size)
            if edge_points > MAX_EDGE_POINTS:
                raise _too_much_work(f"{MAX_EDGE_POINTS // _POINTS_A_PIXEL:,} pixels of edges")
            for start, stop in _spans(outline, size):
                by_columns[start:stop] = class_id
                pixels += stop - start
            if pixels > MAX_DRAWN_PIXELS:
                raise _too_much_work(f"{MAX_DRAWN_PIXELS:,} pixels")
        except RecordError as error:
            raise RecordError(error.reason, f"outline {i}: {error.detail}") from None
    drawn_: np.ndarray = by_columns.reshape(width, height).T
    return drawn_


def _check_place(outline: Outline, size: Size) -> int:
    """Returns how many points of edges COCO's code makes of an outline.

    Raises:
        RecordError: wrong_type, for a point so far away that it does not survive it.
    """
    if isinstance(outline, dict):
        return 0
    far, pixels = 2 * max(size), 0.0
    for polygon in outline:
        corners = np.array(polygon).reshape(-1, 2)
        if (away := np.abs(corners) > far).any():
            detail = f"{corners[away][0]} is no place on an image of {size[0]} x {size[1]} pixels"
            raise RecordError(Reason.WRONG_TYPE, detail)
        pixels += float(np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum())
    return int(pixels * _POINTS_A_PIXEL)


def _spans(outline: Outline, size: Size) -> Iterator[tuple[int, int]]:
    """Yields where the pixels begin and end that an outline encloses, column after column."""
    if isinstance(outline, dict):
        yield from _of_runs(_run_lengths(outline, size), size)
        return
    for polygon in outline:
        (found,) = coco.frPyObjects([polygon], size[1], size[0])
        yield from _of_runs(decompressed(found["counts"]), size)


def _run_lengths(outline: Mapping[str, Any], size: Size) -> list[int]:
    stated, counts = outline["size"], outline["counts"]
    if stated != [size[1], size[0]]:
        detail = f"run lengths of height and width {stated}; the image is {size[::-1]}"
        raise RecordError(Reason.INVALID_DIMENSIONS, detail)
    return decompressed(counts) if isinstance(counts, bytes) else counts


def decompressed(counts: bytes) -> list[int]:
    """Returns the run lengths that COCO's compressed form holds.

    Each is a number of base 32, the lowest digit first, with a sign; from the fourth on they are
    differences to the length before the last.

    Raises:
        RecordError: wrong_type, if the last number is cut short.
    """
    runs: list[int] = []
    value = shift = 0
    for code in counts:
        digit = code - _FIRST
        value |= (digit & 0x1F) << shift
        shift += _BITS
        if digit & _MORE and shift <= _MAX_BITS:
            continue
        if digit & _SIGN:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    if shift:
        raise RecordError(Reason.WRONG_TYPE, "compressed run lengths that are cut short")
    return runs


def _of_runs(runs: list[int], size: Size) -> Iterator[tuple[int, int]]:
    """Yields where every second run begins and ends; all together have to fill the image.

    Raises:
        RecordError: wrong_type, if they do not.
    """
    pixels = size[0] * size[1]
    if not all(0 <= run <= pixels for run in runs) or sum(runs) != pixels:
        raise RecordError(Reason.WRONG_TYPE, f"run lengths that do not add up to {pixels} pixels")
    ends = list(accumulate(runs))
    yield from zip(ends[::2], ends[1::2], strict=False)  # the last run may be of the background


def _too_much_work(what: str) -> RecordError:
    return RecordError(Reason.TOO_MANY_PIXELS, f"the objects have more than {what} in all")


def _no_outline(value: Any) -> RecordError:
    detail = f"expected polygons [[x, y, …], …] or {{size, counts}}, got {shown(value)}"
    return RecordError(Reason.WRONG_TYPE, detail)


def examine_mask(data: bytes, bounded: bool = False) -> png.PngHeader:
    """Returns what the chunks of a mask's file say.

    Args:
        data: the file.
        bounded: whether to stop at more chunks than this process has time for.

    Raises:
        WorkLimitError: if there are more.
        RecordError: if it is not a PNG, or damaged.
    """
    format_ = sniffed_format(data)
    if format_ != "png":
        raise RecordError(Reason.UNSUPPORTED_FORMAT, f"{format_}; a mask has to be a PNG")
    return png.examine(data, bounded)


def examine_mask_in_process(data: bytes) -> png.PngHeader | None:
    """Returns the same of a mask that is little work by its bytes, parts and pixels; or None.

    Raises:
        RecordError: if it is not a PNG, or damaged.
    """
    if len(data) > MAX_FILE_BYTES:
        return None
    try:
        header = examine_mask(data, bounded=True)
    except WorkLimitError:
        return None
    return header if header.work <= MAX_WORK else None


def mask_from_file(
    data: bytes, image: StoredImage, schema: Schema, header: png.PngHeader | None = None
) -> bytes:
    """Returns the mask that a file holds, as a PNG of one channel that fits the stored image.

    Args:
        data: a PNG of gray or of a palette, whose values or indexes are class ids.
        image: the image as the record holds it.
        schema: what was done to it, and which image was annotated.
        header: what the file's chunks say, if it has been examined.

    Raises:
        RecordError: if the file is no such PNG, damaged, or of another size than the image.
    """
    geometry = geometry_of(image.source_size, image.orientation, schema.image)
    ids = read_ids(data, annotated_size(geometry, schema.masks), schema.masks.frame, header)
    return encoded(ids, geometry, schema.masks)


def mask_from_outlines(
    segments: list[tuple[int, Outline]], image: StoredImage, schema: Schema
) -> bytes:
    """Returns the mask that objects' outlines make, as a PNG that fits the stored image.

    Args:
        segments: class id and outline of each object.
        image: the image as the record holds it.
        schema: what was done to it, and which image was annotated.

    Raises:
        RecordError: if an outline is none, or of another size than the image; if an id does not
            fit.
    """
    geometry = geometry_of(image.source_size, image.orientation, schema.image)
    for class_id, _ in segments:
        check_id(class_id, schema.masks)
    ids = drawn(segments, annotated_size(geometry, schema.masks))
    return encoded(ids, geometry, schema.masks)


def annotated_size(geometry: Geometry, settings: MaskSettings) -> Size:
    """Returns the size of the image that masks were drawn on."""
    return geometry.displayed if settings.frame == "displayed" else geometry.stored


def read_ids(
    data: bytes, size: Size, frame: str, header: png.PngHeader | None = None
) -> np.ndarray:
    """Returns the class ids that a PNG holds: uint8 or uint16, (height, width).

    Args:
        data: the file.
        size: the width and height that it has to have.
        frame: which image's size that is.
        header: what the file's chunks say, if it has been examined.

    Raises:
        RecordError: if it is not a PNG of gray or of a palette, damaged, or of another size.
    """
    facts = header or examine_mask(data)
    if facts.mode not in ("1", "L", "P", "I;16"):
        detail = f"PNG of {facts.mode}; a mask has one channel, gray or of a palette"
        raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)
    if (facts.width, facts.height) != size:
        detail = f"{facts.width} x {facts.height} pixels; its image is {size[0]} x {size[1]}"
        raise RecordError(Reason.INVALID_DIMENSIONS, f"{detail} as {frame} (masks: frame)")
    png.check_rows(data, facts)
    with opened(png.keep_pixel_data(data, facts), "png") as image:
        ids = np.asarray(image, np.uint16 if facts.depth == 16 else np.uint8)
    scaled = facts.mode == "L" and facts.depth < 8  # by Pillow, so that the largest is white
    return ids // (255 // (2**facts.depth - 1)) if scaled else ids


def encoded(ids: np.ndarray, geometry: Geometry, settings: MaskSettings) -> bytes:
    """Returns class ids as a PNG, after all that was done to the image was done to them.

    Args:
        ids: of the image that was annotated, (height, width).
        geometry: what was done to the image.
        settings: which image was annotated; how many bits an id has.

    Raises:
        RecordError: wrong_type, if an id does not fit.
    """
    check_id(int(ids.max()), settings)
    dtype = np.uint8 if settings.bit_depth == 8 else np.uint16
    placed = transform_ids(ids.astype(dtype, copy=False), geometry, settings)
    stream = io.BytesIO()
    Image.fromarray(placed).save(stream, "PNG")
    return stream.getvalue()


def check_id(class_id: int, settings: MaskSettings) -> None:
    """Rejects a class id that masks cannot hold.

    Raises:
        RecordError: wrong_type.
    """
    if not 0 <= class_id <= settings.max_id:
        remedy = "; set masks: {bit_depth: 16}" if 0 <= class_id <= 65_535 else ""
        detail = f"class id {class_id} in a mask of {settings.bit_depth} bits{remedy}"
        raise RecordError(Reason.WRONG_TYPE, detail)


def transform_ids(ids: np.ndarray, geometry: Geometry, settings: MaskSettings) -> np.ndarray:
    """Returns class ids turned, cropped, scaled to the nearest pixel and padded, as the image."""
    if settings.frame == "displayed" and not geometry.turned:
        ids = _turned(ids, inverse_orientation(geometry.orientation))
    elif settings.frame == "stored" and geometry.turned:
        ids = _turned(ids, geometry.orientation)
    if geometry.content != geometry.upright:
        columns, rows = nearest(geometry)
        ids = ids[np.ix_(rows, columns)]
    padded = np.full(geometry.size[::-1], settings.padding, ids.dtype)
    (left, top), (width, height) = geometry.offset, geometry.content
    padded[top : top + height, left : left + width] = ids
    return padded


def nearest(geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Returns the column and the row that each one of the content is taken from.

    The one that the middle of the new pixel falls into, worked out in whole numbers: where it falls
    between two, on the right and lower one.
    """
    left, top, right, bottom = geometry.crop
    across = _middles(geometry.content[0], left, right)
    down = _middles(geometry.content[1], top, bottom)
    return across, down


def _middles(number: int, start: Fraction, stop: Fraction) -> np.ndarray:
    step = (stop - start) / number
    first = start + step / 2
    denominator = first.denominator * step.denominator
    begin = first.numerator * step.denominator
    stride = step.numerator * first.denominator
    found: np.ndarray = (begin + np.arange(number) * stride) // denominator
    return found


def _turned(ids: np.ndarray, orientation: int) -> np.ndarray:
    """Returns class ids turned as an EXIF orientation says."""
    turns: dict[int, Callable[[np.ndarray], np.ndarray]] = {
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.T,
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].T,
        8: lambda a: np.rot90(a, 1),
    }
    turn = turns.get(orientation)
    return ids if turn is None else turn(ids)
