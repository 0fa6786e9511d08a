"""Builds segmentation masks, images whose pixels are class ids, from files or outlines of objects.

Ids are kept exactly, and colors are never converted. Outlines are in COCO's formats: polygons, run
lengths with or without compression, and segments, whose ids are the pixels of a file: the values of
a gray or palette PNG, or in color, red + 256 green + 65536 blue, as of panoptic masks. Run lengths
are in column-major order and begin with the background. Source: cocoapi, common/maskApi.c, which
also fills the polygons.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from PIL import Image
from pycocotools import mask as coco

from recordmill.schemas.features import Schema
from recordmill.schemas.origins import INSTANCES, Origin
from recordmill.schemas.records import FeatureValue, RowOutlines, StoredImage
from recordmill.schemas.rejects import Reason, RecordError, located
from recordmill.schemas.settings import CoordinateFrame, MaskSettings, RunOrder
from recordmill.transforms.functional.images import codecs, png
from recordmill.transforms.functional.images.geometry import (
    IGNORED,
    OTHER_GRAYS,
    CoordinateScale,
    Geometry,
    Size,
    coordinate_scale,
    geometry_of,
)
from recordmill.transforms.functional.images.pixels import turned
from recordmill.transforms.functional.values.boxes import Box, box_around
from recordmill.transforms.functional.values.typed import short_repr, to_number

_BITS, _MORE, _SIGN, _FIRST = 5, 0x20, 0x10, 48  # digits of compressed run lengths
_MAX_BITS = 60

_RUNS = re.compile(r"\s*\d{1,12}\s+\d{1,12}(?:\s+\d{1,12}\s+\d{1,12})*\s*", re.ASCII)

# Points per pixel of an edge of a polygon, `scale` in rleFrPoly of maskApi.c.
_POINTS_PER_PIXEL = 5

# Limit of edge points of all polygons of an image; maskApi.c allocates 16 bytes for each.
MAX_EDGE_POINTS = 2**25

# Limit of pixels of all objects of an image, including hidden pixels: a few seconds of work.
MAX_DRAWN_PIXELS = 2**33

# Polygons [[x1, y1, x2, y2, …], …], or run lengths {size: [height, width], counts}, whose counts
# are bytes if compressed, or else a list of integers, or the id {segment} of pixels of a file, or
# run lengths of Kaggle, {runs: [start, length, …], by_rows}, whose starts count from 1.
Outline: TypeAlias = "list[list[float]] | dict[str, Any]"


def are_runs(value: Any) -> bool:
    """Returns whether a value is run lengths of Kaggle: `1 3 10 5` are pixels 1 to 3, 10 to 14."""
    return isinstance(value, str) and bool(_RUNS.fullmatch(value))


def checked_outlines(values: Iterable[Any], run_order: RunOrder | None = None) -> list[Outline]:
    """Validates the outlines of a row, and converts them to values that Beam can serialize."""
    outlines = []
    for i, value in enumerate(values):
        with located(f"outline {i}"):
            outlines.append(_runs(value, run_order) if are_runs(value) else _checked(value))
    return outlines


def _runs(text: str, order: RunOrder | None) -> Outline:
    if order is None:
        why = "the order of pixels in run lengths is not stated"
        choice = "run_order=columns if they are numbered from top to bottom, as mostly at Kaggle"
        detail = f"{why}. Set --masks {choice}, or run_order=rows if from left to right."
        raise RecordError(Reason.WRONG_TYPE, detail)
    numbers = [*map(int, text.split())]
    starts, lengths = numbers[::2], numbers[1::2]
    ends = [0, *(start + length - 1 for start, length in zip(starts, lengths, strict=True))]
    if not all(end < start for end, start in zip(ends, starts, strict=False)) or 0 in lengths:
        detail = f"expected run lengths whose starts ascend from 1, got {short_repr(text)}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    return {"runs": numbers, "by_rows": order == "rows"}


def _checked(value: Any) -> Outline:
    if isinstance(value, Mapping) and "segment" in value:
        if not _are_counts([value["segment"]]):
            raise _invalid_outline(value)
        return {"segment": value["segment"]}
    if isinstance(value, Mapping):
        size, counts = value.get("size"), value.get("counts")
        if isinstance(counts, str):
            counts = counts.encode("ascii", "replace")
        if not _are_counts(size) or not (isinstance(counts, bytes) or _are_counts(counts)):
            raise _invalid_outline(value)
        return {"size": [*size], "counts": counts if isinstance(counts, bytes) else [*counts]}
    if isinstance(value, list | tuple) and not value:
        # CVAT writes [] for rectangles; drawing nothing would make them background.
        what = "is empty; expected polygons [[x, y, …], …] or {size, counts}"
        detail = f"{what}. Add the outline, or remove the annotation."
        raise RecordError(Reason.WRONG_TYPE, detail)
    if not isinstance(value, list | tuple):
        raise _invalid_outline(value)
    return [_polygon(polygon) for polygon in value]


def box_of_outline(value: Any) -> Box:
    """Returns the smallest box around an outline, in its units."""
    outline = _checked(value)
    if not isinstance(outline, dict):
        return box_around([side for polygon in outline for side in polygon])
    if len(outline.get("size", ())) != 2:
        raise _invalid_outline(value)
    height, width = outline["size"]
    boxes = list[Box]()
    for start, stop in _of_runs(_run_lengths(outline, (width, height)), (width, height)):
        if start < stop:
            left, right = start // height, (stop - 1) // height + 1
            rows = (start % height, (stop - 1) % height + 1) if right - left == 1 else (0, height)
            boxes.append((left, rows[0], right, rows[1]))
    if not boxes:
        raise _invalid_outline(value)
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def _are_counts(values: Any) -> TypeGuard[Sequence[int]]:
    return isinstance(values, list | tuple) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
        for value in values
    )


def _polygon(value: Any) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) < 6 or len(value) % 2:
        raise _invalid_outline(value)
    polygon = [to_number(number, is_text=False) for number in value]
    if not all(map(math.isfinite, polygon)):
        raise _invalid_outline(value)
    return polygon


def _drawn_objects(
    objects: Iterable[tuple[int, Outline]], size: Size, segments: np.ndarray | None
) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yields the class id of each object, and its runs of pixels in column-major order."""
    edge_points = pixels = 0
    for i, (class_id, outline) in enumerate(objects):
        with located(f"outline {i}"):
            edge_points += _edge_points(outline, size)
            if edge_points > MAX_EDGE_POINTS:
                raise _too_much_work(f"{MAX_EDGE_POINTS // _POINTS_PER_PIXEL:,} pixels of edges")
            spans = list(_spans(outline, size, segments))
            pixels += sum(stop - start for start, stop in spans)
            if pixels > MAX_DRAWN_PIXELS:
                raise _too_much_work(f"{MAX_DRAWN_PIXELS:,} pixels")
        yield class_id, spans


