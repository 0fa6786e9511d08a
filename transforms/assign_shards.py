"""Rejects duplicate keys across splits, and places records: split, shard and order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reject
from recordmill.transforms.elements import REJECTS, Outcome, rejected
from recordmill.transforms.functional.rows.placement import (
    SplitRanges,
    first_of_key,
    order_of,
    shard_at,
    shard_of,
    split_of,
    stays_in_base,
)
from recordmill.transforms.functional.rows.sequences import in_one_split
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
    """

    placed: PCollection[Placed]
    rows: PCollection[tuple[str, int]]


@dataclass(eq=False)
class RejectDuplicateKeys(beam.PTransform):
    """Keeps the first row of each key: PCollection[ImageRef] → Outcome(ImageRef).

    Sequences whose frames would be in several splits are rejected as a whole.

    Attributes:
        config: what decides the split of a row.
        sequences: whether rows are frames of sequences, and keys are those of the sequences.
    """

    config: ConvertConfig
    sequences: bool

    def expand(self, refs: PCollection[ImageRef]) -> Outcome:
        """Adds a shuffle of references by key, if rows with one key may not meet in a shard."""
        if not can_part_keys(self.config):
            return Outcome(refs, refs.pipeline | "NoDuplicateKeys" >> beam.Create([]))
        found = (
            refs
            | "KeyOfRef" >> beam.Map(_with_key).with_output_types(tuple[str, ImageRef])
            | "GroupByKey" >> beam.GroupByKey()  # (key, [ImageRef])
            | "FirstOfKey"
            >> beam.FlatMap(_resolve_key, self.config, self.sequences).with_outputs(
                REJECTS, main="refs"
            )
        )
        return Outcome(found.refs, found[REJECTS])


def can_part_keys(config: ConvertConfig) -> bool:
    """Returns whether rows with one key may not meet in a shard, where they are found otherwise.

    Their own split or group can part them, and of rows with one image all but one are dropped.
    """
    return bool(config.split_column or config.group_column) or config.deduplicate == "content"


def _with_key(ref: ImageRef) -> tuple[str, ImageRef]:
    return ref.record_key, ref


def _resolve_key(
    group: tuple[str, Iterable[ImageRef]], config: ConvertConfig, sequences: bool
) -> Iterator[ImageRef | TaggedOutput]:
    _, refs = group
    of_split, of_group = config.split_column, config.group_column
    found = in_one_split(refs, of_split, of_group) if sequences else first_of_key(refs)
    for outcome in found:
        if isinstance(outcome, Reject):
            advance("placed")  # as progress counts rows placed, or rejected before
            yield rejected(outcome)
        else:
            yield outcome


@dataclass(eq=False)
class AssignShards(beam.PTransform):
    """Decides each reference's split, shard and order: PCollection[ImageRef] → Placement.

    Attributes:
        plan: how many shards there are.
        ranges: the splits of rows that bring none of their own.
        seed: another seed gives another placement.
        base: the dataset whose rows stay where they are, if any.
    """

    plan: PCollection[Plan]
    ranges: SplitRanges
    seed: int
    base: Base | None = None

    def expand(self, refs: PCollection[ImageRef]) -> Placement:
        """Adds the placing, and the count of rows by split."""
        placing = beam.Map(_place, AsSingleton(self.plan), self.ranges, self.seed, self.base)
        # Typed, so that the shuffle encodes them by their coder.
        placed = refs | "Place" >> placing.with_output_types(Placed)
        rows = (
            placed
            | "SplitOfPlaced" >> beam.Map(split_of_placed).with_output_types(str)
            | "RowsBySplit" >> beam.combiners.Count.PerElement()  # (split, rows)
        )
        return Placement(placed, rows)


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


def _place(ref: ImageRef, plan: Plan, ranges: SplitRanges, seed: int, base: Base | None) -> Placed:
    advance("placed")
    home = finder(base)(ref.record_key)
    if base and home and stays_in_base(home, ref.split):
        return home, (order_of(ref.record_key, base.seed), ref)
    order = order_of(ref.record_key, seed)
    return place(ref, order, plan, ranges, seed, base), (order, ref)
