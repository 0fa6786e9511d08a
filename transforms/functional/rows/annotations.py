"""Reads the boxes and outlines of rows, and decides the units that neither options nor rows state.

A box in pixels does not fit into the first pixel of its image. If most boxes or outlines do, they
are fractions of the image, and taking them for pixels would publish boxes without extent: the run
stops, and asks for the units. Coordinates up to 100 in larger images may be percentages, or not:
they are a finding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Feature, Missing, Schema
from recordmill.schemas.findings import Finding, Severity, finding
from recordmill.schemas.origins import KEYPOINTS, OUTLINES, POINTS, Origin
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef, Row, RowBoxes, RowOutlines
from recordmill.schemas.rejects import Reason, RecordError, located
from recordmill.schemas.settings import AnnotationSettings, BoxSettings, Units
from recordmill.schemas.sums import Summed
from recordmill.transforms.functional.images.masks import checked_outlines
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.feature_values import class_id
from recordmill.transforms.functional.values import typed
from recordmill.transforms.functional.values.boxes import (
    NORMALIZED,
    PIXEL,
    TO_CORNERS,
    UNITS,
    Box,
    box_of,
)

_SEPARATOR = re.compile(r"[,\s]+")
_CORNER_NUMBERS = 8


@dataclass(frozen=True)
class Annotations:
    """The boxes, outlines and other shapes in the rows of a table, as a schema has them."""

    resolved: ResolvedSchema
    columns: Mapping[str, str]  # the table column of each schema column whose name differs

    @property
    def _schema(self) -> Schema:
        return self.resolved.schema

    def _column(self, name: str) -> str:
        return self.columns.get(name, name)

    def added_to(self, ref: ImageRef, row: Row, resolve: Callable[[str], str]) -> ImageRef:
        """Adds the boxes of a row, and the outlines of its masks and their file, to its reference.

        `resolve` returns the address of a file. Raises RecordError if a value is missing or of the
        wrong type, or a list of the wrong length.
        """
        schema = self._schema
        if schema.has_boxes or schema.has_points:
            boxes = self._objects(row)
            self._check_lengths(ref, boxes.number)
            # Fields that are not set are left out, as they take part in fingerprints.
            ref = ref._replace(boxes=tuple(boxes) if boxes.shapes else tuple(boxes)[:3])
        if not schema.has_outlines:
            return ref
        found, file = self._outlines(row)
        if schema.has_instances and ref.boxes is not None:
            count = RowBoxes(*ref.boxes).number
            _check_number(self._outlines_column, found.objects, count, "box")
        elif schema.has_instances:
            self._check_lengths(ref, len(found.objects))
        at, place = len(schema.image_names), (resolve(file), None, None, b"")
        images, stated = (ref.others or ())[:at], (ref.others or ())[at:]
        if file and stated not in ((), (place,)):
            detail = f"expected one file per row for the mask and its segments, got {file!r}, too"
            raise RecordError(Reason.WRONG_TYPE, detail)
        if file:
            ref = ref._replace(others=(*images, place))
        return ref._replace(outlines=(found.units, found.objects, found.size))

    def _objects(self, row: Row) -> RowBoxes:
        schema = self._schema
        if schema.has_boxes:
            found = self._boxes(row)
        else:
            units = self._units_of(row, schema.boxes) or PIXEL
            found = RowBoxes(units, [], self._stated_size(row, schema.boxes))
        if not schema.has_points:
            return found
        shapes = self._shapes(row)
        number = found.number if schema.has_boxes else found._replace(shapes=shapes).number
        for name, feature in schema.columns_from(POINTS).items():
            items = shapes.get(name, [])
            if items or feature.missing is not Missing.EMPTY:
                _check_number(self._column(name), items, number, "object")
        self._check_keypoint_names(shapes)
        return found._replace(shapes=shapes)

    def _boxes(self, row: Row) -> RowBoxes:
        """Reads the boxes of a row; those outside the image are detected with the image."""
        settings = self._schema.boxes  # resolved, with either one column or four
        # One that is read from boxes, whose `missing` and `separator` apply to their columns.
        features = self._schema.features.values()
        feature = next(f for f in features if f.source.origin is Origin.BOX)
        used = list(map(self._column, settings.columns or (settings.column or "",)))
        # Four columns with one list of numbers each, or one column with a list of four numbers per
        # box.
        lists = [_items(row, column, feature) for column in used]
        items: list[Any] = _zipped(lists, used) if settings.columns else lists[0]
        corners, drops_invalid = TO_CORNERS[settings.order], settings.invalid == "drop"
        is_text = any(row.untyped(column) for column in used)
        read = partial(_four_numbers, column=None if settings.columns else used[0], is_text=is_text)
        fours = [box_of(partial(read, i, item), drops_invalid) for i, item in enumerate(items)]
        return RowBoxes(
            self._units_of(row, settings) or PIXEL,
            [x for four in fours for x in corners(*four)],
            self._stated_size(row, settings),
        )

    def _units_of(self, row: Row, settings: AnnotationSettings) -> str | None:
        """Returns the units that a row states, or else those of the settings; None if neither."""
        if settings.units_column is None:
            return settings.units
        column = self._column(settings.units_column)
        units = typed.single_value(row.values.get(column))
        if units is None or units == "":
            return settings.units
        if units not in UNITS:
            detail = f"column {column!r}: expected one of {', '.join(UNITS)}, got {units!r}"
            raise RecordError(Reason.WRONG_TYPE, detail)
        return str(units)

    def _stated_size(self, row: Row, settings: AnnotationSettings) -> tuple[float, float] | None:
        """Returns the width and height of the annotated image, if the row states both."""
        if settings.size_columns is None:
            return None
        width, height = (_stated_side(row, self._column(n)) for n in settings.size_columns)
        return (width, height) if width > 0 and height > 0 else None

    def _shapes(self, row: Row) -> dict[str, list[list[Any]]]:
        """Returns the corners, keypoints and names of all objects, by schema column."""
        shapes: dict[str, list[list[Any]]] = {}
        for name, feature in self._schema.columns_from(POINTS).items():
            column = self._column(name)
            items = _items(row, column, feature)
            if items:  # an optional column may be missing
                with located(f"column {column!r}"):
                    objects = [_READERS[feature.source.origin](item) for item in items]
                    is_filled = feature.source.origin in KEYPOINTS
                    shapes[name] = _filled(objects) if is_filled else objects
        return shapes

    def _check_keypoint_names(self, shapes: Mapping[str, list[list[Any]]]) -> None:
        """Checks that each keypoint of each object has a name, if the row has names."""
        points = [shapes.get(name, []) for name in self._schema.columns_from(KEYPOINTS)]
        expected = [[len(numbers) // 3 for numbers in objects] for objects in points]
        for name in self._schema.columns_from((Origin.KEYPOINT_NAME,)):
            found = [len(names) for names in shapes.get(name, ())]
            if found and expected and found not in expected:
                detail = f"expected a name for each keypoint, {expected[0]} per object, got {found}"
                raise RecordError(Reason.WRONG_TYPE, f"column {self._column(name)!r}: {detail}")

    def _check_lengths(self, ref: ImageRef, number: int) -> None:
        """Checks that lists of box features have one item per box; a missing one may be empty."""
        for feature, values in zip(self._schema.features.values(), ref.values, strict=True):
            is_stated = values or feature.missing is not Missing.EMPTY
            if is_stated and feature.of_boxes and isinstance(values, list):
                _check_number(self._column(feature.source.name), values, number, "box")

    @property
    def _outlines_column(self) -> str:
        return self._column(next(iter(self._schema.columns_from(OUTLINES))))

    def _outlines(self, row: Row) -> tuple[RowOutlines, str]:
        """Returns the objects in drawing order, and the file of outlines that are segments."""
        settings, column = self._schema.masks, self._outlines_column
        outlines = _items(row, column)
        segments = [o for o in outlines if isinstance(o, Mapping) and "segment" in o]
        files = {str(outline.get("file") or "") for outline in segments}
        if len(files) > 1 or "" in files:
            what = f"column {column!r}: expected segments of one file"
            shown = ", ".join(map(repr, sorted(files)[:3]))
            detail = f"{what}, {{segment, file}}, got the files {shown}"
            raise RecordError(Reason.WRONG_TYPE, detail)
        classes = [0] * len(outlines)
        if self._schema.draws_classes:
            classes = self._classes_of_outlines(row, len(outlines))
        # [(class id, outline)], drawn in this order: later objects cover earlier ones.
        with located(f"column {column!r}"):
            checked = checked_outlines(outlines, settings.run_order)
        objects = list(zip(classes, checked, strict=True))
        units = self._units_of(row, settings) or PIXEL
        return RowOutlines(units, objects, self._stated_size(row, settings)), "".join(files)

    def _classes_of_outlines(self, row: Row, number: int) -> list[int]:
        name, column = self._schema.mask_feature or "", self._column(self._schema.masks.labels)
        labels, ids = _items(row, column), self.resolved.class_ids[name]
        _check_number(column, labels, number, "outline")
        is_text = row.untyped(column)
        with located(f"column {column!r}"):
            return [class_id(label, is_text, ids) for label in labels]

    def count(self, rows: RowBatch, counts: dict[str, CoordinateCounts]) -> None:
        """Adds the boxes and outlines of rows to the counts, by the block of the schema."""
        for block, settings in self._schema.annotations.items():
            units = settings.units_column
            # As the rows of annotation formats do.
            all_state_units = units is not None and all(rows.column(self._column(units)))
            is_open = isinstance(settings, BoxSettings) and not settings.states_order
            if (settings.units is None or is_open) and not all_state_units:
                found = counts.setdefault(block, CoordinateCounts())
                unstated = settings.model_copy(update={"units": None})
                for row in rows:
                    size = self._stated_size(row, settings)
                    for coordinates in self._unstated(row, block, unstated):
                        found.add(coordinates, size)

    def _unstated(self, row: Row, block: str, settings: AnnotationSettings) -> list[list[float]]:
        try:
            stated = self._units_of(row, settings)
            return self._coordinates(row, block) if stated is None else []
        except RecordError:  # the row is rejected when it is bound
            return []

    def _coordinates(self, row: Row, block: str) -> list[list[float]]:
        """Returns the coordinates of each box, for "boxes", or of each polygon, for "masks"."""
        schema = self._schema
        if block == "boxes" and schema.has_boxes:
            corners = self._boxes(row).corners
            return [corners[i : i + 4] for i in range(0, len(corners), 4)]
        if block == "boxes":
            found = self._shapes(row).items()
            return [c for name, shapes in found for c in self._points(name, shapes)]
        column = self._outlines_column
        with located(f"column {column!r}"):
            outlines = checked_outlines(_items(row, column), schema.masks.run_order)
        return [polygon for outline in outlines if isinstance(outline, list) for polygon in outline]

    def _points(self, name: str, shapes: list[list[Any]]) -> list[list[float]]:
        """Returns the coordinates of oriented boxes, or of the labeled keypoints of each object."""
        if name in self._schema.columns_from((Origin.CORNERS,)):
            return shapes
        if name not in self._schema.columns_from(KEYPOINTS):
            return []
        points = ([s[i : i + 2] for i in range(0, len(s), 3) if s[i + 2]] for s in shapes)
        return [[side for point in found for side in point] for found in points if found]


_ANY_LIST = Feature.model_validate({"kind": "bytes", "from": "column:any", "shape": []})


def _items(row: Row, column: str, feature: Feature = _ANY_LIST) -> list[Any]:
    """Returns the items of a list, as the feature says where one is missing, or is text."""
    value, is_text = row.values.get(column), row.untyped(column)
    with located(f"column {column!r}"):
        if not typed.is_missing(value, feature, is_text):
            return typed.items_of(value, feature, is_text)
        if feature.missing is not Missing.EMPTY:
            detail = "empty; expected a list, which may be empty: []"
            raise RecordError(Reason.MISSING_VALUE, detail)
        return []


def _zipped(lists: list[list[Any]], columns: list[str]) -> list[tuple[Any, ...]]:
    counts = [len(items) for items in lists]
    if len(set(counts)) > 1:
        found = ", ".join(f"{n} in {column!r}" for n, column in zip(counts, columns, strict=True))
        detail = f"expected the same number of items in each column, got {found}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    return list(zip(*lists, strict=True))


def _four_numbers(index: int, item: Any, column: str | None, is_text: bool) -> Box:
    four = _SEPARATOR.split(item.strip()) if is_text and isinstance(item, str) else item
    if not isinstance(four, list | tuple) or len(four) != 4:
        detail = f"column {column!r}: box {index}: expected a list of 4 numbers, got {item!r}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    with located(f"box {index}"):
        one, two, three, four_ = (typed.to_number(value, is_text) for value in four)
    return one, two, three, four_


def _stated_side(row: Row, column: str) -> float:
    """Returns a side in pixels, which tables with a row per box repeat; 0 if none is stated."""
    value = row.values.get(column)
    if isinstance(value, list | tuple):
        value = value[0] if value and value.count(value[0]) == len(value) else None
    if value is None or value == "":
        return 0
    try:
        side = typed.to_number(value, row.untyped(column) or isinstance(value, str))
    except RecordError:  # such as "unknown", or the widths of boxes
        return 0
    return side if math.isfinite(side) else 0


def _filled(objects: list[list[float]]) -> list[list[float]]:
    """Returns the keypoints of objects; those of an object without any are 0, as in COCO."""
    lengths = {len(points) for points in objects if points}
    if not lengths or all(objects):
        return objects
    if len(lengths) > 1:
        detail = f"object {objects.index([])}: expected keypoints, got none"
        raise RecordError(Reason.WRONG_TYPE, f"{detail}. Write 0, 0, 0 for each one not labeled.")
    return [points or [0.0] * max(lengths) for points in objects]


def _numbers(item: Any, expected: str) -> list[list[float]]:
    """Returns points as lists of numbers; text is such as "10 20 30 40"."""
    item = _SEPARATOR.split(item.strip()) if isinstance(item, str) and item.strip() else item
    points: Any = (item or []) if isinstance(item, list | tuple | str | None) else [None]
    is_flat = not points or not isinstance(points[0], list | tuple)
    try:
        found = [
            [typed.to_number(n, isinstance(n, str)) for n in p]
            for p in ([points] if is_flat else points)
        ]
    except (RecordError, TypeError):
        found = [[math.nan]]
    if not all(math.isfinite(number) for point in found for number in point):
        raise RecordError(Reason.WRONG_TYPE, f"expected {expected}, got {typed.short_repr(item)}")
    return found


def _corners(item: Any) -> list[float]:
    expected = "four corners, [x1, y1, x2, y2, x3, y3, x4, y4]"
    corners = [number for point in _numbers(item, expected) for number in point]
    if len(corners) != _CORNER_NUMBERS:
        raise RecordError(Reason.WRONG_TYPE, f"expected {expected}, got {typed.short_repr(item)}")
    return corners


def _keypoints(item: Any) -> list[float]:
    """Returns x, y and visibility of each keypoint.

    A flat list has three numbers per keypoint, as in COCO; in lists of lists, keypoints without a
    visibility are visible.
    """
    expected = "keypoints [x, y, visibility, …] with a visibility of 0, 1 or 2, or [[x, y], …]"
    points = _numbers(item, expected)
    if len(points) == 1 and len(points[0]) % 3 == 0:
        flat = points[0]
    elif {len(point) for point in points} <= {2, 3}:
        flat = [number for point in points for number in (*point, 2.0)[:3]]
    else:
        flat = [math.nan] * 3
    if not {*flat[2::3]} <= {0.0, 1.0, 2.0}:
        raise RecordError(Reason.WRONG_TYPE, f"{expected}, got {typed.short_repr(item)}")
    return flat


def _names(item: Any) -> list[bytes]:
    item = [] if item is None else item
    names = item if isinstance(item, list | tuple) else _SEPARATOR.split(str(item).strip())
    return [typed.to_bytes(name, is_text=True) for name in names]


_READERS: dict[Origin, Callable[[Any], list[Any]]] = {
    **dict.fromkeys(KEYPOINTS, _keypoints),
    Origin.CORNERS: _corners,
    Origin.KEYPOINT_NAME: _names,
}


def _check_number(column: str, items: Sized, number: int, of: str) -> None:
    if len(items) != number:
        detail = f"column {column!r}: expected {number} items, one per {of}, got {len(items)}"
        raise RecordError(Reason.WRONG_TYPE, detail)


# Columns with this prefix contain fractions, by the convention of the Object Detection API.
_CONVENTION = "image/object/bbox/"

# Fractions may exceed the edges of the image, as pixels do.
_MIN_FRACTION, _MAX_FRACTION = -0.5, 1.5

_OBJECTS = {"boxes": "boxes", "masks": "outlines"}


# The fewest inverted boxes that may be in another order than that of corners.
_FEW_INVERTED = 3

# The ends of names of columns that are no corners.
_SIZE = re.compile(r"(^|[\W_])(w|h|width|height)$", re.IGNORECASE)

# The sides of images, in pixels, above which coordinates up to 100 may be percentages.
_LARGE = 150

# The largest coordinate that percentages have at least, unless images are stated to be larger, and
# the fewest boxes or outlines in these from which it follows that they may be percentages.
_PERCENT, _FEW_LARGE = 80, 4


@dataclass
class CoordinateCounts(Summed):
    """The boxes or outlines whose units no row states."""

    total: int = 0
    fractions: int = 0  # those whose coordinates are all within the first pixel
    largest: float = 0.0  # the largest coordinate of all
    large: int = 0  # those in images that are stated to be larger than percentages
    small: int = 0  # those in images that are stated to be smaller
    inverted: int = 0  # those whose second corner is to the left of or above the first

    def add(self, coordinates: list[float], size: tuple[float, float] | None = None) -> None:
        """Adds a box or an outline, unless it is at the origin or invalid in all units."""
        if all(map(math.isfinite, coordinates)) and any(c > 0 for c in coordinates):
            self.total += 1
            self.fractions += all(_MIN_FRACTION <= c <= _MAX_FRACTION for c in coordinates)
            self.largest = max(self.largest, *map(float, coordinates))
            if len(coordinates) == 4:  # keypoints can have two numbers
                self.inverted += coordinates[2] < coordinates[0] or coordinates[3] < coordinates[1]
            if size is not None:
                self.large += min(size) > _LARGE
                self.small += min(size) <= _LARGE

    @property
    def may_be_percent(self) -> bool:
        """Whether all coordinates are up to 100, and those of pixels would have larger ones."""
        is_large = self.large > 0 or self.largest >= _PERCENT
        return is_large and self.largest <= 100 and not self.small


def with_units(
    schema: Schema, columns: Mapping[str, str], counts: Mapping[str, CoordinateCounts]
) -> tuple[Schema, list[Finding]]:
    """Returns a schema with units, and findings; UsageError if coordinates contradict them."""
    findings, column = list[Finding](), schema.boxes.column
    found = counts.get("boxes", CoordinateCounts())
    _check_order(schema, columns, found)
    if found.total and column and not schema.boxes.states_order:
        text = f"{columns.get(column, column)!r} is read as two corners, xmin, ymin, xmax, ymax"
        hint = "set --boxes order=xywh for left, top, width, height; or order=xyxy"
        findings.append(finding("warning", "order_of_boxes", text, hint))
    for block, settings in schema.annotations.items():
        if settings.units is None:
            units, note = _decided(
                block, counts.get(block, CoordinateCounts()), _by_convention(schema, block, columns)
            )
            update = {block: settings.model_copy(update={"units": units})}
            schema = schema.model_copy(update=update)
            findings += [note] if note else []
    return schema, findings


def _check_order(schema: Schema, columns: Mapping[str, str], found: CoordinateCounts) -> None:
    """Rejects boxes of a table that may be no corners, unless their order is stated."""
    boxes, (inverted, total) = schema.boxes, (found.inverted, found.total)
    # Four columns state it by their names, unless these are other ones.
    others = [columns[name] for name in boxes.columns or () if columns.get(name, name) != name]
    what = [f"{name!r} is named like a size" for name in others if _SIZE.search(name)]
    if inverted >= _FEW_INVERTED and 4 * inverted >= total:
        what.append(f"{inverted:,} of {total:,} boxes are inverted as two corners")
    if what and schema.has_boxes and not boxes.states_order and (boxes.column or others):
        raise UsageError(
            f"--boxes: the order of the numbers of boxes is not stated, and {what[0]}. Set --boxes "
            "order=xywh for left, top, width, height; order=cxcywh for center, width, height; or "
            "order=xyxy for two corners."
        )


def _by_convention(schema: Schema, block: str, columns: Mapping[str, str]) -> bool:
    of_boxes = (*(schema.boxes.columns or ()), schema.boxes.column or "")
    names = [columns.get(name, name) for name in of_boxes if name]
    return block == "boxes" and all(name.startswith(_CONVENTION) for name in names)


def _decided(
    block: str, found: CoordinateCounts, by_convention: bool
) -> tuple[Units, Finding | None]:
    objects, (total, fractions) = _OBJECTS[block], (found.total, found.fractions)
    are_fractions = 2 * fractions >= total
    choice = f"--{block} units=normalized for fractions of the image, or units=pixel for pixels"
    if total and by_convention and not are_fractions:
        raise UsageError(
            f"--{block}: expected coordinates from 0 to 1 in {_CONVENTION}*, and "
            f"{total - fractions:,} of {total:,} {objects} have larger ones. Set {choice}."
        )
    if total and are_fractions and not by_convention:
        raise UsageError(
            f"--{block}: the coordinates of {fractions:,} of {total:,} {objects} are from 0 to 1, "
            f"and their units are not stated. Set {choice}."
        )
    units: Units = NORMALIZED if by_convention else PIXEL
    unlike = total - fractions if by_convention else fractions
    hint = f"set {choice}; or a column box_units for each row"
    severity: Severity = "warning"
    if unlike:
        which = f"the coordinates of {unlike:,} of {total:,} {objects}"
        text = f"{which} are {'larger than 1' if by_convention else 'from 0 to 1'}"
        text += f", and are read as {'fractions of the image' if by_convention else 'pixels'}"
    elif total and by_convention:
        text, hint, severity = f"{_CONVENTION}* are read as fractions of the image", "", "note"
    elif found.may_be_percent:
        where = ", in larger images" if found.large else ""
        text = f"the coordinates of all {total:,} {objects} are up to 100{where}; they are read as "
        text += "pixels, not as percentages"
        hint = f"set --{block} units=pixel if they are; or divide them by 100 for units=normalized"
        severity = "warning" if found.large >= _FEW_LARGE else "note"
    else:
        return units, None
    figures = {"objects": total, "unlike": unlike}
    return units, finding(severity, "units_of_coordinates", text, hint, figures=figures)
