"""Geometric transforms of images (orientation, crop, scale, padding) and of their boxes.

A `Geometry` is computed from sizes only, and is applied to the pixels, the boxes and the mask of an
image, so that annotations stay aligned with the pixels.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

from recordmill.schemas.features import BOX_SIDES, Feature, Origin
from recordmill.schemas.records import FeatureValue, RowBoxes, RowOutlines
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import BoxSettings, CoordinateFrame, ImageSettings, Resize
from recordmill.transforms.functional.values.boxes import NORMALIZED, Box, convert_box

# Width and height, in pixels.
Size: TypeAlias = tuple[int, int]

# x and y, in pixels from the left and the top; 0 is the outer edge of the first pixel.
Point: TypeAlias = tuple[float, float]

# Tolerance for boxes beyond the edge, as a fraction of the side: the error of six decimals.
_ROUNDING = 1e-6

CLIPPED = "boxes clipped"
DROPPED = "boxes dropped"
CROPPED_OFF = "boxes cropped off"
RESCALED = "annotations rescaled"
TINY = "boxes below 0.01 % of the image"

# What was done to the annotations of images, as text after their number.
CHANGES = {
    RESCALED: "with another size than annotated; annotations are scaled to it",
    CLIPPED: "with boxes beyond the edges, which are clipped to the image",
    DROPPED: "without some boxes, which are dropped as --boxes says",
    CROPPED_OFF: "without the boxes in the part that is cropped off",
}

# The part of the image below which a box is `TINY`.
TINY_AREA = 1e-4


class Geometry(NamedTuple):
    """The transform from a source image to the image of a record: orient, crop, scale, pad."""

    stored: Size
    orientation: int  # the EXIF orientation, from 1 to 8
    turned: bool
    # The left, top, right and bottom of the cropped part, as exact fractions in pixels.
    crop: tuple[Fraction, Fraction, Fraction, Fraction]
    content: Size
    offset: tuple[int, int]  # the left and top padding around the content
    size: Size

    @property
    def displayed(self) -> Size:
        """The size of the image in viewers, which apply the orientation."""
        return oriented_size(self.stored, self.orientation)

    @property
    def upright(self) -> Size:
        """The size before cropping, after the orientation is applied, if it is."""
        return self.displayed if self.turned else self.stored

    def annotated(self, frame: CoordinateFrame) -> Size:
        """Returns the size of the image as it was annotated."""
        return self.displayed if frame == "displayed" else self.stored

    @property
    def scale(self) -> tuple[float, float]:
        """The horizontal and vertical scale factors from the source image to the image stored."""
        left, top, right, bottom = self.crop
        return float(self.content[0] / (right - left)), float(self.content[1] / (bottom - top))


@lru_cache(1024)  # computed once for an image, its boxes and its mask: fractions take 40 µs
def geometry_of(stored: Size, orientation: int, settings: ImageSettings) -> Geometry:
    """Computes the transform that the settings define for an image.

    `orientation` is its EXIF orientation, from 1 to 8.

    >>> geometry_of((400, 300), 6, ImageSettings(max_side=200)).size
    (150, 200)
    """
    turned = settings.orientation == "apply"
    # Target sizes and aspect ratios refer to the image as viewers display it, so all sizes and the
    # crop below are in the coordinates of the upright image.
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

    `orientation` is the orientation, from 1 to 8.
    """
    # Orientations 5 to 8 swap the axes.
    return (size[1], size[0]) if orientation >= 5 else size


def target_size(size: Size, settings: ImageSettings) -> Size:
    """Returns the width and height of the image of a record.

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


def _oriented_point(point: Point, size: Size, orientation: int) -> Point:
    """Returns the coordinates of a point after an EXIF orientation is applied to its image.

    `orientation` is the orientation, from 1 to 8.

    >>> _oriented_point((10, 0), (400, 300), 6)  # the top edge becomes the right edge
    (300, 10)
    """
    x, y = point
    right, bottom = size[0] - x, size[1] - y
    # CIPA DC-008, tag 274 (Orientation): 2 to 4 are mirrored or upside down, 5 to 8 swap the axes.
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
    """Returns the EXIF orientation that reverts another."""
    # Only the quarter turns 6 and 8 are not their own inverse.
    return {6: 8, 8: 6}.get(orientation, orientation)


def _oriented_box(box: Box, geometry: Geometry, frame: str) -> Box:
    """Transforms a box from the annotated image to the image before cropping.

    `box` is the box in pixels of the annotated image. `frame` is the annotated image, "displayed"
    or "stored".
    """
    if frame == "displayed" and not geometry.turned:
        size, orientation = geometry.displayed, inverse_orientation(geometry.orientation)
    elif frame == "stored" and geometry.turned:
        size, orientation = geometry.stored, geometry.orientation
    else:
        return box
    # An orientation may swap the corners, so the coordinates are sorted again.
    first = _oriented_point(box[:2], size, orientation)
    second = _oriented_point(box[2:], size, orientation)
    return (*map(min, first, second), *map(max, first, second))  # type: ignore[return-value]


def _crop(size: Size, ratio: Size) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Returns the largest centered part with the aspect ratio of `ratio`."""
    width, height = map(Fraction, size)
    # Exact fractions, because a float could be rounded across the center of a pixel, which would
    # shift the mask against its image by a pixel.
    kept_width = min(width, height * ratio[0] / ratio[1])
    kept_height = min(height, width * ratio[1] / ratio[0])
    left, top = (width - kept_width) / 2, (height - kept_height) / 2
    return left, top, left + kept_width, top + kept_height


