"""Class and feature statistics of a report, and their histograms."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, starmap
from typing import Any

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import Manifest, ShardEntry, SplitEntry
from recordmill.schemas.origins import Kind
from recordmill.schemas.statistics import edge_of
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.functional.rendering.drawing import boxes_of
from recordmill.transforms.functional.values.boxes import Box
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.shard_files import uncompressed

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
    are_whole: bool = False,
) -> Histogram | None:
    """Returns the histogram of logarithmic bins, if any; merges neighboring bins above `MAX_BARS`.

    Bin i begins at 2 ** (i / steps). `ends` is the exact minimum and maximum, where known; by
    default the outer edges. `are_whole`: whether all values are integers.
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
    edges = [*map(int, edges)] if are_whole else edges
    # A bar of whole numbers ends before the next one begins.
    lasts = [min(edge - 1, maximum) for edge in edges[1:]] if are_whole else edges[1:]
    bars = _make_bars(numbers, list(zip(map(write, edges), map(write, lasts), strict=False)))
    return Histogram(bars, write(minimum), write(maximum), is_logarithmic=True)


def _histogram_of_values(values: Sequence[float], write: Callable[[float], str]) -> Histogram:
    """Returns the histogram of values, with up to 16 bars of equal width.

    The axis is logarithmic if equal widths would have four of five values in the first bar.
    """
    low, high = min(values), max(values)
    second_bar = low + (high - low) / MAX_VALUE_BARS
    if high > low > 0 and sum(value < second_bar for value in values) > 0.8 * len(values):
        return _histogram_of_long_tail(values, write)
    if all(isinstance(value, int) for value in values):
        # Bar i holds whole numbers: those from its edge to below the next.
        width: float = math.ceil((high - low + 1) / MAX_VALUE_BARS)
        number = math.ceil((high - low + 1) / width)
    else:
        # Rounding alone, as of boxes to float32, makes no bars.
        number = 1 if write(low) == write(high) else min(MAX_VALUE_BARS, max(4, len(set(values))))
        width = (high - low) / number or 1.0  # avoids 0 if all values are equal
    counts = [0] * number
    for value in values:
        counts[min(number - 1, int((value - low) / width))] += 1
    lows = [low + i * width for i in range(number)]
    highs = [low + width - 1 for low in lows] if isinstance(width, int) else [*lows[1:], high]
    edges = [(write(first), write(last)) for first, last in zip(lows, highs, strict=True)]
    return Histogram(_make_bars(counts, edges), write(low), write(high))


def _histogram_of_long_tail(values: Sequence[float], write: Callable[[float], str]) -> Histogram:
    """Returns the histogram of positive values, with bars that double, at least."""
    ends = (min(values), max(values))
    # frexp() is exact: a power of two, which is the smallest value of its bar, is never in another.
    bins = Counter(math.frexp(value)[1] - 1 for value in values)
    are_whole = all(isinstance(value, int) for value in values)
    found = histogram_of_bins(bins, 1, write, ends, are_whole)
    assert found is not None  # noqa: S101 - there are values
    return found


def _make_bars(counts: Sequence[int], edges: Sequence[tuple[str, str]]) -> tuple[Bar, ...]:
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
    if units[0] == "B" or size >= 100:
        return f"{size:.0f} {units[0]}"
    return f"{size:.1f} {units[0]}" if size >= 10 else f"{size:.2f} {units[0]}"


def number_text(value: float) -> str:
    """Returns a number with up to four significant digits; integers are written in full.

    >>> number_text(1234567), number_text(0.12345), number_text(3.0)
    ('1,234,567', '0.1235', '3')
    """
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


def whole_text(value: float) -> str:
    """Returns a number rounded to an integer."""
    return number_text(round(value))


# Cells per side of the map of centers.
GRID = 12


@dataclass(frozen=True)
class Cell:
    """A cell of the map of centers."""

    column: int  # its number from the left, from 0
    row: int  # its number from the top, from 0
    count: int
    shade: float


