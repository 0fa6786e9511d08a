"""Analyzes all rows and plans the dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from recordmill.schemas.plan import Plan
from recordmill.schemas.records import Row
from recordmill.transforms.elements import displayed
from recordmill.transforms.functional.rows.analysis import (
    Analysis,
    Analyzer,
    build_plan,
    check_shard_counts,
    needs_sizes,
    row_position,
    sampled_rows,
)
from recordmill.transforms.functional.rows.placement import (
    POSITION_BYTES,
    Bucket,
    Positions,
    bucket_of,
    distinct_positions,
    first_ranks,
    starts_in_bucket,
)
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.storage.files import file_size
from recordmill.transforms.workers.progress import advance, set_total

# Concurrent requests for file sizes: they wait for the file system or store, not for a core.
_STAT_THREADS = 16


@dataclass(eq=False)
class AnalyzeRows(beam.PTransform):
    """Analyzes every row before any is assigned: PCollection[Row] → PCollection[Plan], one element.

    Attributes:
        analyzer: the schema, column mapping and options.
    """

    analyzer: Analyzer

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(
            self.analyzer.config, "seed", "splits", "num_shards", "shard_size", "records_per_shard"
        )

    def expand(self, rows: PCollection[Row]) -> PCollection[Plan]:
        """Adds the analysis; workers exchange sums, and hashes for `records_per_shard`."""
        analysis = rows | "Analyze" >> beam.CombineGlobally(AnalyzeFn(self.analyzer))
        starts: tuple[AsIter, ...] = ()
        if self.analyzer.config.records_per_shard is not None:
            found = rows | "FindShardStarts" >> FindShardStarts(
                self.analyzer, self.analyzer.config.records_per_shard
            )
            starts = (AsIter(found),)
        return analysis | "Plan" >> beam.Map(make_plan, self.analyzer, *starts)


@dataclass(eq=False)
class FindShardStarts(beam.PTransform):
    """Finds where shards start: PCollection[Row] → PCollection[(split, hash position)].

    The result is the same as if all positions were sorted in one list, but a worker holds only the
    positions of one bucket: positions are counted by bucket, and then selected within each bucket.

    Attributes:
        analyzer: the schema, column mapping and options.
        records: the number of records in each shard except the last of a split.
    """

    analyzer: Analyzer
    records: int

    def expand(self, rows: PCollection[Row]) -> PCollection[tuple[str, int]]:
        """Adds a shuffle of 8 bytes per row."""
        positions = (
            rows
            | "OrderByBucket"
            >> beam.FlatMap(order_by_bucket, self.analyzer).with_output_types(tuple[Bucket, bytes])
            | "GroupByBucket" >> beam.GroupByKey()  # ((split, bucket), [8 bytes of an order hash])
            | "DistinctPositions" >> beam.MapTuple(_distinct)  # ((split, bucket), Positions)
        )
        ranks = (
            positions
            | "CountPositions" >> beam.MapTuple(_count)
            | "CountsByBucket" >> beam.combiners.ToDict()
            | "FirstRanks" >> beam.Map(ranks_of_buckets, self.records)
        )
        return positions | "StartsInBucket" >> beam.FlatMap(
            starts_of_bucket, AsSingleton(ranks), self.records
        )


@dataclass(eq=False)
class AnalyzeFn(beam.CombineFn):
    """Combines rows into one analysis.

    Attributes:
        analyzer: the schema, column mapping and options.
    """

    analyzer: Analyzer

    def create_accumulator(self) -> Analysis:
        """Returns an empty analysis."""
        return Analysis()

    def add_input(self, analysis: Analysis, row: Row) -> Analysis:
        """Adds a row to an analysis.

        Args:
            analysis: the analysis so far, changed in place.
            row: the row.

        Returns:
            The same analysis.
        """
        analysis.add(row, self.analyzer, base_shard_lookup(self.analyzer.base))
        advance("analyzed")
        return analysis

    def merge_accumulators(self, analyses: Iterable[Analysis]) -> Analysis:
        """Returns the sum of the analyses."""
        total = Analysis()
        for analysis in analyses:
            total.merge(analysis)
        return total

    def extract_output(self, analysis: Analysis) -> Analysis:
        """Returns the analysis."""
        return analysis


def make_plan(
    analysis: Analysis, analyzer: Analyzer, starts: Iterable[tuple[str, int]] = ()
) -> Plan:
    """Returns the plan; requests the file sizes of sampled images where the plan depends on them.

    Args:
        analysis: the analysis of all rows.
        analyzer: the schema, column mapping and options.
        starts: (split, hash position) of the starts of shards, if they have a number of records.
    """
    set_total(analysis.rows)
    rows = sampled_rows(analysis) if needs_sizes(analysis, analyzer.config) else ()
    uris = [uri for _, uri, _ in rows if uri]
    with ThreadPoolExecutor(_STAT_THREADS) as executor:
        sizes = zip(uris, executor.map(file_size, uris), strict=True)
    known = {uri: size for uri, size in sizes if size is not None}
    return build_plan(analysis, analyzer, known, starts)


def order_by_bucket(row: Row, analyzer: Analyzer) -> Iterator[tuple[Bucket, bytes]]:
    """Yields ((split, bucket), first bytes of the order hash) of a row that has a key.

    Args:
        row: the row.
        analyzer: the schema, column mapping and options.
    """
    if assigned := row_position(row, analyzer, base_shard_lookup(analyzer.base)):
        split, order = assigned
        yield (split, bucket_of(order)), order[:POSITION_BYTES]


def _distinct(bucket: Bucket, orders: Iterable[bytes]) -> tuple[Bucket, Positions]:
    return bucket, distinct_positions(orders)


def _count(bucket: Bucket, positions: Positions) -> tuple[Bucket, int]:
    return bucket, len(positions)


def ranks_of_buckets(counts: Mapping[Bucket, int], records: int) -> dict[Bucket, int]:
    """Returns the rank of the first record of each bucket within its split.

    Args:
        counts: the number of records by (split, bucket).
        records: the number of records of a shard.

    Raises:
        RecordmillError: if a split would have too many shards.
    """
    totals = Counter[str]()
    for (split, _), count in counts.items():
        totals[split] += count
    check_shard_counts(totals, records)
    return first_ranks(counts)


def starts_of_bucket(
    element: tuple[Bucket, Positions], ranks: Mapping[Bucket, int], records: int
) -> Iterator[tuple[str, int]]:
    """Yields (split, hash position) of each shard that starts in a bucket.

    Args:
        element: a bucket, and the distinct hash positions of its records, sorted.
        ranks: the rank of the first record of each bucket.
        records: the number of records of a shard.
    """
    bucket, positions = element
    for position in starts_in_bucket(positions, ranks[bucket], records):
        yield bucket[0], position
