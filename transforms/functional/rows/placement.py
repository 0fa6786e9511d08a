"""Derives the split, shard and order of a record from a salted hash of its key.

The hash is sha256: stable across machines, runs and workers, unlike Python's `hash`, and uniform
for any keys. Shards are consecutive ranges of the order, so the sequence of records does not depend
on the number of shards. Any change here changes every dataset: raise `FORMAT_VERSION` with it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
_POSITION_BYTES = 8

BaseShard: TypeAlias = tuple[str, int]
"""(split, shard number) of the shard of the base version that holds a key."""

FindBaseShard: TypeAlias = Callable[[str], "BaseShard | None"]
"""Returns the base shard of a key; None if the base version does not have the key."""


@dataclass(frozen=True)
class SplitRanges:
    """The splits, as consecutive ranges of a 64-bit hash.

    Attributes:
        names: the splits, in the order given.
        bounds: the hash at which each range ends, exclusive; the last is 2^64.
    """

    names: tuple[str, ...]
    bounds: tuple[int, ...]

    @classmethod
    def from_weights(cls, weights: Mapping[str, Decimal]) -> SplitRanges:
        """Returns ranges in proportion to the weights, exact to one part in 2^64."""
        # Fractions, not floats: the bounds must be the same on every machine.
        weighted = {name: Fraction(weight) for name, weight in weights.items() if weight}
        total = sum(weighted.values(), Fraction(0))
        ends = accumulate(weighted.values())
        bounds = tuple(int(end / total * 2 ** (8 * _SPLIT_BYTES)) for end in ends)
        return cls(tuple(weighted), bounds)


def split_of(entity: str, ranges: SplitRanges, seed: int) -> str:
    """Returns the split of a row.

    Args:
        entity: the unit that stays in one split: the row's group, or its key.
        ranges: the splits.
        seed: the run's seed; each gives another partition.
    """
    # Depends on no other row: when a table grows, its old rows keep their splits.
    position = int.from_bytes(_digest(seed, "split", entity)[:_SPLIT_BYTES], "big")
    return ranges.names[bisect_right(ranges.bounds, position)]


def order_of(key: str, seed: int) -> bytes:
    """Returns the 16 bytes that a split's records are sorted by.

    Args:
        key: the record's key.
        seed: the run's seed.
    """
    return _digest(seed, "order", key)[:ORDER_BYTES]


def shard_of(order: bytes, num_shards: int) -> int:
    """Returns the number of a record's shard, for shards of equal hash ranges.

    Args:
        order: the record's order hash.
        num_shards: the number of shards of its split.

    >>> shard_of(bytes(16), 4), shard_of(bytes([255] * 16), 4)
    (0, 3)
    """
    return int.from_bytes(order, "big") * num_shards >> (8 * ORDER_BYTES)


def hash_position(order: bytes) -> int:
    """Returns the first 64 bits of an order hash as an integer."""
    return int.from_bytes(order[:_POSITION_BYTES], "big")


def shard_starts(positions: Iterable[int], records: int) -> tuple[int, ...]:
    """Returns the hash position at which each shard except the first starts.

    Args:
        positions: the hash positions of all records of a split, in any order.
        records: the number of records of each shard but the last.

    >>> shard_starts([9, 1, 5, 3, 7], 2)
    (5, 9)
    """
    # A set, because all rows of one key have one position, and only one of them becomes a record.
    return tuple(sorted(set(positions))[records::records])


def shard_at(order: bytes, starts: Sequence[int]) -> int:
    """Returns the number of a record's shard, for shards with given starts.

    Args:
        order: the record's order hash.
        starts: the hash position at which each shard except the first starts.
    """
    return bisect_right(starts, hash_position(order))


def stays_in_base(shard: BaseShard | None, split: str) -> bool:
    """Returns whether a row keeps its shard of the base version.

    Args:
        shard: the base shard that holds the row's key, or None.
        split: the row's own split, which takes precedence, or "".

    >>> stays_in_base(("train", 3), ""), stays_in_base(("train", 3), "test")
    (True, False)
    """
    return shard is not None and split in ("", shard[0])


def _digest(seed: int, purpose: str, text: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{purpose}\0{text}".encode()).digest()


def sort_references(
    placed: Iterable[tuple[bytes, ImageRef]],
) -> tuple[list[ImageRef], list[Reject]]:
    """Returns a shard's references in order, and the rejects of rows with duplicate keys.

    Of the rows with one key, the first by file and line is kept.

    Args:
        placed: (order hash, reference) of each row of the shard.
    """
    kept: list[ImageRef] = []
    duplicates: list[Reject] = []
    # Rows with one key have one order hash, so they are adjacent once sorted: [(order, ref)].
    for _, ref in sorted(placed):
        if kept and kept[-1].key == ref.key:
            duplicates.append(duplicate_key_reject(ref, kept[-1].file, kept[-1].line))
        else:
            kept.append(ref)
    return kept, duplicates


def first_of_key(refs: Iterable[ImageRef]) -> Iterator[ImageRef | Reject]:
    """Yields the first by file and line of the references with one key, and rejects of the others.

    Args:
        refs: the references; they are iterated over twice, and one at a time is in memory.
    """
    file, line = min((ref.file, ref.line) for ref in refs)
    kept = False
    for ref in refs:
        if not kept and (ref.file, ref.line) == (file, line):  # equal dicts have equal locations
            kept = True
            yield ref
        else:
            yield duplicate_key_reject(ref, file, line)


def duplicate_key_reject(ref: ImageRef, file: str, line: int) -> Reject:
    """Returns the reject of a row whose key occurs in an earlier row.

    Args:
        ref: the row's reference.
        file: the file of the first row with the key.
        line: its line.
    """
    first = masked_source(source_of(file, line))
    detail = f"duplicate key, first seen at {first}; only the first row is kept"
    return Reject.of(ref, Reason.DUPLICATE_KEY, detail)
