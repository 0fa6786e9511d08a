"""Transforms the objects of a row like their image: boxes, oriented boxes and keypoints.

All of them are values per object, and are dropped with its box. A keypoint is x, y and COCO's
visibility: 0 if it is not labeled, which includes those outside the image, and has x = y = 0; 1 if
it is hidden, and 2 if it is visible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.origins import BOX_SIDES, KEYPOINTS, POINTS, Origin
from recordmill.schemas.records import FeatureValue, RowBoxes, RowOutlines
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import BoxSettings, CoordinateFrame
from recordmill.transforms.functional.images.geometry import Geometry, PointMap, Size
from recordmill.transforms.functional.values.boxes import Box, convert_box

# Tolerance for boxes beyond the edge, as a fraction of the side: the error of six decimals.
_ROUNDING = 1e-6

CLIPPED = "boxes clipped"
DROPPED = "boxes dropped"
CROPPED_OFF = "boxes cropped off"
POINTS_OUTSIDE = "keypoints outside"
RESCALED = "annotations rescaled"
TINY = "boxes below 0.01 % of the image"

# What was done to the annotations of images, as text after their number.
CHANGES = {
    RESCALED: "with another size than annotated; annotations are scaled to it",
    CLIPPED: "with boxes beyond the edges, which are clipped to the image",
    DROPPED: "without some boxes, which are dropped as --boxes says",
    CROPPED_OFF: "without the boxes in the part that is cropped off",
    POINTS_OUTSIDE: "with keypoints outside the image, whose visibility becomes 0",
}

# The part of the image below which a box is `TINY`.
TINY_AREA = 1e-4


# x and y as fractions of the image of the record, and visibility.
Keypoint: TypeAlias = tuple[float, float, int]


class TransformedObjects(NamedTuple):
    """The objects of a record, of which those whose box is outside of it are dropped."""

    boxes: list[Box]
    kept: list[int]
    map: PointMap | None = None  # None without boxes
    # The changes to objects, such as "boxes clipped", and `TINY` for each tiny box, which the
    # manifest counts.
    remarks: tuple[str, ...] = ()
    shapes: Mapping[str, list[list[Any]]] = MappingProxyType({})  # of all objects of the row
    keypoints: Mapping[str, list[list[Keypoint]]] = MappingProxyType({})  # of those that are kept

    def shapes_of(self, column: str) -> list[list[Any]]:
        """Returns the shapes of the objects that are kept; none if the row has none."""
        shapes = self.shapes.get(column)
        return [shapes[i] for i in self.kept] if shapes else []

    @property
    def area_scale(self) -> float:
        """The number of pixels of the image per unit of area in the row."""
        if self.map is None:
            return 1.0
        return self.map.unit.x * self.map.unit.y * self.map.scale[0] * self.map.scale[1]


def transform_boxes(row: RowBoxes, geometry: Geometry, settings: BoxSettings) -> TransformedObjects:
    """Transforms the boxes of a row from the annotated image to the image of the record.

    `row` is the corners of each box, in pixels or as fractions of the annotated image. Raises
    RecordError (bad_box) if the settings reject invalid boxes and there is one; invalid_dimensions
    if the row states a size of another aspect ratio.
    """
    if not row.number:
        return TransformedObjects([], [])
    to_record = PointMap.of(row, geometry, settings.frame)
    boxes, kept = list[Box](), list[int]()
    remarks = {RESCALED} if to_record.unit.is_rescaled else set[str]()
    if not row.corners:
        kept = [*range(row.number)]
        return TransformedObjects([], kept, to_record, tuple(remarks), row.shapes or {})
    for i, box in enumerate(row.boxes):
        scaled = (*to_record.in_pixels(box[:2]), *to_record.in_pixels(box[2:]))
        checked = _checked(scaled, to_record.annotated, settings, i, remarks)
        if checked is None:
            remarks.add(DROPPED)
            continue
        placed = _placed(checked, to_record)
        if placed is None:
            remarks.add(CROPPED_OFF)
            continue
        boxes.append(placed)
        kept.append(i)
    tiny = sum((box[2] - box[0]) * (box[3] - box[1]) < TINY_AREA for box in boxes)
    published = (*sorted(remarks), *(TINY,) * tiny)
    return TransformedObjects(boxes, kept, to_record, published, row.shapes or {})


def transform_outlines(
    row: RowOutlines, geometry: Geometry, frame: CoordinateFrame
) -> TransformedObjects:
    """Returns the objects of a row that have outlines but no boxes; none of them is dropped.

    Raises RecordError (invalid_dimensions) if the row states a size of another aspect ratio.
    """
    if not row.objects:
        return TransformedObjects([], [])
    to_record = PointMap.of(row, geometry, frame)
    remarks = (RESCALED,) if to_record.unit.is_rescaled else ()
    return TransformedObjects([], [*range(len(row.objects))], to_record, remarks)


def object_values(feature: Feature, value: FeatureValue, found: TransformedObjects) -> FeatureValue:
    """Returns the value of a feature that has items per object, but is not drawn.

    `value` is the items of the row, including those of dropped boxes; empty if missing.
    """
    origin, name = feature.source.origin, feature.source.name
    if origin is Origin.BOX:
        return _sides(found.boxes, name)
    if origin in POINTS:
        return _points(origin, found, name)
    items = value if isinstance(value, list) else []
    kept: Any = [items[i] for i in found.kept] if items else []
    if origin is Origin.AREA:
        return [area * found.area_scale for area in kept]
    return cast("FeatureValue", kept)


def _sides(boxes: list[Box], name: str) -> list[float]:
    if name in BOX_SIDES:
        side = BOX_SIDES.index(name)
        return [box[side] for box in boxes]
    return [number for box in boxes for number in convert_box(box, name)]


def _points(origin: Origin, found: TransformedObjects, column: str) -> FeatureValue:
    if origin is Origin.KEYPOINT_NAME:
        return list(chain.from_iterable(found.shapes_of(column)))
    if found.map is None:
        return []
    if origin is Origin.CORNERS:
        return [side for box in found.shapes_of(column) for side in _corners(box, found.map)]
    objects = found.keypoints.get(column, [])
    if origin is Origin.KEYPOINT_COUNT:
        return [sum(visibility > 0 for _, _, visibility in points) for points in objects]
    axis = (Origin.KEYPOINT_X, Origin.KEYPOINT_Y, Origin.KEYPOINT_VISIBILITY).index(origin)
    return [point[axis] for points in objects for point in points]


def _pairs(numbers: Sequence[float]) -> Iterator[tuple[float, float]]:
    return zip(numbers[::2], numbers[1::2], strict=True)


def _corners(corners: Sequence[float], to_record: PointMap) -> Iterator[float]:
    """Yields the corners of an oriented box, which are not clipped: it would not be a rectangle."""
    for point in _pairs(corners):
        yield from to_record.placed(to_record.turned(to_record.in_pixels(point)))


def _keypoints(points: Sequence[float], to_record: PointMap) -> list[Keypoint]:
    return [
        _placed_keypoint((x, y), int(visibility), to_record)
        for x, y, visibility in zip(points[::3], points[1::3], points[2::3], strict=True)
    ]


def _placed_keypoint(point: tuple[float, float], visibility: int, to_record: PointMap) -> Keypoint:
    """Returns a keypoint as fractions of the record's image; outside of it, it is not labeled."""
    if not visibility:
        return 0.0, 0.0, 0
    turned = to_record.turned(to_record.in_pixels(point))
    inside = to_record.clipped(turned)
    away = max(abs(turned[0] - inside[0]), abs(turned[1] - inside[1]))
    if away > _ROUNDING * max(to_record.annotated):
        return 0.0, 0.0, 0
    x, y = to_record.placed(inside)
    return min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0), visibility


