"""What the features of a dataset hold, by a sample of its records."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from recordmill.pipelines.report.charts import Histogram, number_text, of_values
from recordmill.schemas.features import Feature, Kind
from recordmill.schemas.manifest import ShardEntry, SplitEntry
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.shard_files import uncompressed

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
