"""Joins rows with the labels of a second table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.records import Row
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.transforms.elements import REJECTS, rejected
from recordmill.transforms.functional.rows.join import join_key, joined, unmatched
from recordmill.transforms.read_rows import ReadOutcome

UNMATCHED = "label rows without an image"

_ASIDES = "asides"
_ROWS, _LABELS = "rows", "labels"

Keyed = tuple[str, Row]
"""A row, and what it is joined by."""


@dataclass(eq=False)
class JoinLabels(beam.PTransform):
    """Joins rows with those of a table: ReadOutcome → ReadOutcome.

    Rows without labels are rejects; labels without a row are counted, and their own rejects are
    among those of the rows. Rows are shuffled once, and images never.

    Attributes:
        labels: the second table.
        column: what both are joined on.
        image_column: what rejects are called by.
    """

    labels: ReadOutcome
    column: str
    image_column: str

    def expand(self, read: ReadOutcome) -> ReadOutcome:
        """Adds the join."""
        sides = {_ROWS: read.good, _LABELS: self.labels.good}
        keyed = {
            side: rows
            | f"KeyOf{side.title()}"
            >> beam.FlatMap(_keyed, self.column).with_outputs(REJECTS, main=side)
            for side, rows in sides.items()
        }
        grouped = {
            side: found[side] | f"Typed{side.title()}" >> beam.Map(_same).with_output_types(Keyed)
            for side, found in keyed.items()
        } | "GroupByValue" >> beam.CoGroupByKey()  # (value, {"rows": [Row], "labels": [Row]})
        found = grouped | "Join" >> beam.FlatMap(
            _join, self.column, self.image_column
        ).with_outputs(REJECTS, _ASIDES, main="joined")
        rows: PCollection[Row] = found.joined
        rejects = (read.rejects, self.labels.rejects, *(k[REJECTS] for k in keyed.values()))
        return ReadOutcome(
            rows,
            (*rejects, found[REJECTS]) | "UnjoinedRows" >> beam.Flatten(),
            (read.asides, self.labels.asides, found[_ASIDES])
            | "AllSkippedInputs" >> beam.Flatten(),
        )


def _keyed(row: Row, column: str) -> Iterator[Keyed | TaggedOutput]:
    try:
        yield join_key(row, column), row
    except RecordError as error:
        yield rejected(Reject("", row.own_uri, row.source, error.reason, error.detail))


def _same(keyed: Keyed) -> Keyed:
    return keyed


def _join(
    group: tuple[str, Mapping[str, Iterable[Row]]], column: str, image_column: str
) -> Iterator[Row | TaggedOutput]:
    value, sides = group
    labels = list(sides[_LABELS])
    matched = False
    for row in sides[_ROWS]:
        matched = True
        if labels:
            yield joined(row, labels)
        else:
            yield rejected(unmatched(row, value, column, image_column))
    if not matched:
        yield TaggedOutput(_ASIDES, (UNMATCHED, len(labels)))
