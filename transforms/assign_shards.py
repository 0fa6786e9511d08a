"""Rejects duplicate keys, and assigns each row its split, shard and order in the shard."""

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
from recordmill.transforms.elements import REJECTS, Outcome, displayed, rejected
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
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.workers.progress import advance

# A split and the number of a shard within it.
ShardId = tuple[str, int]

# A shard, and the order hash and reference of a row in it.
AssignedRow = tuple[ShardId, tuple[bytes, ImageRef]]


class Assignment(NamedTuple):
    """The assigned rows and their counts.

    Attributes:
        rows: ((split, shard), (order, ImageRef)).
        counts: (split, number of rows assigned to it).
    """

    rows: PCollection[AssignedRow]
    counts: PCollection[tuple[str, int]]


@dataclass(eq=False)
class RejectDuplicateKeys(beam.PTransform):
    """Keeps the first row of each key: PCollection[ImageRef] → Outcome(ImageRef).

    A sequence whose frames would be in several splits is rejected as a whole.

    Attributes:
        config: the columns that decide a row's split, and `deduplicate`.
        sequences: whether rows are frames of sequences, so that keys are those of the sequences.
    """

    config: ConvertConfig
    sequences: bool

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(self.config, "split_column", "group_column", "deduplicate")

    def expand(self, refs: PCollection[ImageRef]) -> Outcome:
        """Adds a shuffle of references by key if rows with one key can be in different shards.

        Otherwise, writing a shard detects its duplicate keys without a shuffle.
        """
        if not keys_may_span_shards(self.config):
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


def keys_may_span_shards(config: ConvertConfig) -> bool:
    """Returns whether rows with the same key may be in different shards, or be dropped before.

    A split or group column can separate them. `deduplicate` can drop the first row of a key for
    its image, so that a later row would become the record.
    """
    return bool(config.split_column or config.group_column) or config.deduplicate == "content"


def _with_key(ref: ImageRef) -> tuple[str, ImageRef]:
    return ref.record_key, ref


def _resolve_key(
    group: tuple[str, Iterable[ImageRef]], config: ConvertConfig, sequences: bool
) -> Iterator[ImageRef | TaggedOutput]:
    _, refs = group  # (key, [ImageRef])
    columns = config.split_column, config.group_column
    found = in_one_split(refs, *columns) if sequences else first_of_key(refs)
    for outcome in found:
        if isinstance(outcome, Reject):
            advance("assigned")  # the counter includes rows rejected before their assignment
            yield rejected(outcome)
        else:
            yield outcome


@dataclass(eq=False)
class AssignShards(beam.PTransform):
    """Assigns each reference to a split and shard: PCollection[ImageRef] → Assignment.

    Attributes:
        plan: the number of shards.
        ranges: the hash ranges of the splits, for rows without a split of their own.
        seed: the seed of the hashes that decide split, shard and order.
        base: the base version, whose rows keep their shards; None if there is none.
    """

    plan: PCollection[Plan]
    ranges: SplitRanges
    seed: int
    base: Base | None = None

    def expand(self, refs: PCollection[ImageRef]) -> Assignment:
        """Adds the assignment, and the count of rows by split."""
        assigning = beam.Map(_assign, AsSingleton(self.plan), self.ranges, self.seed, self.base)
        # Typed, so that the shuffle uses the coder of references.
        rows = refs | "Assign" >> assigning.with_output_types(AssignedRow)
        counts = (
            rows
            | "SplitOfRow" >> beam.Map(_split_of_row).with_output_types(str)
            | "RowsBySplit" >> beam.combiners.Count.PerElement()  # (split, rows)
        )
        return Assignment(rows, counts)


def assign(
    ref: ImageRef,
    order: bytes,
    plan: Plan,
    ranges: SplitRanges,
    seed: int,
    base: Base | None = None,
) -> ShardId:
    """Returns the split and shard of a reference: its own split, or that of its group or key.

    With a base version, new rows are assigned to shards numbered after those of the base.

    Args:
        ref: the reference.
        order: the order hash of its record's key.
        plan: the number of shards of each split.
        ranges: the hash ranges of the splits.
        seed: the seed of the assignment.
        base: the base version; None if there is none.

    Raises:
        RecordmillError: if the analyze pass saw no row of that split.
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


def _split_of_row(assigned: AssignedRow) -> str:
    (split, _), _ = assigned
    return split


def _assign(
    ref: ImageRef, plan: Plan, ranges: SplitRanges, seed: int, base: Base | None
) -> AssignedRow:
    advance("assigned")
    shard = base_shard_lookup(base)(ref.record_key)
    if base and shard and stays_in_base(shard, ref.split):
        return shard, (order_of(ref.record_key, base.seed), ref)
    order = order_of(ref.record_key, seed)
    return assign(ref, order, plan, ranges, seed, base), (order, ref)
