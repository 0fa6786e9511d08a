"""Objects' outlines as COCO writes them: polygons, and run lengths, compressed or not.

Runs go down the columns, from left to right, and begin with the background.
Source: cocoapi, common/maskApi.c; polygons are filled by that code itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from pycocotools import mask as coco

from schemas.rejects import Reason, RecordError
from transforms.functional.pictures.geometry import Size

_BITS, _MORE, _SIGN, _FIRST = 5, 0x20, 0x10, 48
_MAX_BITS = 60


def drawn(segments: list[tuple[int, Any]], size: Size) -> np.ndarray:
    """Returns the class of each pixel, the later objects over the earlier: uint16, (height, width).

    Args:
        segments: class id, up to 65535, and outline of each object; what is in none is 0.
        size: width and height of the picture that the outlines were drawn on.

    Raises:
        RecordError: wrong_type, for what is no outline; invalid_dimensions, for run lengths of
            another size.
    """
    width, height = size
    by_columns = np.zeros(width * height, np.uint16)
    for i, (class_id, outline) in enumerate(segments):
        try:
            by_columns[_inside(outline, size)] = class_id
        except RecordError as error:
            raise RecordError(error.reason, f"outline {i}: {error.detail}") from None
    drawn_: np.ndarray = by_columns.reshape(width, height).T
    return drawn_


def _inside(outline: Any, size: Size) -> np.ndarray:
    """Returns which pixels an outline encloses, column by column: bool."""
    if isinstance(outline, Mapping):
        return _of_runs(_run_lengths(outline, size), size)
    return _of_polygons(outline, size)


def _of_polygons(polygons: Any, size: Size) -> np.ndarray:
    """Returns the union of polygons, each a flat list of x and y."""
    inside = np.zeros(size[0] * size[1], bool)
    for polygon in _checked(polygons, size):
        (found,) = coco.frPyObjects([polygon], size[1], size[0])
        inside |= _of_runs(decompressed(found["counts"]), size)
    return inside


def _checked(polygons: Any, size: Size) -> list[list[float]]:
    """Refuses what the native code would not survive, or take for a box."""
    far = 2 * max(size)
    if not isinstance(polygons, list | tuple) or not polygons:
        raise _no_outline(polygons)
    for polygon in polygons:
        if not isinstance(polygon, list | tuple) or len(polygon) < 6 or len(polygon) % 2:
            raise _no_outline(polygon)
        for number in polygon:
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise _no_outline(polygon)
            if not math.isfinite(number) or not -far <= number <= far:
                detail = f"{number} is no place on a picture of {size[0]} x {size[1]} pixels"
                raise RecordError(Reason.WRONG_TYPE, detail)
    return [[float(number) for number in polygon] for polygon in polygons]


def _run_lengths(outline: Mapping[str, Any], size: Size) -> list[int]:
    stated, counts = outline.get("size"), outline.get("counts")
    if not isinstance(stated, list | tuple) or counts is None:
        raise _no_outline(outline)
    if list(stated) != [size[1], size[0]]:
        detail = f"run lengths of height and width {list(stated)}; the picture is {size[::-1]}"
        raise RecordError(Reason.INVALID_DIMENSIONS, detail)
    if isinstance(counts, str):
        counts = counts.encode("ascii", "replace")
    return decompressed(counts) if isinstance(counts, bytes) else list(counts)


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


def _of_runs(runs: list[Any], size: Size) -> np.ndarray:
    """Returns the pixels of run lengths, which have to fill the picture.

    Raises:
        RecordError: wrong_type, if they do not.
    """
    pixels = size[0] * size[1]
    whole = all(isinstance(run, int) and 0 <= run <= pixels for run in runs)
    if not whole or sum(runs) != pixels:
        raise RecordError(Reason.WRONG_TYPE, f"run lengths that do not add up to {pixels} pixels")
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def _no_outline(value: Any) -> RecordError:
    shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:80] + "…"
    detail = f"expected polygons [[x, y, …], …] or {{size, counts}}, got {shown}"
    return RecordError(Reason.WRONG_TYPE, detail)
