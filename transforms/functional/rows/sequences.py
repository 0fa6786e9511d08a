"""The frames of a shard's sequences: in their order, whole, or rejected together.

One rule: a sequence with a broken frame is no sequence. All its rows are rejected, the broken one
for its own reason, so that none is ever shorter than its table says.
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
"""Of a sequence's frames: a protobuf message holds 2 GiB, with the context and all keys."""

_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"(\d+)", re.ASCII)

Position: TypeAlias = Any
"""What frames are compared by: numbers, or texts in parts; of one sort within a sequence."""


def arrange_shard(
    placed: Iterable[tuple[bytes, ImageRef]], resolved: ResolvedSchema
) -> tuple[list[ImageRef], list[Reject]]:
    """Returns a shard's references in their order, and the rejects that they alone show.

    Sequences follow each other by the hash of their keys, frames by their own place; those of
    sequences that are not whole are rejected.
    """
    if resolved.schema.sequence is None:
        return placement.sort_references(placed)
    whole: list[ImageRef] = []
    refused: list[Reject] = []
    ordered = sorted(placed, key=lambda item: (item[0], item[1].record_key))
    for _, group in groupby(ordered, key=lambda item: item[1].record_key):
        frames = sort_frames([ref for _, ref in group])
        rejects = sequence_rejects(frames, resolved)
        refused += rejects
        whole += [] if rejects else frames
    return whole, refused


def sort_frames(frames: Iterable[ImageRef]) -> list[ImageRef]:
    """Returns the frames of one sequence in their order; those of one place, by key and source."""
    refs = list(frames)
    positions = sort_keys([frame_location(ref).order for ref in refs])
    named = [
        (position, ref.key, ref.file, ref.line, number)
        for number, (position, ref) in enumerate(zip(positions, refs, strict=True))
    ]
    return [refs[number] for *_, number in sorted(named)]


def sort_keys(orders: Sequence[str]) -> list[Position]:
    """Returns what frames are sorted by: numbers if all are, or else texts in natural order.

    >>> sort_keys(["10", "9.5"])
    [Decimal('10'), Decimal('9.5')]
    >>> sorted(["f10.png", "f9.png"], key=lambda text: sort_keys([text, "f"])[0])
    ['f9.png', 'f10.png']
    """
    if all(_NUMBER.fullmatch(order) for order in orders):
        return [Decimal(order) for order in orders]
    return [(_natural(order), order) for order in orders]


def _natural(text: str) -> tuple[Any, ...]:
    """Returns a text in parts, its runs of digits as numbers of any length."""
    parts = _DIGITS.split(text)  # text, digits, text, …
    digits = [part.lstrip("0") for part in parts]
    return tuple((len(digits[i]), digits[i]) if i % 2 else part for i, part in enumerate(parts))


def frame_location(ref: ImageRef) -> FrameLocation:
    """Returns where a frame belongs."""
    return FrameLocation(*ref.frame) if ref.frame else FrameLocation(ref.key, "")


def sequence_rejects(frames: Sequence[ImageRef], resolved: ResolvedSchema) -> list[Reject]:
    """Returns the rejects of all rows of a sequence that its rows show to be broken; none if whole.

    Args:
        frames: in their order.
        resolved: the settled schema.
    """
    faults = _bad_rows(frames)
    if faults:
        return _all_rejected(frames, faults)
    if differs := _difference(frames, resolved):
        return [frame_reject(ref, Reason.CONTEXT_DIFFERS, differs) for ref in frames]
    repeated = _repeated(frames)
    return _all_rejected(frames, repeated) if repeated else []


def assemble_sequences(
    built: Iterable[BuiltFrame | Reject], refs: Sequence[ImageRef], schema: Schema
) -> Iterator[SerializedExample | Reject]:
    """Yields the record of each sequence, or the rejects of all its rows: one at a time in memory.

    Args:
        built: the frames, or why there is none; the outcome of each reference, in order.
        refs: the frames of whole sequences, in order.
        schema: which features they have.
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
            frames.clear()  # of what is rejected nothing stays in memory
    if faults:
        yield from _all_rejected(refs, faults)
    elif size > MAX_BYTES:
        what = f"the sequence has {size:,} bytes in {len(refs):,} frames; a record holds 2 GiB"
        yield from (frame_reject(ref, Reason.SEQUENCE_BROKEN, what) for ref in refs)
    else:
        yield build_sequence(schema, frames)


def _bad_rows(frames: Sequence[ImageRef]) -> dict[int, Reject]:
    """Returns the rejects of rows that could not be bound, by their number."""
    places = enumerate(map(frame_location, frames))
    return {
        number: frame_reject(frames[number], Reason(place.reason), place.detail)
        for number, place in places
        if place.reason
    }


def _repeated(frames: Sequence[ImageRef]) -> dict[int, Reject]:
    """Returns the rejects of frames that stand in the place of another, by their number."""
    orders = [frame_location(ref).order for ref in frames]
    positions = sort_keys(orders)
    found: dict[int, Reject] = {}
    for number in range(1, len(frames)):
        if positions[number] == positions[number - 1]:
            for one, other in ((number - 1, number), (number, number - 1)):
                what = f"{orders[one]!r} is the place of {frames[other].source}, too"
                detail = f"{what}; each frame of a sequence needs one of its own"
                found.setdefault(one, frame_reject(frames[one], Reason.DUPLICATE_ORDER, detail))
    return found


def _difference(frames: Sequence[ImageRef], resolved: ResolvedSchema) -> str:
    """Returns which feature of the context is not the same in all rows, in words; "" if none is."""
    rows = sorted(frames, key=lambda ref: (ref.file, ref.line))
    for number, (name, feature) in enumerate(resolved.schema.features.items()):
        if feature.per == "frame":
            continue
        first = rows[0]
        for row in rows:
            if repr(row.values[number]) != repr(first.values[number]):  # NaN is like NaN
                told = [
                    f"{_shown(ref.values[number], name, feature, resolved)} in {ref.source}"
                    for ref in (first, row)
                ]
                return f"{name!r} is {told[0]}, and {told[1]}; a sequence has one value of it"
    return ""


def _shown(value: FeatureValue, name: str, feature: Feature, resolved: ResolvedSchema) -> str:
    if feature.classes:
        return repr([resolved.class_name(name, label) for label in label_ids(value)])[1:-1]
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "backslashreplace"))
    return repr(value)


def _all_rejected(refs: Sequence[ImageRef], faults: Mapping[int, Reject]) -> list[Reject]:
    """Returns the rejects of a sequence's rows: those at fault for their own reasons."""
    first = faults[min(faults)]
    named = repr(first.key) if first.key else first.source  # rows move in their table, keys do not
    what = f"its frame {named} is rejected: {first.reason.value}"
    return [
        faults.get(number) or frame_reject(ref, Reason.SEQUENCE_BROKEN, what)
        for number, ref in enumerate(refs)
    ]


def spans_splits_reject(ref: ImageRef, why: str) -> Reject:
    """Returns the reject of a row whose sequence would be in several splits."""
    place = frame_location(ref)
    if place.reason:
        return frame_reject(ref, Reason(place.reason), place.detail)
    return frame_reject(ref, Reason.CONTEXT_DIFFERS, f"{why}; a sequence is in one split")


def frame_reject(ref: ImageRef, reason: Reason, detail: str) -> Reject:
    """Returns the reject of a frame; its detail begins with its sequence."""
    named = f"sequence {ref.record_key!r}: {detail}"
    return Reject.of(ref, reason, named)
