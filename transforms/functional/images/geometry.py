"""What happens to an image's plane on its way into a record: turned, cropped, scaled, padded.

One value, worked out from sizes alone. The pixels are resampled by it, and what is annotated on
them, boxes and masks, goes the same way by the same value.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

from recordmill.schemas.features import BOX_SIDES, Feature, Origin
from recordmill.schemas.records import FeatureValue, RowBoxes
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import BoxSettings, ImageSettings, Resize

Size: TypeAlias = tuple[int, int]
"""Width and height, in pixels."""

Point: TypeAlias = tuple[float, float]
"""x and y, in pixels from the left and from the top: 0 is the edge of the first pixel."""

Box: TypeAlias = tuple[float, float, float, float]
"""xmin, ymin, xmax and ymax: two corners, in pixels, or as fractions of the image."""

_ROUNDING = 1e-6  # of an image's side: what six decimals leave of a box that ends at its edge

CLIPPED = "boxes clipped"
DROPPED = "boxes dropped"
CROPPED_OFF = "boxes cropped off"


class Geometry(NamedTuple):
    """What was done to an image's plane, in this order.

    Attributes:
        stored: the size as the file stores the image.
        orientation: EXIF's, 1 to 8, by which viewers show it.
        turned: whether it was turned upright by it.
        crop: left, top, right and bottom of what is kept of it, then; exact, hence fractions.
        content: the size that this was scaled to.
        offset: where its left and top come to lie in the record's image.
        size: that image's size.
    """

    stored: Size
    orientation: int
    turned: bool
    crop: tuple[Fraction, Fraction, Fraction, Fraction]
    content: Size
    offset: tuple[int, int]
    size: Size

    @property
    def displayed(self) -> Size:
        """The size as viewers show the image."""
        return oriented_size(self.stored, self.orientation)

    @property
    def upright(self) -> Size:
        """The size after turning, if it was turned, and before all else."""
        return self.displayed if self.turned else self.stored

    @property
    def scale(self) -> tuple[float, float]:
        """How many pixels of the record's image one pixel became, across and down."""
        left, top, right, bottom = self.crop
        return float(self.content[0] / (right - left)), float(self.content[1] / (bottom - top))


@lru_cache(1024)  # asked for the image, its boxes and its mask; 40 µs of fractions each time
def geometry_of(stored: Size, orientation: int, settings: ImageSettings) -> Geometry:
    """Returns what the settings do to an image of a size and EXIF orientation.

    >>> geometry_of((400, 300), 6, ImageSettings(max_side=200)).size
    (150, 200)
    """
    turned = settings.orientation == "apply"
    whole = oriented_size(stored, orientation) if turned else stored
    size = target_size(whole, settings)
    mode = settings.resize.mode if settings.resize else "exact"
    content = _contained(whole, size) if mode == "pad" else size
    return Geometry(
        stored=stored,
        orientation=orientation,
        turned=turned,
        crop=_crop(whole, size if mode == "crop" else whole),
        content=content,
        offset=(round((size[0] - content[0]) / 2), round((size[1] - content[1]) / 2)),
        size=size,
    )


def oriented_size(size: Size, orientation: int) -> Size:
    """Returns the size of an image after it was turned by an EXIF orientation."""
    return (size[1], size[0]) if orientation >= 5 else size


def target_size(size: Size, settings: ImageSettings) -> Size:
    """Returns the width and height that an upright image gets.

    >>> target_size((400, 300), ImageSettings(max_side=200))
    (200, 150)
    """
    width, height = size
    if settings.max_side is not None and max(size) > settings.max_side:
        return _scaled(size, settings.max_side / max(size))
    if settings.resize is None:
        return width, height
    resize: Resize = settings.resize
    if resize.mode == "fit":
        return _scaled(size, min(resize.width / width, resize.height / height))
    return resize.width, resize.height


def oriented_point(point: Point, size: Size, orientation: int) -> Point:
    """Returns where a point of an image comes to lie when it is turned by an EXIF orientation.

    Args:
        point: on the image.
        size: the image's, before it is turned.
        orientation: 1 to 8.

    >>> oriented_point((10, 0), (400, 300), 6)  # the top edge becomes the right one
    (300, 10)
    """
    x, y = point
    right, bottom = size[0] - x, size[1] - y
    turned = {
        2: (right, y),
        3: (right, bottom),
        4: (x, bottom),
        5: (y, x),
        6: (bottom, x),
        7: (bottom, right),
        8: (y, right),
    }
    return turned.get(orientation, point)


def inverse_orientation(orientation: int) -> int:
    """Returns the EXIF orientation that undoes another."""
    return {6: 8, 8: 6}.get(orientation, orientation)


def oriented_box(box: Box, geometry: Geometry, frame: str) -> Box:
    """Returns where a box lies once the image is turned, as far as it is.

    Args:
        box: in pixels of the image that it was drawn on.
        geometry: what was done to the image.
        frame: which image that was: "displayed", or "stored".
    """
    if frame == "displayed" and not geometry.turned:
        size, orientation = geometry.displayed, inverse_orientation(geometry.orientation)
    elif frame == "stored" and geometry.turned:
        size, orientation = geometry.stored, geometry.orientation
    else:
        return box
    one = oriented_point(box[:2], size, orientation)
    other = oriented_point(box[2:], size, orientation)
    return (*map(min, one, other), *map(max, one, other))  # type: ignore[return-value]


def _crop(size: Size, ratio: Size) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Returns the largest part, in the middle, that has a width and height of this ratio."""
    width, height = map(Fraction, size)
    kept_width = min(width, height * ratio[0] / ratio[1])
    kept_height = min(height, width * ratio[1] / ratio[0])
    left, top = (width - kept_width) / 2, (height - kept_height) / 2
    return left, top, left + kept_width, top + kept_height


def _contained(size: Size, within: Size) -> Size:
    """Returns the size that an image is scaled to so that it just fits within another."""
    width, height = size
    if width * within[1] > within[0] * height:
        return within[0], max(1, round(height / width * within[0]))
    return max(1, round(width / height * within[1])), within[1]


def _scaled(size: Size, factor: float) -> Size:
    width, height = size
    return max(1, round(width * factor)), max(1, round(height * factor))


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


class _Placement(NamedTuple):
    """What of a geometry places turned boxes, in floats: worked out once for all of an image's."""

    crop: Box
    scale: tuple[float, float]
    offset: tuple[int, int]
    size: Size

    @classmethod
    def of(cls, geometry: Geometry) -> _Placement:
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
    onto = _Placement.of(geometry)
    placed, kept, remarks = list[Box](), list[int](), set[str]()
    for i, box in enumerate(row.boxes):
        checked = _checked(_scaled_box(box, unit), annotated, settings, i, remarks)
        if checked is None:
            remarks.add(DROPPED)
            continue
        moved = _moved(oriented_box(checked, geometry, settings.frame), onto)
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


def _scaled_box(box: Box, by: tuple[float, float]) -> Box:
    return box[0] * by[0], box[1] * by[1], box[2] * by[0], box[3] * by[1]


def _moved(box: Box, onto: _Placement) -> Box | None:
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
