"""Finds where a sample of rows ends (`--sample`), and selects its rows after a join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.transforms.elements import REJECTS
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.placement import Positions, Sampler, first_positions
from recordmill.transforms.read_rows import SKIPPED, ReadOutcome, tagged_batches

# Positions that an accumulator collects before it discards those after the first.
_COLLECTED = 2**16


@dataclass(eq=False)
class FindSample(beam.PTransform):
    """Finds where a sample ends: ReadOutcome → PCollection[Sampler], one element."""

    sampler: Sampler  # the sampler of a percentage, or of all rows
    # The number of rows in the sample; None for a percentage, which no row has to be read for.
    rows: int | None

    def expand(self, read: ReadOutcome) -> PCollection[Sampler]:
        """Adds the selection of the first positions: 8 bytes per row of the sample and worker."""
        if self.rows is None:
            return read.good.pipeline | "SampleOfPart" >> beam.Create([self.sampler])
        # Each on its own: runners may hold in memory what goes into a Flatten, and rows are large.
        positions = (
            read.good | "PositionsOfRows" >> beam.Map(_positions_of, self.sampler),
            read.rejects | "PositionsOfRejects" >> beam.Map(_position_of, self.sampler),
        )
        first = (
            positions
            | "AllPositions" >> beam.Flatten()
            | "FirstPositions" >> beam.CombineGlobally(FirstPositionsFn(self.rows))
        )
        return first | "SampleOfRows" >> beam.Map(self.sampler.ending_after, self.rows)


def _position_of(reject: Reject, sampler: Sampler) -> Positions:
    return _positions_of([reject], sampler)


def _positions_of(rows: Iterable[Row | Reject], sampler: Sampler) -> Positions:
    """Returns the hash positions of rows, or of rejects of rows that cannot be read."""
    return np.array([sampler.position(row) for row in rows], np.uint64)


@dataclass(eq=False)
class FirstPositionsFn(beam.CombineFn):
    """Combines hash positions into the first distinct ones, sorted."""

    number: int

    def create_accumulator(self) -> list[Positions]:
        """Returns no positions."""
        return []

    def add_input(self, found: list[Positions], positions: Positions) -> list[Positions]:
        """Adds positions to those found.

        `found`: positions in several parts, changed in place.
        """
        found.append(positions)
        # Later positions are discarded only now and then, so that the cost per row is constant.
        if sum(map(len, found[1:])) > max(self.number, _COLLECTED):
            found[:] = [first_positions(found, self.number)]
        return found

    def merge_accumulators(self, parts: Iterable[list[Positions]]) -> list[Positions]:
        """Returns the first positions of several parts, of which one at a time is in memory."""
        return [first_positions(chain.from_iterable(parts), self.number)]

    def compact(self, found: list[Positions]) -> list[Positions]:
        """Returns the first positions in one part, which is what leaves a worker."""
        return [first_positions(found, self.number)]

    def extract_output(self, found: list[Positions]) -> Positions:
        """Returns the first positions."""
        return first_positions(found, self.number)


@dataclass(eq=False)
class SampleRows(beam.PTransform):
    """Selects the rows of a sample, and counts the others: ReadOutcome → ReadOutcome."""

    sample: PCollection[Sampler]  # the sampler; one element

    def expand(self, read: ReadOutcome) -> ReadOutcome:
        """Adds the selection."""
        selected = _all_rows(read) | "Select" >> beam.FlatMap(
            _selected_rows, AsSingleton(self.sample)
        ).with_output_types(RowBatch).with_outputs(REJECTS, SKIPPED, main="rows")
        skipped = (read.skipped, selected[SKIPPED]) | "WithOutside" >> beam.Flatten()
        return ReadOutcome(selected.rows, selected[REJECTS], skipped)


def _selected_rows(
    rows: Iterable[Row | Reject], sampler: Sampler
) -> Iterator[RowBatch | TaggedOutput]:
    """Yields the rows in a sample, and the number of others.

    `rows`: rows, or rejects of rows that cannot be read.
    """
    return tagged_batches(sampler.select(rows))


def _all_rows(read: ReadOutcome) -> PCollection[list[Row | Reject]]:
    """Returns batches of all rows, with those that cannot be read."""
    rejects = read.rejects | "ListOfReject" >> beam.Map(_listed)
    return (read.good, rejects) | "AllRows" >> beam.Flatten()


def _listed(reject: Reject) -> list[Reject]:
    return [reject]
