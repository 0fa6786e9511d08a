"""Orders the frames of sequences, and rejects sequences as a whole.

If one frame is rejected, all rows of its sequence are: no sequence is ever written with fewer
frames than its table lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
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

MAX_BYTES = 2**31 - 2**20
"""Limit for the frames of a sequence: protobuf messages hold 2 GiB, context and keys included."""

_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"(\d+)", re.ASCII)

SortKey: TypeAlias = Any
"""A frame's sort key: a number, or text split at its digits; of one type within a sequence."""


def arrange_shard(
    placed: Iterable[tuple[bytes, ImageRef]], resolved: ResolvedSchema
) -> tuple[list[ImageRef], list[Reject]]:
    """Returns a shard's references in order, and the rejects that can be found without images.

    Sequences are sorted by the hash of their keys, frames by the order column. Frames of broken
    sequences are rejected.

    Args:
        placed: (order hash, reference) of each row of the shard.
        resolved: the resolved schema.
    """
    if resolved.schema.sequence is None:
        return placement.sort_references(placed)
    whole: list[ImageRef] = []
    rejected: list[Reject] = []
    # All frames of a sequence have its key's hash; the key itself separates hash collisions.
    ordered = sorted(placed, key=lambda item: (item[0], item[1].record_key))
    for _, group in groupby(ordered, key=lambda item: item[1].record_key):
        frames = sort_frames([ref for _, ref in group])
        rejects = sequence_rejects(frames, resolved)
        rejected += rejects
        whole += [] if rejects else frames
    return whole, rejected


def sort_frames(frames: Iterable[ImageRef]) -> list[ImageRef]:
    """Returns the frames of one sequence in order; ties are ordered by key and source."""
    refs = list(frames)
    keys = sort_keys([frame_location(ref).order for ref in refs])
    # The number at the end keeps references out of the comparison: their values may not compare.
    entries = [
        (key, ref.key, ref.file, ref.line, number)
        for number, (key, ref) in enumerate(zip(keys, refs, strict=True))
    ]
    return [refs[number] for *_, number in sorted(entries)]


def sort_keys(orders: Sequence[str]) -> list[SortKey]:
    """Returns the sort keys of frames: numbers if all are numeric, else text in natural order.

    >>> sort_keys(["10", "9.5"])
    [Decimal('10'), Decimal('9.5')]
    >>> sorted(["f10.png", "f9.png"], key=lambda text: sort_keys([text, "f"])[0])
    ['f9.png', 'f10.png']
    """
    if all(_NUMBER.fullmatch(order) for order in orders):
        return [Decimal(order) for order in orders]
    return [(_natural(order), order) for order in orders]


def _natural(text: str) -> tuple[Any, ...]:
    """Returns the natural sort key of a text: its runs of digits compare as numbers."""
    parts = _DIGITS.split(text)  # text, digits, text, …
    # (length, digits) compares as the number does, without the cost and limits of `int`.
    digits = [part.lstrip("0") for part in parts]
    return tuple((len(digits[i]), digits[i]) if i % 2 else part for i, part in enumerate(parts))


def frame_location(ref: ImageRef) -> FrameLocation:
    """Returns the sequence and order of a frame."""
    return FrameLocation(*ref.frame) if ref.frame else FrameLocation(ref.key, "")


def sequence_rejects(frames: Sequence[ImageRef], resolved: ResolvedSchema) -> list[Reject]:
    """Returns the rejects of all rows of a broken sequence; none if it is whole.

    Args:
        frames: the sequence's frames, in order.
        resolved: the resolved schema.
    """
    faults = _bad_rows(frames)
    if faults:
        return _all_rejected(frames, faults)
    if differs := _difference(frames, resolved):
        return [frame_reject(ref, Reason.CONTEXT_DIFFERS, differs) for ref in frames]
    duplicates = _duplicate_orders(frames)
    return _all_rejected(frames, duplicates) if duplicates else []


def assemble_sequences(
    built: Iterable[BuiltFrame | Reject], refs: Sequence[ImageRef], schema: Schema
) -> Iterator[SerializedExample | Reject]:
    """Yields the record of each sequence, or the rejects of all its rows.

    Only one sequence is in memory at a time.

    Args:
        built: the built frame or the reject of each reference, in order.
        refs: the references of whole sequences, in order.
        schema: the schema.
    """
    outcomes = zip(built, refs, strict=True)
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
            frames.clear()  # a rejected sequence must not stay in memory
    if faults:
        yield from _all_rejected(refs, faults)
    elif size > MAX_BYTES:
        what = f"the sequence has {size:,} bytes in {len(refs):,} frames; a record holds 2 GiB"
        yield from (frame_reject(ref, Reason.SEQUENCE_BROKEN, what) for ref in refs)
    else:
        yield build_sequence(schema, frames)


