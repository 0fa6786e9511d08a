"""Derives the split, shard and order of a record from salted hashes of its key, and sorts shards.

The hash is SHA-256, which is uniform for any keys and, unlike Python's `hash`, the same on every
machine and worker and in every run. Shards are consecutive ranges of the order, so the sequence of
records does not depend on the number of shards. A change here changes every dataset: increment
`FORMAT_VERSION` with it.

If one frame of a sequence is rejected, all of its rows are, so that no sequence is written with
fewer frames than its table lists.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from hashlib import sha256
from itertools import groupby, repeat
from typing import Any, ClassVar, TypeAlias, TypeVar

from recordmill.schemas import records
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.masking import masked_source
from recordmill.schemas.plan import ResolvedSchema, SplitRanges
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.transforms.functional.records.examples import build_sequence
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows.batches import OrderedRefs, RefBatch
from recordmill.transforms.functional.rows.binding import Binding, record_key
from recordmill.transforms.functional.values.typed import short_repr

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
    return _position(seed, "split", entity)


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


def _position(seed: int, purpose: str, text: str) -> int:
    digest = sha256(_salt(seed, purpose) + text.encode()).digest()
    return int.from_bytes(digest[:POSITION_BYTES], "big")


def _salt(seed: int, purpose: str) -> bytes:
    return f"{seed}\0{purpose}\0".encode()


def _sort_references(
    assigned: Iterable[tuple[bytes, records.ImageRef]],
    difference: Callable[[records.ImageRef, records.ImageRef], str] = lambda kept, other: "",
) -> tuple[RefBatch, list[Reject]]:
    """Returns the references of a shard in the order of their records, and rejects duplicate keys.

    Of the rows with one key, the first by file and line is kept. `difference` describes how another
    row differs from it.
    """
    ordered = OrderedRefs.of(assigned)
    orders = ordered.column("order")
    if len(set(orders)) == len(orders):  # so all keys are different, too
        return ordered.refs.take(sorted(range(len(orders)), key=orders.__getitem__)), []
    kept: list[records.ImageRef] = []
    duplicates: list[Reject] = []
    # Rows with one key have the same order hash, so they are adjacent in [(order, ref)].
    for _, ref in sorted(ordered):
        if kept and kept[-1].key == ref.key:
            what = difference(kept[-1], ref) if ref.line < 0 else ""
            duplicates.append(_duplicate_key_reject(ref, kept[-1].file, kept[-1].line, what))
        else:
            kept.append(ref)
    return RefBatch.of(kept), duplicates


def first_of_key(refs: Iterable[records.ImageRef]) -> Iterator[records.ImageRef | Reject]:
    """Yields the first reference with a key by file and line, and rejects for the others.

    Equal dicts have the same location, so all of them are yielded: either `deduplicate` drops them,
    or they are in one shard, whose writer keeps the first. `refs` is iterated over twice.
    """
    first = min((ref.file, ref.line) for ref in refs)
    for ref in refs:
        yield ref if (ref.file, ref.line) == first else _duplicate_key_reject(ref, *first)


def _duplicate_key_reject(ref: records.ImageRef, file: str, line: int, what: str = "") -> Reject:
    first = masked_source(records.source_of(file, line))
    detail = f"duplicate key, first seen at {first}; only the first row is kept"
    if ref.file.lower().endswith((".tar", ".tar.gz", ".tgz")):
        detail += ". Unpack each tar to a folder of its own, and pack the folders into one tar."
    elif not ref.line or ref.file.lower().endswith((".json", ".xml")):
        detail += ". Remove one of the two, or give its image another name."
    if min(ref.line, line) < 0:  # a dict of a PCollection, which has no order
        detail = f"another row has the same key; one of them is kept{what}"
    return Reject.of(ref, Reason.DUPLICATE_KEY, detail)


# An element of a source.
Found = TypeVar("Found", bound="records.Row | Reject | records.SkippedInput")


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
    outside: ClassVar[str] = records.OUTSIDE_SAMPLE  # the kind of the other rows

    @classmethod
    def of(cls, config: ConvertConfig, binding: Binding) -> Sampler:
        """Returns the sampler of a percentage; a number of rows has all rows at first."""
        part = config.sample_part
        return cls(binding, config.seed, {"": END if part is None else int(part * END)})

    def groups(self, found: records.Row | Reject) -> Sequence[str]:
        """Returns the groups of a row, of each of which it has to be in the sample."""
        return ("",)

    def position(self, found: records.Row | Reject) -> int:
        """Returns the hash position of a row: by the key of its record, or else by its source."""
        text = found.source
        with suppress(RecordError):  # the row is rejected when it is bound
            text = record_key(found, self.binding) if isinstance(found, records.Row) else text
        return _position(self.seed, "sample", text)

    def has(self, found: records.Row | Reject) -> bool:
        """Returns whether a row is in the sample; a reject for lost rows always is."""
        if isinstance(found, Reject) and found.reason is Reason.LOST_ROWS:
            return True
        groups = self.groups(found)
        position = self.position(found) if groups else 0
        return all(position < self.ends[group] for group in groups)

    def select(self, elements: Iterable[Found]) -> Iterator[Found | records.SkippedInput]:
        """Yields the elements in the sample, and the number of rows that are not."""
        outside = 0
        for found in elements:
            if isinstance(found, records.SkippedInput) or self.has(found):
                yield found
            else:
                outside += 1
        if outside:
            yield records.SkippedInput(self.outside, outside)


# Size limit for the frames of a sequence: a protobuf message, with its context and keys, is limited
# to 2 GiB.
MAX_BYTES = 2**31 - 2**20

_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"(\d+)", re.ASCII)

# The sort key of a frame: a number, or text split at its digits. All keys of a sequence have the
# same type.
SortKey: TypeAlias = Any


def arrange_shard(
    assigned: Iterable[tuple[bytes, records.ImageRef]], resolved: ResolvedSchema
) -> tuple[RefBatch, list[Reject]]:
    """Sorts the references of a shard, and rejects duplicate keys and broken sequences.

    Sequences are sorted by the order hash of their keys, their frames by the order column.
    """
    if resolved.schema.sequence is None:
        return _sort_references(assigned, partial(_replacement, resolved))
    kept: list[records.ImageRef] = []
    rejected: list[Reject] = []
    # All frames of a sequence have the order hash of its key; the key separates hash collisions.
    ordered = sorted(assigned, key=lambda item: (item[0], item[1].record_key))
    # [(sequence key, [(order hash, ref)])]
    for _, group in groupby(ordered, key=lambda item: item[1].record_key):
        frames = _sort_frames([ref for _, ref in group])
        rejects = _sequence_rejects(frames, resolved)
        rejected += rejects
        kept += [] if rejects else frames
    return RefBatch.of(kept), rejected


def _sort_frames(frames: Iterable[records.ImageRef]) -> list[records.ImageRef]:
    """Sorts the frames of one sequence; frames of the same order are sorted by key and source."""
    refs = list(frames)
    keys = _sort_keys([_frame_location(ref).order for ref in refs])
    # Each entry has a unique number, so references, which may not be comparable, are never
    # compared.
    entries = [
        (key, ref.key, ref.file, ref.line, number)
        for number, (key, ref) in enumerate(zip(keys, refs, strict=True))
    ]
    return [refs[number] for *_, number in sorted(entries)]


def _sort_keys(orders: Sequence[str]) -> list[SortKey]:
    """Returns the sort keys of frames: numbers if all orders are numeric, else for natural order.

    >>> _sort_keys(["10", "9.5"])
    [Decimal('10'), Decimal('9.5')]
    >>> sorted(["f10.png", "f9.png"], key=lambda text: _sort_keys([text, "f"])[0])
    ['f9.png', 'f10.png']
    """
    if all(_NUMBER.fullmatch(order) for order in orders):
        return [Decimal(order) for order in orders]
    return [(_natural(order), order) for order in orders]


def _natural(text: str) -> tuple[Any, ...]:
    """Returns the natural sort key of a text, whose runs of digits compare as numbers."""
    parts = _DIGITS.split(text)  # text, digits, text, …
    # (length, digits) without leading zeros compares like the number; `int` is quadratic.
    digits = [part.lstrip("0") for part in parts]
    return tuple((len(digits[i]), digits[i]) if i % 2 else part for i, part in enumerate(parts))


def _frame_location(ref: records.ImageRef) -> records.FrameLocation:
    return records.FrameLocation(*ref.frame) if ref.frame else records.FrameLocation(ref.key, "")


def _sequence_rejects(frames: Sequence[records.ImageRef], resolved: ResolvedSchema) -> list[Reject]:
    faults = _bad_rows(frames)
    if faults:
        return _all_rejected(frames, faults)
    if differs := _difference(frames, resolved):
        return [_frame_reject(ref, Reason.CONTEXT_DIFFERS, differs) for ref in frames]
    duplicates = _duplicate_orders(frames)
    return _all_rejected(frames, duplicates) if duplicates else []


def assemble_sequences(
    built: Iterable[records.BuiltFrame | Reject], refs: Sequence[records.ImageRef], schema: Schema
) -> Iterator[records.SerializedExample | Reject]:
    """Yields the record of each sequence, or the rejects of its rows; one is in memory."""
    outcomes = zip(built, refs, strict=True)  # (frame or reject, ref)
    for _, group in groupby(outcomes, key=lambda outcome: outcome[1].record_key):
        yield from _assembled(group, schema)


def _assembled(
    group: Iterable[tuple[records.BuiltFrame | Reject, records.ImageRef]], schema: Schema
) -> Iterator[records.SerializedExample | Reject]:
    frames: list[records.BuiltFrame] = []
    refs: list[records.ImageRef] = []
    faults: dict[int, Reject] = {}
    size = 0
    for outcome, ref in group:
        if isinstance(outcome, Reject):
            faults[len(refs)] = outcome
        else:
            size += outcome.size
            frames.append(outcome)
        refs.append(ref)
        if faults or size > MAX_BYTES:
            frames.clear()  # frees the images of a rejected sequence
    if faults:
        yield from _all_rejected(refs, faults)
    elif size > MAX_BYTES:
        what = f"the sequence has {size:,} bytes in {len(refs):,} frames; expected at most 2 GiB"
        yield from (_frame_reject(ref, Reason.SEQUENCE_BROKEN, what) for ref in refs)
    else:
        yield build_sequence(schema, frames)


def _bad_rows(frames: Sequence[records.ImageRef]) -> dict[int, Reject]:
    """Returns the rejects of rows that could not be bound, by frame number."""
    locations = enumerate(map(_frame_location, frames))
    return {
        number: _frame_reject(frames[number], Reason(location.reason), location.detail)
        for number, location in locations
        if location.reason
    }


def _duplicate_orders(frames: Sequence[records.ImageRef]) -> dict[int, Reject]:
    """Returns the rejects of frames with equal sort keys, by frame number."""
    orders = [_frame_location(ref).order for ref in frames]
    keys = _sort_keys(orders)
    found: dict[int, Reject] = {}
    for number in range(1, len(frames)):  # the frames are sorted: equal keys are adjacent
        if keys[number] == keys[number - 1]:
            for one, other in ((number - 1, number), (number, number - 1)):
                what = f"order {orders[one]!r} is the same as in {frames[other].source}"
                detail = f"{what}; expected a different one for each frame"
                found.setdefault(one, _frame_reject(frames[one], Reason.DUPLICATE_ORDER, detail))
    return found


def _difference(frames: Sequence[records.ImageRef], resolved: ResolvedSchema) -> str:
    """Describes a context feature that differs between rows; "" if all are equal."""
    first, *others = sorted(frames, key=lambda ref: (ref.file, ref.line))
    for row in others:
        for name, one, two in _differing(first, row, resolved):
            values = f"{one} in {first.source}, and {two} in {row.source}"
            return f"{name!r} is {values}; expected one value per sequence"
    return ""


def _replacement(resolved: ResolvedSchema, kept: records.ImageRef, other: records.ImageRef) -> str:
    """Describes a feature by which a row differs from the one that is kept; "" if all are equal."""
    for name, one, two in _differing(kept, other, resolved):
        return f", whose {name!r} is {one} in place of {two}"
    return ""


def _differing(
    one: records.ImageRef, two: records.ImageRef, resolved: ResolvedSchema
) -> Iterator[list[str]]:
    """Yields the name and both values of each feature that differs, except those of frames."""
    for number, (name, feature) in enumerate(resolved.schema.features.items()):
        pair = [ref.values[number] for ref in (one, two)]
        # Compared as text, because NaN is not equal to itself.
        if feature.per != "frame" and repr(pair[0]) != repr(pair[1]):
            yield [name, *(_shown(value, name, feature, resolved) for value in pair)]


def _shown(
    value: records.FeatureValue, name: str, feature: Feature, resolved: ResolvedSchema
) -> str:
    if feature.classes:
        return repr([resolved.class_name(name, label) for label in label_ids(value, feature)])[1:-1]
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return short_repr(text)


def _all_rejected(refs: Sequence[records.ImageRef], faults: Mapping[int, Reject]) -> list[Reject]:
    """Returns the rejects of all rows of a sequence, given those of invalid frames by index."""
    first = faults[min(faults)]
    # The key, if there is one: unlike the line, it does not change when rows are added above it.
    named = repr(first.key) if first.key else first.source
    what = f"its frame {named} is rejected: {first.reason.value}"
    return [
        faults.get(number) or _frame_reject(ref, Reason.SEQUENCE_BROKEN, what)
        for number, ref in enumerate(refs)
    ]


def in_one_split(
    frames: Iterable[records.ImageRef], split_column: str | None, group_column: str | None
) -> Iterator[records.ImageRef | Reject]:
    """Yields the frames of a sequence, or their rejects if they differ in split or group."""
    columns = (split_column, group_column)
    pairs = sorted({(ref.split, ref.group) for ref in frames})
    shown = [
        ", ".join(f"{c!r} is {v!r}" for c, v in zip(columns, pair, strict=True) if c)
        for pair in pairs[:2]
    ]
    why = f"{' in one row, and '.join(shown)} in another"
    for ref in frames:
        yield ref if len(pairs) == 1 else _spans_splits_reject(ref, why)


def _spans_splits_reject(ref: records.ImageRef, why: str) -> Reject:
    """Returns the reject of a row whose sequence would be in several splits."""
    location = _frame_location(ref)
    if location.reason:
        return _frame_reject(ref, Reason(location.reason), location.detail)
    return _frame_reject(ref, Reason.CONTEXT_DIFFERS, f"{why}; expected one split per sequence")


def _frame_reject(ref: records.ImageRef, reason: Reason, detail: str) -> Reject:
    """Returns the reject of a frame, whose message begins with the key of the sequence."""
    return Reject.of(ref, reason, f"sequence {ref.record_key!r}: {detail}")
