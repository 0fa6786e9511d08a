"""Segmentation masks: images whose pixels are class ids, from files or from objects' outlines.

Ids are kept exactly; colors are never converted. Outlines are those of COCO: polygons, and run
lengths, compressed or not. Runs are in column-major order and start with the background.
Source: cocoapi, common/maskApi.c, which also fills the polygons.
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
"""Points per pixel of a polygon's edge in maskApi.c (`scale` in rleFrPoly)."""

MAX_EDGE_POINTS = 2**25
"""Edge points of all polygons of an image: maskApi.c allocates 16 bytes for each, unchecked."""

MAX_DRAWN_PIXELS = 2**33
"""Pixels of all objects of an image, including overlapped ones: some seconds of work."""

Outline: TypeAlias = "list[list[float]] | dict[str, Any]"
"""Polygons, each a flat list of x and y; or run lengths: {size: [height, width], counts}, with
counts as bytes if compressed, and as integers otherwise."""


def checked_outlines(values: Iterable[Any]) -> list[Outline]:
    """Returns the outlines of a row, validated, as values that Beam can serialize.

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
        raise _invalid_outline(value)
    return [_polygon(polygon) for polygon in value]


def _polygon(value: Any) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) < 6 or len(value) % 2:
        raise _invalid_outline(value)
    polygon = [to_number(number, is_text=False) for number in value]
    if not all(map(math.isfinite, polygon)):
        raise _invalid_outline(value)
    return polygon


def _size_of(outline: Mapping[str, Any]) -> list[int]:
    size = outline.get("size")
    if not isinstance(size, list | tuple) or not all(map(_is_count, size)):
        raise _invalid_outline(outline)
    return list(size)


def _counts_of(outline: Mapping[str, Any]) -> bytes | list[int]:
    counts = outline.get("counts")
    if isinstance(counts, str):
        return counts.encode("ascii", "replace")
    if isinstance(counts, bytes):
        return counts
    if not isinstance(counts, list | tuple) or not all(map(_is_count, counts)):
        raise _invalid_outline(outline)
    return list(counts)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def draw_segments(segments: list[tuple[int, Outline]], size: Size) -> np.ndarray:
    """Returns the class id of each pixel: uint16, (height, width).

    Later objects cover earlier ones.

    Args:
        segments: class id, up to 65535, and outline of each object; other pixels are 0.
        size: width and height of the annotated image.

    Raises:
        RecordError: wrong_type, for points far from the image, or run lengths that do not fill
            it; invalid_dimensions, for run lengths of another size; too_many_pixels, for outlines
            beyond the work limits.
    """
    width, height = size
    # Column-major, as run lengths are: each run is one slice.
    by_columns = np.zeros(width * height, np.uint16)
    edge_points = pixels = 0
    for i, (class_id, outline) in enumerate(segments):
        try:
            edge_points += _edge_points(outline, size)
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


def _edge_points(outline: Outline, size: Size) -> int:
    """Returns the number of edge points that maskApi.c allocates for an outline.

    Raises:
        RecordError: wrong_type, for a point far from the image, which maskApi.c cannot handle.
    """
    if isinstance(outline, dict):
        return 0
    far, pixels = 2 * max(size), 0.0
    for polygon in outline:
        corners = np.array(polygon).reshape(-1, 2)
        if (away := np.abs(corners) > far).any():
            detail = f"{corners[away][0]} is too far from the image of {size[0]} x {size[1]} pixels"
            raise RecordError(Reason.WRONG_TYPE, detail)
        # rleFrPoly steps along the longer axis of each edge.
        pixels += float(np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum())
    return int(pixels * _POINTS_A_PIXEL)


def _spans(outline: Outline, size: Size) -> Iterator[tuple[int, int]]:
    """Yields the start and stop of each run of an outline's pixels, in column-major order."""
    if isinstance(outline, dict):
        yield from _of_runs(_run_lengths(outline, size), size)
        return
    for polygon in outline:
        # One polygon at a time: parts of an object are joined by drawing them one over the other.
        (found,) = coco.frPyObjects([polygon], size[1], size[0])
        yield from _of_runs(decompress_counts(found["counts"]), size)


