"""The vocabulary of boxes: corners, units and orders, and the columns by which sources yield them.

A box is `(xmin, ymin, xmax, ymax)`. A row has one list per corner, and one text with their units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from recordmill.schemas.errors import UsageError
from recordmill.schemas.origins import BOX_SIDES
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import Order

# xmin, ymin, xmax and ymax, in pixels or as fractions of the image.
Box: TypeAlias = tuple[float, float, float, float]

PIXEL: Final = "pixel"
NORMALIZED: Final = "normalized"
UNITS = (PIXEL, NORMALIZED)

# A box without coordinates, which the schema drops or rejects when the image is read.
NO_BOX: Box = (math.nan,) * 4

# The columns of boxes that sources of annotations yield.
BOX_COLUMNS = (*BOX_SIDES, "box_units")


def box_columns(boxes: list[Box], units: str | None = None) -> dict[str, Any]:
    """Converts the boxes of an image to `BOX_COLUMNS`: one list per side, and their units.

    A format whose boxes should be pixels, but often are fractions, does not state them.

    >>> box_columns([(1.0, 2.0, 3.0, 4.0)])["ymax"]
    [4.0]
    """
    columns: dict[str, Any] = {name: [box[i] for box in boxes] for i, name in enumerate(BOX_SIDES)}
    return {**columns, "box_units": units}


def number_of(value: Any, what: str) -> float:
    """Converts a number or its text to a finite number; raises bad_box, with `what` it is."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        shown = repr(value)[:40]
        raise RecordError(Reason.BAD_BOX, f"{what}: expected a number, got {shown}")
    return number


def check_no_corners(path: str, annotations: Sequence[Mapping[str, Any]]) -> None:
    """Raises UsageError if the `area` of most shows that `bbox` is two corners."""
    found = [_are_corners(one.get("bbox"), one.get("area")) for one in annotations]
    if 2 * found.count(True) > len(found) and False not in found:
        shown = annotations[found.index(True)]["bbox"]
        what = f"expected bbox as [x, y, width, height]; by its area, {shown} is two corners"
        raise UsageError(f"{path}: {what}. Correct it, or remove 'area' if that is wrong.")


def _are_corners(box: Any, area: Any) -> bool | None:
    """Returns whether a box is two corners, by its area; None if it fits neither form."""
    if not isinstance(box, list) or len(box) != 4:
        return None
    try:
        x, y, right, bottom, stated = (number_of(value, "") for value in (*box, area))
    except RecordError:
        return None
    sizes = (right * bottom, (right - x) * (bottom - y))
    is_size, is_area = (math.isclose(size, stated, rel_tol=0.01) for size in sizes)
    return False if is_size else (right > x and bottom > y and is_area) or None


def box_of(read: Callable[[], Box], drops_invalid: bool) -> Box:
    """Returns a box; `NO_BOX` in place of an invalid one if such boxes are dropped later."""
    try:
        return read()
    except RecordError:
        if not drops_invalid:
            raise
        return NO_BOX


def box_around(points: Sequence[float]) -> Box:
    """Returns the box around points.

    >>> box_around([3, 0, 1, 5, 2, 2])
    (1, 0, 3, 5)
    """
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def turned(box: Box, degrees: float) -> list[float]:
    """Returns x and y of each corner of a box that is turned clockwise around its center.

    >>> turned((0, 0, 4, 2), 0), [round(n) for n in turned((0, 0, 4, 2), 90)]
    ([0, 0, 4, 0, 4, 2, 0, 2], [3, -1, 3, 3, 1, 3, 1, -1])
    """
    left, top, right, bottom = box
    if not degrees % 360:
        return [left, top, right, top, right, bottom, left, bottom]
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    angle, x, y = math.radians(degrees % 360), (left + right) / 2, (top + bottom) / 2
    cos, sin = math.cos(angle), math.sin(angle)
    around = [(a - x, b - y) for a, b in corners]
    return [n for a, b in around for n in (x + a * cos - b * sin, y + a * sin + b * cos)]


def polygons_around(box: Box) -> list[list[float]]:
    """Returns the outline of a box as COCO has it: [x1, y1, x2, y2, …] of a polygon.

    >>> polygons_around((1.0, 2.0, 3.0, 4.0)), polygons_around(NO_BOX)
    ([[1.0, 2.0, 3.0, 2.0, 3.0, 4.0, 1.0, 4.0]], [])
    """
    return [] if box is NO_BOX else [turned(box, 0)]


# From the four numbers of each order to a box.
TO_CORNERS: dict[Order, Callable[[float, float, float, float], Box]] = {
    "xyxy": lambda xmin, ymin, xmax, ymax: (xmin, ymin, xmax, ymax),
    "yxyx": lambda ymin, xmin, ymax, xmax: (xmin, ymin, xmax, ymax),
    "xywh": lambda left, top, width, height: (left, top, left + width, top + height),
    "cxcywh": lambda x, y, w, h: (x - w / 2, y - h / 2, x + w / 2, y + h / 2),
}


def convert_box(box: Box, order: str) -> Box:
    """Returns the four numbers of a box in an order: the inverse of `TO_CORNERS`.

    >>> convert_box((0.0, 0.5, 0.5, 1.0), "cxcywh")
    (0.25, 0.75, 0.5, 0.5)
    """
    xmin, ymin, xmax, ymax = box
    if order == "yxyx":
        return ymin, xmin, ymax, xmax
    if order == "xywh":
        return xmin, ymin, xmax - xmin, ymax - ymin
    if order == "cxcywh":
        return (xmin + xmax) / 2, (ymin + ymax) / 2, xmax - xmin, ymax - ymin
    return box