def with_keypoints(schema: Schema, found: TransformedObjects) -> TransformedObjects:
    """Adds the keypoints of objects, and `POINTS_OUTSIDE` if a labeled one is not in the image."""
    if found.map is None or not found.shapes:
        return found
    placed, lost = dict[str, list[list[Keypoint]]](), False
    for column in schema.columns_from(KEYPOINTS):
        shapes = found.shapes_of(column)
        placed[column] = [_keypoints(points, found.map) for points in shapes]
        labeled = (visibility > 0 for points in shapes for visibility in points[2::3])
        lost |= sum(labeled) > sum(v > 0 for points in placed[column] for *_, v in points)
    remarks = (*found.remarks, *(POINTS_OUTSIDE,) * lost)
    return found._replace(keypoints=placed, remarks=remarks)


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


def _placed(box: Box, to_record: PointMap) -> Box | None:
    """Turns, crops, scales and pads a box; returns None for a box outside the crop."""
    first, second = to_record.turned(box[:2]), to_record.turned(box[2:])
    # An orientation may swap the corners, so the coordinates are sorted again.
    corners = (*map(min, first, second),), (*map(max, first, second),)
    inside = (*to_record.clipped(corners[0]), *to_record.clipped(corners[1]))  # type: ignore[arg-type]
    if _problem(inside) is not None:
        return None
    placed = (*to_record.placed(inside[:2]), *to_record.placed(inside[2:]))
    # Clamped, because rounding errors could put a coordinate outside 0 to 1.
    return tuple(min(max(side, 0.0), 1.0) for side in placed)  # type: ignore[return-value]
