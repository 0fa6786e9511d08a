"""Decides the units of coordinates that neither the options nor the rows state.

A box in pixels does not fit into the first pixel of its image. If most boxes or outlines do, they
are fractions of the image, and taking them for pixels would publish boxes without extent: the run
stops, and asks for the units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.settings import AnnotationSettings, Units
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.references import coordinates_of, units_of
from recordmill.transforms.functional.values.boxes import NORMALIZED, PIXEL

# Columns with this prefix contain fractions, by the convention of the Object Detection API.
_CONVENTION = "image/object/bbox/"

# Fractions may exceed the edges of the image, as pixels do.
_MIN_FRACTION, _MAX_FRACTION = -0.5, 1.5

_OBJECTS = {"boxes": "boxes", "masks": "outlines"}


@dataclass
class CoordinateCounts:
    """The boxes or outlines whose units no row states; parts can be merged in any order."""

    total: int = 0
    fractions: int = 0  # those whose coordinates are all within the first pixel

    def add(self, coordinates: list[float]) -> None:
        """Adds a box or an outline, unless it is at the origin or invalid in all units."""
        if all(map(math.isfinite, coordinates)) and any(c > 0 for c in coordinates):
            self.total += 1
            self.fractions += all(_MIN_FRACTION <= c <= _MAX_FRACTION for c in coordinates)

    def merge(self, other: CoordinateCounts) -> None:
        """Adds the counts of another part of the rows."""
        self.total += other.total
        self.fractions += other.fractions


def count_coordinates(
    rows: RowBatch, binding: Binding, counts: dict[str, CoordinateCounts]
) -> None:
    """Adds the boxes and outlines of rows to the counts, by the block of the schema."""
    for block, settings in _blocks(binding.resolved.schema):
        if settings.units is None and not _state_units(rows, settings, binding):
            found = counts.setdefault(block, CoordinateCounts())
            for row in rows:
                for coordinates in _unstated(row, block, settings, binding):
                    found.add(coordinates)


def _state_units(rows: RowBatch, settings: AnnotationSettings, binding: Binding) -> bool:
    """Returns whether all rows state their units, as those of annotation formats do."""
    column = settings.units_column
    return column is not None and all(rows.column(binding.table_column(column)))


def _unstated(
    row: Row, block: str, settings: AnnotationSettings, binding: Binding
) -> list[list[float]]:
    try:
        if units_of(row, settings, binding.columns) is not None:
            return []
        return coordinates_of(row, block, binding.resolved.schema, binding.columns)
    except RecordError:  # the row is rejected when it is bound
        return []


def _blocks(schema: Schema) -> Iterator[tuple[str, AnnotationSettings]]:
    if schema.has_boxes:
        yield "boxes", schema.boxes
    if schema.has_outlines:
        yield "masks", schema.masks


def with_units(
    schema: Schema, binding: Binding, counts: dict[str, CoordinateCounts]
) -> tuple[Schema, list[Finding]]:
    """Returns a schema that states the units of its coordinates, and findings on them.

    Raises a UsageError if the coordinates contradict their default.
    """
    findings = []
    for block, settings in _blocks(schema):
        if settings.units is None:
            units, finding = _decided(
                block, counts.get(block, CoordinateCounts()), _by_convention(schema, block, binding)
            )
            update = {block: settings.model_copy(update={"units": units})}
            schema = schema.model_copy(update=update)
            findings += [finding] if finding else []
    return schema, findings


def _by_convention(schema: Schema, block: str, binding: Binding) -> bool:
    columns = (*(schema.boxes.columns or ()), schema.boxes.column or "")
    names = [binding.table_column(name) for name in columns if name]
    return block == "boxes" and all(name.startswith(_CONVENTION) for name in names)


def _decided(
    block: str, found: CoordinateCounts, by_convention: bool
) -> tuple[Units, Finding | None]:
    """Returns the units of a block, and what should be known about them."""
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
    if unlike:
        which = f"the coordinates of {unlike:,} of {total:,} {objects}"
        text = f"{which} are {'larger than 1' if by_convention else 'from 0 to 1'}"
        text += f", and are read as {'fractions of the image' if by_convention else 'pixels'}"
    elif total and by_convention:
        text = f"{_CONVENTION}* are read as fractions of the image"
    else:
        return units, None
    return units, Finding(
        kind="units_of_coordinates",
        severity="warning" if unlike else "note",
        text=text,
        hint=f"set {choice}; or a column box_units for each row" if unlike else "",
        figures={"objects": total, "unlike": unlike},
    )
