"""The histograms of a report, and numbers and sizes as texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from recordmill.schemas.statistics import edge_of

# Maximum number of bars in a histogram of logarithmic bins.
MAX_BARS = 24

# Maximum number of bars in a histogram of values.
MAX_VALUE_BARS = 16


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram."""

    low: str
    high: str  # the upper edge, as text; of whole numbers, the last one
    count: int
    height: float

    @property
    def range(self) -> str:
        """The values in the bar."""
        return self.low if self.low == self.high else f"{self.low} – {self.high}"


@dataclass(frozen=True)
class Histogram:
    """A histogram with bars of equal width."""

    bars: tuple[Bar, ...]
    minimum: str
    maximum: str
    is_logarithmic: bool = False  # whether each edge is a multiple of the one before

    @property
    def peak(self) -> Bar:
        """The highest bar."""
        return max(self.bars, key=lambda bar: bar.count)

    @property
    def total(self) -> int:
        """The number of values in all bars."""
        return sum(bar.count for bar in self.bars)


def histogram_of_bins(
    counts: Mapping[int, int],
    steps: float,
    write: Callable[[float], str],
    ends: tuple[float, float] | None = None,
) -> Histogram | None:
    """Returns the histogram of logarithmic bins; merges neighboring bins above `MAX_BARS`.

    Returns the histogram, or None if there are no values. `counts` is the number of values by bin
    index; bin i begins at 2 ** (i / steps). `ends` is the exact minimum and maximum, where known;
    by default the outer edges.
    """
    if not counts:
        return None
    # Merging pairs of bins halves the resolution, and all edges are edges of the original bins.
    while max(counts) - min(counts) >= MAX_BARS:
        merged: dict[int, int] = {}
        for index, count in counts.items():
            merged[index // 2] = merged.get(index // 2, 0) + count
        counts, steps = merged, steps / 2
    edges = [edge_of(index, steps) for index in range(min(counts), max(counts) + 2)]
    numbers = [counts.get(index, 0) for index in range(min(counts), max(counts) + 1)]
    minimum, maximum = ends or (edges[0], edges[-1])
    bars = make_bars(numbers, list(pairwise(map(write, edges))))
    return Histogram(bars, write(minimum), write(maximum), is_logarithmic=True)


def histogram_of_values(values: Sequence[float], write: Callable[[float], str]) -> Histogram:
    """Returns the histogram of values, with up to 16 bars of equal width."""
    low, high = min(values), max(values)
    if all(isinstance(value, int) for value in values):
        # Bar i holds whole numbers: those from its edge to below the next.
        width: float = math.ceil((high - low + 1) / MAX_VALUE_BARS)
        number = math.ceil((high - low + 1) / width)
    else:
        number = 1 if low == high else min(MAX_VALUE_BARS, max(4, len(set(values))))
        width = (high - low) / number or 1.0  # avoids 0 if all values are equal
    counts = [0] * number
    for value in values:
        counts[min(number - 1, int((value - low) / width))] += 1
    lows = [low + i * width for i in range(number)]
    highs = [low + width - 1 for low in lows] if isinstance(width, int) else [*lows[1:], high]
    edges = [(write(first), write(last)) for first, last in zip(lows, highs, strict=True)]
    return Histogram(make_bars(counts, edges), write(low), write(high))


def make_bars(counts: Sequence[int], edges: Sequence[tuple[str, str]]) -> tuple[Bar, ...]:
    """Returns the bars of a histogram."""
    top = max(counts, default=0) or 1
    # A bar with few values is still 1.5 % high, so that it is visible.
    return tuple(
        Bar(low, high, count, round(max(100 * count / top, 1.5), 1) if count else 0.0)
        for (low, high), count in zip(edges, counts, strict=True)
    )


def size_text(count: float) -> str:
    """Returns a size in bytes with a binary unit.

    >>> size_text(512), size_text(110_300), size_text(2**30)
    ('512 B', '108 KiB', '1.00 GiB')
    """
    # 1023.5 and more would be rounded to 1024 of the unit.
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1023.5 and len(units) > 1:
        size, units = size / 1024, units[1:]
    places = 0 if units[0] == "B" or size >= 100 else 1 if size >= 10 else 2
    return f"{size:.{places}f} {units[0]}"


def number_text(value: float) -> str:
    """Returns a number with up to four significant digits; integers are written in full.

    >>> number_text(1234567), number_text(0.12345), number_text(3.0)
    ('1,234,567', '0.1235', '3')
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}"
