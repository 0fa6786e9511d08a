"""Figures of a page as plain numbers: bars of a histogram, and what to write below them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from recordmill.schemas.tallies import edge_of

MAX_BARS = 24


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        low: where it begins.
        high: where it ends.
        count: how many.
        height: in percent of the highest.
    """

    low: str
    high: str
    count: int
    height: float


@dataclass(frozen=True)
class Histogram:
    """Bars of equal width, side by side.

    Attributes:
        bars: from left to right.
        least: the smallest value.
        most: the greatest.
    """

    bars: tuple[Bar, ...]
    least: str
    most: str

    @property
    def peak(self) -> Bar:
        """The highest bar."""
        return max(self.bars, key=lambda bar: bar.count)

    @property
    def total(self) -> int:
        """How many in all."""
        return sum(bar.count for bar in self.bars)


def of_bins(
    counts: Mapping[int, int],
    steps: float,
    write: Callable[[float], str],
    ends: tuple[float, float] | None = None,
) -> Histogram | None:
    """Returns the histogram of bins of `steps` to a doubling; neighbours are merged if too many.

    Args:
        counts: bin to number.
        steps: bins to a doubling.
        write: makes a value a text.
        ends: the least and the greatest value, if they are known better than by their bins.
    """
    if not counts:
        return None
    while max(counts) - min(counts) >= MAX_BARS:
        merged: dict[int, int] = {}
        for index, count in counts.items():
            merged[index // 2] = merged.get(index // 2, 0) + count
        counts, steps = merged, steps / 2
    edges = [edge_of(index, steps) for index in range(min(counts), max(counts) + 2)]
    numbers = [counts.get(index, 0) for index in range(min(counts), max(counts) + 1)]
    least, most = ends or (edges[0], edges[-1])
    return Histogram(bars_of(numbers, [write(edge) for edge in edges]), write(least), write(most))


def of_values(values: Sequence[float], write: Callable[[float], str]) -> Histogram:
    """Returns the histogram of at least one finite value, in up to 16 bars of equal width."""
    low, high = min(values), max(values)
    number = 1 if low == high else min(16, max(4, len(set(values))))
    width = (high - low) / number or 1.0
    counts = [0] * number
    for value in values:
        counts[min(number - 1, int((value - low) / width))] += 1
    edges = [write(low + i * width) for i in range(number)] + [write(high)]
    return Histogram(bars_of(counts, edges), write(low), write(high))


def bars_of(counts: Sequence[int], edges: Sequence[str]) -> tuple[Bar, ...]:
    """Returns bars; any that is not 0 can be seen."""
    top = max(counts, default=0) or 1
    return tuple(
        Bar(edges[i], edges[i + 1], count, round(max(100 * count / top, 1.5), 1) if count else 0.0)
        for i, count in enumerate(counts)
    )


def size_text(count: float) -> str:
    """Returns bytes as people write them.

    >>> size_text(512), size_text(110_300), size_text(2**30)
    ('512 B', '108 KiB', '1.00 GiB')
    """
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1023.5 and len(units) > 1:
        size, units = size / 1024, units[1:]
    places = 0 if units[0] == "B" or size >= 100 else 1 if size >= 10 else 2
    return f"{size:.{places}f} {units[0]}"


def number_text(value: float) -> str:
    """Returns a number in up to four figures.

    >>> number_text(1234567), number_text(0.12345), number_text(3.0)
    ('1,234,567', '0.1235', '3')
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}"
