"""Geometry of images: rotation, crop, scale and padding, and the same transform of boxes.

One `Geometry` is computed from sizes alone. Pixels, boxes and masks of an image all use it, so that
annotations stay aligned with the pixels.
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
"""x and y, in pixels from the left and the top; 0 is the outer edge of the first pixel."""

Box: TypeAlias = tuple[float, float, float, float]
"""xmin, ymin, xmax and ymax, in pixels or as fractions of the image."""

_ROUNDING = 1e-6  # of an image's side: the error of six decimals in a box that ends at the edge

CLIPPED = "boxes clipped"
DROPPED = "boxes dropped"
CROPPED_OFF = "boxes cropped off"


class Geometry(NamedTuple):
    """The transform from a source image to the image in the record, in this order.

    Attributes:
        stored: size of the image in the file.
        orientation: EXIF orientation, 1 to 8.
        turned: whether the orientation was applied.
        crop: left, top, right and bottom of the kept part, as exact fractions of a pixel.
        content: size that the kept part was scaled to.
        offset: left and top of the content in the record's image, with padding around it.
        size: size of the record's image.
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
        """Size of the image with its orientation applied, as viewers display it."""
        return oriented_size(self.stored, self.orientation)

    @property
    def upright(self) -> Size:
        """Size after the orientation was applied, if it was, and before cropping."""
        return self.displayed if self.turned else self.stored

    @property
    def scale(self) -> tuple[float, float]:
        """Scale factors from the source image to the record's image, across and down."""
        left, top, right, bottom = self.crop
        return float(self.content[0] / (right - left)), float(self.content[1] / (bottom - top))


@lru_cache(1024)  # called for the image, its boxes and its mask; 40 µs of fractions each time
def geometry_of(stored: Size, orientation: int, settings: ImageSettings) -> Geometry:
    """Returns the transform that the settings define for an image.

    Args:
        stored: width and height of the image in the file.
        orientation: its EXIF orientation, 1 to 8.
        settings: options of the schema.

    >>> geometry_of((400, 300), 6, ImageSettings(max_side=200)).size
    (150, 200)
    """
    turned = settings.orientation == "apply"
    # All sizes and the crop below are those of the upright image: target sizes and aspect ratios
    # mean what viewers display.
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
    """Returns the size of an image after an EXIF orientation is applied.

    Args:
        size: width and height before.
        orientation: 1 to 8.
    """
    return (size[1], size[0]) if orientation >= 5 else size


def target_size(size: Size, settings: ImageSettings) -> Size:
    """Returns the width and height of the record's image.

    Args:
        size: width and height of the upright image.
        settings: options of the schema.

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
    """Returns the position of a point after an EXIF orientation is applied to its image.

    Args:
        point: position before.
        size: width and height of the image before.
        orientation: 1 to 8.

    >>> oriented_point((10, 0), (400, 300), 6)  # the top edge becomes the right one
    (300, 10)
    """
    x, y = point
    right, bottom = size[0] - x, size[1] - y
    # CIPA DC-008, tag 274 (Orientation): 2 to 4 are mirrored or upside down; 5 to 8 swap the axes.
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
    """Returns a box on the upright image, or on the stored one if the image was not turned.

    Args:
        box: in pixels of the annotated image.
        geometry: the transform of the image.
        frame: the annotated image: "displayed" or "stored".
    """
    if frame == "displayed" and not geometry.turned:
        size, orientation = geometry.displayed, inverse_orientation(geometry.orientation)
    elif frame == "stored" and geometry.turned:
        size, orientation = geometry.stored, geometry.orientation
    else:
        return box
    # Turning may swap the corners: sort the coordinates again.
    one = oriented_point(box[:2], size, orientation)
    other = oriented_point(box[2:], size, orientation)
    return (*map(min, one, other), *map(max, one, other))  # type: ignore[return-value]


def _crop(size: Size, ratio: Size) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Returns the largest centered part with the aspect ratio of `ratio`."""
    width, height = map(Fraction, size)
    # Fractions, so that the crop of an image, its boxes and its mask is the same: a float could be
    # rounded across the center of a pixel, which moves a mask against its image.
    kept_width = min(width, height * ratio[0] / ratio[1])
    kept_height = min(height, width * ratio[1] / ratio[0])
    left, top = (width - kept_width) / 2, (height - kept_height) / 2
    return left, top, left + kept_width, top + kept_height


def _contained(size: Size, within: Size) -> Size:
    """Returns the largest size with the aspect ratio of `size` that fits into `within`."""
    width, height = size
    # Compares aspect ratios in integers, and rounds as ImageOps.contain of Pillow does; a side of
    # less than one pixel becomes one.
    if width * within[1] > within[0] * height:
        return within[0], max(1, round(height / width * within[0]))
    return max(1, round(width / height * within[1])), within[1]


def _scaled(size: Size, factor: float) -> Size:
    width, height = size
    return max(1, round(width * factor)), max(1, round(height * factor))