def _contained(size: Size, within: Size) -> Size:
    """Returns the largest size with the aspect ratio of `size` that fits into `within`."""
    width, height = size
    # Aspect ratios are compared in integers, and sides rounded like in ImageOps.contain of Pillow,
    # but to at least one pixel.
    if width * within[1] > within[0] * height:
        return within[0], max(1, round(height / width * within[0]))
    return max(1, round(width / height * within[1])), within[1]


def _scaled(size: Size, factor: float) -> Size:
    width, height = size
    return max(1, round(width * factor)), max(1, round(height * factor))


class CoordinateScale(NamedTuple):
    """The factors from the coordinates of a row to pixels of the annotated image in its file."""

    x: float
    y: float
    is_rescaled: bool = False  # whether the image has another size than the row states


def coordinate_scale(
    row: RowBoxes | RowOutlines, geometry: Geometry, frame: CoordinateFrame
) -> CoordinateScale:
    """Returns the scale of a row's coordinates; raises invalid_dimensions if there is none."""
    width, height = geometry.annotated(frame)
    stated = _stated_size(row.size or (width, height), (width, height), geometry, frame)
    is_rescaled = stated != (width, height)
    if row.units == NORMALIZED:
        return CoordinateScale(width, height, is_rescaled)
    return CoordinateScale(width / stated[0], height / stated[1], is_rescaled)


def _stated_size(
    stated: tuple[float, float], annotated: Size, geometry: Geometry, frame: CoordinateFrame
) -> tuple[float, float]:
    """Returns the stated size with its sides in the order of the annotated image."""
    sizes = [stated]
    if geometry.orientation >= 5:  # tools that ignore the orientation state the stored size
        sizes.append((stated[1], stated[0]))
    if annotated in sizes:
        return annotated
    for size in sizes:
        if _is_scaled(size, annotated):
            return size
    raise RecordError(
        Reason.INVALID_DIMENSIONS,
        f"the annotation states {stated[0]:g} x {stated[1]:g} pixels, and the image as {frame} has "
        f"{annotated[0]} x {annotated[1]}: another aspect ratio. Use the image that was annotated, "
        "or ignore the stated size with size_columns=none (--boxes, --masks).",
    )


def _is_scaled(size: tuple[float, float], scaled: Size) -> bool:
    """Returns whether one scale maps both sides to those of another size, within one pixel.

    >>> _is_scaled((1000, 667), (500, 333)), _is_scaled((1000, 667), (500, 500))
    (True, False)
    """
    (width, height), (to_width, to_height) = size, scaled
    # There is a scale s with |s * width - to_width| < 1 and |s * height - to_height| < 1.
    return (to_width - 1) * height < (to_height + 1) * width and (to_height - 1) * width < (
        to_width + 1
    ) * height


class TransformedBoxes(NamedTuple):
    """The boxes of a record."""

    boxes: list[Box]
    kept: list[int]
    area_scale: float  # the number of pixels of the image per unit of area in the row
    # The changes to boxes, such as "boxes clipped", and `TINY` for each tiny box, which the
    # manifest counts.
    remarks: tuple[str, ...]


