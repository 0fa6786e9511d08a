"""A reference implementation of the geometry of boxes and masks, based on EXIF's table and sizes.

Shares no code with the project: an orientation is the side where row 0 and column 0 are displayed,
as in EXIF's table; the scale is the factor that covers, or fits within, the target size.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

SIDES = {  # EXIF 2.3, tag 0x0112: where the 0th row is seen, and the 0th column
    1: ("top", "left"),
    2: ("top", "right"),
    3: ("bottom", "right"),
    4: ("bottom", "left"),
    5: ("left", "top"),
    6: ("right", "top"),
    7: ("right", "bottom"),
    8: ("left", "bottom"),
}


@dataclass(frozen=True)
class Case:
    """An image, its settings, and the annotated image."""

    width: int
    height: int
    orientation: int
    image: dict[str, str | int]
    frame: str

    @property
    def shown(self) -> tuple[int, int]:
        """Width and height of the displayed image."""
        flat = SIDES[self.orientation][0] in ("top", "bottom")
        return (self.width, self.height) if flat else (self.height, self.width)

    @property
    def annotated(self) -> tuple[int, int]:
        """Width and height of the image that was annotated."""
        return self.shown if self.frame == "displayed" else (self.width, self.height)

    @property
    def turned(self) -> bool:
        """Whether the record's image is rotated upright."""
        return self.image.get("orientation", "apply") == "apply"


def seen_at(x: float, y: float, case: Case) -> tuple[float, float]:
    """Returns the displayed position of a point of the stored image."""
    row_side, column_side = SIDES[case.orientation]
    seen: dict[str, float] = {}
    for side, distance in ((row_side, y), (column_side, x)):  # from the side that it is named for
        if side in ("left", "right"):
            seen["x"] = distance if side == "left" else case.shown[0] - distance
        else:
            seen["y"] = distance if side == "top" else case.shown[1] - distance
    return seen["x"], seen["y"]


def stored_at(x: float, y: float, case: Case) -> tuple[float, float]:
    """Returns the stored position of a point of the displayed image."""
    row_side, column_side = SIDES[case.orientation]
    distance = {"top": y, "left": x, "bottom": case.shown[1] - y, "right": case.shown[0] - x}
    return distance[column_side], distance[row_side]


def placement(case: Case) -> tuple[tuple[int, int], tuple, tuple]:
    """Returns the record's size, the scale across and down, and the offset of the upright image."""
    width, height = case.shown if case.turned else (case.width, case.height)
    if "max_side" in case.image:
        factor = min(1.0, case.image["max_side"] / max(width, height))
        size = (width, height)
        if factor < 1:
            size = max(1, round(width * factor)), max(1, round(height * factor))
        return size, (Fraction(size[0], width), Fraction(size[1], height)), (0, 0)
    if "resize" not in case.image:
        return (width, height), (Fraction(1), Fraction(1)), (0, 0)
    asked, mode, *_ = str(case.image["resize"]).split()
    wide, high = (int(n) for n in asked.split("x"))
    across, down = Fraction(wide, width), Fraction(high, height)
    if mode == "crop":
        scale = max(across, down)
        return (
            (wide, high),
            (scale, scale),
            ((wide - width * scale) / 2, (high - height * scale) / 2),
        )
    if mode == "exact":
        return (wide, high), (across, down), (0, 0)
    factor = min(wide / width, high / height)
    content = max(1, round(width * factor)), max(1, round(height * factor))
    scales = Fraction(content[0], width), Fraction(content[1], height)
    if mode == "fit":
        return content, scales, (0, 0)
    left, top = round((wide - content[0]) / 2), round((high - content[1]) / 2)
    return (wide, high), scales, (left, top)


def expected_box(box: tuple[float, ...], case: Case) -> tuple[float, ...] | None:
    """Returns a box of the annotated image as fractions of the record's image, or None."""
    points = [(box[0], box[1]), (box[2], box[1]), (box[0], box[3]), (box[2], box[3])]
    if case.frame == "displayed" and not case.turned:
        points = [stored_at(x, y, case) for x, y in points]
    if case.frame == "stored" and case.turned:
        points = [seen_at(x, y, case) for x, y in points]
    (width, height), (across, down), (left, top) = placement(case)
    xs = sorted((float(across) * x + float(left)) / width for x, _ in points)
    ys = sorted((float(down) * y + float(top)) / height for _, y in points)
    found = (max(xs[0], 0), max(ys[0], 0), min(xs[-1], 1), min(ys[-1], 1))
    return found if found[0] < found[2] and found[1] < found[3] else None


def expected_mask(ids: np.ndarray, case: Case, padding: int = 0) -> np.ndarray:
    """Returns the class ids of each pixel of the record's image, pixel by pixel.

    Args:
        ids: of the annotated image, (height, width).
        case: the image.
        padding: id of pixels outside the image.
    """
    (width, height), (across, down), (left, top) = placement(case)
    upright = case.shown if case.turned else (case.width, case.height)
    made = np.full((height, width), padding, np.int64)
    half = Fraction(1, 2)
    ys = [(row + half - Fraction(top)) / down for row in range(height)]
    xs = [(column + half - Fraction(left)) / across for column in range(width)]
    inside = [(column, int(x)) for column, x in enumerate(xs) if 0 <= x < upright[0]]
    for row, y in enumerate(ys):
        if 0 <= y < upright[1]:
            for column, x in inside:
                made[row, column] = ids[_annotated_pixel(x, int(y), case)]
    return made


def _annotated_pixel(column: int, row: int, case: Case) -> tuple[int, int]:
    """Returns the row and column in the annotated image of a pixel of the upright image."""
    x, y = column + 0.5, row + 0.5
    if case.frame == "stored" and case.turned:
        x, y = stored_at(x, y, case)
    if case.frame == "displayed" and not case.turned:
        x, y = seen_at(x, y, case)
    return int(y), int(x)