def _draw_segments(
    objects: list[tuple[int, Outline]], size: Size, segments: np.ndarray | None = None
) -> np.ndarray:
    """Draws objects to ids, uint16 (height, width): later ones cover earlier ones; 0 is none."""
    # Column-major like run lengths, so that each run is a single slice.
    by_columns = np.zeros(size[0] * size[1], np.uint16)
    for class_id, spans in _drawn_objects(objects, size, segments):
        for start, stop in spans:
            by_columns[start:stop] = class_id
    ids: np.ndarray = by_columns.reshape(size).T
    return ids


def _instance_masks(
    outlines: RowOutlines, geometry: Geometry, settings: MaskSettings, segments: np.ndarray | None
) -> Iterator[np.ndarray]:
    """Yields the mask of each object, 0 or 1, aligned with the image: uint8, (height, width)."""
    size = geometry.annotated(settings.frame)
    for _, spans in _drawn_objects(_in_pixels(outlines, geometry, settings), size, segments):
        by_columns = np.zeros(size[0] * size[1], np.uint8)
        for start, stop in spans:
            by_columns[start:stop] = 1
        yield _transform_ids(by_columns.reshape(size).T, geometry, settings.frame, padding=0)


def drawn_values(
    schema: Schema,
    outlines: RowOutlines,
    kept: Sequence[int] | None,
    geometry: Geometry,
    segments: np.ndarray | None,
) -> dict[str, FeatureValue]:
    """Returns the features with the masks of the objects `kept` (None for all), by name."""
    features = schema.features.items()
    origins = {n: f.source.origin for n, f in features if f.source.origin in INSTANCES}
    if not origins:
        return {}
    objects = outlines.objects if kept is None else [outlines.objects[i] for i in kept]
    if Origin.INSTANCE_IDS in origins.values() and len(objects) > schema.masks.max_id:
        detail = f"{len(objects)} objects in a mask of {schema.masks.bit_depth} bits"
        raise RecordError(Reason.WRONG_TYPE, f"{detail}. Set masks: {{bit_depth: 16}}.")
    found: dict[str, Any] = {name: [] for name in origins}
    depth = np.uint8 if schema.masks.bit_depth == 8 else np.uint16
    numbers = np.zeros(geometry.size[::-1], depth)
    outlines = outlines._replace(objects=objects)
    # One mask at a time is in memory.
    for i, mask in enumerate(_instance_masks(outlines, geometry, schema.masks, segments), start=1):
        for name, origin in origins.items():
            if origin is Origin.INSTANCE_IDS:
                numbers[mask > 0] = i
            else:
                found[name].append(_ENCODERS[origin](mask))
    ids = [name for name, origin in origins.items() if origin is Origin.INSTANCE_IDS]
    return found | {name: _png_of_ids(numbers) for name in ids}