@dataclass(frozen=True)
class BoxStatistics:
    """The statistics of the boxes in a sample of records."""

    records: int
    boxes: int
    # (title, histogram) of boxes per record, and of widths, heights and sizes.
    histograms: tuple[tuple[str, Histogram], ...]
    centers: tuple[Cell, ...]


def _box_statistics(
    schema: Schema, records: Sequence[Mapping[str, Sequence[Any]]]
) -> BoxStatistics | None:
    found = [list(boxes_of(schema, record)) for record in records]
    boxes = [box for of_record in found for box in of_record]
    if not boxes:
        return None
    widths = [xmax - xmin for xmin, _, xmax, _ in boxes]
    heights = [ymax - ymin for _, ymin, _, ymax in boxes]
    sizes = [math.sqrt(width * height) for width, height in zip(widths, heights, strict=True)]
    histograms = (
        ("Boxes per record", _histogram_of_values([len(each) for each in found], number_text)),
        ("Width / image width", _histogram_of_values(widths, "{:.0%}".format)),
        ("Height / image height", _histogram_of_values(heights, "{:.0%}".format)),
        ("Square root of area / image area", _histogram_of_values(sizes, "{:.0%}".format)),
    )
    return BoxStatistics(len(records), len(boxes), histograms, tuple(_centers(boxes)))


def _centers(boxes: Sequence[Box]) -> Iterator[Cell]:
    counts = Counter(
        (_cell((xmin + xmax) / 2), _cell((ymin + ymax) / 2)) for xmin, ymin, xmax, ymax in boxes
    )
    top = max(counts.values())
    for (column, row), count in sorted(counts.items()):
        yield Cell(column, row, count, round(count / top, 3))


def _cell(share: float) -> int:
    return min(GRID - 1, max(0, int(share * GRID)))


# Maximum number of classes in a table.
MAX_ROWS = 200

# Maximum number of classes in a table without a histogram of the class sizes.
READABLE_ROWS = 30

# Maximum number of classes with samples.
SAMPLED_CLASSES = 24


@dataclass(frozen=True)
class ClassRow:
    """The label counts of one class."""

    name: str  # the class name, or the id as text if the classes have no names
    id: int
    counts: tuple[int, ...]  # labels per split, in the order of the splits

    @property
    def total(self) -> int:
        """The number of labels in all splits."""
        return sum(self.counts)


@dataclass(frozen=True)
class ClassTable:
    """The classes of one feature, most frequent first."""

    feature: str
    splits: tuple[str, ...]
    rows: tuple[ClassRow, ...]

    @property
    def shown(self) -> tuple[ClassRow, ...]:
        """The rows to show: the most and the least frequent classes."""
        return most_and_least_frequent(self.rows, MAX_ROWS)

    @property
    def largest(self) -> int:
        """The number of labels of the most frequent class."""
        return self.rows[0].total

    @property
    def size_histogram(self) -> Histogram | None:
        """The sizes of the classes with labels; None if the table is short enough to read."""
        if len(self.rows) <= READABLE_ROWS or not self.present:
            return None
        return _histogram_of_values([row.total for row in self.present], whole_text)

    @property
    def present(self) -> tuple[ClassRow, ...]:
        """The classes with at least one label."""
        return tuple(row for row in self.rows if row.total)

    def totals(self) -> tuple[int, ...]:
        """Returns the number of labels per split."""
        return tuple(sum(row.counts[i] for row in self.rows) for i in range(len(self.splits)))


def class_tables(manifest: Manifest) -> list[ClassTable]:
    """Returns one table per feature with class labels."""
    features = manifest.dataset_schema.class_features
    return [table for feature in features if (table := _table(manifest, feature)).rows]


def _table(manifest: Manifest, feature: str) -> ClassTable:
    splits = manifest.ordered_splits
    counts = {name: split.classes.get(feature, {}) for name, split in splits.items()}
    names = manifest.classes.get(feature, ())
    labels = {label for of_split in counts.values() for label in of_split}
    rows = (
        ClassRow(
            manifest.resolved.class_name(feature, label),
            label,
            tuple(of_split.get(label, 0) for of_split in counts.values()),
        )
        for label in labels | set(range(len(names)))  # includes classes without labels
    )
    # The id breaks ties between classes of the same size, so that the order is deterministic.
    ranked = tuple(sorted(rows, key=lambda row: (-row.total, row.id)))
    return ClassTable(feature, tuple(splits), ranked)


