"""Masks: pictures whose pixels are class ids. Ids are kept exactly: no colour is ever converted."""

from __future__ import annotations

import io
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from PIL import Image

from recordmill.schemas.features import Schema
from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MaskSettings
from recordmill.transforms.functional.images import png
from recordmill.transforms.functional.images.effort import (
    MAX_FILE_BYTES,
    MAX_WORK,
    TooMuchEffortError,
)
from recordmill.transforms.functional.images.geometry import (
    Geometry,
    Size,
    geometry_of,
    turned_back_by,
)
from recordmill.transforms.functional.images.outlines import Outline, drawn
from recordmill.transforms.functional.images.source_image import opened, sniffed_format


def examine_mask(data: bytes, bounded: bool = False) -> png.PngFacts:
    """Returns what the chunks of a mask's file say.

    Args:
        data: the file.
        bounded: whether to stop at more chunks than this process has time for.

    Raises:
        TooMuchEffortError: if there are more.
        RecordError: if it is not a PNG, or damaged.
    """
    format_ = sniffed_format(data)
    if format_ != "png":
        raise RecordError(Reason.UNSUPPORTED_FORMAT, f"{format_}; a mask has to be a PNG")
    return png.examine(data, bounded)


def examine_plain_mask(data: bytes) -> png.PngFacts | None:
    """Returns the same of a mask that is little work by its bytes, parts and pixels; or None.

    Raises:
        RecordError: if it is not a PNG, or damaged.
    """
    if len(data) > MAX_FILE_BYTES:
        return None
    try:
        header = examine_mask(data, bounded=True)
    except TooMuchEffortError:
        return None
    return header if header.work <= MAX_WORK else None


def mask_of_file(
    data: bytes, image: StoredImage, schema: Schema, header: png.PngFacts | None = None
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


def mask_of_outlines(
    segments: list[tuple[int, Outline]], image: StoredImage, schema: Schema
) -> bytes:
    """Returns the mask that objects' outlines make, as a PNG that fits the stored picture.

    Args:
        segments: class id and outline of each object.
        image: the picture as the record holds it.
        schema: what was done to it, and which picture was annotated.

    Raises:
        RecordError: if an outline is none, or of another size than the picture; if an id does not
            fit.
    """
    geometry = geometry_of(image.source_size, image.orientation, schema.image)
    for class_id, _ in segments:
        check_id(class_id, schema.masks)
    ids = drawn(segments, annotated_size(geometry, schema.masks))
    return encoded(ids, geometry, schema.masks)


def annotated_size(geometry: Geometry, settings: MaskSettings) -> Size:
    """Returns the size of the picture that masks were drawn on."""
    return geometry.displayed if settings.frame == "displayed" else geometry.stored


def read_ids(data: bytes, size: Size, frame: str, header: png.PngFacts | None = None) -> np.ndarray:
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
        detail = f"{facts.width} x {facts.height} pixels; its picture is {size[0]} x {size[1]}"
        raise RecordError(Reason.INVALID_DIMENSIONS, f"{detail} as {frame} (masks: frame)")
    png.check_rows(data, facts)
    with opened(png.only_the_picture(data, facts), "png") as image:
        ids = np.asarray(image, np.uint16 if facts.depth == 16 else np.uint8)
    scaled = facts.mode == "L" and facts.depth < 8  # by Pillow, so that the largest is white
    return ids // (255 // (2**facts.depth - 1)) if scaled else ids


def encoded(ids: np.ndarray, geometry: Geometry, settings: MaskSettings) -> bytes:
    """Returns class ids as a PNG, after all that was done to the picture was done to them.

    Args:
        ids: of the picture that was annotated, (height, width).
        geometry: what was done to the picture.
        settings: which picture was annotated; how many bits an id has.

    Raises:
        RecordError: wrong_type, if an id does not fit.
    """
    check_id(int(ids.max()), settings)
    dtype = np.uint8 if settings.bit_depth == 8 else np.uint16
    placed = placed_ids(ids.astype(dtype, copy=False), geometry, settings)
    stream = io.BytesIO()
    Image.fromarray(placed).save(stream, "PNG")
    return stream.getvalue()


def check_id(class_id: int, settings: MaskSettings) -> None:
    """Refuses a class id that masks cannot hold.

    Raises:
        RecordError: wrong_type.
    """
    if not 0 <= class_id <= settings.max_id:
        remedy = "; set masks: {bit_depth: 16}" if 0 <= class_id <= 65_535 else ""
        detail = f"class id {class_id} in a mask of {settings.bit_depth} bits{remedy}"
        raise RecordError(Reason.WRONG_TYPE, detail)


def placed_ids(ids: np.ndarray, geometry: Geometry, settings: MaskSettings) -> np.ndarray:
    """Returns class ids turned, cropped, scaled to the nearest pixel and padded, as the picture."""
    if settings.frame == "displayed" and not geometry.turned:
        ids = _turned(ids, turned_back_by(geometry.orientation))
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
