"""The references of a shard on the way to the process that writes it, which decodes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apache_beam import coders

from recordmill.transforms.elements import OrderedRefsCoder, ShardId
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.workers.spill_files import Spilled, spill

_REFS, _PARTS = OrderedRefsCoder(), coders.FastPrimitivesCoder()

# Encoded references that are gathered before they are passed on, so that few elements cross the
# shuffle: those of one batch of rows are spread over all shards.
_GATHERED_BYTES = 16 * 2**20


@dataclass(frozen=True)
class EncodedRefs:
    """References of one shard, encoded."""

    parts: tuple[bytes, ...] | Spilled = ()  # the encoded parts, or their place in a spill file

    def read(self) -> tuple[bytes, ...]:
        """Returns the encoded parts."""
        parts = self.parts
        return tuple(_PARTS.decode(parts.read())) if isinstance(parts, Spilled) else parts


def joined(found: Iterable[EncodedRefs]) -> OrderedRefs:
    """Returns the references of a shard, decoded."""
    return OrderedRefs.joined(_REFS.decode(part) for refs in found for part in refs.read())


class GatheredRefs:
    """References of several batches, by shard."""

    def __init__(self) -> None:
        """Gathers no references yet."""
        self._parts = defaultdict[ShardId, list[bytes]](list)
        self._size = 0

    @property
    def are_many(self) -> bool:
        """Whether they should be passed on."""
        return self._size >= _GATHERED_BYTES

    def add(self, shard: ShardId, refs: OrderedRefs | EncodedRefs) -> None:
        """Adds references of a shard, which may be encoded."""
        parts = refs.read() if isinstance(refs, EncodedRefs) else (_REFS.encode(refs),)
        self._parts[shard] += parts
        self._size += sum(map(len, parts))

    def take(self) -> dict[ShardId, EncodedRefs]:
        """Returns the references by shard, and gathers others from now on."""
        taken = {shard: EncodedRefs(tuple(parts)) for shard, parts in self._parts.items()}
        self.__init__()  # type: ignore[misc]
        return taken


def spilled(found: Mapping[ShardId, EncodedRefs]) -> Mapping[ShardId, EncodedRefs]:
    """Returns references that wait in a spill file, where they have to."""
    places = spill(_PARTS.encode(refs.parts) for refs in found.values())
    waiting = zip(found, map(EncodedRefs, places), strict=True)
    return dict(waiting) if places else found


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
