"""Tallies of a dataset's images and of records over time, which add up; only for the report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from recordmill.schemas.records import ImageShape

SIDE_STEPS = 4
"""Bins of sides and bytes to a doubling: bin i begins at 2^(i/4)."""

RATIO_STEPS = 8
"""Bins of width over height to a doubling: bin 0 is from 1.00 to 1.09."""


@dataclass
class ImageTally:
    """The images of a shard or a dataset, as their records hold them.

    Attributes:
        formats: format to number of images.
        channels: number of channels to number of images.
        widths: bin to number of images; so are heights, ratios and sizes, in bytes.
        heights: of the same.
        ratios: of width over height.
        sizes: of the encoded bytes.
        extremes: "width", "height" or "bytes" to the least and the most.
        total_bytes: of all encoded images.
    """

    formats: Counter[str] = field(default_factory=Counter)
    channels: Counter[int] = field(default_factory=Counter)
    widths: Counter[int] = field(default_factory=Counter)
    heights: Counter[int] = field(default_factory=Counter)
    ratios: Counter[int] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    extremes: dict[str, tuple[int, int]] = field(default_factory=dict)
    total_bytes: int = 0

    @property
    def images(self) -> int:
        """How many there are."""
        return self.formats.total()

    def add(self, image: ImageShape) -> None:
        """Counts one image."""
        self.formats[image.format] += 1
        self.channels[image.channels] += 1
        self.widths[bin_of(image.width, SIDE_STEPS)] += 1
        self.heights[bin_of(image.height, SIDE_STEPS)] += 1
        self.ratios[bin_of(image.width / image.height, RATIO_STEPS)] += 1
        self.sizes[bin_of(image.bytes, SIDE_STEPS)] += 1
        self.total_bytes += image.bytes
        for name in ("width", "height", "bytes"):
            value = getattr(image, name)
            self._stretch(name, value, value)

    def update(self, other: ImageTally) -> None:
        """Adds the images of another tally."""
        for name in ("formats", "channels", "widths", "heights", "ratios", "sizes"):
            getattr(self, name).update(getattr(other, name))
        self.total_bytes += other.total_bytes
        for name, (least, most) in other.extremes.items():
            self._stretch(name, least, most)

    @classmethod
    def sum_of(cls, tallies: Iterable[ImageTally]) -> ImageTally:
        """Returns the tally of all."""
        total = cls()
        for tally in tallies:
            total.update(tally)
        return total

    def _stretch(self, name: str, least: int, most: int) -> None:
        low, high = self.extremes.get(name, (least, most))
        self.extremes[name] = (min(low, least), max(high, most))


def bin_of(value: float, steps: int) -> int:
    """Returns the bin of a positive number, `steps` of them to a doubling.

    >>> bin_of(640, 1), bin_of(4 / 3, RATIO_STEPS), bin_of(1, 4)
    (9, 3, 0)
    """
    return math.floor(math.log2(value) * steps + 1e-9)


def edge_of(index: int, steps: float) -> float:
    """Returns where a bin begins.

    >>> edge_of(9, 1), round(edge_of(3, RATIO_STEPS), 3)
    (512.0, 1.297)
    """
    return float(2 ** (index / steps))


MAX_INTERVALS = 120


@dataclass
class Timeline:
    """Records counted by equal intervals of time; for the report only.

    Attributes:
        seconds: the length of an interval: 1, or where there are too many, a power of two.
        counts: number of an interval since 1970 to the records that were written in it.
    """

    seconds: int = 1
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, now: float, records: int = 1) -> None:
        """Counts records that were written at `now`, in seconds since 1970.

        >>> line = Timeline()
        >>> line.add(100.2), line.add(100.9), line.counts
        (None, None, Counter({100: 2}))
        """
        self.counts[int(now) // self.seconds] += records
        while len(self.counts) > MAX_INTERVALS:
            self._coarsen()

    def update(self, other: Timeline) -> None:
        """Adds the records of another timeline."""
        while self.seconds < other.seconds:
            self._coarsen()
        for index, records in other.counts.items():
            self.add(index * other.seconds, records)

    @classmethod
    def sum_of(cls, timelines: Iterable[Timeline]) -> Timeline:
        """Returns the timeline of all."""
        total = cls()
        for timeline in timelines:
            total.update(timeline)
        return total

    def _coarsen(self) -> None:
        halved: Counter[int] = Counter()
        for index, records in self.counts.items():
            halved[index // 2] += records
        self.seconds, self.counts = self.seconds * 2, halved
