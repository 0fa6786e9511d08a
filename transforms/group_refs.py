"""Groups the assigned references by shard: the only shuffle of a plain run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam import coders
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.records import ImageRef
from recordmill.transforms.elements import AssignedRows, OrderedRefsCoder, ShardId
from recordmill.transforms.workers.spill_files import Spilled, spill

# Encoded references that a worker gathers before it passes them on, so that few elements cross the
# shuffle: those of one batch of rows are spread over all shards.
_GATHERED_BYTES = 16 * 2**20

_REFS, _PARTS = OrderedRefsCoder(), coders.FastPrimitivesCoder()


@dataclass(frozen=True)
class EncodedRefs:
    """References of one shard, which only the process that writes it decodes.

    Attributes:
        parts: the encoded parts, or their place in a spill file.
    """

    parts: tuple[bytes, ...] | Spilled = ()

    def __iter__(self) -> Iterator[tuple[bytes, ImageRef]]:
        """Yields the references with their order hashes."""
        parts = self.parts
        if isinstance(parts, Spilled):
            parts = _PARTS.decode(parts.read())
        for part in parts:
            yield from _REFS.decode(part)


class EncodedRefsCoder(coders.Coder):
    """Encodes the parts, or their place."""

    def encode(self, value: EncodedRefs) -> bytes:
        """Returns the parts, or their place, as bytes."""
        return bytes(_PARTS.encode(tuple(value.parts)))

    def decode(self, encoded: bytes) -> EncodedRefs:
        """Returns the references with these parts."""
        parts = _PARTS.decode(encoded)
        is_place = bool(parts) and isinstance(parts[0], str)
        return EncodedRefs(Spilled(*parts) if is_place else parts)

    def is_deterministic(self) -> bool:
        """Returns False: references are never keys of a grouping."""
        return False


coders.registry.register_coder(EncodedRefs, EncodedRefsCoder)

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

    def start_bundle(self) -> None:
        self._gathered = defaultdict[ShardId, list[bytes]](list)
        self._size = 0

    def process(self, assigned: AssignedRows) -> Iterator[_Encoded]:
        shard, refs = assigned
        part = _REFS.encode(refs)
        self._gathered[shard].append(part)
        self._size += len(part)
        if self._size >= _GATHERED_BYTES:
            yield from self._spilled()
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        # The rest stays in memory: it is small, and all of a small table.
        for shard, parts in self._gathered.items():
            yield GlobalWindows.windowed_value((shard, EncodedRefs(tuple(parts))))

    def _spilled(self) -> Iterator[_Encoded]:
        parts = [tuple(parts) for parts in self._gathered.values()]
        places = spill(map(_PARTS.encode, parts))
        for shard, found, place in zip(self._gathered, parts, places, strict=True):
            yield shard, EncodedRefs(place or found)
