"""How many records were written when: for reports, never for what is published of the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_INTERVALS = 120


@dataclass
class Timeline:
    """Records counted by equal intervals of time; timelines add up.

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

    def _coarsen(self) -> None:
        halved: Counter[int] = Counter()
        for index, records in self.counts.items():
            halved[index // 2] += records
        self.seconds, self.counts = self.seconds * 2, halved


def sum_of(timelines: Iterable[Timeline]) -> Timeline:
    """Returns the timeline of all."""
    total = Timeline()
    for timeline in timelines:
        total.update(timeline)
    return total
