"""Geometric transforms of images and of their objects: orientation, crop, scale and padding.

A `Geometry` is computed from sizes only, and is applied to the pixels and masks of an image. A
`PointMap` is the same transform for the points of boxes, oriented boxes and keypoints.

All of these are values per object, and are dropped with its box. A keypoint is x, y and COCO's
visibility: 0 if it is not labeled, which includes those outside the image, and has x = y = 0; 1 if
it is hidden, and 2 if it is visible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import chain, compress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.origins import BOX_SIDES, POINTS, Origin
from recordmill.schemas.records import FeatureValue, RowBoxes, RowOutlines
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import BoxSettings, CoordinateFrame, ImageSettings, Resize
from recordmill.transforms.functional.values.boxes import NORMALIZED, Box, convert_box

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
    crop = _crop(whole, size if mode == "crop" else whole)
    offset = (round((size[0] - content[0]) / 2), round((size[1] - content[1]) / 2))
    return Geometry(stored, orientation, turned, crop, content=content, offset=offset, size=size)


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


def _limited(values: Any, low: float, high: float) -> Any:
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
        return _limited(point[0], left, right), _limited(point[1], top, bottom)


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


# The pixels beyond an edge that are a rounding error, as of coordinates without decimals.
_ROUNDING = 0.5

# That of keypoints, as a fraction of the side: the error of six decimals.
_ROUNDING_OF_POINTS = 1e-6

CLIPPED = "boxes clipped"
DROPPED = "boxes dropped"
CROPPED_OFF = "boxes cropped off"
POINTS_OUTSIDE = "keypoints outside"
RESCALED = "annotations rescaled"
STORED_SIZE = "sizes before orientation"
ORIENTED = "orientations not stated"
IGNORED = "masks ignored"
REPEATED = "boxes repeated"
OTHER_GRAYS = "masks with other grays"
LABELS_REPEATED = "labels repeated"
TINY = "boxes below 0.01 % of the image"

# What was done to the annotations of images, as text after their number.
CHANGES = {
    RESCALED: "with another size than annotated; annotations are scaled to it",
    STORED_SIZE: "annotated with the size before EXIF orientation, but read as displayed",
    ORIENTED: "with an EXIF orientation; annotations are read as displayed, unless frame=stored",
    CLIPPED: "with boxes beyond the edges, which are clipped to the image",
    DROPPED: "without some boxes, which are dropped as --boxes says",
    CROPPED_OFF: "without the boxes in the part that is cropped off",
    REPEATED: "with the same box and class more than once, all of which are kept",
    POINTS_OUTSIDE: "with keypoints outside the image, whose visibility becomes 0",
    IGNORED: "whose mask has only 0, the id that losses ignore (255; 65535 in 16 bits), and edges",
    LABELS_REPEATED: "with a label more than once in a list, all of which are kept",
    OTHER_GRAYS: "whose mask has a palette with other grays than its indexes, which are the ids",
}
HINTS = {
    REPEATED: "if they are one object, remove the others from the annotations",
    STORED_SIZE: "if drawn on the image as stored, set frame=stored (--boxes, --masks)",
    OTHER_GRAYS: "if the grays are the ids, write them as a PNG in gray, without a palette",
    IGNORED: "if it is the foreground, write the id of its class, such as 1, also at smooth edges",
}

# The part of the image below which a box is `TINY`.
TINY_AREA = 1e-4

# The origins of the columns of an array of keypoints.
_AXES = (Origin.KEYPOINT_X, Origin.KEYPOINT_Y, Origin.KEYPOINT_VISIBILITY)


class TransformedObjects(NamedTuple):
    """The objects of a record, of which those whose box is outside of it are dropped."""

    boxes: list[Box]
    kept: list[int]
    map: PointMap | None = None  # None without objects
    # The changes to objects, such as "boxes clipped", and `TINY` for each tiny box, which the
    # manifest counts.
    remarks: tuple[str, ...] = ()
    # Of the objects that are kept, by column: the corners of oriented boxes, arrays of keypoints
    # (n, 3), or their names.
    shapes: Mapping[str, list[Any]] = MappingProxyType({})

    @property
    def area_scale(self) -> float:
        """The number of pixels of the image per unit of area in the row."""
        if self.map is None:
            return 1.0
        return self.map.unit.x * self.map.unit.y * self.map.scale[0] * self.map.scale[1]


def all_objects(
    row: RowBoxes | RowOutlines, geometry: Geometry, frame: CoordinateFrame
) -> TransformedObjects:
    """Returns the objects of a row without boxes; none of them is dropped."""
    if not row.number:
        return TransformedObjects([], [])
    to_record = PointMap.of(row, geometry, frame)
    remarks = tuple(compress((RESCALED, STORED_SIZE, ORIENTED), to_record.unit[2:]))
    return TransformedObjects([], [*range(row.number)], to_record, remarks)


def transform_boxes(row: RowBoxes, geometry: Geometry, settings: BoxSettings) -> TransformedObjects:
    """Transforms the boxes of a row from the annotated image to the image of the record.

    Raises RecordError: bad_box if the settings reject invalid boxes and there is one,
    invalid_dimensions if the row states a size of another aspect ratio.
    """
    found = all_objects(row, geometry, settings.frame)
    to_record, boxes, kept, remarks = found.map, list[Box](), list[int](), {*found.remarks}
    if to_record is None or not row.corners:
        return found
    for i, box in enumerate(row.boxes):
        scaled = (*to_record.in_pixels(box[:2]), *to_record.in_pixels(box[2:]))
        inside = _checked(scaled, to_record.annotated, settings, i, remarks)
        if inside is None:
            remarks.add(DROPPED)
        else:
            boxes.append(inside)
            kept.append(i)
    boxes, is_kept = _placed(boxes, to_record)
    if not all(is_kept):
        remarks.add(CROPPED_OFF)
    boxes, kept = list(compress(boxes, is_kept)), list(compress(kept, is_kept))
    tiny = sum((box[2] - box[0]) * (box[3] - box[1]) < TINY_AREA for box in boxes)
    published = (*sorted(remarks), *(TINY,) * tiny)
    return TransformedObjects(boxes, kept, to_record, published)


def object_values(feature: Feature, value: FeatureValue, found: TransformedObjects) -> FeatureValue:
    """Returns the value of a feature with an item per object of the row, without dropped boxes."""
    origin, name = feature.source.origin, feature.source.name
    if origin is Origin.BOX:
        return _sides(found.boxes, name)
    shapes = found.shapes.get(name, [])
    if origin is Origin.KEYPOINT_COUNT:
        return [int(np.count_nonzero(points[:, 2])) for points in shapes]
    if origin in _AXES:
        axis, kind = _AXES.index(origin), int if origin is Origin.KEYPOINT_VISIBILITY else float
        return [kind(n) for points in shapes for n in points[:, axis]]
    if origin in POINTS:
        return list(chain.from_iterable(shapes))
    items = value if isinstance(value, list) else []
    kept: Any = [items[i] for i in found.kept] if items else []
    if origin is Origin.AREA:
        return [area * found.area_scale for area in kept]
    return cast("FeatureValue", kept)


def repeated(
    schema: Schema, values: Sequence[FeatureValue], row: RowBoxes, kept: Sequence[int]
) -> tuple[str, ...]:
    """Returns `REPEATED` if objects that are kept have the same box, classes and shapes."""
    boxes = [*row.boxes]
    if len({*boxes}) == len(boxes):
        return ()
    features = zip(schema.features.values(), values, strict=True)
    lists: list[Any] = [found for of, found in features if of.per_box and of.classes and found]
    lists += filter(None, (row.shapes or {}).values())
    objects = [*map(repr, zip(boxes, *lists, strict=True))]
    return (REPEATED,) * (len({objects[i] for i in kept}) < len(kept))


def _sides(boxes: list[Box], name: str) -> list[float]:
    if name in BOX_SIDES:
        side = BOX_SIDES.index(name)
        return [box[side] for box in boxes]
    return [number for box in boxes for number in convert_box(box, name)]


def with_shapes(
    schema: Schema, shapes: Mapping[str, list[list[Any]]], found: TransformedObjects
) -> TransformedObjects:
    """Adds the shapes of objects, and `POINTS_OUTSIDE` if a labeled keypoint is outside."""
    if found.map is None or not shapes:
        return found
    placed, outside = dict[str, list[Any]](), 0
    for column, feature in schema.columns_from(POINTS).items():
        of_row = shapes.get(column)
        kept: list[Any] = [of_row[i] for i in found.kept] if of_row else []
        if feature.source.origin is Origin.CORNERS:
            kept = [_corners(corners, found.map) for corners in kept]
        elif feature.source.origin is not Origin.KEYPOINT_NAME:
            outside += sum(np.count_nonzero(numbers[2::3]) for numbers in kept)
            kept = [_keypoints(numbers, found.map) for numbers in kept]
            outside -= sum(np.count_nonzero(points[:, 2]) for points in kept)
        placed[column] = kept
    remarks = (POINTS_OUTSIDE,) if outside else ()
    return found._replace(shapes=placed, remarks=found.remarks + remarks)


def _corners(corners: Sequence[float], to_record: PointMap) -> list[float]:
    """Returns the corners of an oriented box, unclipped, as else it would not be a rectangle."""
    points = to_record.turned(to_record.in_pixels(np.reshape(corners, (-1, 2)).T))
    placed: list[float] = np.transpose(to_record.placed(points)).ravel().tolist()
    return placed


def _keypoints(numbers: Sequence[float], to_record: PointMap) -> np.ndarray:
    """Returns keypoints as fractions of the record's image; outside of it, they are not labeled."""
    *points, visibility = np.reshape(numbers, (-1, 3)).T
    turned = to_record.turned(to_record.in_pixels(points))
    inside = to_record.clipped(turned)
    away = np.abs(np.subtract(turned, inside)).max(axis=0)
    labeled = (visibility > 0) & (away <= _ROUNDING_OF_POINTS * max(to_record.annotated))
    placed = _limited(to_record.placed(inside), 0.0, 1.0)
    found: np.ndarray = np.where(labeled, [*placed, visibility], 0.0).T
    return found


