"""Derives the split, shard and order of a record from salted hashes of its key.

The hash is SHA-256, which is uniform for any keys and, unlike Python's `hash`, the same on every
machine and worker and in every run. Shards are consecutive ranges of the order, so the sequence of
records does not depend on the number of shards. A change here changes every dataset: increment
`FORMAT_VERSION` with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import repeat
from typing import ClassVar, TypeAlias, TypeVar

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.masking import masked_source
from recordmill.schemas.plan import SplitRanges
from recordmill.schemas.records import OUTSIDE_SAMPLE, ImageRef, Row, SkippedInput, source_of
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.transforms.functional.rows.batches import OrderedRefs, RefBatch
from recordmill.transforms.functional.rows.binding import Binding, record_key

# Sizes of hashes in bytes.
ORDER_BYTES = 16
POSITION_BYTES = 8

# The exclusive end of all hash positions.
END = 2 ** (8 * POSITION_BYTES)

# (split, shard number) of the shard of the base version that contains a key.
BaseShard: TypeAlias = tuple[str, int]

# Returns the base shard of a key; None if the base version does not have the key.
BaseShardLookup: TypeAlias = Callable[[str], "BaseShard | None"]


def not_in_base(key: str) -> BaseShard | None:
    """Returns None for every key: the lookup without a base version."""
    return None


def split_position(entity: str, seed: int) -> int:
    """Returns the 64-bit hash position that decides the split of a row, by its group or key."""
    return int.from_bytes(_digest(seed, "split", entity)[:POSITION_BYTES], "big")


def _sample_position(record: str, seed: int) -> int:
    return int.from_bytes(_digest(seed, "sample", record)[:POSITION_BYTES], "big")


def split_of(entity: str, ranges: SplitRanges, seed: int, stratum: Hashable = None) -> str:
    """Returns the split of a row."""
    if len(ranges.names) == 1:
        return ranges.names[0]
    position = split_position(entity, seed)
    if ranges.groups and (number := ranges.groups.get(position >> (64 - ranges.group_bits))):
        return ranges.names[number - 1]
    # Without strata, independent of all other rows: when rows are added to a table, the others
    # keep their splits.
    return ranges.names[bisect_right(ranges.strata.get(stratum, ranges.bounds), position)]


def splits_of(
    stated: Sequence[str],
    entities: Iterable[str],
    ranges: SplitRanges,
    seed: int,
    strata: Iterable[Hashable] = repeat(None),
) -> Sequence[str]:
    """Returns the splits of rows: as they state, or else by `split_of`."""
    if len(ranges.names) == 1:
        return [split or ranges.names[0] for split in stated]
    return [
        split or split_of(entity, ranges, seed, stratum)
        for split, entity, stratum in zip(stated, entities, strata, strict=False)
    ]


def order_of(key: str, seed: int) -> bytes:
    """Returns the order hash of a record, by which the records of a split are sorted."""
    return orders_of([key], seed)[0]


def orders_of(keys: Iterable[str], seed: int) -> list[bytes]:
    """Returns the order hashes of records."""
    salt = _salt(seed, "order")
    return [sha256(salt + key.encode()).digest()[:ORDER_BYTES] for key in keys]


def shards_of(orders: Iterable[bytes], num_shards: int) -> list[int]:
    """Returns the numbers of the shards of records of one split, for shards of equal hash ranges.

    >>> shards_of([bytes(16), bytes([255] * 16)], 4)
    [0, 3]
    """
    # floor(hash * n / 2^128), in integers: the shards divide the range of hashes evenly.
    integer, bits = int.from_bytes, 8 * ORDER_BYTES
    return [integer(order, "big") * num_shards >> bits for order in orders]


def shards_at(orders: Iterable[bytes], starts: Sequence[int]) -> list[int]:
    """Returns the shards of records, given the hash positions where all but the first begin."""
    return [bisect_right(starts, int.from_bytes(order[:POSITION_BYTES], "big")) for order in orders]


def stays_in_base(shard: BaseShard | None, split: str) -> bool:
    """Returns whether a row stays in its shard of the base version.

    >>> stays_in_base(("train", 3), ""), stays_in_base(("train", 3), "test")
    (True, False)
    """
    return shard is not None and split in ("", shard[0])


def _digest(seed: int, purpose: str, text: str) -> bytes:
    return sha256(_salt(seed, purpose) + text.encode()).digest()


def _salt(seed: int, purpose: str) -> bytes:
    return f"{seed}\0{purpose}\0".encode()


def sort_references(
    assigned: Iterable[tuple[bytes, ImageRef]],
    difference: Callable[[ImageRef, ImageRef], str] = lambda kept, other: "",
) -> tuple[RefBatch, list[Reject]]:
    """Returns the references of a shard in the order of their records, and rejects duplicate keys.

    Of the rows with one key, the first by file and line is kept. `difference` describes how another
    row differs from it.
    """
    ordered = OrderedRefs.of(assigned)
    orders = ordered.column("order")
    if len(set(orders)) == len(orders):  # so all keys are different, too
        return ordered.refs.take(sorted(range(len(orders)), key=orders.__getitem__)), []
    kept: list[ImageRef] = []
    duplicates: list[Reject] = []
    # Rows with one key have the same order hash, so they are adjacent in [(order, ref)].
    for _, ref in sorted(ordered):
        if kept and kept[-1].key == ref.key:
            what = difference(kept[-1], ref) if ref.line < 0 else ""
            duplicates.append(_duplicate_key_reject(ref, kept[-1].file, kept[-1].line, what))
        else:
            kept.append(ref)
    return RefBatch.of(kept), duplicates


def first_of_key(refs: Iterable[ImageRef]) -> Iterator[ImageRef | Reject]:
    """Yields the first reference with a key by file and line, and rejects for the others.

    Equal dicts have the same location, so all of them are yielded: either `deduplicate` drops them,
    or they are in one shard, whose writer keeps the first. `refs` is iterated over twice.
    """
    first = min((ref.file, ref.line) for ref in refs)
    for ref in refs:
        yield ref if (ref.file, ref.line) == first else _duplicate_key_reject(ref, *first)


def _duplicate_key_reject(ref: ImageRef, file: str, line: int, what: str = "") -> Reject:
    first = masked_source(source_of(file, line))
    detail = f"duplicate key, first seen at {first}; only the first row is kept"
    if min(ref.line, line) < 0:  # a dict of a PCollection, which has no order
        detail = f"another row has the same key; one of them is kept{what}"
    return Reject.of(ref, Reason.DUPLICATE_KEY, detail)


# An element of a source.
Found = TypeVar("Found", bound="Row | Reject | SkippedInput")


@dataclass(frozen=True)
class Sampler:
    """Selects the rows whose hash positions are before an end.

    Rows that are rejected before they have a key are sampled as well, so that the reject budget
    applies to a sample as to all rows.
    """

    binding: Binding
    seed: int  # the seed of the run; another seed gives another sample
    # The exclusive end of the positions in the sample, up to 2^64, of each group of rows.
    ends: Mapping[str, int] = field(default_factory=lambda: {"": END})
    outside: ClassVar[str] = OUTSIDE_SAMPLE  # the kind of the other rows

    @classmethod
    def of(cls, config: ConvertConfig, binding: Binding) -> Sampler:
        """Returns the sampler of a percentage; a number of rows has all rows at first."""
        part = config.sample_part
        return cls(binding, config.seed, {"": END if part is None else int(part * END)})

    def groups(self, found: Row | Reject) -> Sequence[str]:
        """Returns the groups of a row, of each of which it has to be in the sample."""
        return ("",)

    def position(self, found: Row | Reject) -> int:
        """Returns the hash position of a row: by the key of its record, or else by its source."""
        if isinstance(found, Reject):
            return _sample_position(found.source, self.seed)
        try:
            return _sample_position(record_key(found, self.binding), self.seed)
        except RecordError:  # the row is rejected when it is bound
            return _sample_position(found.source, self.seed)

    def has(self, found: Row | Reject) -> bool:
        """Returns whether a row is in the sample; a reject for lost rows always is."""
        if isinstance(found, Reject) and found.reason is Reason.LOST_ROWS:
            return True
        groups = self.groups(found)
        position = self.position(found) if groups else 0
        return all(position < self.ends[group] for group in groups)

    def select(self, elements: Iterable[Found]) -> Iterator[Found | SkippedInput]:
        """Yields the elements in the sample, and the number of rows that are not."""
        outside = 0
        for found in elements:
            if isinstance(found, SkippedInput) or self.has(found):
                yield found
            else:
                outside += 1
        if outside:
            yield SkippedInput(self.outside, outside)
