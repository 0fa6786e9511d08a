"""The analyze pass: reads all rows and computes the plan of a run.

It counts the rows of each split, collects class names and column kinds, and estimates the size of a
record from a sample that depends only on the keys.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from recordmill.schemas.config import MAX_SHARDS, ConvertConfig
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.rows.binding import (
    Binding,
    Identity,
    broken_identity,
    identity_of,
)
from recordmill.transforms.functional.rows.columns import ColumnKinds
from recordmill.transforms.functional.rows.labels import (
    LabelSet,
    merged_class_names,
    with_background,
)
from recordmill.transforms.functional.rows.placement import (
    BaseShardLookup,
    SplitRanges,
    order_of,
    split_of,
    stays_in_base,
)
from recordmill.transforms.functional.values.typed import (
    is_missing,
    items_of,
    looks_integer,
    single_value,
)

# Sample size: gives the mean image size with an error of a few percent, and few stat calls.
SAMPLE_ROWS = 200

# Limit for the splits of a dataset, whose names and counts one worker holds.
MAX_SPLITS = 10_000

# Limit for the columns of tables without a schema; rows of JSON can all have their own.
MAX_COLUMNS = 100_000

_FRAME_BYTES = 16  # TFRecord: length, checksum of the length, checksum of the data
_FEATURE_BYTES = 12  # protobuf: approximate size of the tags and lengths of a feature
_NUMBER_BYTES = 8


def _not_in_base(key: str) -> None:
    """Returns None for every key, as if there were no base version."""


@dataclass(frozen=True)
class Analyzer:
    """The settings of the analyze pass.

    Attributes:
        config: the settings of the conversion.
        schema: the schema, with resolved sources.
        binding: the column mapping; its classes are not known yet.
        ranges: the hash ranges of the splits, for rows that state no split.
        base: the base version, whose rows stay in their shards, or None.
    """

    config: ConvertConfig
    schema: Schema
    binding: Binding
    ranges: SplitRanges
    base: Base | None = None

    @cached_property
    def label_features(self) -> dict[str, Feature]:
        """The feature with the labels of each feature with class names."""
        found = {name: self.schema.labels_of(name) for name in self.schema.named_features}
        return {name: feature for name, feature in found.items() if feature is not None}


@dataclass
class Analysis:
    """The result of the analyze pass over all rows or a part; parts can be merged in any order.

    Attributes:
        rows: the number of rows, including rows that will be rejected.
        splits: the number of rows of each split, without rows that stay in their base shards.
        labels: the labels of each class feature.
        columns: the kinds of all columns, for schemas that include every column.
        sample: [(order hash, image uri, size of the other values in bytes)] of the first rows by
            order; if the size includes the image, the uri is "".
    """

    rows: int = 0
    splits: Counter[str] = field(default_factory=Counter)
    labels: dict[str, LabelSet] = field(default_factory=dict)
    columns: ColumnKinds = field(default_factory=ColumnKinds)
    sample: list[tuple[bytes, str, int]] = field(default_factory=list)

    def add(self, row: Row, analyzer: Analyzer, find: BaseShardLookup = _not_in_base) -> None:
        """Adds one row; values that cannot be read are ignored, and rejected when the row is bound.

        Args:
            row: the row.
            analyzer: the settings.
            find: returns the base shard that contains a key.
        """
        self.rows += 1
        if analyzer.schema.every_column:
            self.columns.add(row.values, row.is_text)
        identity = _identity(row, analyzer)
        if identity is None:
            return  # `bind` rejects the row
        self._add_labels(row, analyzer)
        assigned = _split_and_order(identity, analyzer, find)
        if assigned is None:
            return
        split, order = assigned
        self.splits[split] += 1
        # Frames are sampled one by one, although all frames of a sequence have the same order hash.
        if identity.sequence:
            order = order_of(f"{identity.sequence}\0{identity.key}", analyzer.config.seed)
        self._add_sample(order, identity, row.values)
        self._check_limits()

    def merge(self, other: Analysis) -> None:
        """Adds the result of another part of the rows."""
        self.rows += other.rows
        self.splits += other.splits
        self.columns.merge(other.columns)
        for feature, labels in other.labels.items():
            self.labels.setdefault(feature, LabelSet()).add(labels.found, feature)
        self.sample = sorted(self.sample + other.sample)[:SAMPLE_ROWS]
        self._check_limits()

    def _check_limits(self) -> None:
        """Rejects tables with too many splits or columns."""
        if len(self.splits) > MAX_SPLITS:
            examples = ", ".join(map(repr, islice(self.splits, 3)))
            raise UsageError(
                f"--split_column: expected at most {MAX_SPLITS:,} splits, got more, such as "
                f"{examples}. Choose a column that holds names of splits, such as train or test"
            )
        if len(self.columns.seen) > MAX_COLUMNS:
            examples = ", ".join(map(repr, islice(self.columns.seen, 3)))
            raise UsageError(
                f"--input: expected at most {MAX_COLUMNS:,} columns, got more, such as {examples}. "
                "Use a schema that lists the columns to keep"
            )

    def _add_labels(self, row: Row, analyzer: Analyzer) -> None:
        if analyzer.config.classes is not None:
            return
        for name, feature in analyzer.label_features.items():
            column = analyzer.binding.table_column(feature.source.name)
            found = _labels(row.values.get(column), feature, row.untyped(column))
            self.labels.setdefault(name, LabelSet()).add(found, name)

    def _add_sample(self, order: bytes, identity: Identity, values: Mapping[str, Any]) -> None:
        if identity.start is None or identity.stop is None:
            self.sample.append((order, identity.uri, _size(values)))
        else:  # a byte range states its size, without a stat call
            size = identity.stop - identity.start
            self.sample.append((order, "", _size(values) + size))
        # Truncated only after every 7 * SAMPLE_ROWS rows, so that the cost per row is constant.
        if len(self.sample) >= 8 * SAMPLE_ROWS:
            self.sample = sorted(self.sample)[:SAMPLE_ROWS]


def row_position(
    row: Row, analyzer: Analyzer, find: BaseShardLookup = _not_in_base
) -> tuple[str, bytes] | None:
    """Returns the split and order hash of a row; None if it has no key, or is in a base shard.

    Args:
        row: the row.
        analyzer: the settings.
        find: returns the base shard that holds a key.
    """
    identity = _identity(row, analyzer)
    return _split_and_order(identity, analyzer, find) if identity else None


def _identity(row: Row, analyzer: Analyzer) -> Identity | None:
    try:
        return identity_of(row, analyzer.binding)
    except RecordError:
        return broken_identity(row, analyzer.binding)


def _split_and_order(
    identity: Identity, analyzer: Analyzer, find: BaseShardLookup
) -> tuple[str, bytes] | None:
    if stays_in_base(find(identity.record), identity.split):
        return None
    seed = analyzer.config.seed
    split = identity.split or split_of(identity.group or identity.record, analyzer.ranges, seed)
    return split, order_of(identity.record, seed)


def build_plan(
    analysis: Analysis,
    analyzer: Analyzer,
    image_sizes: Mapping[str, int],
    shard_starts: Iterable[tuple[str, int]] = (),
) -> Plan:
    """Computes the plan of a run from the result of its analyze pass.

    Args:
        analysis: the result over all rows.
        analyzer: the settings.
        image_sizes: the size in bytes of each sampled image, by uri; without unreadable images.
        shard_starts: (split, hash position) of each shard except the first of its split, in any
            order; only with `records_per_shard`.

    Raises:
        UsageError: if there are rows but no columns.
    """
    config, schema = analyzer.config, analyzer.schema
    features = {**analysis.columns.features(analysis.rows), **schema.features}
    if not features and analysis.rows:
        raise UsageError(f"--input {config.inputs[0]}: the table has no columns; add a column")
    resolved = schema.model_copy(update={"features": features})
    known = analyzer.base.manifest.classes if analyzer.base else {}
    classes = {
        name: with_background(
            config.classes
            or merged_class_names(analysis.labels.get(name, LabelSet()).found, known.get(name)),
            schema.features[name].label_offset,
        )
        for name in schema.named_features
    }
    with_classes, splits = ResolvedSchema(resolved, classes), sorted(analysis.splits)
    if config.records_per_shard is not None:
        found: dict[str, list[int]] = {split: [] for split in splits}
        for split, start in shard_starts:
            found[split].append(start)
        starts = {split: tuple(sorted(found[split])) for split in splits}
        shards = _with_base(analyzer.base, {s: len(starts[s]) + 1 for s in splits})
        return Plan(with_classes, shards, analysis.rows, starts)
    bytes_per_row = _bytes_per_row(analysis, image_sizes, resolved)
    shards = {s: num_shards(analysis.splits[s] * bytes_per_row, config, s) for s in splits}
    return Plan(with_classes, _with_base(analyzer.base, shards), analysis.rows)


def _with_base(base: Base | None, shards: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of shards of each split, including those of the base version."""
    # Base shards keep their numbers; new rows are assigned to new shards after them.
    counts = dict(shards)
    for split in base.manifest.splits if base else ():
        counts[split] = len(base.shards(split) if base else ()) + counts.get(split, 0)
    return dict(sorted(counts.items()))


