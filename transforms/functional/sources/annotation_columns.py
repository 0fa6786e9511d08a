"""Columns shared by the annotation formats: lists with one item per object.

`xmin ymin xmax ymax` are in the units of `box_units`; `labels` are class names.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from recordmill.schemas.rejects import Reason, RecordError

CORNERS = ("xmin", "ymin", "xmax", "ymax")
PIXEL, NORMALIZED = "pixel", "normalized"


class Box(NamedTuple):
    """The corners of a box, in the units of its source."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


def corners(boxes: list[Box], units: str) -> dict[str, Any]:
    """Returns the columns of a list of boxes.

    Args:
        boxes: the boxes of one image.
        units: `PIXEL` or `NORMALIZED`.

    >>> corners([Box(1.0, 2.0, 3.0, 4.0)], PIXEL)["ymax"]
    [4.0]
    """
    columns: dict[str, Any] = {name: [getattr(b, name) for b in boxes] for name in CORNERS}
    return {**columns, "box_units": units}


def number_of(value: Any, what: str) -> float:
    """Returns a value as a finite number.

    Args:
        value: a number, or text with one.
        what: the name of the value for error messages.

    Raises:
        RecordError: bad_box, if it is not a finite number.
    """
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        shown = repr(value)[:40]
        raise RecordError(Reason.BAD_BOX, f"{what}: expected a number, got {shown}")
    return number
