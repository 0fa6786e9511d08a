"""Analyzes all rows and plans the dataset."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.plan import Plan
from recordmill.schemas.records import Row
from recordmill.transforms.functional.rows.analysis import (
    Analysis,
    Analyzer,
    build_plan,
    needs_sizes,
    sampled_rows,
)
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.storage.files import file_size
from recordmill.transforms.workers.progress import advance, set_total

_STAT_THREADS = 16
"""Concurrent requests for file sizes: they wait for the file system or store, not for a core."""


@dataclass(eq=False)
class AnalyzeRows(beam.PTransform):
    """Analyzes every row before any is assigned: PCollection[Row] → PCollection[Plan], one element.

    Attributes:
        analyzer: the schema, column mapping and options.
    """

    analyzer: Analyzer

    def expand(self, rows: PCollection[Row]) -> PCollection[Plan]:
        """Adds the analysis; workers exchange only sums."""
        return (
            rows
            | "Analyze" >> beam.CombineGlobally(AnalyzeFn(self.analyzer))
            | "Plan" >> beam.Map(make_plan, self.analyzer)
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


def make_plan(analysis: Analysis, analyzer: Analyzer) -> Plan:
    """Returns the plan; requests the file sizes of sampled images where the plan depends on them.

    Args:
        analysis: the analysis of all rows.
        analyzer: the schema, column mapping and options.
    """
    set_total(analysis.rows)
    rows = sampled_rows(analysis) if needs_sizes(analysis, analyzer.config) else ()
    uris = [uri for _, uri, _ in rows if uri]
    with ThreadPoolExecutor(_STAT_THREADS) as executor:
        sizes = zip(uris, executor.map(file_size, uris), strict=True)
    return build_plan(analysis, analyzer, {uri: size for uri, size in sizes if size is not None})
