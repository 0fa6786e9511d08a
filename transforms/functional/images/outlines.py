"""Objects' outlines as COCO writes them: polygons, and run lengths, compressed or not.

Runs go down the columns, from left to right, and begin with the background.
Source: cocoapi, common/maskApi.c; polygons are filled by that code itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from pycocotools import mask as coco

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.geometry import Size
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
        size: width and height of the picture that the outlines were drawn on.

    Raises:
        RecordError: wrong_type, for points far from the picture, or run lengths that do not fill
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
            detail = f"{corners[away][0]} is no place on a picture of {size[0]} x {size[1]} pixels"
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
        detail = f"run lengths of height and width {stated}; the picture is {size[::-1]}"
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
    """Yields where every second run begins and ends; all together have to fill the picture.

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