def _compressed_runs(mask: np.ndarray) -> bytes:
    """Returns a mask as compressed run lengths of COCO, in JSON."""
    encoded = coco.encode(np.asfortranarray(mask))
    return json.dumps(
        {"size": [*map(int, encoded["size"])], "counts": encoded["counts"].decode("ascii")}
    ).encode("ascii")


def _png_of_ids(ids: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(ids).save(stream, "PNG")
    return stream.getvalue()


# How the mask of each object is stored.
_ENCODERS = {Origin.INSTANCE_PNG: _png_of_ids, Origin.INSTANCE_RLE: _compressed_runs}


def _edge_points(outline: Outline, size: Size) -> int:
    """Returns the number of edge points that maskApi.c allocates for an outline."""
    if isinstance(outline, dict):
        return 0
    far, pixels = 2 * max(size), 0.0
    for polygon in outline:
        corners = np.array(polygon).reshape(-1, 2)
        if (away := np.abs(corners) > far).any():
            detail = f"{corners[away][0]} is too far from the image of {size[0]} x {size[1]} pixels"
            raise RecordError(Reason.WRONG_TYPE, detail)
        # rleFrPoly steps along the longer axis of each edge, between adjacent corners.
        pixels += float(np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum())
    return int(pixels * _POINTS_PER_PIXEL)


def _spans(
    outline: Outline, size: Size, segments: np.ndarray | None = None
) -> Iterator[tuple[int, int]]:
    """Yields the start and stop of each run of pixels inside an outline, in column-major order."""
    if isinstance(outline, dict) and outline.keys() & {"segment", "runs"}:
        if "runs" in outline:
            inside = _inside_runs(outline, size)
        else:
            ids = np.zeros(0) if segments is None else segments.T.reshape(-1)
            inside = ids == outline["segment"]
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False)).tolist()
        if not edges:
            detail = f"no pixel of the mask has the id {outline['segment']}"
            raise RecordError(Reason.WRONG_TYPE, detail)
        yield from zip(edges[::2], edges[1::2], strict=True)
        return
    if isinstance(outline, dict):
        yield from _of_runs(_run_lengths(outline, size), size)
        return
    for polygon in outline:
        # Polygons are drawn one over the other, which is their union.
        (found,) = coco.frPyObjects([polygon], size[1], size[0])
        yield from _of_runs(_decompress_counts(found["counts"]), size)