def _bad_rows(frames: Sequence[ImageRef]) -> dict[int, Reject]:
    """Returns the rejects of rows that could not be bound, by frame number."""
    locations = enumerate(map(frame_location, frames))
    return {
        number: frame_reject(frames[number], Reason(location.reason), location.detail)
        for number, location in locations
        if location.reason
    }


def _duplicate_orders(frames: Sequence[ImageRef]) -> dict[int, Reject]:
    """Returns the rejects of frames with equal sort keys, by frame number."""
    orders = [frame_location(ref).order for ref in frames]
    keys = sort_keys(orders)
    found: dict[int, Reject] = {}
    for number in range(1, len(frames)):  # the frames are sorted: equal keys are adjacent
        if keys[number] == keys[number - 1]:
            for one, other in ((number - 1, number), (number, number - 1)):
                what = f"the order {orders[one]!r} is also that of {frames[other].source}"
                detail = f"{what}; each frame of a sequence needs its own"
                found.setdefault(one, frame_reject(frames[one], Reason.DUPLICATE_ORDER, detail))
    return found


def _difference(frames: Sequence[ImageRef], resolved: ResolvedSchema) -> str:
    """Returns a message on the first context feature that differs between rows; "" if none does."""
    rows = sorted(frames, key=lambda ref: (ref.file, ref.line))
    for number, (name, feature) in enumerate(resolved.schema.features.items()):
        if feature.per == "frame":
            continue
        first = rows[0]
        for row in rows:
            if repr(row.values[number]) != repr(first.values[number]):  # NaN is like NaN
                values = [
                    f"{_shown(ref.values[number], name, feature, resolved)} in {ref.source}"
                    for ref in (first, row)
                ]
                return f"{name!r} is {values[0]}, and {values[1]}; a sequence has one value of it"
    return ""


def _shown(value: FeatureValue, name: str, feature: Feature, resolved: ResolvedSchema) -> str:
    if feature.classes:
        return repr([resolved.class_name(name, label) for label in label_ids(value)])[1:-1]
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "backslashreplace"))
    return repr(value)


def _all_rejected(refs: Sequence[ImageRef], faults: Mapping[int, Reject]) -> list[Reject]:
    """Returns the rejects of all rows of a sequence: faulty frames keep their own reasons."""
    first = faults[min(faults)]
    named = repr(first.key) if first.key else first.source  # lines change with the table, keys not
    what = f"its frame {named} is rejected: {first.reason.value}"
    return [
        faults.get(number) or frame_reject(ref, Reason.SEQUENCE_BROKEN, what)
        for number, ref in enumerate(refs)
    ]


def in_one_split(
    frames: Iterable[ImageRef], split_column: str | None, group_column: str | None
) -> Iterator[ImageRef | Reject]:
    """Yields the frames of a sequence; or their rejects, if the sequence would span splits.

    Args:
        frames: the references of one sequence; they are iterated over twice.
        split_column: the table column of the frames' splits, or None.
        group_column: the table column of their groups, or None.
    """
    columns = (split_column, group_column)
    spans = sorted({(ref.split, ref.group) for ref in frames})
    shown = [
        ", ".join(f"{c!r} is {v!r}" for c, v in zip(columns, span, strict=True) if c)
        for span in spans[:2]
    ]
    why = f"{' in one row, and '.join(shown)} in another"
    for ref in frames:
        yield ref if len(spans) == 1 else spans_splits_reject(ref, why)


def spans_splits_reject(ref: ImageRef, why: str) -> Reject:
    """Returns the reject of a row whose sequence would be in several splits.

    Args:
        ref: the row's reference.
        why: the differing columns, as text.
    """
    location = frame_location(ref)
    if location.reason:
        return frame_reject(ref, Reason(location.reason), location.detail)
    return frame_reject(ref, Reason.CONTEXT_DIFFERS, f"{why}; a sequence is in one split")


def frame_reject(ref: ImageRef, reason: Reason, detail: str) -> Reject:
    """Returns the reject of a frame, whose detail starts with the sequence's key.

    Args:
        ref: the frame's reference.
        reason: the rejection reason.
        detail: the message.
    """
    return Reject.of(ref, reason, f"sequence {ref.record_key!r}: {detail}")