def _checked(
    box: Box, size: Size, settings: BoxSettings, index: int, remarks: set[str]
) -> Box | None:
    """Clips a box in pixels to its image; returns None for a box to drop."""
    problem = _problem(box)
    if problem is None:
        (xmin, ymin, xmax, ymax), (width, height) = box, size
        inside = max(xmin, 0.0), max(ymin, 0.0), min(xmax, width), min(ymax, height)
        if max(abs(a - b) for a, b in zip(box, inside, strict=True)) > _ROUNDING:
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
    xmin, ymin, xmax, ymax = box
    if not all(map(math.isfinite, box)):
        return "has a coordinate that is not finite"
    if xmax < xmin or ymax < ymin:
        return "is inverted; expected the second corner to the right of and below the first"
    return "has no area" if xmax == xmin or ymax == ymin else None


def _bad_box(index: int, box: Box, what: str) -> RecordError:
    corners = ", ".join(f"{value:g}" for value in box)
    return RecordError(Reason.BAD_BOX, f"box {index} of ({corners}) in pixels {what}")


def _placed(boxes: list[Box], to_record: PointMap) -> tuple[list[Box], list[bool]]:
    """Turns, crops, scales and pads boxes; returns whether each is inside of the crop, too."""
    sides = np.reshape(boxes, (-1, 4)).T
    first, second = to_record.turned(sides[:2]), to_record.turned(sides[2:])
    # An orientation may swap the corners, so the coordinates are sorted again.
    low, high = (to_record.clipped(each(first, second)) for each in (np.minimum, np.maximum))
    # Clamped, because rounding errors could put a coordinate outside 0 to 1.
    placed = _limited([*to_record.placed(low), *to_record.placed(high)], 0.0, 1.0)
    are_inside = np.logical_and(*np.less(low, high)).tolist()
    return list(zip(*placed.tolist(), strict=True)), are_inside