def _inside_runs(outline: Mapping[str, Any], size: Size) -> np.ndarray:
    """Returns whether each pixel is in run lengths of Kaggle, in column-major order."""
    starts, lengths = outline["runs"][::2], outline["runs"][1::2]
    last, pixels = starts[-1] + lengths[-1] - 1, size[0] * size[1]
    if last > pixels:
        detail = f"run lengths up to pixel {last}; the image has {pixels}"
        raise RecordError(Reason.INVALID_DIMENSIONS, detail)
    inside = np.zeros(pixels, bool)
    for start, length in zip(starts, lengths, strict=True):
        inside[start - 1 : start - 1 + length] = True
    return inside.reshape(size[::-1]).T.reshape(-1) if outline["by_rows"] else inside


def _run_lengths(outline: Mapping[str, Any], size: Size) -> list[int]:
    stated, counts = outline["size"], outline["counts"]
    if stated != [size[1], size[0]]:
        detail = f"run lengths: expected height and width {list(size[::-1])}, got {stated}"
        raise RecordError(Reason.INVALID_DIMENSIONS, detail)
    return _decompress_counts(counts) if isinstance(counts, bytes) else counts


def _decompress_counts(counts: bytes) -> list[int]:
    """Decodes compressed run lengths like rleFrString in maskApi.c."""
    # A number is a sequence of characters, each 48 plus a digit of 5 bits, lowest digit first. Bit
    # 5 indicates that more digits follow; bit 4 of the last digit is the sign. From the fourth run
    # on, a number is the difference from the second-to-last run, which is of the same kind
    # (foreground or background) and so has a similar length.
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
    """Yields the start and stop of each run of the foreground, which is every second run."""
    pixels = size[0] * size[1]
    # Checked before drawing, because slices with negative bounds would wrap around.
    if not all(0 <= run <= pixels for run in runs) or sum(runs) != pixels:
        raise RecordError(Reason.WRONG_TYPE, f"run lengths that do not add up to {pixels} pixels")
    ends = list(accumulate(runs))
    yield from zip(ends[::2], ends[1::2], strict=False)  # the last run may be background


def _too_much_work(what: str) -> RecordError:
    return RecordError(Reason.TOO_MANY_PIXELS, f"the objects have more than {what} in total")


def _invalid_outline(value: Any) -> RecordError:
    detail = f"expected polygons [[x, y, …], …] or {{size, counts}}, got {short_repr(value)}"
    return RecordError(Reason.WRONG_TYPE, detail)


def _check_format(data: bytes) -> None:
    format_ = codecs.sniffed_format(data)
    if format_ != "png":
        remedy = "Store masks as PNG, which keeps class ids"
        detail = f"expected a PNG as mask, got {format_}. {remedy}."
        raise RecordError(Reason.UNSUPPORTED_FORMAT, detail)


def examine_mask_in_process(data: bytes) -> png.PngHeader | None:
    """Reads the header of a mask file; returns None for a file over the work limits."""
    _check_format(data)
    source = codecs.examine_in_process(data)
    if isinstance(source, codecs.Png) and source.work <= codecs.MAX_WORK:
        return source.header
    return None