def most_and_least_frequent(rows: tuple[ClassRow, ...], number: int) -> tuple[ClassRow, ...]:
    """Returns the first and the last rows of a table."""
    if len(rows) <= number:
        return rows
    return (*rows[: number - number // 2], *rows[-(number // 2) :])


# Limit of the bytes read per split.
SAMPLE_BYTES = 16 * 2**20

# Maximum number of records in the sample of a split, and of their features.
SAMPLE_RECORDS, _SAMPLE_FEATURES = 1000, 100_000

_SHOWN_TEXTS = 4
_SHOWN_RECORDS = 5
_SHOWN_VALUES = 16
_TEXT_CHARACTERS = 40


@dataclass(frozen=True)
class FeatureStatistics:
    """The statistics of one feature in a sample of records."""

    name: str
    kind: str  # the kind of the values, such as "int64, class id"
    shape: str  # the number of values per record, as text
    source: str
    missing: int = 0  # the number of sampled records without a value
    values: Histogram | None = None
    texts: tuple[str, ...] = ()
    # Distinct values and lengths of strings, or the number of values that are not finite.
    note: str = ""


@dataclass(frozen=True)
class SampleStatistics:
    """The statistics of all features in a sample of records."""

    records: int
    features: tuple[FeatureStatistics, ...]  # the statistics of each feature, in the schema's order
    boxes: BoxStatistics | None = None  # the statistics of boxes; None without boxes
    shown: tuple[str, ...] = ()  # the features whose values are in the rows
    # (split, values of these features as texts) of some records.
    rows: tuple[tuple[str, tuple[str, ...]], ...] = ()


def feature_statistics(dataset: DatasetFolder) -> SampleStatistics:
    """Returns the statistics of all features, from the first records of each split.

    The sample is unbiased, because records are ordered by a salted hash of their keys.
    """
    by_split = {
        name: [r for shard in _sampled_shards(split) for r in _first_records(dataset, shard)]
        for name, split in dataset.manifest.ordered_splits.items()
    }
    records = [record for sampled in by_split.values() for record in sampled]
    schema = dataset.manifest.dataset_schema
    stored = schema.stored_images  # are not sampled
    statistics = tuple(
        replace(_statistics(name, feature, []), note=_images_text(dataset, stored[name]))
        if name in stored
        else _statistics(name, feature, [r.get(name, []) for r in records])
        for name, feature in schema.features.items()
    )
    shown = _shown_in_rows(schema)
    rows = tuple(_rows(dataset.manifest, by_split, shown)) if shown else ()
    return SampleStatistics(len(records), statistics, _box_statistics(schema, records), shown, rows)


def _shown_in_rows(schema: Schema) -> tuple[str, ...]:
    """Returns the features of sample rows; none for images that have only a label."""
    if not schema.has_image:
        return tuple(schema.features)
    columns = {name: f for name, f in schema.features.items() if f.column and f.per == "record"}
    columns = {name: f for name, f in columns.items() if not (f.is_mask or f.has_positions)}
    return tuple(columns) if any(not f.classes for f in columns.values()) else ()


def _images_text(dataset: DatasetFolder, image: str) -> str:
    """Returns the formats and sizes of an image in the sampled shards; "" for the first image.

    The first image has histograms of its own.
    """
    if not image:
        return ""
    shards = [s for split in dataset.manifest.splits.values() for s in _sampled_shards(split)]
    columns = [dataset.index(shard, ["other_images"])["other_images"] for shard in shards]
    images = [one for column in columns for record in column.to_pylist() for one in record]
    found = [one for one in images if one["image"] == image]
    if not found:
        return ""
    formats = Counter(one["format"] for one in found).most_common()
    sides = (_span([one[side] for one in found]) for side in ("width", "height"))
    sizes = _span([one["bytes"] for one in found])
    listed = ", ".join(f"{count:,} {name}" for name, count in formats)
    return f"{listed}; {' × '.join(sides)} pixels; {sizes} bytes"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _sampled_shards(split: SplitEntry) -> Iterator[ShardEntry]:
    return islice((shard for shard in split.shards if shard.records), 1)


def _rows(
    manifest: Manifest, by_split: Mapping[str, list[dict[str, list[Any]]]], names: Sequence[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    labels = manifest.dataset_schema.class_features
    named = {name: partial(_class_text, manifest, name) for name in labels}
    for split, records in by_split.items():
        for record in records[:_SHOWN_RECORDS]:
            columns = ((record.get(name, []), named.get(name, _value_text)) for name in names)
            yield split, tuple(starmap(_values_text, columns))


def _class_text(manifest: Manifest, feature: str, label: int) -> str:
    return manifest.resolved.class_name(feature, label) if label >= 0 else "no label"


def _values_text(values: Sequence[Any], text: Callable[[Any], str]) -> str:
    texts = [text(value) for value in values[:_SHOWN_VALUES]]
    return ", ".join([*texts, "…"] if len(values) > _SHOWN_VALUES else texts)


def _value_text(value: Any) -> str:
    if isinstance(value, bytes):
        return _text(value)
    return number_text(value) if math.isfinite(value) else str(value)


def _first_records(dataset: DatasetFolder, shard: ShardEntry) -> Iterator[dict[str, list[Any]]]:
    """Yields the complete records in the first bytes of a shard."""
    schema = dataset.manifest.dataset_schema
    limit = min(SAMPLE_RECORDS, _SAMPLE_FEATURES // max(1, len(schema.features)))
    with uncompressed(dataset.path(shard.file)) as stream:
        head = io.BytesIO(stream.read(SAMPLE_BYTES))
    try:
        for frame in islice(read_frames(head), limit):
            record = read_features(frame.data)
            for name in schema.stored_images:
                record.pop(name, None)  # saves memory
            yield record
    except FrameError:
        return  # the sample ends inside a record; detecting damage is up to verification


def _statistics(name: str, feature: Feature, lists: list[list[Any]]) -> FeatureStatistics:
    """Returns the statistics of a feature; `lists` has the values of each record."""
    statistics = FeatureStatistics(
        name=name,
        kind=f"{feature.kind.value}, class id" if feature.classes else feature.kind.value,
        shape=shape_text(feature),
        source=str(feature.source),
        missing=sum(not values for values in lists),
    )
    flat = [value for values in lists for value in values]
    if not flat or feature.classes:
        return statistics
    if feature.is_mask:
        return replace(statistics, note="PNG of class ids, drawn on the samples")
    if feature.kind is Kind.BYTES:
        return _with_texts(statistics, flat)
    finite = [float(value) for value in flat if math.isfinite(value)]
    # A default such as -1 would be the only bar beside those of all other values.
    stated = [value for value in finite if value != feature.default]
    counts = {"not finite": len(flat) - len(finite)}
    if stated:
        counts[f"of the default {feature.default}"] = len(finite) - len(stated)
    histogram = _histogram_of_values(stated or finite, number_text) if finite else None
    note = ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)
    return replace(statistics, values=histogram, note=note)


def _with_texts(statistics: FeatureStatistics, values: list[bytes]) -> FeatureStatistics:
    distinct = sorted(set(values))
    shown = values[:_SHOWN_TEXTS] if len(distinct) > _SHOWN_TEXTS else distinct
    note = f"{len(distinct):,} distinct, {_span(list(map(len, values)))} bytes"
    return replace(statistics, texts=tuple(map(_text, shown)), note=note)


def _text(value: bytes) -> str:
    """Returns UTF-8 as text, truncated; for other bytes, their number and a short hex dump."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(value):,} bytes: {value[:8].hex(' ')} …"
    return text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + "…"


def shape_text(feature: Feature) -> str:
    """Returns the number of values that an example has for a feature, in words."""
    each = " per frame" if feature.per == "frame" else ""
    if feature.shape is None:
        return ("one value or none" if feature.optional else "one value") + each
    sizes = " × ".join("any" if size is None else str(size) for size in feature.shape)
    return (f"{sizes} values" if sizes else "any number") + each
