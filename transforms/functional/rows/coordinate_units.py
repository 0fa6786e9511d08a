"""Decides the units of coordinates that neither the options nor the rows state.

A box in pixels does not fit into the first pixel of its image. If most boxes or outlines do, they
are fractions of the image, and taking them for pixels would publish boxes without extent: the run
stops, and asks for the units. Coordinates up to 100 in larger images may be percentages, or not:
they are a finding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding, Severity
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.settings import AnnotationSettings, Units
from recordmill.schemas.sums import Summed
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.references import (
    coordinates_of,
    stated_size,
    units_of,
)
from recordmill.transforms.functional.values.boxes import NORMALIZED, PIXEL

# Columns with this prefix contain fractions, by the convention of the Object Detection API.
_CONVENTION = "image/object/bbox/"

# Fractions may exceed the edges of the image, as pixels do.
_MIN_FRACTION, _MAX_FRACTION = -0.5, 1.5

_OBJECTS = {"boxes": "boxes", "masks": "outlines"}


# The sides of images, in pixels, above which coordinates up to 100 may be percentages.
_LARGE = 150

# The largest coordinate that percentages have at least, and the fewest boxes or outlines from which
# this follows: in images that are stated to be larger, and in others.
_PERCENT, _FEW_LARGE, _FEW = 80, 4, 10


@dataclass
class CoordinateCounts(Summed):
    """The boxes or outlines whose units no row states."""

    total: int = 0
    fractions: int = 0  # those whose coordinates are all within the first pixel
    largest: float = 0.0  # the largest coordinate of all
    large: int = 0  # those in images that are stated to be larger than percentages
    small: int = 0  # those in images that are stated to be smaller

    def add(self, coordinates: list[float], size: tuple[float, float] | None = None) -> None:
        """Adds a box or an outline, unless it is at the origin or invalid in all units.

        `size` is the width and height of the image, if they are stated.
        """
        if all(map(math.isfinite, coordinates)) and any(c > 0 for c in coordinates):
            self.total += 1
            self.fractions += all(_MIN_FRACTION <= c <= _MAX_FRACTION for c in coordinates)
            self.largest = max(self.largest, *coordinates)
            if size is not None:
                self.large += min(size) > _LARGE
                self.small += min(size) <= _LARGE

    @property
    def may_be_percent(self) -> bool:
        """Whether all coordinates are up to 100, and those of pixels would have larger ones."""
        enough = self.large >= _FEW_LARGE or self.total >= _FEW
        return enough and _PERCENT <= self.largest <= 100 and not self.small


def count_coordinates(
    rows: RowBatch, binding: Binding, counts: dict[str, CoordinateCounts]
) -> None:
    """Adds the boxes and outlines of rows to the counts, by the block of the schema."""
    for block, settings in _blocks(binding.resolved.schema):
        if settings.units is None and not _state_units(rows, settings, binding):
            found = counts.setdefault(block, CoordinateCounts())
            for row in rows:
                size = stated_size(row, settings, binding.columns)
                for coordinates in _unstated(row, block, settings, binding):
                    found.add(coordinates, size)


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
    hint = f"set {choice}; or a column box_units for each row"
    is_warning = True
    if unlike:
        which = f"the coordinates of {unlike:,} of {total:,} {objects}"
        text = f"{which} are {'larger than 1' if by_convention else 'from 0 to 1'}"
        text += f", and are read as {'fractions of the image' if by_convention else 'pixels'}"
    elif total and by_convention:
        text, hint, is_warning = f"{_CONVENTION}* are read as fractions of the image", "", False
    elif found.may_be_percent:
        where = ", in larger images" if found.large else ""
        text = f"the coordinates of all {total:,} {objects} are up to 100{where}; they are read as "
        text += "pixels, not as percentages"
        hint = f"set --{block} units=pixel if they are; or divide them by 100 for units=normalized"
        is_warning = found.large > 0
    else:
        return units, None
    severity: Severity = "warning" if is_warning else "note"
    figures = {"objects": total, "unlike": unlike}
    kind = "units_of_coordinates"
    return units, Finding(kind=kind, severity=severity, text=text, hint=hint, figures=figures)
