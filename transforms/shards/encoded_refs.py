"""The references of a shard on the way to the process that writes it, which decodes them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from apache_beam import coders

from recordmill.schemas import layout
from recordmill.transforms.elements import OrderedRefsCoder, ShardId
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.storage.files import make_folders


class Spilled(NamedTuple):
    """The place of an element in a spill file."""

    path: str
    start: int
    stop: int

    def read(self) -> bytes:
        """Returns the element."""
        with open(self.path, "rb") as stream:
            stream.seek(self.start)
            return stream.read(self.stop - self.start)


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

    def add(self, shard: ShardId, refs: OrderedRefs) -> None:
        """Adds references of a shard."""
        encoded = _REFS.encode(refs)
        self._parts[shard].append(encoded)
        self._size += len(encoded)

    def take(self, scratch: str = "") -> Iterator[tuple[ShardId, EncodedRefs]]:
        """Yields the references by shard, and gathers others from now on.

        `scratch`: the folder of a file in which they wait; "" to keep them in memory.
        """
        taken, self._parts, self._size = self._parts, defaultdict(list), 0
        if not scratch:
            yield from ((shard, EncodedRefs(tuple(parts))) for shard, parts in taken.items())
            return
        make_folders(scratch, layout.STAGING)
        path, stop = layout.join(scratch, layout.STAGING, uuid.uuid4().hex), 0
        places = dict[ShardId, EncodedRefs]()
        with open(path, "wb") as stream:
            for shard, parts in taken.items():
                start, stop = stop, stop + stream.write(_PARTS.encode(tuple(parts)))
                places[shard] = EncodedRefs(Spilled(path, start, stop))
        yield from places.items()


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
