"""Class and feature statistics of a report, and the histograms that show them."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from recordmill.schemas.features import Feature, Kind
from recordmill.schemas.manifest import Manifest, ShardEntry, SplitEntry
from recordmill.schemas.tallies import edge_of
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.shard_files import uncompressed

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


MAX_ROWS = 200
READABLE_ROWS = 30
SAMPLED_CLASSES = 24


@dataclass(frozen=True)
class ClassRow:
    """One class.

    Attributes:
        name: its name, or its number.
        id: its number.
        counts: how often it occurs in each split, in their order.
    """

    name: str
    id: int
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """How often it occurs."""
        return sum(self.counts)

    @property
    def missing(self) -> bool:
        """Whether a split has none of it."""
        return 0 in self.counts


@dataclass(frozen=True)
class ClassTable:
    """The classes of one feature, most frequent first.

    Attributes:
        feature: the Example key.
        splits: their names.
        rows: all classes.
    """

    feature: str
    splits: tuple[str, ...]
    rows: tuple[ClassRow, ...]

    @property
    def shown(self) -> tuple[ClassRow, ...]:
        """The rows that a page has room for: the most frequent and the rarest."""
        return ends_of(self.rows, MAX_ROWS)

    @property
    def largest(self) -> int:
        """How often the most frequent occurs."""
        return self.rows[0].total

    @property
    def sizes(self) -> Histogram | None:
        """How many classes are how large, where there are too many to be read at once."""
        if len(self.rows) <= READABLE_ROWS:
            return None
        return of_values([row.total for row in self.rows], _whole)

    @property
    def present(self) -> tuple[ClassRow, ...]:
        """The classes that occur at all."""
        return tuple(row for row in self.rows if row.total)

    def totals(self) -> tuple[int, ...]:
        """Returns how many labels each split has."""
        return tuple(sum(row.counts[i] for row in self.rows) for i in range(len(self.splits)))

    def missing_in(self, split: int) -> tuple[str, ...]:
        """Returns the classes that occur, but not in this split."""
        return tuple(row.name for row in self.present if not row.counts[split])


def class_tables(manifest: Manifest) -> list[ClassTable]:
    """Returns a table for each feature that holds classes."""
    features = manifest.dataset_schema.class_features
    return [table for feature in features if (table := _table(manifest, feature)).rows]


def _table(manifest: Manifest, feature: str) -> ClassTable:
    counts = {name: _of_split(manifest, name, feature) for name in manifest.splits}
    names = manifest.classes.get(feature, ())
    found = {label for of_split in counts.values() for label in of_split}
    rows = (
        ClassRow(
            manifest.resolved.class_name(feature, label),
            label,
            tuple(of_split.get(label, 0) for of_split in counts.values()),
        )
        for label in found | set(range(len(names)))
    )
    ranked = tuple(sorted(rows, key=lambda row: (-row.total, row.id)))
    return ClassTable(feature, tuple(manifest.splits), ranked)


def _whole(value: float) -> str:
    return number_text(round(value))


def _of_split(manifest: Manifest, split: str, feature: str) -> Mapping[int, int]:
    total: dict[int, int] = {}
    for shard in manifest.splits[split].shards:
        for label, count in shard.classes.get(feature, {}).items():
            total[label] = total.get(label, 0) + count
    return total


def ends_of(rows: tuple[ClassRow, ...], number: int) -> tuple[ClassRow, ...]:
    """Returns the first and the last of rows, so many in all."""
    if len(rows) <= number:
        return rows
    return (*rows[: number - number // 2], *rows[-(number // 2) :])


SAMPLE_BYTES = 4 * 2**20
SAMPLE_RECORDS = 1000
_SHOWN_TEXTS = 4
_SHOWN_RECORDS = 5
_TEXT_CHARACTERS = 80


@dataclass(frozen=True)
class FeatureSheet:
    """One feature.

    Attributes:
        name: the Example key.
        kind: of its list.
        shape: how many values a record has, in words.
        source: where they come from.
        missing: records of the sample without a value.
        values: the histogram of its numbers.
        texts: some of its texts.
        note: what else can be said.
    """

    name: str
    kind: str
    shape: str
    source: str
    missing: int = 0
    values: Histogram | None = None
    texts: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class FeatureSheets:
    """All features, told from a sample.

    Attributes:
        records: of the sample.
        features: in the schema's order.
        rows: (split, the features' values as texts) of some records; none for images.
    """

    records: int
    features: tuple[FeatureSheet, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...] = ()


def feature_sheets(dataset: Dataset) -> FeatureSheets:
    """Returns what the features hold, by the first records of each split: a fair sample."""
    by_split = {
        name: list(_sample(dataset, split)) for name, split in dataset.manifest.splits.items()
    }
    records = [record for sampled in by_split.values() for record in sampled]
    features = dataset.manifest.dataset_schema.features
    image = dataset.manifest.dataset_schema.image_feature
    sheets = tuple(
        _sheet(name, feature, [r.get(name, []) for r in records] if name != image else [])
        for name, feature in features.items()
    )
    rows = () if dataset.manifest.dataset_schema.has_image else _rows(by_split, list(features))
    return FeatureSheets(len(records), sheets, tuple(rows))


def _rows(
    by_split: Mapping[str, list[dict[str, list[Any]]]], names: list[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for split, records in by_split.items():
        for record in records[:_SHOWN_RECORDS]:
            yield split, tuple(", ".join(map(_value, record.get(name, []))) for name in names)


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        return _text(value)
    return number_text(value) if math.isfinite(value) else str(value)


def _sample(dataset: Dataset, split: SplitEntry) -> Iterator[dict[str, list[Any]]]:
    filled = (shard for shard in split.shards if shard.records)
    for shard in islice(filled, 1):
        yield from _first_records(dataset, shard)


def _first_records(dataset: Dataset, shard: ShardEntry) -> Iterator[dict[str, list[Any]]]:
    """Yields the whole records within the first bytes of a shard."""
    with uncompressed(dataset.path(shard.file)) as stream:
        head = io.BytesIO(stream.read(SAMPLE_BYTES))
    try:
        for frame in islice(read_frames(head), SAMPLE_RECORDS):
            yield read_features(frame.data)
    except FrameError:
        return  # the last one is cut by the sample's end; verification checks the shards


def _sheet(name: str, feature: Feature, lists: list[list[Any]]) -> FeatureSheet:
    sheet = FeatureSheet(
        name=name,
        kind=f"{feature.kind.value}, class id" if feature.classes else feature.kind.value,
        shape=_shape_text(feature),
        source=str(feature.source),
        missing=sum(not values for values in lists),
    )
    flat = [value for values in lists for value in values]
    if not flat or feature.classes:
        return sheet
    if feature.kind is Kind.BYTES:
        return _with_texts(sheet, flat)
    finite = [float(value) for value in flat if math.isfinite(value)]
    odd = len(flat) - len(finite)
    histogram = of_values(finite, number_text) if finite else None
    return _with(sheet, values=histogram, note=f"{odd:,} not finite" if odd else "")


def _with_texts(sheet: FeatureSheet, values: list[bytes]) -> FeatureSheet:
    distinct = sorted(set(values))
    shown = values[:_SHOWN_TEXTS] if len(distinct) > _SHOWN_TEXTS else distinct
    lengths = sorted(map(len, values))
    span = f"{lengths[0]:,}" if lengths[0] == lengths[-1] else f"{lengths[0]:,}-{lengths[-1]:,}"
    note = f"{len(distinct):,} distinct, {span} bytes"
    return _with(sheet, texts=tuple(map(_text, shown)), note=note.replace("-", "–"))


def _with(sheet: FeatureSheet, **changes: Any) -> FeatureSheet:
    return FeatureSheet(**{**sheet.__dict__, **changes})


def _text(value: bytes) -> str:
    """Returns bytes as text; what is none, by its first bytes."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(value):,} bytes: {value[:8].hex(' ')} …"
    return text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + "…"


def _shape_text(feature: Feature) -> str:
    each = " a frame" if feature.per == "frame" else ""
    if feature.shape is None:
        return ("one value, or none" if feature.optional else "one value") + each
    sizes = " × ".join("any" if size is None else str(size) for size in feature.shape)
    return (f"{sizes} values" if sizes else "any number") + each
