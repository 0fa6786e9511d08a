"""Boxes on their way into a record: checked, moved with their image, and made fractions of it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

from recordmill.schemas.features import BOX_SIDES, Feature, Origin
from recordmill.schemas.records import FeatureValue, RowBoxes
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import BoxSettings
from recordmill.transforms.functional.images.geometry import Box, Geometry, Size, turned_box

_ROUNDING = 1e-6  # of an image's side: what six decimals leave of a box that ends at its edge

CLIPPED = "boxes clipped"
DROPPED = "boxes dropped"
CROPPED_OFF = "boxes cropped off"


class PlacedBoxes(NamedTuple):
    """The boxes that a record holds.

    Attributes:
        boxes: as fractions of the record's image.
        kept: the number of each within its row.
        area_scale: how many pixels of the record's image one unit of area became.
        remarks: what was done to some of them, in words, to be counted by.
    """

    boxes: list[Box]
    kept: list[int]
    area_scale: float
    remarks: tuple[str, ...]


class _Record(NamedTuple):
    """What of a geometry places turned boxes, in floats: worked out once for all of an image's."""

    crop: Box
    scale: tuple[float, float]
    offset: tuple[int, int]
    size: Size

    @classmethod
    def of(cls, geometry: Geometry) -> _Record:
        left, top, right, bottom = map(float, geometry.crop)
        return cls((left, top, right, bottom), geometry.scale, geometry.offset, geometry.size)


def place_boxes(row: RowBoxes, geometry: Geometry, settings: BoxSettings) -> PlacedBoxes:
    """Returns a row's boxes on the image as the record holds it.

    Args:
        row: two corners of each box, in pixels or as fractions of the image that was annotated.
        geometry: what was done to the image.
        settings: which image was annotated, and what becomes of bad boxes.

    Raises:
        RecordError: bad_box, if the settings reject one.
    """
    annotated = geometry.displayed if settings.frame == "displayed" else geometry.stored
    unit = annotated if row.units == "normalized" else (1, 1)
    onto = _Record.of(geometry)
    placed, kept, remarks = list[Box](), list[int](), set[str]()
    for i, box in enumerate(row.boxes):
        checked = _checked(_scaled(box, unit), annotated, settings, i, remarks)
        if checked is None:
            remarks.add(DROPPED)
            continue
        moved = _moved(turned_box(checked, geometry, settings.frame), onto)
        if moved is None:
            remarks.add(CROPPED_OFF)
            continue
        placed.append(moved)
        kept.append(i)
    area_scale = unit[0] * unit[1] * onto.scale[0] * onto.scale[1]
    return PlacedBoxes(placed, kept, area_scale, tuple(sorted(remarks)))


def box_values(feature: Feature, value: FeatureValue, placed: PlacedBoxes) -> FeatureValue:
    """Returns what a feature with one item for each box holds.

    Args:
        feature: the feature.
        value: the row's items, also those of boxes that were dropped; empty if they are missing.
        placed: the boxes.
    """
    if feature.source.origin is Origin.BOX:
        return _sides(placed.boxes, feature.source.name)
    items = value if isinstance(value, list) else []
    kept: Any = [items[i] for i in placed.kept] if items else []
    if feature.source.origin is Origin.AREA:
        return [area * placed.area_scale for area in kept]
    return cast("FeatureValue", kept)


def _sides(boxes: list[Box], name: str) -> list[float]:
    if name in BOX_SIDES:
        side = BOX_SIDES.index(name)
        return [box[side] for box in boxes]
    return [number for box in boxes for number in in_order(box, name)]


def in_order(box: Box, order: str) -> tuple[float, float, float, float]:
    """Returns the four numbers of a box in another order than that of two corners, x first.

    >>> in_order((0.0, 0.5, 0.5, 1.0), "cxcywh")
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


def _checked(
    box: Box, size: Size, settings: BoxSettings, index: int, remarks: set[str]
) -> Box | None:
    """Returns a box that lies within its image; None if it is to be dropped."""
    fault = _fault(box)
    if fault is None:
        inside = _clipped(box, size)
        if _overshoot(box, size) > _ROUNDING:
            if settings.out_of_bounds == "drop":
                return None
            if settings.out_of_bounds == "reject":
                raise _bad_box(index, box, f"stands over the image of {size[0]} x {size[1]}")
            remarks.add(CLIPPED)
        if _fault(inside) is None:
            return inside
        fault = f"lies outside the image of {size[0]} x {size[1]}"
    if settings.invalid == "drop":
        return None
    raise _bad_box(index, box, fault)


def _fault(box: Box) -> str | None:
    """Returns why a box is none, in words; None if it is one."""
    xmin, ymin, xmax, ymax = box
    if not all(map(math.isfinite, box)):
        return "holds what is no finite number"
    if xmax < xmin or ymax < ymin:
        return "is inverted: its second corner has to be right of and below its first"
    if xmax == xmin or ymax == ymin:
        return "has no extent"
    return None


def _bad_box(index: int, box: Box, what: str) -> RecordError:
    corners = ", ".join(f"{value:g}" for value in box)
    return RecordError(Reason.BAD_BOX, f"box {index} of ({corners}) in pixels {what}")


def _overshoot(box: Box, size: Size) -> float:
    """Returns how far a box stands over its image, in parts of the image's side."""
    (xmin, ymin, xmax, ymax), (width, height) = box, size
    return max(-xmin / width, -ymin / height, xmax / width - 1, ymax / height - 1)


def _clipped(box: Box, size: Size) -> Box:
    (xmin, ymin, xmax, ymax), (width, height) = box, size
    return max(xmin, 0.0), max(ymin, 0.0), min(xmax, width), min(ymax, height)


def _scaled(box: Box, by: tuple[float, float]) -> Box:
    return box[0] * by[0], box[1] * by[1], box[2] * by[0], box[3] * by[1]


def _moved(box: Box, onto: _Record) -> Box | None:
    """Returns where a turned box lies on the record's image; None if it was cropped off."""
    (xmin, ymin, xmax, ymax), (left, top, right, bottom) = box, onto.crop
    inside = max(xmin, left), max(ymin, top), min(xmax, right), min(ymax, bottom)
    if _fault(inside) is not None:
        return None
    (across, down), (x, y), (width, height) = onto.scale, onto.offset, onto.size
    return (
        min(max(((inside[0] - left) * across + x) / width, 0.0), 1.0),
        min(max(((inside[1] - top) * down + y) / height, 0.0), 1.0),
        min(max(((inside[2] - left) * across + x) / width, 0.0), 1.0),
        min(max(((inside[3] - top) * down + y) / height, 0.0), 1.0),
    )
