"""Parses TFDS's split syntax, such as `train[:80%]+test`.

Source of the grammar and of its rounding: tensorflow_datasets/core/splits.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from recordmill.schemas.errors import UsageError

_PART = re.compile(r"(?P<split>\w+)(?:\[(?P<slice>[^][]*)\])?")
_BOUND = re.compile(r"(?P<number>-?[\d_]+(?:\.\d+)?)(?P<unit>%|shard)?")
_EXPECTED = "expected as in train, train[10%:20%], train[:100], train[-5:], train[2shard] or a+b"

# The number of records in each shard, by split.
Lengths = Mapping[str, Sequence[int]]


class SplitSlice(NamedTuple):
    """Consecutive records of a split."""

    split: str
    start: int  # number of the first record, from 0 over all shards
    stop: int  # number after the last record


class RecordRange(NamedTuple):
    """A range of the records of one shard."""

    split: str
    shard: int
    skip: int
    take: int


def parse_split(spec: str, lengths: Lengths) -> list[SplitSlice]:
    """Returns the slices that a split specification selects, in its order; "all" is every split.

    Raises UsageError if the specification is invalid, or exceeds the dataset.

    >>> parse_split("train[:50%] + test[-1:]", {"train": [2, 3], "test": [4]})
    [SplitSlice(split='train', start=0, stop=2), SplitSlice(split='test', start=3, stop=4)]
    """
    try:
        return [part for text in spec.split("+") for part in _parse_part(text.strip(), lengths)]
    except ValueError as error:
        raise UsageError(f"split {spec!r}: {error}") from error


def share_of(parts: Sequence[SplitSlice], index: int, count: int) -> list[SplitSlice]:
    """Returns one of several disjoint shares of some records, equal up to one record.

    >>> share_of([SplitSlice("train", 0, 4), SplitSlice("test", 0, 3)], 1, 2)
    [SplitSlice(split='train', start=3, stop=4), SplitSlice(split='test', start=0, stop=3)]
    """
    total = sum(part.stop - part.start for part in parts)
    first, last = total * index // count, total * (index + 1) // count
    ends = list(accumulate(part.stop - part.start for part in parts))
    # Each slice covers [end - length, end) of the concatenation: cut it to [first, last).
    share = [
        SplitSlice(
            part.split,
            min(part.stop, part.stop - end + max(first, end - (part.stop - part.start))),
            min(part.stop, part.stop - end + last),
        )
        for part, end in zip(parts, ends, strict=True)
    ]
    return [part for part in share if part.start < part.stop]


def record_ranges(parts: Iterable[SplitSlice], lengths: Lengths) -> list[RecordRange]:
    """Returns the ranges of shards that hold some records, in order.

    >>> record_ranges([SplitSlice("train", 0, 1)], {"train": [2, 3]})
    [RecordRange(split='train', shard=0, skip=0, take=1)]
    """
    return [found for part in parts for found in _shards_of(part, lengths[part.split])]


def _shards_of(part: SplitSlice, lengths: Sequence[int]) -> Iterator[RecordRange]:
    for shard, end in enumerate(accumulate(lengths)):
        begin = end - lengths[shard]
        start, stop = max(part.start, begin), min(part.stop, end)
        if start < stop:
            yield RecordRange(part.split, shard, start - begin, stop - start)


def _parse_part(text: str, lengths: Lengths) -> list[SplitSlice]:
    match = _PART.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a valid split; {_EXPECTED}")
    split = match["split"]
    if split == "all" and split not in lengths:
        if match["slice"] is not None:
            raise ValueError("all splits together cannot be sliced. Slice each of them.")
        return [SplitSlice(name, 0, sum(counts)) for name, counts in lengths.items()]
    if split not in lengths:
        raise ValueError(f"unknown split {split!r}; available: {', '.join(lengths)}")
    start, stop = _bounds(match["slice"], lengths[split])
    return [SplitSlice(split, start, max(start, stop))]


def _bounds(text: str | None, shards: Sequence[int]) -> tuple[int, int]:
    """Returns the number of a slice's first record, and the number after its last."""
    if text is None:
        return 0, sum(shards)
    bounds = [_BOUND.fullmatch(bound) if bound else None for bound in text.split(":")]
    numbers = [(bound["number"], bound["unit"]) for bound in bounds if bound]
    blank = [bound for bound in text.split(":") if not bound]
    if not numbers or len(numbers) + len(blank) != len(bounds) or len(bounds) > 2:
        raise ValueError(f"[{text}] is not a valid slice; {_EXPECTED}")
    units = {unit for _, unit in numbers}
    if len(units) > 1:
        raise ValueError(f"[{text}] has two units. Write both bounds in the same one.")
    if len(bounds) == 1 and units != {"shard"}:
        what = "only a shard can be selected by one number"
        raise ValueError(f"[{text}] is not a valid slice; {what}; {_EXPECTED}")
    values = [_number(bound["number"], bound["unit"]) if bound else None for bound in bounds]
    if len(bounds) == 1:
        # [-1shard] is the last shard: its stop is 0, which as a bound would mean the beginning.
        values.append(Fraction(int(values[0] or 0) + 1) or None)
    return _in_records(values, units.pop(), shards, text)


def _number(text: str, unit: str | None) -> Fraction:
    number = Fraction(text.replace("_", ""))
    if unit != "%" and number.denominator != 1:
        raise ValueError(f"{text} is not an integer. Only percentages can be fractions.")
    if unit == "%" and abs(number) > 100:
        raise ValueError(f"{text}% is not within -100% to 100%")
    return number


def _in_records(
    values: Sequence[Fraction | None], unit: str | None, shards: Sequence[int], text: str
) -> tuple[int, int]:
    total = sum(shards)
    ends = [0, *accumulate(shards)]
    size = len(shards) if unit == "shard" else total
    bounds = []
    for value, default in zip(values, (0, size), strict=True):
        # Fractions round half to even, as TFDS's "closest" rounding does, without float errors.
        bound = round(value * total / 100) if unit == "%" and value is not None else value
        bound = default if bound is None else int(bound)
        if abs(bound) > size:
            what = "shards" if unit == "shard" else "records"
            raise ValueError(f"[{text}] exceeds the {size} {what} of the split")
        bounds.append(bound + size if bound < 0 else bound)
    start, stop = (ends[bound] for bound in bounds) if unit == "shard" else bounds
    return start, stop