class TransformedBoxes(NamedTuple):
    """The boxes of a record.

    Attributes:
        boxes: as fractions of the record's image.
        kept: index of each in its row.
        area_scale: pixels of the record's image per unit of area in the row.
        remarks: changes to boxes, such as "boxes clipped", which the manifest counts.
    """

    boxes: list[Box]
    kept: list[int]
    area_scale: float
    remarks: tuple[str, ...]


class _Placement(NamedTuple):
    """The parts of a geometry that place turned boxes, as floats: computed once per image."""

    crop: Box
    scale: tuple[float, float]
    offset: tuple[int, int]
    size: Size

    @classmethod
    def of(cls, geometry: Geometry) -> _Placement:
        left, top, right, bottom = map(float, geometry.crop)
        return cls((left, top, right, bottom), geometry.scale, geometry.offset, geometry.size)


def transform_boxes(row: RowBoxes, geometry: Geometry, settings: BoxSettings) -> TransformedBoxes:
    """Returns the boxes of a row on the record's image.

    Args:
        row: two corners of each box, in pixels or as fractions of the annotated image.
        geometry: the transform of the image.
        settings: the annotated image, and the treatment of invalid boxes.

    Raises:
        RecordError: bad_box, if the settings reject one.
    """
    # Order: to pixels of the annotated image, check and clip there, turn with the image, then crop,
    # scale, pad, and divide by the size of the record's image.
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
    return TransformedBoxes(placed, kept, area_scale, tuple(sorted(remarks)))


def box_values(feature: Feature, value: FeatureValue, placed: TransformedBoxes) -> FeatureValue:
    """Returns the value of a feature that has one item per box.

    Args:
        feature: the feature.
        value: the row's items, including those of dropped boxes; empty if they are missing.
        placed: the boxes of the record.
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
    return [number for box in boxes for number in convert_box(box, name)]


def convert_box(box: Box, order: str) -> tuple[float, float, float, float]:
    """Returns the four numbers of a box in another format.

    Args:
        box: xmin, ymin, xmax and ymax.
        order: "xyxy", "yxyx", "xywh" or "cxcywh".

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


def _checked(
    box: Box, size: Size, settings: BoxSettings, index: int, remarks: set[str]
) -> Box | None:
    """Returns a box clipped to its image; None if it is to be dropped."""
    problem = _problem(box)
    if problem is None:
        inside = _clipped(box, size)
        # Boxes with six decimals may exceed the edge by their rounding error, which is no mistake.
        if _overshoot(box, size) > _ROUNDING:
            if settings.out_of_bounds == "drop":
                return None
            if settings.out_of_bounds == "reject":
                raise _bad_box(index, box, f"extends beyond the image of {size[0]} x {size[1]}")
            remarks.add(CLIPPED)
        if _problem(inside) is None:
            return inside
        problem = f"lies outside the image of {size[0]} x {size[1]}"
    if settings.invalid == "drop":
        return None
    raise _bad_box(index, box, problem)


def _problem(box: Box) -> str | None:
    """Returns why a box is invalid; None if it is valid."""
    xmin, ymin, xmax, ymax = box
    if not all(map(math.isfinite, box)):
        return "has a coordinate that is not finite"
    if xmax < xmin or ymax < ymin:
        return "is inverted: its second corner must be to the right of and below its first"
    if xmax == xmin or ymax == ymin:
        return "has no area"
    return None


def _bad_box(index: int, box: Box, what: str) -> RecordError:
    corners = ", ".join(f"{value:g}" for value in box)
    return RecordError(Reason.BAD_BOX, f"box {index} of ({corners}) in pixels {what}")


def _overshoot(box: Box, size: Size) -> float:
    """Returns how far a box extends beyond its image, as a fraction of the image's side."""
    (xmin, ymin, xmax, ymax), (width, height) = box, size
    return max(-xmin / width, -ymin / height, xmax / width - 1, ymax / height - 1)


def _clipped(box: Box, size: Size) -> Box:
    (xmin, ymin, xmax, ymax), (width, height) = box, size
    return max(xmin, 0.0), max(ymin, 0.0), min(xmax, width), min(ymax, height)


def _scaled_box(box: Box, by: tuple[float, float]) -> Box:
    return box[0] * by[0], box[1] * by[1], box[2] * by[0], box[3] * by[1]


def _moved(box: Box, onto: _Placement) -> Box | None:
    """Returns a turned box as fractions of the record's image; None if it is cropped off."""
    (xmin, ymin, xmax, ymax), (left, top, right, bottom) = box, onto.crop
    inside = max(xmin, left), max(ymin, top), min(xmax, right), min(ymax, bottom)
    if _problem(inside) is not None:
        return None
    (across, down), (x, y), (width, height) = onto.scale, onto.offset, onto.size
    # Rounding errors of floats must not move a box outside 0 to 1.
    return (
        min(max(((inside[0] - left) * across + x) / width, 0.0), 1.0),
        min(max(((inside[1] - top) * down + y) / height, 0.0), 1.0),
        min(max(((inside[2] - left) * across + x) / width, 0.0), 1.0),
        min(max(((inside[3] - top) * down + y) / height, 0.0), 1.0),
    )
