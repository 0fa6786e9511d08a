"""Box statistics of a report: boxes per record, their sizes, and a map of their centers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipelines.report.histograms import Histogram, histogram_of_values, number_text
from recordmill.schemas.features import BOX_SIDES, Origin, Schema
from recordmill.transforms.functional.rendering.drawing import BOX_KEYS, BOX_LABEL_KEY
from recordmill.transforms.functional.rendering.infer_features import MASK_KEY
from recordmill.transforms.functional.values.boxes import TO_CORNERS

# Cells per side of the map of centers.
GRID = 12

# (xmin, ymin, xmax, ymax) as fractions of the image.
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Cell:
    """A cell of the map of centers."""

    column: int  # its number from the left, from 0
    row: int  # its number from the top, from 0
    count: int
    shade: float


@dataclass(frozen=True)
class BoxStatistics:
    """The statistics of the boxes in a sample of records."""

    records: int
    boxes: int
    # (title, histogram) of boxes per record, and of widths, heights and sizes.
    histograms: tuple[tuple[str, Histogram], ...]
    centers: tuple[Cell, ...]


def box_statistics(
    schema: Schema, records: Sequence[Mapping[str, Sequence[Any]]]
) -> BoxStatistics | None:
    """Returns the statistics of boxes, or None without any."""
    found = [list(_boxes(schema, record)) for record in records]
    boxes = [box for of_record in found for box in of_record]
    if not boxes:
        return None
    widths = [xmax - xmin for xmin, _, xmax, _ in boxes]
    heights = [ymax - ymin for _, ymin, _, ymax in boxes]
    sizes = [math.sqrt(width * height) for width, height in zip(widths, heights, strict=True)]
    histograms = (
        ("Boxes per record", histogram_of_values([len(each) for each in found], number_text)),
        ("Width / image width", histogram_of_values(widths, _percent)),
        ("Height / image height", histogram_of_values(heights, _percent)),
        ("Square root of area / image area", histogram_of_values(sizes, _percent)),
    )
    return BoxStatistics(len(records), len(boxes), histograms, tuple(_centers(boxes)))


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _boxes(schema: Schema, record: Mapping[str, Sequence[Any]]) -> Iterator[Box]:
    sides: dict[str, Sequence[float]] = {}
    for name, feature in schema.features.items():
        if feature.source.origin is Origin.BOX:
            values, order = record.get(name, ()), feature.source.name
            if order in TO_CORNERS:
                # The concatenated boxes: the values i, i + 4, i + 8, … are the same side of each.
                parts = zip(*(values[side::4] for side in range(4)), strict=True)
                yield from (TO_CORNERS[order](*part) for part in parts)
                return
            sides[order] = values
    if len(sides) == len(BOX_SIDES):
        yield from zip(*(sides[side] for side in BOX_SIDES), strict=True)


def with_drawn_keys(schema: Schema, features: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Adds the boxes, labels and mask of a record under the keys by which they are drawn."""
    found: dict[str, list[Any]] = {}
    if schema.has_boxes:
        boxes = list(_boxes(schema, features))
        found = {key: [box[side] for box in boxes] for side, key in enumerate(BOX_KEYS)}
    if (label := box_label_of(schema)) is not None:
        found[BOX_LABEL_KEY] = features.get(label, [])
    if schema.mask_feature is not None:
        found[MASK_KEY] = features.get(schema.mask_feature, [])
    others = {name: values for name, values in features.items() if name != schema.mask_feature}
    return {**others, **found}


def box_label_of(schema: Schema) -> str | None:
    """Returns the Example key of the classes of boxes, or None."""
    return next((name for name, f in schema.features.items() if f.per_box and f.classes), None)


def _centers(boxes: Sequence[Box]) -> Iterator[Cell]:
    counts: dict[tuple[int, int], int] = {}
    for xmin, ymin, xmax, ymax in boxes:
        place = (_cell((xmin + xmax) / 2), _cell((ymin + ymax) / 2))
        counts[place] = counts.get(place, 0) + 1
    top = max(counts.values())
    for (column, row), count in sorted(counts.items()):
        yield Cell(column, row, count, round(count / top, 3))


def _cell(share: float) -> int:
    return min(GRID - 1, max(0, int(share * GRID)))
