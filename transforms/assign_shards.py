"""Rejects duplicate keys, and assigns each row its split, shard and order in the shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan, SplitRanges
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reject
from recordmill.transforms import elements
from recordmill.transforms.functional.rows import placement
from recordmill.transforms.functional.rows.batches import OrderedRefs, RefBatch
from recordmill.transforms.functional.rows.placement import in_one_split
from recordmill.transforms.functional.rows.strata import class_positions, label_set_of_values
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.workers.progress import advance

# Rows of a batch: an element costs a runner some 10 µs.
_BATCH_ROWS = 256


def keys_may_span_shards(config: ConvertConfig) -> bool:
    """Returns whether rows with the same key may be in different shards, or be dropped before.

    A split or group column can separate them, and so can labels, in stratified splits.
    `deduplicate` and `near_duplicates` can drop the first row of a key for its image, so that a
    later row would become the record. Otherwise, writing a shard detects its duplicate keys.
    """
    by_column = bool(config.split_column or config.group_column)
    drops = config.deduplicate == "content" or config.near_duplicates == "drop"
    return by_column or drops or config.split_method == "stratified"


@dataclass(eq=False)
class RejectDuplicateKeys(beam.PTransform):
    """Keeps the first row of each key: PCollection[RefBatch] → CheckedRows(RefBatch).

    A sequence whose frames would be in several splits is rejected as a whole.
    """

    config: ConvertConfig  # the columns that decide a row's split, and `deduplicate`
    sequences: bool  # whether rows are frames of sequences, so that keys are those of the sequences

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return elements.displayed(self.config, "split_column", "group_column", "deduplicate")

    def expand(self, refs: PCollection[RefBatch]) -> elements.CheckedRows:
        """Adds a shuffle of references by key."""
        found = (
            refs
            | "KeyOfRef" >> beam.FlatMap(_with_keys).with_output_types(tuple[str, ImageRef])
            | "GroupByKey" >> beam.GroupByKey()  # (key, [ImageRef])
            | "FirstOfKey"
            >> beam.ParDo(_FirstOfKey(self.config, self.sequences))
            .with_output_types(RefBatch)
            .with_outputs(elements.REJECTS, main="refs")
        )
        return elements.CheckedRows(found.refs, found[elements.REJECTS])


def _with_keys(refs: RefBatch) -> list[tuple[str, ImageRef]]:
    return [(ref.record_key, ref) for ref in refs]


class _FirstOfKey(beam.DoFn):
    """Keeps the first row of each key, and joins the rows of a bundle to batches again."""

    def __init__(self, config: ConvertConfig, sequences: bool) -> None:
        self._columns = config.split_column, config.group_column
        self._sequences = sequences

    def start_bundle(self) -> None:
        self._refs = list[ImageRef]()

    def process(self, group: tuple[str, Iterable[ImageRef]]) -> Iterator[RefBatch | TaggedOutput]:
        _, refs = group  # (key, [ImageRef]); the runner re-iterates them, possibly from disk
        found = (
            in_one_split(refs, *self._columns) if self._sequences else placement.first_of_key(refs)
        )
        for outcome in found:
            if isinstance(outcome, Reject):
                advance("assigned")  # the counter includes rows rejected before their assignment
                yield elements.rejected(outcome)
                continue
            self._refs.append(outcome)
            if len(self._refs) == _BATCH_ROWS:
                yield RefBatch.of(self._refs)
                self._refs = []

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        if self._refs:
            yield elements.windowed(RefBatch.of(self._refs))


@dataclass(eq=False)
class AssignShards(beam.PTransform):
    """Assigns references to splits and shards: PCollection[RefBatch] → PCollection[AssignedRows].

    An element is ((split, shard), [(order, ImageRef)]).
    """

    plan: PCollection[Plan]
    # The ranges of the splits, for rows without a split of their own, unless the plan has them.
    ranges: SplitRanges
    seed: int  # the seed of the hashes that decide split, shard and order
    # The base version, whose rows keep their shards; None if there is none.
    base: Base | None = None

    def expand(self, refs: PCollection[RefBatch]) -> PCollection[elements.AssignedRows]:
        """Adds the assignment."""
        assigning = beam.FlatMap(_assign, AsSingleton(self.plan), self.ranges, self.seed, self.base)
        # Typed, so that the shuffle uses the coder of references.
        return refs | "Assign" >> assigning.with_output_types(elements.AssignedRows)


def _assign(
    refs: RefBatch, plan: Plan, ranges: SplitRanges, seed: int, base: Base | None
) -> Iterator[elements.AssignedRows]:
    """Yields references by shard, each with its order hash.

    With a base version, new rows are assigned to shards numbered after those of the base; or to all
    shards, if the base version keeps its records.
    """
    advance("assigned", len(refs))
    keys, stated, find = refs.records, refs.column("split"), base_shard_lookup(base)
    orders = placement.orders_of(keys, seed)
    # The positions of rows, by shard of the base version or new shard, and by split.
    found, new = defaultdict[elements.ShardId, list[int]](list), defaultdict[str, list[int]](list)
    for row, split in enumerate(_splits_of_refs(refs, plan, plan.ranges or ranges, seed)):
        known = find(keys[row]) if base else None
        # The shard of a known key decides what happens to a row that states another split.
        if base and known and (base.keeps_records or placement.stays_in_base(known, stated[row])):
            orders[row] = placement.order_of(keys[row], base.seed)
            found[known].append(row)
        else:
            new[split].append(row)
    for split, rows in new.items():
        numbers = _shard_numbers(split, plan, base, [orders[row] for row in rows])
        if numbers is None:
            source = refs[rows[0]].source
            raise RecordmillError(
                f"{source}: split {split!r} is new: the table changed while it was read"
            )
        for row, number in zip(rows, numbers, strict=True):
            found[split, number].append(row)
    ordered = OrderedRefs.of_refs(orders, refs)
    for shard, rows in found.items():
        # The writer merges sorted parts, and so reads memory that it has decoded almost in order.
        yield shard, ordered.take(sorted(rows, key=orders.__getitem__))


def _splits_of_refs(refs: RefBatch, plan: Plan, ranges: SplitRanges, seed: int) -> Sequence[str]:
    classes = class_positions(plan.resolved.schema) if ranges.strata else None
    strata = (
        repeat(None)
        if classes is None
        else [label_set_of_values(values, classes) for values in refs.column("values")]
    )
    return placement.splits_of(refs.column("split"), refs.entities, ranges, seed, strata)


def _shard_numbers(
    split: str, plan: Plan, base: Base | None, orders: Sequence[bytes]
) -> list[int] | None:
    """Returns the numbers of the shards of new rows; None if none is planned for them."""
    first = base.first_new_shard(split) if base else 0
    count = plan.shards.get(split, 0) - first
    if count <= 0:
        return None
    if (starts := plan.starts.get(split)) is None:
        numbers = placement.shards_of(orders, count)
    else:
        numbers = placement.shards_at(orders, starts)
    return [first + number for number in numbers] if first else numbers