def mask_from_file(
    data: bytes,
    image: StoredImage,
    schema: Schema,
    header: png.PngHeader | None = None,
    classes: int = 0,
) -> tuple[bytes, tuple[str, ...]]:
    """Builds the mask of a record from a file: a PNG with one channel, aligned with the image.

    Also returns `IGNORED` and `OTHER_GRAYS`, as they apply. The values or palette indexes of the
    file are class ids, of which the largest is the one that losses ignore. `classes` is 0 if their
    number is not known.
    """
    settings = schema.masks
    geometry = geometry_of(image.source_size, image.orientation, schema.image)
    # Ids, not colors, are transformed: resampling a palette image would mix classes.
    ids = _read_ids(data, geometry.annotated(settings.frame), settings.frame, header)
    if classes and (unknown := ids[(ids >= classes) & (ids != settings.max_id)]).size:
        expected = f"0 to {classes - 1}, or {settings.max_id} (ignored)"
        raise RecordError(Reason.UNKNOWN_LABEL, f"id {unknown.min()} is not within {expected}")
    others = ids[(ids != 0) & (ids != settings.max_id)]
    # Smooth edges of a foreground have ids up to it.
    is_edge = not others.size or (not classes and others.max() > settings.max_id // 2)
    remarks = (IGNORED,) * bool(is_edge and np.count_nonzero(ids) > 2 * others.size)
    remarks += (OTHER_GRAYS,) * _has_other_grays(png.palette_of(data), ids)
    return _encode_mask(ids, geometry, settings), remarks


def _has_other_grays(palette: bytes, ids: np.ndarray) -> bool:
    """Returns whether ids, as indexes, have grays of other numbers, as optimizers of PNG write."""
    colors = np.frombuffer(palette, np.uint8).reshape(-1, 3).astype(int)
    used = np.flatnonzero(np.bincount(ids.ravel(), minlength=len(colors))[: len(colors)])
    grays = colors[used, 0]
    # From black to white, as of a binary mask, grays only show the ids.
    is_shown = (grays == used).all() or (grays * used[-1] == used * 255).all()
    return bool((colors[used] == colors[used, :1]).all() and not is_shown)


def read_segments(
    data: bytes, image: StoredImage, schema: Schema, header: png.PngHeader | None = None
) -> np.ndarray:
    """Reads the ids of segments of a PNG, aligned with the annotated image: (height, width)."""
    geometry = geometry_of(image.source_size, image.orientation, schema.image)
    size, frame = geometry.annotated(schema.masks.frame), schema.masks.frame
    return np.asfortranarray(_read_ids(data, size, frame, header, ("1", "L", "P", "I;16", "RGB")))


def check_segments(outlines: RowOutlines, segments: np.ndarray) -> None:
    """Rejects a panoptic mask with a segment that no object has; 0 is no segment."""
    if segments.dtype == np.uint32:
        listed = {outline.get("segment") for _, outline in outlines.objects}
        ids = segments.T.reshape(-1)
        ends = np.append(ids[1:] != ids[:-1], True)  # of runs: far fewer to sort than pixels
        if others := set(np.unique(ids[ends]).tolist()) - listed - {0}:
            detail = f"the mask has pixels of the id {min(others)}, which no object has"
            raise RecordError(Reason.WRONG_TYPE, detail)


def mask_from_outlines(
    outlines: RowOutlines, image: StoredImage, schema: Schema, segments: np.ndarray | None = None
) -> bytes:
    """Builds the mask of a record from the outlines of objects: a PNG aligned with the image."""
    geometry = geometry_of(image.source_size, image.orientation, schema.image)
    for class_id, _ in outlines.objects:
        _check_id(class_id, schema.masks)
    objects = _in_pixels(outlines, geometry, schema.masks)
    ids = _draw_segments(objects, geometry.annotated(schema.masks.frame), segments)
    return _encode_mask(ids, geometry, schema.masks)


def _in_pixels(
    outlines: RowOutlines, geometry: Geometry, settings: MaskSettings
) -> list[tuple[int, Outline]]:
    objects = outlines.objects
    if objects and (scale := coordinate_scale(outlines, geometry, settings.frame))[:2] != (1, 1):
        return [(class_id, _scaled(outline, scale)) for class_id, outline in objects]
    return objects


def _scaled(outline: Outline, scale: CoordinateScale) -> Outline:
    """Returns an outline in pixels; run lengths are of pixels, and state the size they fit."""
    if isinstance(outline, dict):
        if "runs" in outline:
            detail = "run lengths of an image that is stated to have another size"
            raise RecordError(Reason.INVALID_DIMENSIONS, detail)
        return outline
    return [
        [number * (scale.y if i % 2 else scale.x) for i, number in enumerate(polygon)]
        for polygon in outline
    ]


def _read_ids(
    data: bytes,
    size: Size,
    frame: str,
    header: png.PngHeader | None = None,
    modes: tuple[str, ...] = ("1", "L", "P", "I;16"),
) -> np.ndarray:
    """Reads the ids of a PNG: uint8 or uint16, or uint32 if it is in color, (height, width)."""
    if header is None:
        _check_format(data)
        header = png.examine(data)
    if header.mode not in modes or (header.mode == "RGB" and header.depth == 16):
        detail = f"expected a gray or palette PNG of ids as mask, got mode {header.mode}"
        detail += ". Write the id of each color" * (header.mode in ("RGB", "RGBA"))
        raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)
    if (header.width, header.height) != size:
        detail = f"{header.width} x {header.height} pixels; its image is {size[0]} x {size[1]}"
        raise RecordError(Reason.INVALID_DIMENSIONS, f"{detail} as {frame} (masks: frame)")
    png.check_rows(data, header)
    with codecs.opened(png.keep_pixel_data(data, header), "png") as image:
        if header.mode == "RGB":
            colors: np.ndarray = np.asarray(image, np.uint32) << np.array([0, 8, 16], np.uint32)
            packed: np.ndarray = colors.sum(axis=2, dtype=np.uint32)
            return packed
        ids = np.asarray(image, np.uint16 if header.depth == 16 else np.uint8)
    # Pillow scales gray samples of 2 and 4 bits to 0…255: undo it, to get the stored values.
    scaled = header.mode == "L" and header.depth < 8
    return ids // (255 // (2**header.depth - 1)) if scaled else ids


