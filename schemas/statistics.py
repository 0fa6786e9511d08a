"""Statistics of a dataset: duplicate images, quality issues, image sizes and formats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field

from recordmill.schemas.document import Document
from recordmill.schemas.masking import masked_json, masked_source
from recordmill.schemas.records import ImageShape
from recordmill.schemas.row_counts import Converted
from recordmill.schemas.sums import Summed

# Number of keys or pairs of keys that are kept as examples; there may be millions.
EXAMPLES = 5

# An image in more splits than this is counted only in pairs with the first of its splits.
PAIRED_SPLITS = 32

# Groups of similar images that are kept as examples.
EXAMPLE_GROUPS = 16

# The keys of two records or rows with the same image.
Pair = tuple[str, str]

# A number by split, sorted, because workers add up parts in any order.
_BySplit = Annotated[dict[str, int], AfterValidator(lambda counts: dict(sorted(counts.items())))]


class Leakage(Summed, Document):
    """Two splits that share images, so that a model may be tested on its training images."""

    splits: tuple[str, str]  # the names of the two splits, sorted
    # Number of images in both splits; an image in more than `PAIRED_SPLITS` splits is counted only
    # in pairs with the first of them.
    images: int
    records: int  # number of records in both splits with these images
    # Pairs of the smallest keys of an image in the first and in the second split.
    examples: tuple[Pair, ...] = ()

    @property
    def sum_key(self) -> tuple[str, str]:
        """The two splits."""
        return self.splits

    @classmethod
    def sum_field(cls, name: str, values: Sequence[Any]) -> Any:
        """Returns the sum of the values of a field; the splits are the same in all parts."""
        return values[0] if name == "splits" else super().sum_field(name, values)


class GroupLeakage(Summed, Document):
    """Groups (`--group_column`) whose rows are in more than one split."""

    groups: int = 0
    examples: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Conflicts(Summed, Document):
    """Images that have more than one label."""

    images: int = 0
    records: int = 0  # number of records or rows with these images
    examples: tuple[Pair, ...] = ()  # for some of the images, the smallest keys of two labels


class RecordExample(Document):
    """A record that is shown as an example."""

    key: str
    split: str
    shard: int
    index: int


class ImageGroup(Document):
    """Records with the same image, or with similar ones."""

    records: int
    spans_splits: bool  # whether they are in more than one split
    conflicting: bool  # whether they have different labels
    # Some of the records, from different splits and with different labels if possible.
    examples: tuple[RecordExample, ...]

    def __lt__(self, other: ImageGroup) -> bool:
        """Returns whether it is shown before another group."""
        return self._order < other._order

    @property
    def _order(self) -> tuple[bool, bool, str, str]:
        first = self.examples[0]
        return not self.spans_splits, not self.conflicting, first.split, first.key


class DuplicateStats(Summed, Document):
    """Statistics of duplicate images, which are detected by the digests of the stored images."""

    kept: ClassVar[int | None] = EXAMPLE_GROUPS

    images: int = 0
    # Number of records that repeat an image of the split, by split: all but one of each.
    duplicates: _BySplit = Field(default_factory=dict)
    leaks: tuple[Leakage, ...] = ()  # pairs of splits that share images
    conflicts: Conflicts = Conflicts()  # images whose records have different labels
    # Images with dropped rows (`--deduplicate`) whose label differs from that of the kept row.
    dropped_conflicts: Conflicts = Conflicts()
    # Some of the duplicate images, worst first: only for the report.
    groups: tuple[ImageGroup, ...] = Field(default=(), exclude=True)


class NearDuplicates(Summed, Document):
    """Statistics of similar images, which are detected by their perceptual hashes.

    Groups in which all images are identical are left out: `DuplicateStats` has these.
    """

    kept: ClassVar[int | None] = EXAMPLE_GROUPS

    compared: int = 0  # number of images that were compared: those with a perceptual hash
    groups: int = 0
    records: int = 0
    # Number of records that repeat a similar image of the split, by split: all but one of a group.
    duplicates: _BySplit = Field(default_factory=dict)
    # Pairs of splits that share groups; `images` is the number of groups.
    leaks: tuple[Leakage, ...] = ()
    # Groups whose records have different labels; `images` is the number of groups.
    conflicts: Conflicts = Conflicts()
    # Some of the groups: first those in several splits, then those with different labels.
    examples: tuple[ImageGroup, ...] = ()
    # Number of buckets in which not all images were compared, because too many share some bits of
    # the hash.
    full_buckets: int = 0
    # Whether there are too many similar images to be grouped; all but `compared` and `full_buckets`
    # is 0 then.
    overflow: bool = False


IssueName = Literal[
    "blank", "dark", "bright", "blurred", "low_information", "odd_aspect_ratio", "tiny"
]


class Issue(NamedTuple):
    """A quality issue."""

    measure: str  # the column of `records/`, or "aspect" or "side", which follow from the size
    limit: float
    above: bool  # whether values above the limit are an issue; otherwise those below
    text: str

    @property
    def rule(self) -> str:
        """The rule by which images have the issue, such as "luma_p99 below 81.6"."""
        side = "above" if self.above else "below"
        return f"{self.measure} {side} {self.limit:g}"

    def severity(self, value: Any) -> Any:
        """Returns a sort key of one value or of an array: the worse an image, the smaller."""
        return -value if self.above else value

    def describe(self, value: float) -> str:
        """Returns the measured and the expected value of an image that has the issue."""
        side = "at most" if self.above else "at least"
        return f"{self.text}: expected {self.measure} of {side} {self.limit:g}, got {value:.4g}"


# The limits of cleanvision 0.3.7 (image_property_issue_manager.py), with its values on
# a scale of 0 to 1 in parentheses. Those of blank and tiny images are the limits of the perceptual
# hash. For sharpness, its limit is lowered by what the smaller image lacks in edges: of 400 sharp
# photographs this one finds 2 and cleanvision none, of 100 blurred by 8 pixels 49 and 35. For
# entropy, it is that of cleanlab's Datalab: that of one channel is 1.6 bits below that of three.
ISSUES: dict[IssueName, Issue] = {
    "blank": Issue("luma_std", 4, False, "blank"),
    "dark": Issue("luma_p99", 81.6, False, "dark"),  # 99th percentile of brightness (0.32)
    "bright": Issue("luma_p5", 242.25, True, "bright"),  # 5th percentile (0.95)
    "blurred": Issue("sharpness", 0.2, False, "blurred"),  # (0.29)
    "low_information": Issue("entropy", 1.5, False, "low in information"),  # a tenth of it (0.15)
    "odd_aspect_ratio": Issue("aspect", 0.35, False, "oddly long or tall"),  # short / long (0.35)
    "tiny": Issue("side", 32, False, "tiny"),
}


class QualityIssue(Document):
    """The images with one quality issue."""

    images: _BySplit = Field(default_factory=dict)
    examples: tuple[tuple[float, RecordExample], ...] = ()


class ImageQuality(Summed, Document):
    """Statistics of the quality of images."""

    measured: int = 0  # number of images whose pixels were measured
    # The images with each issue, by its name; issues without images are left out.
    issues: dict[IssueName, QualityIssue] = Field(default_factory=dict)

    @classmethod
    def sum_field(cls, name: str, values: Sequence[Any]) -> Any:
        """Returns the sum of the values of a field, with the worst images of each issue."""
        if name != "issues":
            return super().sum_field(name, values)
        found = {issue: [part[issue] for part in values if issue in part] for issue in ISSUES}
        return {issue: _sum_of_issue(issue, parts) for issue, parts in found.items() if parts}


def _sum_of_issue(name: IssueName, parts: Sequence[QualityIssue]) -> QualityIssue:
    images = Counter[str]()
    for part in parts:
        images.update(part.images)
    examples = [example for part in parts for example in part.examples]
    examples.sort(key=lambda example: (ISSUES[name].severity(example[0]), example[1].key))
    return QualityIssue(images=images, examples=tuple(examples[:EXAMPLES]))


@dataclass(frozen=True)
class ImageFindings(Summed):
    """What comparing and measuring all images has found."""

    near_duplicates: NearDuplicates = field(default_factory=NearDuplicates)
    quality: ImageQuality = field(default_factory=ImageQuality)


@dataclass(frozen=True)
class Duplicate:
    """A row that was dropped, because it has the same image as another row, or a similar one."""

    key: str
    uri: str  # the path or URL of its image
    source: str
    split: str
    kept: str
    label: str = ""  # the row's label, if it differs from that of the kept row; "" otherwise
    kept_label: str = ""  # the label of the kept row, if it differs; "" otherwise
    reason: str = ""  # "near_duplicate" if the image is only similar to that of the kept row; or ""

    def to_json(self) -> str:
        """Returns one line of dropped/dropped-*.jsonl."""
        source = masked_source(self.source)
        line = {"key": self.key, "uri": self.uri, "source": source, "repeats": self.kept}
        if self.label:
            line |= {"label": self.label, "label_of_repeated": self.kept_label}
        if self.reason:
            line["reason"] = self.reason
        return masked_json(line)


class ChannelStatistics(Document):
    """Mean and standard deviation of the red, green and blue channel, to normalize images with.

    Each image counts equally, whatever its size. Gray images have three equal channels.
    """

    images: int
    mean: tuple[float, float, float]  # the mean of each channel, from 0 for black to 1
    std: tuple[float, float, float]


# Bins per doubling, for sides and bytes: bin i begins at 2^(i/4).
SIDE_STEPS = 4

# Bins per doubling, for width over height: bin 0 is from 1.00 to 1.09.
RATIO_STEPS = 8


@dataclass
class ImageTally(Summed):
    """Histograms of the stored images of a shard or a dataset."""

    formats: Counter[str] = field(default_factory=Counter)
    channels: Counter[int] = field(default_factory=Counter)
    widths: Counter[int] = field(default_factory=Counter)
    heights: Counter[int] = field(default_factory=Counter)
    # Number of images by bin of width over height.
    ratios: Counter[int] = field(default_factory=Counter)
    # Number of images by bin of the encoded size in bytes.
    sizes: Counter[int] = field(default_factory=Counter)
    # Minimum and maximum of "width", "height" and "bytes".
    extremes: dict[str, tuple[int, int]] = field(default_factory=dict)
    total_bytes: int = 0

    @property
    def images(self) -> int:
        """Number of images."""
        return self.formats.total()

    def add(self, image: ImageShape) -> None:
        """Adds an image."""
        self.formats[image.format] += 1
        self.channels[image.channels] += 1
        self.widths[_bin_of(image.width, SIDE_STEPS)] += 1
        self.heights[_bin_of(image.height, SIDE_STEPS)] += 1
        self.ratios[_bin_of(image.width / image.height, RATIO_STEPS)] += 1
        self.sizes[_bin_of(image.bytes, SIDE_STEPS)] += 1
        self.total_bytes += image.bytes
        for name in ("width", "height", "bytes"):
            value = getattr(image, name)
            self._stretch(name, value, value)

    @classmethod
    def sum_field(cls, name: str, values: Sequence[Any]) -> Any:
        """Returns the sum of the values of a field."""
        if name != "extremes":
            return super().sum_field(name, values)
        total = cls()
        for side, (least, most) in chain.from_iterable(extremes.items() for extremes in values):
            total._stretch(side, least, most)
        return total.extremes

    def _stretch(self, name: str, least: int, most: int) -> None:
        low, high = self.extremes.get(name, (least, most))
        self.extremes[name] = (min(low, least), max(high, most))


def _bin_of(value: float, steps: int) -> int:
    """Returns the bin of a number.

    >>> _bin_of(640, 1), _bin_of(4 / 3, RATIO_STEPS), _bin_of(1, 4)
    (9, 3, 0)
    """
    # The tolerance keeps powers of two in their own bin, whose logarithm may be rounded down.
    return math.floor(math.log2(value) * steps + 1e-9)


def edge_of(index: int, steps: float) -> float:
    """Returns the lower bound of a bin.

    >>> edge_of(9, 1), round(edge_of(3, RATIO_STEPS), 3)
    (512.0, 1.297)
    """
    return float(2 ** (index / steps))


@dataclass
class CopiedCounts(Summed):
    """The records of a base version that are in a new shard or split."""

    records: int = 0
    rows: int = 0  # number of rows from which they were built
    # Number of occurrences by feature and class id in all records of the base's shards that were
    # rewritten, including those that were not copied.
    base_classes: dict[str, Counter[int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SplitTally(Summed, Converted):
    """The counts of a shard that are summed on the workers, and their sums over a split."""

    records: int = 0
    frames: int | None = None  # number of frames written; None if records are not sequences
    # Number of occurrences by feature and class id; in sums, as re-read.
    classes: dict[str, Counter[int]] = field(default_factory=dict)
    shapes: ImageTally = field(default_factory=ImageTally)
    reused: int = field(default=0, compare=False)  # shards that an earlier run has finished
    linked: int = field(default=0, compare=False)  # shards of the base version that were not read
    # The records of the base version, in linked and rewritten shards.
    copied: CopiedCounts = field(default_factory=CopiedCounts)
    # Number of rows that are not written, because the base version has a record with their key.
    unchanged: int = 0
