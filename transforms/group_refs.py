"""Groups the assigned references by shard: the only shuffle of a plain run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.elements import AssignedRows, OrderedRefsCoder, ShardId
from recordmill.transforms.shards.encoded_refs import EncodedRefs, spilled

# Encoded references that a worker gathers before it passes them on, so that few elements cross the
# shuffle: those of one batch of rows are spread over all shards.
_GATHERED_BYTES = 16 * 2**20

_Encoded: TypeAlias = tuple[ShardId, EncodedRefs]


@dataclass(eq=False)
class GroupByShard(beam.PTransform):
    """Groups references: PCollection[AssignedRows] → PCollection[(ShardId, [EncodedRefs])].

    Attributes:
        planned: shards that are elements of the result even without a row; None if there are none.
    """

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

    def __init__(self) -> None:
        self._coder = OrderedRefsCoder()

    def start_bundle(self) -> None:
        self._parts = defaultdict[ShardId, list[bytes]](list)
        self._size = 0

    def process(self, assigned: AssignedRows) -> Iterator[_Encoded]:
        shard, refs = assigned
        part = self._coder.encode(refs)
        self._parts[shard].append(part)
        self._size += len(part)
        if self._size >= _GATHERED_BYTES:
            yield from zip(self._parts, spilled(self._gathered()), strict=True)
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        # The rest stays in memory: it is small, and all of a small table.
        for element in zip(self._parts, self._gathered(), strict=True):
            yield GlobalWindows.windowed_value(element)

    def _gathered(self) -> list[EncodedRefs]:
        return [EncodedRefs(tuple(parts)) for parts in self._parts.values()]
