"""Places records: split, shard and order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reject
from recordmill.transforms.analyze_rows import Analyzed, Place
from recordmill.transforms.elements import REJECTS, rejected
from recordmill.transforms.functional.rows.placement import (
    SplitRanges,
    duplicate_key_reject,
    order_of,
    shard_at,
    shard_of,
    split_of,
    stays_in_base,
)
from recordmill.transforms.functional.rows.sequences import spans_splits_reject
from recordmill.transforms.shards.base_shards import finder
from recordmill.transforms.workers.progress import advance

ShardId = tuple[str, int]
"""A split and the number of a shard within it."""

Placed = tuple[ShardId, tuple[bytes, ImageRef]]
"""A shard, and the order of a reference within it."""


class Placement(NamedTuple):
    """Where the references belong.

    Attributes:
        placed: ((split, shard), (order, ImageRef)).
        rows: (split, number of rows placed in it).
        rejects: rows whose key occurs in an earlier row that may be in another split.
    """

    placed: PCollection[Placed]
    rows: PCollection[tuple[str, int]]
    rejects: PCollection[Reject]


@dataclass(eq=False)
class AssignShards(beam.PTransform):
    """Decides each reference's split, shard and order: PCollection[ImageRef] → Placement.

    Attributes:
        analyzed: how many shards there are, and which keys are repeated across splits.
        ranges: the splits of rows that bring none of their own.
        seed: another seed gives another placement.
        base: the dataset whose rows stay where they are, if any.
    """

    analyzed: Analyzed
    ranges: SplitRanges
    seed: int
    base: Base | None = None

    def expand(self, refs: PCollection[ImageRef]) -> Placement:
        """Adds the placing, and the count of rows by split."""
        placing = beam.FlatMap(
            _place_tagged,
            AsSingleton(self.analyzed.plan),
            AsDict(self.analyzed.repeats),
            self.ranges,
            self.seed,
            self.base,
        ).with_output_types(Placed)  # so that the shuffle encodes them by their coder
        outputs = refs | "Place" >> placing.with_outputs(REJECTS, main="placed")
        rows = (
            outputs.placed
            | "SplitOfPlaced" >> beam.Map(split_of_placed).with_output_types(str)
            | "RowsBySplit" >> beam.combiners.Count.PerElement()  # (split, rows)
        )
        return Placement(outputs.placed, rows, outputs[REJECTS])


def place(
    ref: ImageRef,
    order: bytes,
    plan: Plan,
    ranges: SplitRanges,
    seed: int,
    base: Base | None = None,
) -> ShardId:
    """Returns the split and shard of a reference: its own split, or that of its group or key.

    New rows of a dataset that grows go to shards after those of the base version.

    Args:
        ref: the reference.
        order: the digest of its record's key.
        plan: the number of shards of each split.
        ranges: the shares of the splits.
        seed: the seed of the assignment.
        base: the base version, if any.

    Raises:
        RecordmillError: if no analyzed row was in that split.
    """
    split = ref.split or split_of(ref.group or ref.record_key, ranges, seed)
    first = len(base.shards(split)) if base else 0
    if plan.shards.get(split, 0) <= first:
        raise RecordmillError(
            f"{ref.source}: split {split!r} is new: the table changed while it was read"
        )
    if split in plan.starts:
        return split, first + shard_at(order, plan.starts[split])
    return split, first + shard_of(order, plan.shards[split] - first)


def split_of_placed(placed: Placed) -> str:
    """Returns the split of a placed reference."""
    (split, _), _ = placed
    return split


def _place_tagged(
    ref: ImageRef,
    plan: Plan,
    repeats: Mapping[bytes, Place | str],
    ranges: SplitRanges,
    seed: int,
    base: Base | None,
) -> Iterator[Placed | TaggedOutput]:
    advance("placed")
    order = order_of(ref.record_key, seed)
    first = repeats.get(order) if repeats else None
    if isinstance(first, str):
        yield rejected(spans_splits_reject(ref, first))
    elif first and first != (ref.file, ref.line):
        yield rejected(duplicate_key_reject(ref, *first))
    elif base and stays_in_base(home := finder(base)(ref.record_key), ref.split):
        yield home, (order_of(ref.record_key, base.seed), ref)
    else:
        yield place(ref, order, plan, ranges, seed, base), (order, ref)
