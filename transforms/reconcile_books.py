"""Reconciles the counts of all stages: from PCollections, since metrics count retries twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, PCollection

from schemas.dataset_info import DatasetInfo, ShardAudit, ShardInfo
from schemas.plan import Plan
from schemas.records import Row
from schemas.rejects import Reject
from transforms.functional.reconcile import reconcile


@dataclass(eq=False)
class ReconcileBooks(beam.PTransform):
    """Balances the books: PCollection[ShardAudit] → PCollection[DatasetInfo], one element.

    Attributes:
        plan: what the dataset was written by.
        rows: every row that was read.
        unread: rejects of rows that could not be.
        placed: (split, rows placed in it).
        rejects: all rejects, those of unread rows included.
        written: the shards as their writers know them.
    """

    plan: PCollection[Plan]
    rows: PCollection[Row]
    unread: PCollection[Reject]
    placed: PCollection[tuple[str, int]]
    rejects: PCollection[Reject]
    written: PCollection[ShardInfo]

    def expand(self, audits: PCollection[ShardAudit]) -> PCollection[DatasetInfo]:
        """Adds the counting; only sums leave the workers."""
        rows = self.rows | "CountRows" >> beam.combiners.Count.Globally()
        unread = self.unread | "CountUnread" >> beam.combiners.Count.Globally()
        reasons = (
            self.rejects
            | "ReasonOfReject" >> beam.Map(split_and_reason).with_output_types(tuple[str, str])
            | "CountReasons" >> beam.combiners.Count.PerElement()
        )
        once: Any = audits.pipeline | "Once" >> beam.Create([None])
        return once | "Reconcile" >> beam.Map(
            _reconcile,
            AsSingleton(self.plan),
            AsSingleton(rows),
            AsSingleton(unread),
            AsDict(self.placed),
            AsDict(reasons),
            AsIter(self.written),
            AsIter(audits),
        )


def split_and_reason(reject: Reject) -> tuple[str, str]:
    """Returns what rejects are counted by."""
    return reject.split, reject.reason.value


def _reconcile(_: None, *counts: Any) -> DatasetInfo:
    return reconcile(*counts)
