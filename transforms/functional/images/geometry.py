"""Geometric transforms of images: orientation, crop, scale and padding.

A `Geometry` is computed from sizes only, and is applied to the pixels and masks of an image. A
`PointMap` is the same transform for the points of boxes and other annotations.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from recordmill.schemas.records import RowBoxes, RowOutlines
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import CoordinateFrame, ImageSettings, Resize
from recordmill.transforms.functional.values.boxes import NORMALIZED, Box

# Width and height, in pixels.
Size: TypeAlias = tuple[int, int]

# x and y, in pixels from the left and the top; 0 is the outer edge of the first pixel. Of several
# points, both are arrays.
Point: TypeAlias = "tuple[Any, Any] | np.ndarray"


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

    def turn(self, frame: CoordinateFrame) -> int:
        """Returns the EXIF orientation by which what is drawn on the annotated image is turned."""
        if frame == "displayed" and not self.turned:
            return inverse_orientation(self.orientation)
        return self.orientation if frame == "stored" and self.turned else 1

    @property
    def scale(self) -> tuple[float, float]:
        """The horizontal and vertical scale factors from the source image to the image stored."""
        left, top, right, bottom = self.crop
        return float(self.content[0] / (right - left)), float(self.content[1] / (bottom - top))


@lru_cache(1024)  # computed once for an image, its boxes and its mask: fractions take 40 µs
def geometry_of(stored: Size, orientation: int, settings: ImageSettings) -> Geometry:
    """Computes the transform that the settings define for an image.

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
    """Returns the size of an image after an EXIF orientation is applied."""
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

    >>> _oriented_point((10, 0), (400, 300), 6)  # the top edge becomes the right edge
    (300, 10)
    """
    if orientation == 1:  # of most images
        return point
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


def limited(values: Any, low: float, high: float) -> Any:
    """Returns values within limits: `np.clip` takes ten times as long for few values."""
    return np.minimum(np.maximum(values, low), high)


class CoordinateScale(NamedTuple):
    """The factors from the coordinates of a row to pixels of the annotated image in its file."""

    x: float
    y: float
    is_rescaled: bool = False  # whether the image has another size than the row states
    is_stored: bool = False  # whether the row states the sides before EXIF orientation swaps them
    is_turned: bool = False  # whether there is an EXIF orientation that no stated size shows


def coordinate_scale(
    row: RowBoxes | RowOutlines, geometry: Geometry, frame: CoordinateFrame
) -> CoordinateScale:
    """Returns the scale of a row's coordinates; raises invalid_dimensions if there is none."""
    width, height = geometry.annotated(frame)
    stated = _stated_size(row.size or (width, height), (width, height), geometry, frame)
    is_stored = frame == "displayed" and stated != (row.size or stated)
    turn = geometry.orientation if frame == "displayed" else 1
    is_shown = row.size is not None and turn >= 5 and width != height
    remarks = stated != (width, height), is_stored, turn > 1 and not is_shown
    if row.units == NORMALIZED:
        return CoordinateScale(width, height, *remarks)
    return CoordinateScale(width / stated[0], height / stated[1], *remarks)


class PointMap(NamedTuple):
    """The affine map from the annotations of a row to fractions of the image of its record.

    All annotations take it: `in_pixels` of the annotated image, `turned` upright, and `placed`
    after cropping, scaling and padding. Between the steps, boxes are clipped to image and crop.
    """

    unit: CoordinateScale
    annotated: Size
    orientation: int
    crop: Box
    scale: tuple[float, float]
    offset: tuple[int, int]
    size: Size

    @classmethod
    def of(
        cls, row: RowBoxes | RowOutlines, geometry: Geometry, frame: CoordinateFrame
    ) -> PointMap:
        """Returns the map of a row; raises invalid_dimensions if it states another image."""
        unit = coordinate_scale(row, geometry, frame)
        left, top, right, bottom = map(float, geometry.crop)  # once per image: fractions are slow
        steps = (unit, geometry.annotated(frame), geometry.turn(frame), (left, top, right, bottom))
        return cls(*steps, geometry.scale, geometry.offset, geometry.size)

    def in_pixels(self, point: Point) -> Point:
        """Returns a point of the row in pixels of the annotated image."""
        return point[0] * self.unit.x, point[1] * self.unit.y

    def turned(self, point: Point) -> Point:
        """Returns a point of the annotated image in pixels of the upright image."""
        return _oriented_point(point, self.annotated, self.orientation)

    def placed(self, point: Point) -> Point:
        """Returns a point of the upright image as fractions of the record's."""
        x = (point[0] - self.crop[0]) * self.scale[0] + self.offset[0]
        y = (point[1] - self.crop[1]) * self.scale[1] + self.offset[1]
        return x / self.size[0], y / self.size[1]

    def clipped(self, point: Point) -> Point:
        """Returns the nearest point of the upright image that is not cropped off."""
        left, top, right, bottom = self.crop
        return limited(point[0], left, right), limited(point[1], top, bottom)


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
