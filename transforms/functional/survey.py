"""The first pass over all rows: what must be known of the whole before the first record is written.

How many rows each split has, which classes there are, which kinds the columns are, and how large a
record is, from a sample that depends on the keys alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.config import MAX_SHARDS, ConvertConfig
from schemas.features import Feature, Schema
from schemas.plan import Plan, ResolvedSchema
from schemas.records import Row
from schemas.rejects import RecordError
from transforms.functional.binding import Binding, identity_of
from transforms.functional.column_kinds import ColumnKinds
from transforms.functional.labels import sorted_names
from transforms.functional.placement import SplitRanges, order_of, split_of
from transforms.functional.values import is_missing, items_of, looks_integer

SAMPLE_ROWS = 200
"""Enough for the mean of file sizes to be within some per cent; never one look a row."""

_FRAME_BYTES = 16
_FEATURE_BYTES = 12
_NUMBER_BYTES = 8


@dataclass(frozen=True)
class Surveyor:
    """What a survey asks of each row.

    Attributes:
        config: the conversion's settings.
        schema: the schema, its sources settled.
        binding: which table columns mean what; classes are not known yet.
        ranges: the splits of rows that bring none of their own.
    """

    config: ConvertConfig
    schema: Schema
    binding: Binding
    ranges: SplitRanges


@dataclass
class Survey:
    """What was seen so far; can be added to and merged in any order.

    Attributes:
        rows: all of them, also those that will be rejected.
        splits: split to its number of rows.
        labels: class feature to the labels found, integers as such.
        columns: the kinds of all columns, for schemas that take every one.
        sample: the rows first in order: (order, image uri, bytes of the other values).
    """

    rows: int = 0
    splits: Counter[str] = field(default_factory=Counter)
    labels: dict[str, set[str | int]] = field(default_factory=dict)
    columns: ColumnKinds = field(default_factory=ColumnKinds)
    sample: list[tuple[bytes, str, int]] = field(default_factory=list)

    def add(self, row: Row, surveyor: Surveyor) -> None:
        """Takes note of one row, as far as it can be read: what is wrong with it is told later."""
        self.rows += 1
        if surveyor.schema.every_column:
            self.columns.add(row.values, row.is_text)
        try:
            key, uri, split, group = identity_of(row, surveyor.binding)
        except RecordError:
            return  # binding rejects the row, and says why
        self.splits[split or split_of(group or key, surveyor.ranges, surveyor.config.seed)] += 1
        self._add_labels(row, surveyor)
        self._add_sample(order_of(key, surveyor.config.seed), uri, row.values)

    def merge(self, other: Survey) -> None:
        """Takes note of all that another has seen."""
        self.rows += other.rows
        self.splits += other.splits
        self.columns.merge(other.columns)
        for feature, labels in other.labels.items():
            self.labels.setdefault(feature, set()).update(labels)
        self.sample = sorted(self.sample + other.sample)[:SAMPLE_ROWS]

    def _add_labels(self, row: Row, surveyor: Surveyor) -> None:
        if surveyor.config.classes is not None:
            return
        for name in surveyor.schema.class_features:
            feature = surveyor.schema.features[name]
            column = surveyor.binding.table_column(feature.source.name)
            found = _labels(row.values.get(column), feature, row.is_text)
            self.labels.setdefault(name, set()).update(found)

    def _add_sample(self, order: bytes, uri: str, values: Mapping[str, Any]) -> None:
        self.sample.append((order, uri, _size(values)))
        if len(self.sample) >= 8 * SAMPLE_ROWS:
            self.sample = sorted(self.sample)[:SAMPLE_ROWS]


def plan_of(survey: Survey, surveyor: Surveyor, image_sizes: Mapping[str, int]) -> Plan:
    """Returns the plan that follows from a survey.

    Args:
        survey: of all rows.
        surveyor: what it asked.
        image_sizes: bytes of the sampled images, by uri; those that cannot be read are not there.
    """
    config, schema = surveyor.config, surveyor.schema
    features = {**survey.columns.features(survey.rows), **schema.features}
    resolved = schema.model_copy(update={"features": features})
    classes = {
        name: config.classes or sorted_names(survey.labels.get(name, ()))
        for name in schema.class_features
    }
    bytes_per_row = _bytes_per_row(survey, image_sizes, resolved)
    shards = {
        split: num_shards(survey.splits[split] * bytes_per_row, config, split)
        for split in sorted(survey.splits)
    }
    return Plan(ResolvedSchema(resolved, classes), shards, survey.rows)


def sampled(survey: Survey) -> list[tuple[bytes, str, int]]:
    """Returns the rows that stand for all in questions of size: the first in order."""
    return sorted(survey.sample)[:SAMPLE_ROWS]


def num_shards(split_bytes: float, config: ConvertConfig, split: str) -> int:
    """Returns how many shards a split of so many bytes has: as requested, or by their size."""
    requested = config.num_shards
    if isinstance(requested, dict):
        requested = requested.get(split, "auto")
    if isinstance(requested, int):
        return requested
    return min(max(1, math.ceil(split_bytes / config.shard_size)), MAX_SHARDS)


def _bytes_per_row(survey: Survey, image_sizes: Mapping[str, int], schema: Schema) -> float:
    """Returns the mean size of a record; images that cannot be read make none."""
    overhead = _FRAME_BYTES + sum(_FEATURE_BYTES + len(name) for name in schema.features)
    sizes = [
        image_sizes[uri] + other if uri else other
        for _, uri, other in sampled(survey)
        if not uri or uri in image_sizes
    ]
    return overhead + (sum(sizes) / len(sizes) if sizes else 0)


def _size(values: Mapping[str, Any]) -> int:
    return sum(len(v) if isinstance(v, str | bytes) else _NUMBER_BYTES for v in values.values())


def _labels(value: Any, feature: Feature, is_text: bool) -> list[str | int]:
    """Returns the labels that a value holds; none if it is no label, for which it is rejected."""
    if is_missing(value, feature, is_text):
        return []
    try:
        items = [value] if feature.shape is None else items_of(value, feature, is_text)
    except RecordError:
        return []
    return [
        int(item) if looks_integer(item, is_text) else item
        for item in items
        if isinstance(item, str | int)
    ]
