"""Forecasts shards: what `WriteShards` would write, without opening an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.dataset_info import ShardCounts
from recordmill.schemas.forecast import RejectSum
from recordmill.schemas.layout import is_url
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reject
from recordmill.transforms.assign_shards import Placed, ShardId
from recordmill.transforms.elements import REJECTS, Outcome, rejected
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows.sequences import arrange_shard

ShardForecast: TypeAlias = tuple[ShardCounts, int, Sequence[ImageRef]]
"""What a shard would hold, how many of its images are in object stores, and its first rows."""

_SHOWN_REJECTS = 3


@dataclass(eq=False)
class ForecastShards(beam.PTransform):
    """Forecasts each shard: PCollection[Placed] → Outcome(ShardForecast).

    Attributes:
        plan: settles the schema and the number of shards.
        sample: how many rows to keep in all, to be tried out.
    """

    plan: PCollection[Plan]
    sample: int

    def expand(self, placed: PCollection[Placed]) -> Outcome:
        """Adds the same grouping by shard as the writing has, where rows with one key meet."""
        found = (
            placed
            | "GroupByShard" >> beam.GroupByKey()  # ((split, shard), [(order, ImageRef)])
            | "Forecast"
            >> beam.FlatMap(forecast, AsSingleton(self.plan), self.sample).with_outputs(
                REJECTS, main="shards"
            )
        )
        return Outcome(found.shards, found[REJECTS])


@dataclass(eq=False)
class SumRejects(beam.PTransform):
    """Counts rejects by reason: PCollection[Reject] → PCollection[(reason, RejectSum)]."""

    def expand(self, rejects: PCollection[Reject]) -> PCollection[tuple[str, RejectSum]]:
        """Adds the counting, with the first of each reason."""
        by_reason = rejects | "ByReason" >> beam.Map(_with_reason).with_output_types(
            tuple[str, RejectSum]
        )
        return by_reason | "SumByReason" >> beam.CombinePerKey(_sum)  # (reason, RejectSum)


def forecast(
    element: tuple[ShardId, Iterable[tuple[bytes, ImageRef]]], plan: Plan, sample: int
) -> Iterator[ShardForecast | TaggedOutput]:
    """Yields what one shard would hold, and the rejects of rows that repeat a key."""
    (split, index), placed = element
    refs, repeated = arrange_shard(placed, plan.resolved)
    schema = plan.resolved.schema
    classes = {name: Counter[int]() for name in plan.resolved.schema.class_features}
    seen = set[str]()
    for ref in refs:
        names = schema.frame_features if ref.record_key in seen else schema.features
        seen.add(ref.record_key)
        for name, value in zip(schema.features, ref.values, strict=True):
            if name in classes and name in names:
                classes[name].update(label_ids(value))
    share = -(-sample // sum(plan.shards.values()))
    remote = sum(is_url(ref.uri) for ref in refs)
    frames = len(refs) if schema.sequence else None
    counts = ShardCounts(
        split=split, index=index, records=len(seen), classes=classes, frames=frames
    )
    yield counts, remote, refs[:share]
    for reject in repeated:
        yield rejected(replace(reject, split=split))


def _with_reason(reject: Reject) -> tuple[str, RejectSum]:
    return reject.reason.value, RejectSum(1, [reject])


def _sum(found: Iterable[RejectSum]) -> RejectSum:
    total = RejectSum()
    for each in found:
        total = total.add(each, _SHOWN_REJECTS)
    return total
