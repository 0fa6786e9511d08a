"""Split, shard and order of a record, all from a salted hash of its key.

sha256, because it is the same on every machine, run and worker, as Python's `hash` is not, and
because its values are spread evenly whatever the keys look like. Shards are ranges of the order:
read one after the other they give the same sequence, however many shards there are. A row's split
never depends on other rows, so that a grown table leaves old rows where they were. Rows with the
same key meet in the same shard, where all but the first are rejected.
Changing anything here changes every dataset: raise `schemas.config.FORMAT_VERSION` with it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias

from recordmill.schemas.masking import masked_source
from recordmill.schemas.records import ImageRef, source_of
from recordmill.schemas.rejects import Reason, Reject

_SPLIT_BYTES = 8
ORDER_BYTES = 16
_POINT_BYTES = 8

BaseShard: TypeAlias = tuple[str, int]
"""A split of a base, and the number of the shard within it that holds a key."""

FindBaseShard: TypeAlias = Callable[[str], "BaseShard | None"]
"""Finds the home of a key."""


@dataclass(frozen=True)
class SplitRanges:
    """The splits as ranges of a 64-bit hash.

    Attributes:
        names: the splits, in the order given.
        bounds: the hash at which each range ends, exclusive; the last is 2^64.
    """

    names: tuple[str, ...]
    bounds: tuple[int, ...]

    @classmethod
    def from_weights(cls, weights: Mapping[str, Decimal]) -> SplitRanges:
        """Returns ranges in proportion to the weights, exact to one part in 2^64."""
        weighed = {name: Fraction(weight) for name, weight in weights.items() if weight}
        total = sum(weighed.values(), Fraction(0))
        ends = accumulate(weighed.values())
        bounds = tuple(int(end / total * 2 ** (8 * _SPLIT_BYTES)) for end in ends)
        return cls(tuple(weighed), bounds)


def split_of(entity: str, ranges: SplitRanges, seed: int) -> str:
    """Returns the split of a row.

    Args:
        entity: what must not be parted: the row's group, or its key.
        ranges: the splits.
        seed: another seed gives another partition.
    """
    point = int.from_bytes(_digest(seed, "split", entity)[:_SPLIT_BYTES], "big")
    return ranges.names[bisect_right(ranges.bounds, point)]


def order_of(key: str, seed: int) -> bytes:
    """Returns the place of a record among all of its split: 16 bytes, compared as such."""
    return _digest(seed, "order", key)[:ORDER_BYTES]


def shard_of(order: bytes, num_shards: int) -> int:
    """Returns the shard whose range of the order a record falls in.

    >>> shard_of(bytes(16), 4), shard_of(bytes([255] * 16), 4)
    (0, 3)
    """
    return int.from_bytes(order, "big") * num_shards >> (8 * ORDER_BYTES)


def hash_position(order: bytes) -> int:
    """Returns the first 64 bits of a place in the order, of which a shard's start is one."""
    return int.from_bytes(order[:_POINT_BYTES], "big")


def shard_starts(points: Iterable[int], records: int) -> tuple[int, ...]:
    """Returns where every shard but the first begins, for shards of so many records.

    >>> shard_starts([9, 1, 5, 3, 7], 2)
    (5, 9)
    """
    return tuple(sorted(set(points))[records::records])


def shard_at(order: bytes, starts: Sequence[int]) -> int:
    """Returns the shard that a record falls in, by where each but the first begins."""
    return bisect_right(starts, hash_position(order))


def stays_in_base(home: BaseShard | None, split: str) -> bool:
    """Returns whether a row stays in its shard of a base: its own split, if it has one, wins.

    >>> stays_in_base(("train", 3), ""), stays_in_base(("train", 3), "test")
    (True, False)
    """
    return home is not None and split in ("", home[0])


def _digest(seed: int, purpose: str, text: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{purpose}\0{text}".encode()).digest()


def sort_references(
    placed: Iterable[tuple[bytes, ImageRef]],
) -> tuple[list[ImageRef], list[Reject]]:
    """Returns a shard's references in their order, and the rejects of those that repeat a key.

    Of rows with one key the first counts: the one whose file and line come first.
    """
    kept: list[ImageRef] = []
    repeated: list[Reject] = []
    for _, ref in sorted(placed):
        if kept and kept[-1].key == ref.key:
            repeated.append(duplicate_key_reject(ref, kept[-1].file, kept[-1].line))
        else:
            kept.append(ref)
    return kept, repeated


def duplicate_key_reject(ref: ImageRef, file: str, line: int) -> Reject:
    """Returns the reject of a row whose key stands in an earlier one."""
    first = masked_source(source_of(file, line))
    detail = f"the key stands in {first}, too; only the first row counts"
    return Reject.of(ref, Reason.DUPLICATE_KEY, detail)
