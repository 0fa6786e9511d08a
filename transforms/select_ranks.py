"""Selects hash positions by their ranks, without one worker that sorts all of them.

Splits of exact sizes, shards with a number of records, and samples with a number of rows all end at
the position with some rank among the distinct ones of a group: a stratum, a split, or all rows.
Positions are counted in buckets, which fit in memory, and each rank is looked up in one of them:

    {group: hashes} → (bucket, {group: positions}) → {group: total} → {group: ranks} → {group: ends}
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import AsIter, AsSideInput, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.transforms.elements import REJECTS
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.placement import END, POSITION_BYTES, Sampler
from recordmill.transforms.read_rows import SKIPPED, ReadOutcome, tagged_batches

# Buckets are equal ranges of positions: with 10^8 rows, each holds 1.6 million of them, 13 MB.
_BUCKETS = 64

# The positions of rows by group, each as 8 bytes.
Hashes: TypeAlias = dict[str, bytes]

# The distinct positions of a group, sorted.
_Positions: TypeAlias = npt.NDArray[np.uint64]


class End(NamedTuple):
    """The position with a rank, so that as many positions are before it."""

    rank: int
    position: int  # `END` if there are no more positions than the rank


# The ranks to select in each group; from the number of distinct positions of each, and side inputs.
Choose: TypeAlias = Callable[..., Mapping[str, Sequence[int]]]


@dataclass(eq=False)
class SelectRanks(beam.PTransform):
    """Selects positions by rank: PCollection[Hashes] → PCollection[{group: [End]}], one element."""

    choose: Choose
    given: AsSideInput | None = None  # what `choose` takes besides the numbers of positions, if any

    def expand(self, hashes: PCollection[Hashes]) -> PCollection[dict[str, list[End]]]:
        """Adds a shuffle of 8 bytes per row."""
        positions = (
            hashes
            | "HashesByBucket" >> beam.FlatMap(_by_bucket).with_output_types(tuple[int, Hashes])
            | "GroupByBucket" >> beam.GroupByKey()  # (bucket, [{group: hashes}])
            | "DistinctPositions" >> beam.MapTuple(_distinct)  # (bucket, {group: _Positions})
        )
        counts = positions | "CountPositions" >> beam.MapTuple(_count)  # (bucket, {group: number})
        asked = (
            hashes.pipeline
            | "OneChoice" >> beam.Impulse()
            | "ChooseRanks" >> beam.Map(_choose, self.choose, AsIter(counts), self.given)  # _Asked
        )
        found = positions | "FindInBucket" >> beam.FlatMap(_find, AsSingleton(asked))
        return asked | "EndsOfGroups" >> beam.Map(_ends, AsIter(found))


class _Asked(NamedTuple):
    """The ranks to select, and where they are."""

    ranks: Mapping[str, Sequence[int]]
    # {bucket: {group: [(rank, rank within the bucket)]}} of ranks with a position.
    by_bucket: Mapping[int, Mapping[str, Sequence[tuple[int, int]]]]


def _by_bucket(hashes: Hashes) -> Iterator[tuple[int, Hashes]]:
    found = defaultdict[int, dict[str, bytearray]](dict)
    for group, data in hashes.items():
        for start in range(0, len(data), POSITION_BYTES):
            within = found[data[start] * _BUCKETS >> 8]
            within.setdefault(group, bytearray()).extend(data[start : start + POSITION_BYTES])
    for bucket, groups in found.items():
        yield bucket, {group: bytes(data) for group, data in groups.items()}


def _distinct(bucket: int, parts: Iterable[Hashes]) -> tuple[int, dict[str, _Positions]]:
    hashes = defaultdict[str, list[bytes]](list)
    for part in parts:
        for group, data in part.items():
            hashes[group].append(data)
    # All rows with one key have the same position, and only one becomes a record.
    return bucket, {
        group: np.unique(np.frombuffer(b"".join(data), ">u8")).astype(np.uint64)
        for group, data in hashes.items()
    }


def _count(bucket: int, positions: Mapping[str, _Positions]) -> tuple[int, dict[str, int]]:
    return bucket, {group: len(found) for group, found in positions.items()}


def _choose(
    _: bytes, choose: Choose, counted: Iterable[tuple[int, Mapping[str, int]]], given: Any = None
) -> _Asked:
    counts: dict[str, list[int]] = {}  # by bucket
    for bucket, groups in counted:
        for group, number in groups.items():
            counts.setdefault(group, [0] * _BUCKETS)[bucket] = number
    totals = {group: sum(numbers) for group, numbers in counts.items()}
    ranks = choose(totals) if given is None else choose(totals, given)
    by_bucket = defaultdict[int, dict[str, list[tuple[int, int]]]](dict)
    for group, asked in ranks.items():
        numbers = counts.get(group, [])
        ends = list(accumulate(numbers))
        for rank in asked:
            if (bucket := bisect_right(ends, rank)) < len(ends):
                within = rank - (ends[bucket] - numbers[bucket])
                by_bucket[bucket].setdefault(group, []).append((rank, within))
    return _Asked(ranks, dict(by_bucket))


def _find(
    element: tuple[int, Mapping[str, _Positions]], asked: _Asked
) -> Iterator[tuple[str, int, int]]:
    """Yields (group, rank, position) of each rank in a bucket."""
    bucket, positions = element
    for group, ranks in asked.by_bucket.get(bucket, {}).items():
        for rank, within in ranks:
            yield group, rank, int(positions[group][within])


def _ends(asked: _Asked, found: Iterable[tuple[str, int, int]]) -> dict[str, list[End]]:
    known = {(group, rank): position for group, rank, position in found}
    return {
        group: [End(rank, known.get((group, rank), END)) for rank in ranks]
        for group, ranks in asked.ranks.items()
    }


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
    """Returns the hash positions of rows, or of rejects of rows that cannot be read, by group."""
    found = defaultdict[str, bytearray](bytearray)
    for row in rows:
        position = sampler.position(row).to_bytes(POSITION_BYTES, "big")
        for group in sampler.groups(row):
            found[group] += position
    return {group: bytes(positions) for group, positions in found.items()}


def _last_rank(counts: Mapping[str, int], rows: int) -> dict[str, list[int]]:
    return {group: [rows - 1] for group in counts}


def _ending_after(ends: Mapping[str, Sequence[End]], sampler: Sampler) -> Sampler:
    found = {group: min(last.position + 1, END) for group, (last,) in ends.items()}
    return replace(sampler, ends={**sampler.ends, **found})


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
    """Yields the rows in a sample, and the number of others."""
    return tagged_batches(sampler.select(rows))


def _all_rows(read: ReadOutcome) -> PCollection[list[Row | Reject]]:
    """Returns batches of all rows, with those that cannot be read."""
    rejects = read.rejects | "ListOfReject" >> beam.Map(_listed)
    return (read.good, rejects) | "AllRows" >> beam.Flatten()


def _listed(reject: Reject) -> list[Reject]:
    return [reject]
