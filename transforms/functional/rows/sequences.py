"""Sorts the frames of sequences, and rejects broken sequences.

If one frame is rejected, all rows of its sequence are, so that no sequence is written with fewer
frames than its table lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import (
    BuiltFrame,
    FeatureValue,
    FrameLocation,
    ImageRef,
    SerializedExample,
)
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.functional.records.examples import build_sequence
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows import placement
from recordmill.transforms.functional.rows.batches import RefBatch
from recordmill.transforms.functional.values.typed import short_repr

# Size limit for the frames of a sequence: a protobuf message, with its context and keys, is limited
# to 2 GiB.
MAX_BYTES = 2**31 - 2**20

_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"(\d+)", re.ASCII)

# The sort key of a frame: a number, or text split at its digits. All keys of a sequence have the
# same type.
SortKey: TypeAlias = Any


def arrange_shard(
    assigned: Iterable[tuple[bytes, ImageRef]], resolved: ResolvedSchema
) -> tuple[RefBatch, list[Reject]]:
    """Sorts the references of a shard, and rejects duplicate keys and broken sequences.

    Sequences are sorted by the order hash of their keys, their frames by the order column.
    """
    if resolved.schema.sequence is None:
        return placement.sort_references(assigned, partial(_replacement, resolved))
    kept: list[ImageRef] = []
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


def _sort_frames(frames: Iterable[ImageRef]) -> list[ImageRef]:
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


def _frame_location(ref: ImageRef) -> FrameLocation:
    return FrameLocation(*ref.frame) if ref.frame else FrameLocation(ref.key, "")


def _sequence_rejects(frames: Sequence[ImageRef], resolved: ResolvedSchema) -> list[Reject]:
    faults = _bad_rows(frames)
    if faults:
        return _all_rejected(frames, faults)
    if differs := _difference(frames, resolved):
        return [_frame_reject(ref, Reason.CONTEXT_DIFFERS, differs) for ref in frames]
    duplicates = _duplicate_orders(frames)
    return _all_rejected(frames, duplicates) if duplicates else []


def assemble_sequences(
    built: Iterable[BuiltFrame | Reject], refs: Sequence[ImageRef], schema: Schema
) -> Iterator[SerializedExample | Reject]:
    """Yields the record of each sequence, or the rejects of its rows; one is in memory."""
    outcomes = zip(built, refs, strict=True)  # (frame or reject, ref)
    for _, group in groupby(outcomes, key=lambda outcome: outcome[1].record_key):
        yield from _assembled(group, schema)


def _assembled(
    group: Iterable[tuple[BuiltFrame | Reject, ImageRef]], schema: Schema
) -> Iterator[SerializedExample | Reject]:
    frames: list[BuiltFrame] = []
    refs: list[ImageRef] = []
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


def _bad_rows(frames: Sequence[ImageRef]) -> dict[int, Reject]:
    """Returns the rejects of rows that could not be bound, by frame number."""
    locations = enumerate(map(_frame_location, frames))
    return {
        number: _frame_reject(frames[number], Reason(location.reason), location.detail)
        for number, location in locations
        if location.reason
    }


def _duplicate_orders(frames: Sequence[ImageRef]) -> dict[int, Reject]:
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


def _difference(frames: Sequence[ImageRef], resolved: ResolvedSchema) -> str:
    """Describes a context feature that differs between rows; "" if all are equal."""
    first, *others = sorted(frames, key=lambda ref: (ref.file, ref.line))
    for row in others:
        for name, one, two in _differing(first, row, resolved):
            values = f"{one} in {first.source}, and {two} in {row.source}"
            return f"{name!r} is {values}; expected one value per sequence"
    return ""


def _replacement(resolved: ResolvedSchema, kept: ImageRef, other: ImageRef) -> str:
    """Describes a feature by which a row differs from the one that is kept; "" if all are equal."""
    for name, one, two in _differing(kept, other, resolved):
        return f", whose {name!r} is {one} in place of {two}"
    return ""


def _differing(one: ImageRef, two: ImageRef, resolved: ResolvedSchema) -> Iterator[list[str]]:
    """Yields the name and both values of each feature that differs, except those of frames."""
    for number, (name, feature) in enumerate(resolved.schema.features.items()):
        pair = [ref.values[number] for ref in (one, two)]
        # Compared as text, because NaN is not equal to itself.
        if feature.per != "frame" and repr(pair[0]) != repr(pair[1]):
            yield [name, *(_shown(value, name, feature, resolved) for value in pair)]


def _shown(value: FeatureValue, name: str, feature: Feature, resolved: ResolvedSchema) -> str:
    if feature.classes:
        return repr([resolved.class_name(name, label) for label in label_ids(value, feature)])[1:-1]
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return short_repr(text)


def _all_rejected(refs: Sequence[ImageRef], faults: Mapping[int, Reject]) -> list[Reject]:
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
    frames: Iterable[ImageRef], split_column: str | None, group_column: str | None
) -> Iterator[ImageRef | Reject]:
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


def _spans_splits_reject(ref: ImageRef, why: str) -> Reject:
    """Returns the reject of a row whose sequence would be in several splits."""
    location = _frame_location(ref)
    if location.reason:
        return _frame_reject(ref, Reason(location.reason), location.detail)
    return _frame_reject(ref, Reason.CONTEXT_DIFFERS, f"{why}; expected one split per sequence")


def _frame_reject(ref: ImageRef, reason: Reason, detail: str) -> Reject:
    """Returns the reject of a frame, whose message begins with the key of the sequence."""
    return Reject.of(ref, reason, f"sequence {ref.record_key!r}: {detail}")
