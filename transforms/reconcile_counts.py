"""Reconciles the counts of all stages: from PCollections, since metrics count retries twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, PCollection

from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification, WrittenShard
from recordmill.schemas.duplicates import Duplicate, DuplicateStats, GroupLeakage
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.transforms.functional.duplicates import merge_duplicate_stats
from recordmill.transforms.functional.reconcile import reconcile


@dataclass(eq=False)
class ReconcileCounts(beam.PTransform):
    """Reconciles counts: PCollection[ShardVerification] → PCollection[DatasetInfo], one element.

    Attributes:
        plan: what the dataset was written by.
        rows: every row that was read.
        unread: rejects of rows that could not be.
        skipped: (what makes no row, how many).
        placed: (split, rows placed in it).
        rejects: all rejects, those of unread rows included.
        written: the shards as their writers know them.
        contents: which images are repeated, in one or several parts.
        repeats: rows that were dropped for their image.
        group_leaks: which groups are in more than one split, once.
    """

    plan: PCollection[Plan]
    rows: PCollection[Row]
    unread: PCollection[Reject]
    skipped: PCollection[tuple[str, int]]
    placed: PCollection[tuple[str, int]]
    rejects: PCollection[Reject]
    written: PCollection[WrittenShard]
    contents: PCollection[DuplicateStats]
    repeats: PCollection[Duplicate]
    group_leaks: PCollection[GroupLeakage]

    def expand(self, audits: PCollection[ShardVerification]) -> PCollection[DatasetInfo]:
        """Adds the counting; only sums leave the workers."""
        rows = self.rows | "CountRows" >> beam.combiners.Count.Globally()
        unread = self.unread | "CountUnread" >> beam.combiners.Count.Globally()
        reasons = (
            self.rejects
            | "ReasonOfReject" >> beam.Map(split_and_reason).with_output_types(tuple[str, str])
            | "CountReasons" >> beam.combiners.Count.PerElement()  # ((split, reason), rows)
        )
        dropped = (
            self.repeats
            | "SplitOfDuplicate" >> beam.Map(split_of_repeat).with_output_types(str)
            | "CountDuplicates" >> beam.combiners.Count.PerElement()  # (split, rows)
        )
        once: Any = audits.pipeline | "Once" >> beam.Create([None])
        return once | "Reconcile" >> beam.Map(
            _reconcile,
            AsIter(self.contents),
            AsSingleton(self.group_leaks),
            AsSingleton(self.plan),
            AsSingleton(rows),
            AsSingleton(unread),
            AsDict(self.placed),
            AsDict(reasons),
            AsIter(self.written),
            AsIter(audits),
            AsDict(dropped),
            AsDict(self.skipped | "SumSkippedInputs" >> beam.CombinePerKey(sum)),
        )


def split_and_reason(reject: Reject) -> tuple[str, str]:
    """Returns what rejects are counted by."""
    return reject.split, reject.reason.value


def split_of_repeat(repeat: Duplicate) -> str:
    """Returns the split that a dropped row had been placed in."""
    return repeat.split


def _reconcile(
    _: None, contents: Iterable[DuplicateStats], group_leaks: GroupLeakage, *counts: Any
) -> DatasetInfo:
    content = merge_duplicate_stats(contents)
    return replace(reconcile(*counts), content=content, group_leaks=group_leaks)
