"""Reads rows and assigns them to shards in one step, where no other step is between.

All of it is Python, so in the in-process runner, writer processes do it if there are some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan, SplitRanges
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Part, Projection
from recordmill.transforms.assign_shards import assign
from recordmill.transforms.elements import REJECTS, ShardId
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.read_rows import SKIPPED, ListedParts, bound, read_part, with_limits
from recordmill.transforms.shards.build_examples import Pools
from recordmill.transforms.shards.encoded_refs import EncodedRefs, GatheredRefs
from recordmill.transforms.task_dofn import TaskDoFn

# The outputs of rejects after the reading, of numbers of rows that were read, and of (split, number
# of rows assigned to it).
_UNASSIGNED, _READ, _COUNTS = "unassigned", "read", "counts"

_Assigned: TypeAlias = tuple[ShardId, EncodedRefs]


class AssignedInput(NamedTuple):
    """The assigned rows of all sources, and the others."""

    rows: PCollection[Any]  # ((split, shard), references), which may be encoded
    # (split, number of rows assigned to it); a split can occur several times.
    counts: Sequence[PCollection[tuple[str, int]]]
    read: Sequence[PCollection[int]]  # the number of rows that were read, in parts
    # Rows that cannot be read, and files and folders that cannot be listed.
    unread: Sequence[PCollection[Reject]]
    # Rows that were read, and rejected before their assignment.
    unassigned: Sequence[PCollection[Reject]]
    # (kind, skipped inputs); a kind can occur several times.
    skipped: Sequence[PCollection[tuple[str, SkippedInput]]]


@dataclass(eq=False)
class ReadAssigned(beam.PTransform):
    """Reads, binds and assigns rows: ListedParts → AssignedInput."""

    projection: Projection
    staging: str  # the folder for embedded images; "" to read none
    binding: Binding
    plan: PCollection[Plan]  # the resolved schema, and the number of shards
    ranges: SplitRanges  # the ranges of the splits, unless the plan has them
    seed: int  # the seed of the hashes that decide split, shard and order
    base: Base | None  # the base version, whose rows keep their shards; None if there is none

    def expand(self, listed: ListedParts) -> AssignedInput:
        """Adds the reading; one part is one unit of work."""
        settings = (self.projection, self.staging, self.binding, self.ranges, self.seed, self.base)
        found = (
            listed.parts
            | "SpreadParts" >> beam.Reshuffle()  # Part
            | "ReadAndAssign"
            >> beam.ParDo(_ReadAssigned(*settings), AsSingleton(self.plan))
            .with_output_types(_Assigned)
            .with_outputs(_COUNTS, _READ, REJECTS, _UNASSIGNED, SKIPPED, main="rows")
        )
        return AssignedInput(
            rows=found.rows,
            counts=[found[_COUNTS]],
            read=[found[_READ]],
            unread=[listed.rejects, found[REJECTS]],
            unassigned=[found[_UNASSIGNED]],
            skipped=[listed.skipped, found[SKIPPED]],
        )


@dataclass(frozen=True, eq=False)
class AssignTask:
    """What all parts of a source have in common."""

    projection: Projection  # the columns to keep, the image column and the limits
    staging: str  # the folder for embedded images; "" to read none
    binding: Binding
    ranges: SplitRanges  # the ranges of the splits, unless the plan has them
    seed: int  # the seed of the hashes that decide split, shard and order
    base: Base | None  # the base version, whose rows keep their shards; None if there is none
    plan: Plan  # the resolved schema, and the number of shards

    def run(self, part: Part, _: Pools) -> Iterator[_Assigned | TaggedOutput]:
        """Yields the references of the rows of a part by shard, the rejects, and the counts."""
        # What a resolved binding keeps cannot be pickled.
        binding = replace(self.binding, resolved=self.plan.resolved)
        gathered, read, counts = GatheredRefs(), 0, Counter[str]()
        for rows in read_part(part, self.projection, self.staging):
            if isinstance(rows, TaggedOutput):
                yield rows
                continue
            read += len(rows)
            for refs in bound(rows, binding):
                if isinstance(refs, TaggedOutput):
                    yield TaggedOutput(_UNASSIGNED, refs.value)
                    continue
                for shard, found in assign(refs, self.plan, self.ranges, self.seed, self.base):
                    counts[shard[0]] += len(found)
                    gathered.add(shard, found)
            if gathered.are_many:
                yield from gathered.take().items()
        yield from gathered.take().items()
        yield TaggedOutput(_READ, read)
        yield from (TaggedOutput(_COUNTS, count) for count in counts.items())


class _ReadAssigned(TaskDoFn):
    """Reads and assigns the rows of one part per element, in this process or a writer process."""

    def __init__(
        self,
        projection: Projection,
        staging: str,
        binding: Binding,
        ranges: SplitRanges,
        seed: int,
        base: Base | None,
    ) -> None:
        super().__init__()
        self._projection, self._staging = projection, staging
        self._others = binding, ranges, seed, base
        self._task: AssignTask | None = None

    def process(self, part: Part, plan: Plan) -> Iterator[_Assigned | TaggedOutput]:
        if self._task is None or self._task.plan is not plan:
            projection = with_limits(self._projection, self._staging)
            self._task = AssignTask(projection, self._staging, *self._others, plan)
        return self.run_on_part(self._task, part, self._task.base)
