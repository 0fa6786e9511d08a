"""Analyzes all rows and plans the dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from recordmill.schemas.plan import Plan, SplitRanges
from recordmill.schemas.tables import Part, Projection
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
from recordmill.transforms.read_rows import ListedParts, read_part, with_limits
from recordmill.transforms.select_ranks import End, Hashes, SelectRanks
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.shards.build_examples import Pools
from recordmill.transforms.shards.writer_processes import prepare as prepare_writers
from recordmill.transforms.storage.files import file_size
from recordmill.transforms.task_dofn import TaskDoFn
from recordmill.transforms.workers.progress import advance, set_total

# Concurrent requests for file sizes: they wait for the file system or store, not for a core.
_STAT_THREADS = 16

# Images whose sizes decide whether writer processes pay off.
_WRITER_SAMPLE = 16


@dataclass(eq=False)
class AnalyzeSplits(beam.PTransform):
    """Reads and analyzes rows, where only their analysis is needed: ListedParts → Analyses.

    In the in-process runner, writer processes do it if there are some.
    """

    analyzer: Analyzer  # the schema, column mapping and options
    projection: Projection

    def expand(self, listed: ListedParts) -> PCollection[Analysis]:
        """Adds the analysis; one part is one unit of work, and gives one analysis."""
        analyze = beam.ParDo(_AnalyzeSplit(self.analyzer, self.projection))
        return (
            listed.parts
            | "SpreadParts" >> beam.Reshuffle()  # Part
            | "ReadAndAnalyze" >> analyze.with_output_types(Analysis)
        )


@dataclass(frozen=True, eq=False)
class AnalysisTask:
    """What all parts of a source have in common."""

    analyzer: Analyzer  # the schema, column mapping and options
    projection: Projection  # the columns that a conversion needs, and the limits

    def run(self, part: Part, _: Pools) -> Iterator[Analysis]:
        """Yields the analysis of a part, without rows that cannot be read."""
        analysis = Analysis()
        for rows in read_part(part, self.projection, "", counted=False):
            if isinstance(rows, RowBatch):
                _add_rows(analysis, rows, self.analyzer)
        yield analysis


def _add_rows(analysis: Analysis, rows: RowBatch, analyzer: Analyzer) -> None:
    analysis.add(rows, analyzer, base_shard_lookup(analyzer.base))
    analysis.check_strata(analyzer)
    advance("analyzed", len(rows))


class _AnalyzeSplit(TaskDoFn):
    """Analyzes one part per element, in this process or a writer process."""

    def __init__(self, analyzer: Analyzer, projection: Projection) -> None:
        super().__init__()
        self._analyzer, self._projection = analyzer, projection

    def setup(self) -> None:
        super().setup()
        self._task = AnalysisTask(self._analyzer, with_limits(self._projection, staging=""))

    def process(self, part: Part) -> Iterator[Analysis]:
        return self.run_on_part(self._task, part, self._analyzer.base)


@dataclass(eq=False)
class AnalyzeRows(beam.PTransform):
    """Analyzes every row before any is assigned: PCollection[RowBatch] → PCollection[Plan].

    The rows may have been analyzed where they were read: PCollection[Analysis] → PCollection[Plan].
    """

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

    def add_input(self, analysis: Analysis, rows: RowBatch | Analysis) -> Analysis:
        """Returns an analysis, which may be changed in place, with more rows."""
        if isinstance(rows, Analysis):
            analysis = Analysis.sum_of([analysis, rows])
            analysis.check_strata(self.analyzer)
        else:
            _add_rows(analysis, rows, self.analyzer)
        _prepare_writers(analysis, self.analyzer)
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
    _prepare_writers(analysis, analyzer)
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


def _prepare_writers(analysis: Analysis, analyzer: Analyzer) -> None:
    """Starts writer processes once there are enough rows: while the others are still read."""
    sample = analysis.sample[:_WRITER_SAMPLE] if analyzer.schema.has_image else ()
    prepare_writers(analysis.rows, [(uri, size) for _, uri, size in sample])


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
