"""Transforms the objects of a row like their image: boxes, oriented boxes and keypoints.

All of them are values per object, and are dropped with its box. A keypoint is x, y and COCO's
visibility: 0 if it is not labeled, which includes those outside the image, and has x = y = 0; 1 if
it is hidden, and 2 if it is visible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, compress
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.origins import BOX_SIDES, POINTS, Origin
from recordmill.schemas.records import FeatureValue, RowBoxes, RowOutlines
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import BoxSettings, CoordinateFrame
from recordmill.transforms.functional.images.geometry import Geometry, PointMap, Size, limited
from recordmill.transforms.functional.values.boxes import Box, convert_box

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
    placed = limited(to_record.placed(inside), 0.0, 1.0)
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
    placed = limited([*to_record.placed(low), *to_record.placed(high)], 0.0, 1.0)
    are_inside = np.logical_and(*np.less(low, high)).tolist()
    return list(zip(*placed.tolist(), strict=True)), are_inside
