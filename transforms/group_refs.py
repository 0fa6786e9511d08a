"""Groups the assigned references by shard: the only shuffle of a plain run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.elements import AssignedRows, ShardId, windowed
from recordmill.transforms.shards.encoded_refs import EncodedRefs, GatheredRefs, spilled

_Encoded: TypeAlias = tuple[ShardId, EncodedRefs]


@dataclass(eq=False)
class GroupByShard(beam.PTransform):
    """Groups references: PCollection[AssignedRows] → PCollection[(ShardId, [EncodedRefs])].

    The references may be encoded already.
    """

    # Shards that are elements of the result even without a row; None if there are none.
    planned: PCollection[ShardId] | None = None

    def expand(self, rows: PCollection[AssignedRows]) -> PCollection[Any]:
        """Adds the shuffle of references."""
        encoded = rows | "EncodeRefs" >> beam.ParDo(_EncodeRefs()).with_output_types(_Encoded)
        if self.planned is not None:
            empty = self.planned | "NoRefs" >> beam.Map(_without_refs).with_output_types(_Encoded)
            encoded = (encoded, empty) | "WithPlanned" >> beam.Flatten()
        return encoded | "GroupByKey" >> beam.GroupByKey()


def _without_refs(shard: ShardId) -> _Encoded:
    return shard, EncodedRefs()


class _EncodeRefs(beam.DoFn):
    """Encodes references, and gathers those of a shard from several batches."""

    def start_bundle(self) -> None:
        self._gathered = GatheredRefs()

    def process(self, assigned: AssignedRows | _Encoded) -> Iterator[_Encoded]:
        self._gathered.add(*assigned)
        if self._gathered.are_many:
            yield from spilled(self._gathered.take()).items()

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        # The rest stays in memory: it is small, and all of a small table.
        return map(windowed, self._gathered.take().items())