def _run_lengths(outline: Mapping[str, Any], size: Size) -> list[int]:
    stated, counts = outline["size"], outline["counts"]
    if stated != [size[1], size[0]]:
        detail = f"run lengths of height and width {stated}; the image is {size[::-1]}"
        raise RecordError(Reason.INVALID_DIMENSIONS, detail)
    return decompress_counts(counts) if isinstance(counts, bytes) else counts


def decompress_counts(counts: bytes) -> list[int]:
    """Returns the run lengths of COCO's compressed form, as rleFrString in maskApi.c decodes it.

    Raises:
        RecordError: wrong_type, if the last number is truncated.
    """
    # Each character less 48 has 5 bits of a number, the lowest first; bit 5 says that more follow,
    # and bit 4 of the last character is the sign. From the fourth run on, numbers are differences
    # to the run before the last: runs of one kind, foreground or background, have similar lengths.
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
        raise RecordError(Reason.WRONG_TYPE, "truncated compressed run lengths")
    return runs


def _of_runs(runs: list[int], size: Size) -> Iterator[tuple[int, int]]:
    """Yields the start and stop of every second run, the foreground.

    Raises:
        RecordError: wrong_type, if the runs do not fill the image.
    """
    pixels = size[0] * size[1]
    # Checked before any run is drawn: a negative or too long run would wrap around in the slices.
    if not all(0 <= run <= pixels for run in runs) or sum(runs) != pixels:
        raise RecordError(Reason.WRONG_TYPE, f"run lengths that do not add up to {pixels} pixels")
    ends = list(accumulate(runs))
    yield from zip(ends[::2], ends[1::2], strict=False)  # the last run may be of the background


def _too_much_work(what: str) -> RecordError:
    return RecordError(Reason.TOO_MANY_PIXELS, f"the objects have more than {what} in total")


def _invalid_outline(value: Any) -> RecordError:
    detail = f"expected polygons [[x, y, …], …] or {{size, counts}}, got {shown(value)}"
    return RecordError(Reason.WRONG_TYPE, detail)


def examine_mask(data: bytes, bounded: bool = False) -> png.PngHeader:
    """Returns the header of a mask file.

    Args:
        data: the file.
        bounded: whether to stop at the limits on chunks.

    Raises:
        WorkLimitError: beyond the limits.
        RecordError: if it is not a PNG, or damaged.
    """
    format_ = sniffed_format(data)
    if format_ != "png":
        raise RecordError(Reason.UNSUPPORTED_FORMAT, f"{format_}; a mask must be a PNG")
    return png.examine(data, bounded)