def transform_boxes(row: RowBoxes, geometry: Geometry, settings: BoxSettings) -> TransformedBoxes:
    """Transforms the boxes of a row from the annotated image to the image of the record.

    `row` is the corners of each box, in pixels or as fractions of the annotated image. Raises
    RecordError (bad_box) if the settings reject invalid boxes and there is one; invalid_dimensions
    if the row states a size of another aspect ratio.
    """
    # Order of the transform: to pixels of the annotated image, check and clip, orient, crop, scale,
    # pad, divide by the size of the image of the record.
    annotated = geometry.annotated(settings.frame)
    if not row.corners:
        return TransformedBoxes([], [], 1.0, ())
    unit = coordinate_scale(row, geometry, settings.frame)
    left, top, right, bottom = map(float, geometry.crop)  # once per image: fractions are slow
    crop, scale = (left, top, right, bottom), geometry.scale
    boxes, kept, remarks = list[Box](), list[int](), {RESCALED} if unit.is_rescaled else set[str]()
    for i, box in enumerate(row.boxes):
        scaled = box[0] * unit.x, box[1] * unit.y, box[2] * unit.x, box[3] * unit.y
        checked = _checked(scaled, annotated, settings, i, remarks)
        if checked is None:
            remarks.add(DROPPED)
            continue
        oriented = _oriented_box(checked, geometry, settings.frame)
        cropped = _cropped(oriented, crop, scale, geometry)
        if cropped is None:
            remarks.add(CROPPED_OFF)
            continue
        boxes.append(cropped)
        kept.append(i)
    area_scale = unit.x * unit.y * scale[0] * scale[1]
    tiny = sum((box[2] - box[0]) * (box[3] - box[1]) < TINY_AREA for box in boxes)
    return TransformedBoxes(boxes, kept, area_scale, (*sorted(remarks), *(TINY,) * tiny))


def box_values(
    feature: Feature, value: FeatureValue, transformed: TransformedBoxes
) -> FeatureValue:
    """Returns the value of a feature that has one item per box.

    `value` is the items of the row, including those of dropped boxes; empty if missing.
    """
    if feature.source.origin is Origin.BOX:
        return _sides(transformed.boxes, feature.source.name)
    items = value if isinstance(value, list) else []
    kept: Any = [items[i] for i in transformed.kept] if items else []
    if feature.source.origin is Origin.AREA:
        return [area * transformed.area_scale for area in kept]
    return cast("FeatureValue", kept)


def _sides(boxes: list[Box], name: str) -> list[float]:
    if name in BOX_SIDES:
        side = BOX_SIDES.index(name)
        return [box[side] for box in boxes]
    return [number for box in boxes for number in convert_box(box, name)]


def _checked(
    box: Box, size: Size, settings: BoxSettings, index: int, remarks: set[str]
) -> Box | None:
    """Checks a box and clips it to its image.

    Returns the clipped box; None for a box to drop. `box` is the box in pixels of the annotated
    image. Raises RecordError (bad_box) if the settings reject the box.
    """
    problem = _problem(box)
    if problem is None:
        inside = _clipped(box, size)
        # Boxes rounded to six decimals may exceed the edge by their rounding error.
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
    """Describes the reason why a box is invalid; None if it is valid."""
    xmin, ymin, xmax, ymax = box
    if not all(map(math.isfinite, box)):
        return "has a coordinate that is not finite"
    if xmax < xmin or ymax < ymin:
        return "is inverted; expected the second corner to the right of and below the first"
    if xmax == xmin or ymax == ymin:
        return "has no area"
    return None


def _bad_box(index: int, box: Box, what: str) -> RecordError:
    corners = ", ".join(f"{value:g}" for value in box)
    return RecordError(Reason.BAD_BOX, f"box {index} of ({corners}) in pixels {what}")


def _overshoot(box: Box, size: Size) -> float:
    """Returns the distance by which a box exceeds its image, as a fraction of the side."""
    (xmin, ymin, xmax, ymax), (width, height) = box, size
    return max(-xmin / width, -ymin / height, xmax / width - 1, ymax / height - 1)


def _clipped(box: Box, size: Size) -> Box:
    (xmin, ymin, xmax, ymax), (width, height) = box, size
    return max(xmin, 0.0), max(ymin, 0.0), min(xmax, width), min(ymax, height)


def _cropped(box: Box, crop: Box, scale: tuple[float, float], geometry: Geometry) -> Box | None:
    """Crops, scales and pads an oriented box, and divides it by the size of the image.

    Returns None for a box outside the crop.
    """
    inside = (*map(max, box[:2], crop[:2]), *map(min, box[2:], crop[2:]))
    if _problem(inside) is not None:  # type: ignore[arg-type]
        return None
    placed = [
        ((side - crop[axis]) * scale[axis] + geometry.offset[axis]) / geometry.size[axis]
        for side, axis in zip(inside, (0, 1, 0, 1), strict=True)
    ]
    # Clamped, because rounding errors could put a coordinate outside 0 to 1.
    return tuple(min(max(side, 0.0), 1.0) for side in placed)  # type: ignore[return-value]
