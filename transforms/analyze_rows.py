"""Analyzes all rows and plans the dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from recordmill.schemas.plan import Plan, SplitRanges
from recordmill.transforms.elements import displayed
from recordmill.transforms.find_splits import FindSplits
from recordmill.transforms.functional.rows.analysis import (
    UNASSIGNED,
    Analysis,
    Analyzer,
    row_positions,
    sampled_rows,
)
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.placement import POSITION_BYTES, split_of
from recordmill.transforms.functional.rows.planning import (
    build_plan,
    check_shard_counts,
    needs_sizes,
)
from recordmill.transforms.functional.rows.strata import Strata, with_class_ids
from recordmill.transforms.select_ranks import End, Hashes, SelectRanks
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.storage.files import file_size
from recordmill.transforms.workers.progress import advance, set_total

# Concurrent requests for file sizes: they wait for the file system or store, not for a core.
_STAT_THREADS = 16


@dataclass(eq=False)
class AnalyzeRows(beam.PTransform):
    """Analyzes every row before any is assigned: PCollection[RowBatch] → PCollection[Plan]."""

    analyzer: Analyzer  # the schema, column mapping and options
    # The rows with those outside of the sample, which determine columns, classes and splits; None
    # if all rows are converted.
    all_rows: PCollection[RowBatch] | None = None

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(
            self.analyzer.config,
            "seed",
            "splits",
            "split_method",
            "num_shards",
            "shard_size",
            "records_per_shard",
        )

    def expand(self, rows: PCollection[RowBatch]) -> PCollection[Plan]:
        """Adds the analysis, which gives one plan.

        Workers exchange sums, and hashes for `records_per_shard`.
        """
        config, analyze = self.analyzer.config, AnalyzeFn(self.analyzer)
        analysis = rows | "Analyze" >> beam.CombineGlobally(analyze).without_defaults()
        ranges: PCollection[SplitRanges] | None = None
        starts, whole = (), AsSingleton(analysis, Analysis())
        if self.all_rows is not None:
            found = self.all_rows | "AnalyzeAll" >> beam.CombineGlobally(analyze).without_defaults()
            whole = AsSingleton(found, Analysis())
        if config.split_method != "hash":
            ranges = (self.all_rows or rows) | "FindSplits" >> FindSplits(self.analyzer)
        if config.records_per_shard is not None:
            finding = FindShardStarts(self.analyzer, config.records_per_shard, ranges)
            starts = AsIter(rows | "FindShardStarts" >> finding)
        once: Any = rows.pipeline | "Once" >> beam.Create([self.analyzer])
        return once | "Plan" >> beam.Map(
            _make_plan,
            AsSingleton(analysis, Analysis()),
            whole,
            starts,
            AsIter(ranges) if ranges else (),
        )


@dataclass(eq=False)
class FindShardStarts(beam.PTransform):
    """Finds where shards start: PCollection[RowBatch] → PCollection[{split: positions}], of one."""

    analyzer: Analyzer  # the schema, column mapping and options
    records: int  # the number of records in each shard except the last of a split
    ranges: PCollection[SplitRanges] | None  # the ranges of the splits, if they depend on all rows

    def expand(self, rows: PCollection[RowBatch]) -> PCollection[dict[str, list[End]]]:
        """Adds a shuffle of 8 bytes per row."""
        ranges = AsIter(self.ranges) if self.ranges else ()
        hashing = beam.Map(_hashes_by_split, ranges, self.analyzer)
        return (
            rows
            # What decides the split of a row is small: it waits for the ranges in place of the row.
            | "OrderOfRow" >> beam.Map(_order_of_rows, self.analyzer)
            | "HashesBySplit" >> hashing.with_output_types(Hashes)
            | "SelectRanks" >> SelectRanks(partial(_ranks_of_starts, records=self.records))
        )


@dataclass(eq=False)
class AnalyzeFn(beam.CombineFn):
    """Combines rows into one analysis."""

    analyzer: Analyzer  # the schema, column mapping and options

    def create_accumulator(self) -> Analysis:
        """Returns an empty analysis."""
        return Analysis()

    def add_input(self, analysis: Analysis, rows: RowBatch) -> Analysis:
        """Returns an analysis, which may be changed in place, with more rows."""
        analysis.add(rows, self.analyzer, base_shard_lookup(self.analyzer.base))
        analysis.check_strata(self.analyzer)
        advance("analyzed", len(rows))
        return analysis

    def merge_accumulators(self, analyses: Iterable[Analysis]) -> Analysis:
        """Returns the sum of the analyses."""
        total = Analysis.sum_of(analyses)
        total.check_strata(self.analyzer)
        return total

    def extract_output(self, analysis: Analysis) -> Analysis:
        """Returns the analysis."""
        return analysis


def _make_plan(
    analyzer: Analyzer,
    analysis: Analysis,
    whole: Analysis,
    starts: Iterable[Mapping[str, Iterable[End]]] = (),
    ranges: Iterable[SplitRanges] = (),
) -> Plan:
    """Returns the plan; requests the file sizes of sampled images where the plan depends on them.

    `starts` are the hash positions at which shards start, by split, if they have a number of
    records. `ranges` are the ranges of the splits if they depend on all rows; otherwise empty.
    `whole` is the analysis with the rows outside of the sample.
    """
    set_total(analysis.rows)
    rows = sampled_rows(analysis) if needs_sizes(analysis, analyzer.config) else ()
    uris = [uri for _, uri, _ in rows if uri]
    with ThreadPoolExecutor(_STAT_THREADS) as executor:
        sizes = zip(uris, executor.map(file_size, uris), strict=True)
    # A missing file has no size; its row is rejected when its shard is written.
    known = {uri: size for uri, size in sizes if size is not None}
    analysis = analysis.part_of(whole)
    of_splits = {
        split: tuple(start.position for start in found)
        for split, found in next(iter(starts), {}).items()
    }
    plan = build_plan(analysis, analyzer, known, of_splits, next(iter(ranges), None))
    return with_class_ids(plan)


class RowOrder(NamedTuple):
    """What decides the split and shard of a row."""

    split: str  # its split; `UNASSIGNED` if it depends on all rows
    order: bytes  # the first bytes of its order hash
    entity: str = ""  # the unit that must be in one split, of an unassigned row
    stratum: str = ""


def _order_of_rows(rows: RowBatch, analyzer: Analyzer) -> list[RowOrder]:
    """Returns the order of each row that has a key and is not in a base shard.

    `analyzer` is the schema, column mapping and options.
    """
    find, orders = base_shard_lookup(analyzer.base), list[RowOrder]()
    strata = Strata(analyzer)
    for split, order, row, entity in row_positions(rows, analyzer, find):
        decided = (entity, strata.of(row)) if split == UNASSIGNED else ()
        orders.append(RowOrder(split, order[:POSITION_BYTES], *decided))
    return orders


def _hashes_by_split(
    rows: Iterable[RowOrder], ranges: Iterable[SplitRanges], analyzer: Analyzer
) -> Hashes:
    """Returns the first bytes of the order hash of each row, by split.

    `ranges` are the ranges of the splits if they depend on all rows; otherwise empty.
    """
    known, found = next(iter(ranges), None), defaultdict[str, list[bytes]](list)
    for row in rows:
        split = row.split
        if known and split == UNASSIGNED:
            split = split_of(row.entity, known, analyzer.config.seed, row.stratum)
        found[split].append(row.order)
    return {split: b"".join(orders) for split, orders in found.items()}


def _ranks_of_starts(records_by_split: Mapping[str, int], records: int) -> dict[str, range]:
    """Returns the ranks at which the shards of each split start, except the first.

    Raises RecordmillError if a split would have too many shards.
    """
    check_shard_counts(records_by_split, records)
    return {split: range(records, count, records) for split, count in records_by_split.items()}