def examine_mask_in_process(data: bytes) -> png.PngHeader | None:
    """Returns the header of a mask file within the work limits; None otherwise.

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
    """Returns the mask of a record from a file: a PNG of one channel, aligned with the image.

    Args:
        data: a gray or palette PNG, whose values or indexes are class ids.
        image: the image of the record.
        schema: the schema of the dataset.
        header: the file's header, if it has been examined.

    Raises:
        RecordError: if the file is not such a PNG, is damaged, or has another size than the image.
    """
    geometry = geometry_of(image.source_size, image.orientation, schema.image)
    # Read at full size and transformed as class ids: resampling a palette image would mix classes.
    ids = read_ids(data, annotated_size(geometry, schema.masks), schema.masks.frame, header)
    return encode_mask(ids, geometry, schema.masks)


def mask_from_outlines(
    segments: list[tuple[int, Outline]], image: StoredImage, schema: Schema
) -> bytes:
    """Returns the mask of a record from objects' outlines: a PNG aligned with the image.

    Args:
        segments: class id and outline of each object.
        image: the image of the record.
        schema: the schema of the dataset.

    Raises:
        RecordError: if an outline is invalid or has another size than the image, or an id exceeds
            the bit depth.
    """
    geometry = geometry_of(image.source_size, image.orientation, schema.image)
    for class_id, _ in segments:
        check_id(class_id, schema.masks)
    ids = draw_segments(segments, annotated_size(geometry, schema.masks))
    return encode_mask(ids, geometry, schema.masks)


def annotated_size(geometry: Geometry, settings: MaskSettings) -> Size:
    """Returns the width and height of the annotated image.

    Args:
        geometry: the transform of the image.
        settings: options of the schema.
    """
    return geometry.displayed if settings.frame == "displayed" else geometry.stored


def read_ids(
    data: bytes, size: Size, frame: str, header: png.PngHeader | None = None
) -> np.ndarray:
    """Returns the class ids of a PNG: uint8 or uint16, (height, width).

    Args:
        data: the file.
        size: the expected width and height.
        frame: the annotated image, "displayed" or "stored", for messages.
        header: the file's header, if it has been examined.

    Raises:
        RecordError: if it is not a gray or palette PNG, is damaged, or has another size.
    """
    header = header or examine_mask(data)
    if header.mode not in ("1", "L", "P", "I;16"):
        detail = f"PNG with mode {header.mode}; a mask must have one channel, gray or palette"
        raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)
    if (header.width, header.height) != size:
        detail = f"{header.width} x {header.height} pixels; its image is {size[0]} x {size[1]}"
        raise RecordError(Reason.INVALID_DIMENSIONS, f"{detail} as {frame} (masks: frame)")
    png.check_rows(data, header)
    with opened(png.keep_pixel_data(data, header), "png") as image:
        ids = np.asarray(image, np.uint16 if header.depth == 16 else np.uint8)
    scaled = header.mode == "L" and header.depth < 8  # Pillow scales gray of 2 and 4 bits to 8
    return ids // (255 // (2**header.depth - 1)) if scaled else ids


def encode_mask(ids: np.ndarray, geometry: Geometry, settings: MaskSettings) -> bytes:
    """Returns class ids as a PNG, transformed as the image was.

    Args:
        ids: class ids on the annotated image, (height, width).
        geometry: the transform of the image.
        settings: options of the schema.

    Raises:
        RecordError: wrong_type, if an id exceeds the bit depth.
    """
    check_id(int(ids.max()), settings)
    dtype = np.uint8 if settings.bit_depth == 8 else np.uint16
    placed = transform_ids(ids.astype(dtype, copy=False), geometry, settings)
    stream = io.BytesIO()
    Image.fromarray(placed).save(stream, "PNG")
    return stream.getvalue()


def check_id(class_id: int, settings: MaskSettings) -> None:
    """Rejects a class id that exceeds the bit depth of masks.

    Args:
        class_id: the class id.
        settings: options of the schema.

    Raises:
        RecordError: wrong_type.
    """
    if not 0 <= class_id <= settings.max_id:
        remedy = "; set masks: {bit_depth: 16}" if 0 <= class_id <= 65_535 else ""
        detail = f"class id {class_id} in a mask of {settings.bit_depth} bits{remedy}"
        raise RecordError(Reason.WRONG_TYPE, detail)


def transform_ids(ids: np.ndarray, geometry: Geometry, settings: MaskSettings) -> np.ndarray:
    """Returns class ids transformed as the image was, with nearest-neighbor scaling.

    Args:
        ids: class ids on the annotated image, (height, width).
        geometry: the transform of the image.
        settings: options of the schema.
    """
    # The annotated image and the record's image may differ in orientation: turn the ids, then crop
    # and scale by `nearest_pixels`, then pad.
    if settings.frame == "displayed" and not geometry.turned:
        ids = _turned(ids, inverse_orientation(geometry.orientation))
    elif settings.frame == "stored" and geometry.turned:
        ids = _turned(ids, geometry.orientation)
    if geometry.content != geometry.upright:
        columns, rows = nearest_pixels(geometry)
        ids = ids[np.ix_(rows, columns)]
    padded = np.full(geometry.size[::-1], settings.padding, ids.dtype)
    (left, top), (width, height) = geometry.offset, geometry.content
    padded[top : top + height, left : left + width] = ids
    return padded


def nearest_pixels(geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Returns the source column of each content column, and the source row of each content row.

    It is the pixel under the center of the new one; between two, the right or lower one.
    """
    left, top, right, bottom = geometry.crop
    across = _middles(geometry.content[0], left, right)
    down = _middles(geometry.content[1], top, bottom)
    return across, down


def _middles(number: int, start: Fraction, stop: Fraction) -> np.ndarray:
    # floor(start + (i + 1/2) * step) for all i, in integers over a common denominator: floats would
    # round to the wrong pixel where a center falls exactly between two.
    step = (stop - start) / number
    first = start + step / 2
    denominator = first.denominator * step.denominator
    begin = first.numerator * step.denominator
    stride = step.numerator * first.denominator
    found: np.ndarray = (begin + np.arange(number) * stride) // denominator
    return found


def _turned(ids: np.ndarray, orientation: int) -> np.ndarray:
    """Returns class ids with an EXIF orientation applied."""
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
