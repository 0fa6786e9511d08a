"""The references of a shard on the way to the process that writes it, which decodes them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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


# The folder of the run, on this machine; "" if elements stay in memory.
_folder = ""


@contextmanager
def spilling_to(folder: str) -> Iterator[None]:
    """Has elements wait in staging files while the body runs.

    `folder` is the folder of the run, on this machine; "" to keep elements in memory.
    """
    global _folder
    _folder = folder
    try:
        yield
    finally:
        _folder = ""


def spill(elements: Iterable[bytes]) -> list[Spilled]:
    """Writes elements to a new file.

    Returns the place of each; none, and no element is made, if they stay in memory.
    """
    if not _folder:
        return []
    make_folders(_folder, layout.STAGING)
    path, stop, places = layout.join(_folder, layout.STAGING, uuid.uuid4().hex), 0, list[Spilled]()
    with open(path, "wb") as stream:
        for element in elements:
            start, stop = stop, stop + stream.write(element)
            places.append(Spilled(path, start, stop))
    return places


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
