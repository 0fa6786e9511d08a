"""Statistics of a dataset: duplicate images, image sizes and formats, and records over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from recordmill.schemas.masking import masked_json, masked_source
from recordmill.schemas.records import ImageShape

EXAMPLES = 5
"""How many keys or pairs of keys are shown of what may be millions."""

PAIRED_SPLITS = 32
"""An image in more splits than these is counted in pairs with the first of its splits only."""

Pair = tuple[str, str]
"""The keys of two records, or rows, with one image."""


class Leakage(BaseModel):
    """Two splits that share images: a model is tested on what it was trained on.

    Attributes:
        splits: the two, sorted.
        images: how many images are in both; one that is in more than `PAIRED_SPLITS` splits is
            counted with the first of them only.
        records: how many records of the two hold them.
        examples: for each of some images the smallest key in the one split and in the other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    splits: tuple[str, str]
    images: int
    records: int
    examples: tuple[Pair, ...] = ()


class GroupLeakage(BaseModel):
    """Groups (`--group_column`) whose rows are in more than one split.

    Attributes:
        groups: how many.
        examples: some of them, each with its splits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: int = 0
    examples: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Conflicts(BaseModel):
    """Images that have more than one label.

    Attributes:
        images: how many.
        records: how many records, or rows, have them.
        examples: for each of some images the smallest keys of two labels.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: int = 0
    records: int = 0
    examples: tuple[Pair, ...] = ()


class DuplicateStats(BaseModel):
    """Duplicate images of a dataset, detected by the digests of the images as stored.

    Attributes:
        images: how many different ones there are.
        duplicates: split to the number of its records that repeat another of its images.
        leaks: the pairs of splits that share images.
        conflicts: images whose records have different labels.
        dropped_conflicts: images of which rows were dropped (`--deduplicate`), though their label
            was not that of the row that was kept.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: int = 0
    duplicates: dict[str, int] = {}
    leaks: tuple[Leakage, ...] = ()
    conflicts: Conflicts = Conflicts()
    dropped_conflicts: Conflicts = Conflicts()


NO_CONTENT = DuplicateStats()
"""What is known of no images."""


@dataclass(frozen=True)
class Duplicate:
    """A row that was dropped, because its image is that of another row.

    Attributes:
        key: the row's key.
        uri: where its image is.
        source: file and line of the row.
        split: the split that it had been placed in.
        kept: the key of the row that was kept.
        label: the row's label, if it is not that of the row that was kept; "" otherwise.
        kept_label: the label of the row that was kept.
    """

    key: str
    uri: str
    source: str
    split: str
    kept: str
    label: str = ""
    kept_label: str = ""

    def to_json(self) -> str:
        """Returns one line of dropped/dropped-*.jsonl."""
        source = masked_source(self.source)
        line = {"key": self.key, "uri": self.uri, "source": source, "repeats": self.kept}
        if self.label:
            line |= {"label": self.label, "label_of_repeated": self.kept_label}
        return masked_json(line)


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
