"""Finds where a sample of rows ends (`--sample`), and selects its rows after a join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.transforms.elements import REJECTS
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.placement import END, POSITION_BYTES, Sampler
from recordmill.transforms.read_rows import SKIPPED, ReadOutcome, tagged_batches
from recordmill.transforms.select_ranks import End, Hashes, SelectRanks


@dataclass(eq=False)
class FindSample(beam.PTransform):
    """Finds where a sample ends: ReadOutcome → PCollection[Sampler], one element."""

    sampler: Sampler  # the sampler of a percentage, or of all rows
    # The number of rows in the sample; None for a percentage, which no row has to be read for.
    rows: int | None

    def expand(self, read: ReadOutcome) -> PCollection[Sampler]:
        """Adds the selection of the last position: a shuffle of 8 bytes per row."""
        if self.rows is None:
            return read.good.pipeline | "SampleOfPart" >> beam.Create([self.sampler])
        # Each on its own: runners may hold in memory what goes into a Flatten, and rows are large.
        hashes = (
            read.good | "HashesOfRows" >> beam.Map(_hashes_of, self.sampler),
            read.rejects | "HashOfReject" >> beam.Map(_hash_of, self.sampler),
        )
        last = partial(_last_rank, rows=self.rows)
        return (
            hashes
            | "AllHashes" >> beam.Flatten().with_output_types(Hashes)
            | "SelectRanks" >> SelectRanks(last)
            | "SampleOfRows" >> beam.Map(_ending_after, self.sampler)
        )


def _hash_of(reject: Reject, sampler: Sampler) -> Hashes:
    return _hashes_of([reject], sampler)


def _hashes_of(rows: Iterable[Row | Reject], sampler: Sampler) -> Hashes:
    """Returns the hash positions of rows, or of rejects of rows that cannot be read."""
    return {"": b"".join(sampler.position(row).to_bytes(POSITION_BYTES, "big") for row in rows)}


def _last_rank(_: Mapping[str, int], rows: int) -> dict[str, list[int]]:
    return {"": [rows - 1]}


def _ending_after(ends: Mapping[str, Sequence[End]], sampler: Sampler) -> Sampler:
    ((_, last),) = ends[""]
    return replace(sampler, end=min(last + 1, END))


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