def sampled_rows(analysis: Analysis) -> list[tuple[bytes, str, int]]:
    """Returns the sample for the estimate of the record size: the first rows by order hash."""
    return sorted(analysis.sample)[:SAMPLE_ROWS]


def num_shards(split_bytes: float, config: ConvertConfig, split: str) -> int:
    """Returns the number of shards of a split, as configured or from the shard size.

    Args:
        split_bytes: the estimated size of the split in bytes.
        config: the settings of the conversion.
        split: the name of the split.
    """
    requested = _requested(config, split)
    if requested is not None:
        return requested
    return min(max(1, math.ceil(split_bytes / config.shard_size)), MAX_SHARDS)


def check_shard_counts(records: Mapping[str, int], records_per_shard: int) -> None:
    """Checks that no split has too many shards.

    Args:
        records: the number of records by split.
        records_per_shard: the number of records per shard, for the message.

    Raises:
        RecordmillError: if a split has too many shards.
    """
    for split, count in sorted(records.items()):
        shards = -(-count // records_per_shard)
        if shards > MAX_SHARDS:
            raise RecordmillError(
                f"--records_per_shard {records_per_shard}: expected at most {MAX_SHARDS} shards "
                f"per split, got {shards} for {split!r}. Increase the flag"
            )


def needs_sizes(analysis: Analysis, config: ConvertConfig) -> bool:
    """Returns whether the number of shards of any split depends on the size of images.

    Args:
        analysis: the result over all rows.
        config: the settings of the conversion.
    """
    if config.records_per_shard is not None:
        return False
    return any(_requested(config, split) is None for split in analysis.splits)


def _requested(config: ConvertConfig, split: str) -> int | None:
    numbers = config.num_shards
    number = numbers.get(split, "auto") if isinstance(numbers, dict) else numbers
    return number if isinstance(number, int) else None


def _bytes_per_row(analysis: Analysis, image_sizes: Mapping[str, int], schema: Schema) -> float:
    """Returns the mean size of a record in bytes; rows with unreadable images are ignored."""
    overhead = _FRAME_BYTES + sum(_FEATURE_BYTES + len(name) for name in schema.features)
    sizes = [
        image_sizes[uri] + other if uri else other
        for _, uri, other in sampled_rows(analysis)
        if not uri or uri in image_sizes
    ]
    return overhead + (sum(sizes) / len(sizes) if sizes else 0)


def _size(values: Mapping[str, Any]) -> int:
    return sum(map(_size_of, values.values()))


def _size_of(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(_size_of, value)) if isinstance(value, list) else _NUMBER_BYTES


def _labels(value: Any, feature: Feature, is_text: bool) -> list[str | int]:
    """Returns the labels in a value; none if it is invalid, since `bind` will reject its row."""
    try:
        value = value if feature.shape is not None else single_value(value)
        if is_missing(value, feature, is_text):
            return []
        items = [value] if feature.shape is None else items_of(value, feature, is_text)
    except RecordError:
        return []
    return [
        int(item) if looks_integer(item, is_text) else item
        for item in items
        if isinstance(item, str | int)
    ]
