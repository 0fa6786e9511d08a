"""Analyzes all rows, and plans the dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.plan import Plan
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.rows.analysis import (
    Analysis,
    Analyzer,
    build_plan,
    needs_sizes,
    sampled_rows,
)
from recordmill.transforms.functional.rows.binding import broken_identity, identity_of, split_values
from recordmill.transforms.functional.rows.placement import order_of
from recordmill.transforms.shards.base_shards import finder
from recordmill.transforms.storage.files import file_size
from recordmill.transforms.workers.progress import advance, set_total

_STAT_THREADS = 16

Place = tuple[str, int]
"""The file and line of a row."""


class Analyzed(NamedTuple):
    """The outcome of the analyze pass.

    Attributes:
        plan: the one `Plan`.
        repeats: (order of a key, its first source location) for keys that occur more than once;
            (order of a sequence's key, why) for those that are not in one split as a whole.
    """

    plan: PCollection[Plan]
    repeats: PCollection[tuple[bytes, Place | str]]


@dataclass(eq=False)
class AnalyzeRows(beam.PTransform):
    """Analyzes every row before any is assigned: PCollection[Row] → Analyzed.

    Attributes:
        analyzer: what to ask of each row.
        parted: whether rows with one key can land in different splits, so that shards, where
            repeated keys meet otherwise, do not find them.
    """

    analyzer: Analyzer
    parted: bool

    def expand(self, rows: PCollection[Row]) -> Analyzed:
        """Adds the analysis; only sums cross workers, and key digests if keys can span splits."""
        plan = (
            rows
            | "Analyze" >> beam.CombineGlobally(AnalyzeFn(self.analyzer))
            | "Plan" >> beam.Map(make_plan, self.analyzer)
        )
        if not self.parted:
            return Analyzed(plan, rows.pipeline | "NoDuplicates" >> beam.Create([]))
        if self.analyzer.schema.sequence is not None:
            torn = (
                rows
                | "SpanOfSequence"
                >> beam.FlatMap(sequence_span, self.analyzer).with_output_types(tuple[bytes, str])
                | "DistinctSpans" >> beam.CombinePerKey(distinct_spans)  # (order, up to 2 spans)
                | "SpanningSequences" >> beam.FlatMapTuple(spanning_sequences)
            )
            return Analyzed(plan, torn)
        # A row's identity is worked out again here. To hand it on from one step to both would cost
        # every row of every run 3 us, and save 2 us where keys can be parted.
        repeats = (
            rows
            | "LocationOfKey"
            >> beam.FlatMap(key_location, self.analyzer).with_output_types(tuple[bytes, Place])
            | "LocationsByKey"
            >> beam.CombinePerKey(FirstLocationFn())  # (order, (count, first place))
            | "DuplicateKeys" >> beam.FlatMapTuple(duplicate_keys)
        )
        return Analyzed(plan, repeats)


@dataclass(eq=False)
class AnalyzeFn(beam.CombineFn):
    """Sums the analyses of rows.

    Attributes:
        analyzer: what to ask of each row.
    """

    analyzer: Analyzer

    def create_accumulator(self) -> Analysis:
        """Returns an empty analysis."""
        return Analysis()

    def add_input(self, analysis: Analysis, row: Row) -> Analysis:
        """Returns the analysis with one more row.

        Args:
            analysis: the analysis so far; it is changed.
            row: the row.
        """
        analysis.add(row, self.analyzer, finder(self.analyzer.base))
        advance("analyzed")
        return analysis

    def merge_accumulators(self, analyses: Iterable[Analysis]) -> Analysis:
        """Returns the sum of some analyses."""
        total = Analysis()
        for analysis in analyses:
            total.merge(analysis)
        return total

    def extract_output(self, analysis: Analysis) -> Analysis:
        """Returns the analysis."""
        return analysis


class FirstLocationFn(beam.CombineFn):
    """Finds the first of some places, and how many there are."""

    def create_accumulator(self) -> tuple[int, Place | None]:
        """Returns no place."""
        return 0, None

    def add_input(self, first: tuple[int, Place | None], place: Place) -> tuple[int, Place | None]:
        """Returns (count, first location) with one more location.

        Args:
            first: the count and first location so far.
            place: the location to add.
        """
        return self.merge_accumulators([first, (1, place)])

    def merge_accumulators(
        self, firsts: Iterable[tuple[int, Place | None]]
    ) -> tuple[int, Place | None]:
        """Returns the first of all."""
        found = [(count, place) for count, place in firsts if place is not None]
        places = [place for _, place in found]
        return sum(count for count, _ in found), min(places, default=None)

    def extract_output(self, first: tuple[int, Place | None]) -> tuple[int, Place | None]:
        """Returns how many there are, and the first."""
        return first


def make_plan(analysis: Analysis, analyzer: Analyzer) -> Plan:
    """Returns the plan; requests the sizes of sampled images where the plan depends on them.

    Args:
        analysis: the sum over all rows.
        analyzer: the options.
    """
    set_total(analysis.rows)
    rows = sampled_rows(analysis) if needs_sizes(analysis, analyzer.config) else ()
    uris = [uri for _, uri, _ in rows if uri]
    with ThreadPoolExecutor(_STAT_THREADS) as executor:
        sizes = zip(uris, executor.map(file_size, uris), strict=True)
    return build_plan(analysis, analyzer, {uri: size for uri, size in sizes if size is not None})


def key_location(row: Row, analyzer: Analyzer) -> Iterator[tuple[bytes, Place]]:
    """Yields (order of the key, source location) of a row; nothing for a row without a key.

    Args:
        row: the row.
        analyzer: the column mapping and the seed.
    """
    try:
        key = identity_of(row, analyzer.binding).key
    except RecordError:
        pass  # binding rejects the row, and says why
    else:
        yield order_of(key, analyzer.config.seed), (row.file, row.line)


def sequence_span(row: Row, analyzer: Analyzer) -> Iterator[tuple[bytes, str]]:
    """Yields (order of the sequence, split or group) of a frame; nothing without a sequence.

    Args:
        row: the row.
        analyzer: the column mapping and the seed.
    """
    binding = analyzer.binding
    identity = broken_identity(row, binding)
    if identity is not None:
        yield order_of(identity.record, analyzer.config.seed), split_values(row, binding)


def distinct_spans(spans: Iterable[str | tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the first two different ones of some, sorted."""
    known = {one for some in spans for one in ((some,) if isinstance(some, str) else some)}
    return tuple(sorted(known)[:2])


def spanning_sequences(order: bytes, spans: tuple[str, ...]) -> Iterator[tuple[bytes, str]]:
    """Yields a sequence whose rows would be in several splits, and the reason.

    Args:
        order: the digest of the sequence's key.
        spans: up to two different spans of its rows.
    """
    if len(spans) > 1:
        yield order, f"{' in one row, and '.join(spans)} in another"


def duplicate_keys(order: bytes, first: tuple[int, Place]) -> Iterator[tuple[bytes, Place]]:
    """Yields a key that occurs more than once, and where it occurs first.

    Args:
        order: the digest of the key.
        first: how often it occurs, and the first source location.
    """
    count, place = first
    if count > 1:
        yield order, place