def _encode_mask(ids: np.ndarray, geometry: Geometry, settings: MaskSettings) -> bytes:
    """Transforms class ids like their image, and encodes them as a PNG."""
    _check_id(int(ids.max()), settings)
    dtype = np.uint8 if settings.bit_depth == 8 else np.uint16
    ids = ids.astype(dtype, copy=False)
    return _png_of_ids(_transform_ids(ids, geometry, settings.frame, settings.padding))


def _check_id(class_id: int, settings: MaskSettings) -> None:
    if not 0 <= class_id <= settings.max_id:
        remedy = ". Set masks: {bit_depth: 16}." if 0 <= class_id <= 65_535 else ""
        detail = f"class id {class_id} in a mask of {settings.bit_depth} bits{remedy}"
        raise RecordError(Reason.WRONG_TYPE, detail)


def _transform_ids(
    ids: np.ndarray, geometry: Geometry, frame: CoordinateFrame, padding: int
) -> np.ndarray:
    """Transforms ids like their image, with nearest-neighbor scaling."""
    # Same order as for the image: orient, then crop and scale by `_nearest_pixels`, then pad.
    ids = turned(ids, geometry.turn(frame))
    if geometry.content != geometry.upright:
        columns, rows = _nearest_pixels(geometry)
        ids = ids[np.ix_(rows, columns)]
    padded = np.full(geometry.size[::-1], padding, ids.dtype)
    (left, top), (width, height) = geometry.offset, geometry.content
    padded[top : top + height, left : left + width] = ids
    return padded


def _nearest_pixels(geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Returns the source column of each target column, and the source row of each target row.

    The source pixel is the one below the center of the target pixel: between two, the right or
    lower one.
    """
    left, top, right, bottom = geometry.crop
    across = _centers(geometry.content[0], left, right)
    return across, _centers(geometry.content[1], top, bottom)


def _centers(number: int, start: Fraction, stop: Fraction) -> np.ndarray:
    """Returns the source position of each target pixel along one axis: int64[number]."""
    # floor(start + (i + 1/2) * step) for i < number, as integers over a common denominator. Floats
    # would be rounded to the wrong pixel where a center is exactly between two.
    step = (stop - start) / number
    first = start + step / 2
    denominator = first.denominator * step.denominator
    begin = first.numerator * step.denominator
    stride = step.numerator * first.denominator
    found: np.ndarray = (begin + np.arange(number) * stride) // denominator
    return found
