"""The references of a shard on the way to the process that writes it, which decodes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apache_beam import coders

from recordmill.transforms.elements import OrderedRefsCoder
from recordmill.transforms.functional.rows.ref_batch import OrderedRefs
from recordmill.transforms.workers.spill_files import Spilled, spill

_REFS, _PARTS = OrderedRefsCoder(), coders.FastPrimitivesCoder()


@dataclass(frozen=True)
class EncodedRefs:
    """References of one shard, encoded.

    Attributes:
        parts: the encoded parts, or their place in a spill file.
    """

    parts: tuple[bytes, ...] | Spilled = ()

    def decoded(self) -> list[OrderedRefs]:
        """Returns the references, in parts."""
        parts = self.parts
        if isinstance(parts, Spilled):
            parts = _PARTS.decode(parts.read())
        return [_REFS.decode(part) for part in parts]


def joined(found: Iterable[EncodedRefs]) -> OrderedRefs:
    """Returns the references of a shard, decoded."""
    return OrderedRefs.joined(part for refs in found for part in refs.decoded())


def spilled(found: Sequence[EncodedRefs]) -> Sequence[EncodedRefs]:
    """Returns references that wait in a spill file, where they have to."""
    places = spill(_PARTS.encode(refs.parts) for refs in found)
    return [EncodedRefs(place) for place in places] or found


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
