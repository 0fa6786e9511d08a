"""The analyze pass: reads all rows and computes the plan of a run.

It counts the rows of each split, collects class names and column kinds, and estimates the size of a
record from a sample that depends only on the keys.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import Base
from recordmill.schemas.option_values import MAX_SHARDS
from recordmill.schemas.plan import Plan, ResolvedSchema, SourceEntry, SplitRanges, TableSnapshot
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.tables import NO_CLASSES, DeclaredClasses
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.columns import ColumnKinds
from recordmill.transforms.functional.rows.identities import (
    Identity,
    broken_identity,
    identities_of,
)
from recordmill.transforms.functional.rows.labels import (
    LabelSet,
    merged_class_names,
    with_background,
)
from recordmill.transforms.functional.rows.placement import (
    ORDER_BYTES,
    BaseShardLookup,
    order_of,
    split_of,
    stays_in_base,
)
from recordmill.transforms.functional.rows.references import by_halves
from recordmill.transforms.functional.values.plain import distinct
from recordmill.transforms.functional.values.typed import (
    is_missing,
    items_of,
    looks_integer,
    single_value,
    size_of_values,
    without_fraction,
)

# Sample size: gives the mean image size with an error of a few percent, and few stat calls.
SAMPLE_ROWS = 200

# Limit for the splits of a dataset, whose names and counts one worker holds.
MAX_SPLITS = 10_000

# Counts rows whose split depends on all rows, until it is known.
UNASSIGNED = ""

# Limit for the columns of tables without a schema; rows of JSON can all have their own.
MAX_COLUMNS = 100_000

_FRAME_BYTES = 16  # TFRecord: length, checksum of the length, checksum of the data
_FEATURE_BYTES = 12  # protobuf: approximate size of the tags and lengths of a feature


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
        declared: the classes that the source declares, by feature.
        recognized: what the input was recognized as, for the manifest.
        snapshots: the snapshots of lakehouse tables, for the manifest.
    """

    config: ConvertConfig
    schema: Schema
    binding: Binding
    ranges: SplitRanges
    base: Base | None = None
    declared: Mapping[str, DeclaredClasses] = field(default_factory=dict)
    recognized: tuple[str, ...] = ()
    snapshots: tuple[TableSnapshot, ...] = ()

    @cached_property
    def label_features(self) -> dict[str, Feature]:
        """The feature with the labels of each feature with class names."""
        found = {name: self.schema.labels_of(name) for name in self.schema.named_features}
        return {name: feature for name, feature in found.items() if feature is not None}

    def with_source(
        self,
        classes: Mapping[str, DeclaredClasses],
        recognized: tuple[str, ...],
        snapshots: tuple[TableSnapshot, ...] = (),
    ) -> Analyzer:
        """Returns the analyzer of a source that declares classes.

        Args:
            classes: the declared classes by table column.
            recognized: what the input was recognized as.
            snapshots: the snapshots of lakehouse tables.
        """
        columns = {
            name: self.binding.table_column(feature.source.name)
            for name, feature in self.label_features.items()
        }
        declared = {name: classes[column] for name, column in columns.items() if column in classes}
        return replace(self, declared=declared, recognized=recognized, snapshots=snapshots)


@dataclass
class Analysis:
    """The result of the analyze pass over all rows or a part; parts can be merged in any order.

    Attributes:
        rows: the number of rows, including rows that will be rejected.
        splits: the number of rows of each split, without rows that stay in their base shards; that
            of `UNASSIGNED` rows if their splits depend on all rows.
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
    # Rows with a later order are not in the sample.
    _last_order: bytes = field(default=b"\xff" * ORDER_BYTES, compare=False)

    def add(
        self, rows: Sequence[Row], analyzer: Analyzer, find: BaseShardLookup = _not_in_base
    ) -> None:
        """Adds rows; values that cannot be read are ignored, and rejected when the row is bound.

        Args:
            rows: rows with the same columns of untyped text, one at least.
            analyzer: the settings.
            find: returns the base shard that contains a key.
        """
        self.rows += len(rows)
        if analyzer.schema.every_column:
            self.columns.add(rows)
        # `bind_rows` rejects the rows without an identity.
        identified = list(_identified(rows, analyzer))
        self._add_labels([row for row, _ in identified], analyzer)
        for row, identity in identified:
            assigned = _split_and_order(identity, analyzer, find)
            if assigned is None:
                continue
            split, order = assigned
            self.splits[split] += 1
            # Frames are sampled one by one, although a sequence has only one order hash.
            if identity.sequence:
                order = order_of(f"{identity.sequence}\0{identity.key}", analyzer.config.seed)
            if order <= self._last_order:
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

    def part_of(self, whole: Analysis) -> Analysis:
        """Returns this analysis of a sample with the classes and columns of all rows."""
        return replace(self, labels=whole.labels, columns=whole.columns)

    def _check_limits(self) -> None:
        """Rejects tables with too many splits or columns."""
        if len(self.splits) > MAX_SPLITS:
            examples = ", ".join(map(repr, islice(self.splits, 3)))
            raise UsageError(
                f"--split_column: expected at most {MAX_SPLITS:,} splits, got more, such as "
                f"{examples}. Choose a column that holds names of splits, such as train or test."
            )
        if len(self.columns.seen) > MAX_COLUMNS:
            examples = ", ".join(map(repr, islice(self.columns.seen, 3)))
            raise UsageError(
                f"--input: expected at most {MAX_COLUMNS:,} columns, got more, such as {examples}. "
                "Use a schema that lists the columns to keep."
            )

    def _add_labels(self, rows: Sequence[Row], analyzer: Analyzer) -> None:
        if analyzer.config.class_names is not None or not rows:
            return
        for name, feature in analyzer.label_features.items():
            column = analyzer.binding.table_column(feature.source.name)
            labels = self.labels.setdefault(name, LabelSet())
            for value in distinct([row.values.get(column) for row in rows]):
                labels.add(labels_in(value, feature, rows[0].untyped(column)), name)

    def _add_sample(self, order: bytes, identity: Identity, values: Mapping[str, Any]) -> None:
        if identity.start is None or identity.stop is None:
            self.sample.append((order, identity.uri, size_of_values(values.values())))
        else:  # a byte range states its size, without a stat call
            size = identity.stop - identity.start
            self.sample.append((order, "", size_of_values(values.values()) + size))
        # Truncated only after every 7 * SAMPLE_ROWS rows, so that the cost per row is constant.
        if len(self.sample) >= 8 * SAMPLE_ROWS:
            self.sample = sorted(self.sample)[:SAMPLE_ROWS]
            self._last_order = self.sample[-1][0]


class RowPosition(NamedTuple):
    """The location of a row in the dataset.

    Attributes:
        split: its split; `UNASSIGNED` if it depends on all rows.
        order: the order hash of its record.
        row: the row.
        entity: the unit that must be in one split: the group of the row, or its key.
    """

    split: str
    order: bytes
    row: Row
    entity: str


def row_positions(
    rows: Sequence[Row], analyzer: Analyzer, find: BaseShardLookup = _not_in_base
) -> Iterator[RowPosition]:
    """Yields the location of each row that has a key, and is not in a base shard.

    Args:
        rows: the rows.
        analyzer: the settings.
        find: returns the base shard that holds a key.
    """
    for row, identity in _identified(rows, analyzer):
        if assigned := _split_and_order(identity, analyzer, find):
            yield RowPosition(*assigned, row, identity.entity)


class UnassignedRow(NamedTuple):
    """A row without a split of its own.

    Attributes:
        row: the row.
        entity: the unit that must be in one split: the group of the row, or its key.
        base_split: the split of the row in the base version, in which it stays; or "".
    """

    row: Row
    entity: str
    base_split: str


def unassigned_rows(
    rows: Sequence[Row], analyzer: Analyzer, find: BaseShardLookup = _not_in_base
) -> Iterator[UnassignedRow]:
    """Yields the rows that have a key, and do not state their split.

    Args:
        rows: the rows.
        analyzer: the settings.
        find: returns the base shard that holds a key.
    """
    for row, identity in _identified(rows, analyzer):
        if not identity.split:
            shard = find(identity.record)
            yield UnassignedRow(row, identity.entity, shard[0] if shard else "")


def _identified(rows: Sequence[Row], analyzer: Analyzer) -> Iterator[tuple[Row, Identity]]:
    """Yields each row that has an identity."""
    for row, identity in rows_with_identity(rows, analyzer.binding):
        if identity is not None:
            yield row, identity


def rows_with_identity(
    rows: Sequence[Row], binding: Binding
) -> Iterator[tuple[Row, Identity | None]]:
    """Yields each row with its identity; None if it has none.

    Args:
        rows: the rows.
        binding: the column mapping.
    """
    for part, found in by_halves(identities_of, rows, binding):
        if isinstance(found, RecordError):
            yield part[0], broken_identity(part[0], binding)
        else:
            yield from zip(part, found, strict=True)


def _split_and_order(
    identity: Identity, analyzer: Analyzer, find: BaseShardLookup
) -> tuple[str, bytes] | None:
    if stays_in_base(find(identity.record), identity.split):
        return None
    seed = analyzer.config.seed
    split = identity.split
    if not split and analyzer.config.split_method == "hash":
        split = split_of(identity.entity, analyzer.ranges, seed)
    return split or UNASSIGNED, order_of(identity.record, seed)


def build_plan(
    analysis: Analysis,
    analyzer: Analyzer,
    image_sizes: Mapping[str, int],
    shard_starts: Iterable[tuple[str, int]] = (),
    ranges: SplitRanges | None = None,
) -> Plan:
    """Computes the plan of a run from the result of its analyze pass.

    Args:
        analysis: the result over all rows.
        analyzer: the settings.
        image_sizes: the size in bytes of each sampled image, by uri; without unreadable images.
        shard_starts: (split, hash position) of each shard except the first of its split, in any
            order; only with `records_per_shard`.
        ranges: the ranges of the splits, if they depend on all rows.

    Raises:
        UsageError: if there are rows but no columns.
    """
    config, schema = analyzer.config, analyzer.schema
    base, kept, inferred = analyzer.base, 0, analysis.columns.features()
    # Without new rows, only the base version has the types of columns without a schema.
    if base and base.keeps_records and schema.every_column and not analysis.rows:
        inferred = base.manifest.dataset_schema.features
    features = {**inferred, **schema.features}
    if not features and analysis.rows:
        raise UsageError(f"--input {config.inputs[0]}: the table has no columns. Add a column.")
    resolved = schema.model_copy(update={"features": features})
    if base and base.keeps_records:
        resolved, kept = schema_of_base(resolved, base), base.manifest.input.records
    rows = rows_by_split(analysis.splits, ranges)
    with_classes, splits = _with_classes(analysis, analyzer, resolved), sorted(rows)
    source = _source(analyzer, _integral_floats(analysis, with_classes.classes))
    if config.records_per_shard is not None:
        found: dict[str, list[int]] = {split: [] for split in splits}
        for split, start in shard_starts:
            found[split].append(start)
        starts = {split: tuple(sorted(found[split])) for split in splits}
        shards = _with_base(base, {s: len(starts[s]) + 1 for s in splits})
        return Plan(with_classes, shards, analysis.rows, starts, source, ranges, kept)
    bytes_per_row = _bytes_per_row(analysis, image_sizes, resolved)
    shards = {s: num_shards(rows[s] * bytes_per_row, config, s) for s in splits}
    with_base = _with_base(base, shards)
    return Plan(with_classes, with_base, analysis.rows, {}, source, ranges, kept)


def schema_of_base(resolved: Schema, base: Base) -> Schema:
    """Returns the schema of a base version that keeps its records, which new rows must match too.

    The types of columns without a schema are those of the base version, whatever the new rows have;
    a row that does not fit is rejected.

    Args:
        resolved: the resolved schema of the new rows.
        base: the base version.

    Raises:
        UsageError: if the schemas differ in another way.
    """
    old = base.manifest.dataset_schema
    for name in resolved.features.keys() ^ old.features.keys():
        where = "--base" if name in old.features else "the new rows"
        raise UsageError(
            f"--append: feature {name!r} is only in {where}. Use the schema and columns of --base, "
            "or convert the whole table without --append."
        )
    features = old.features if old.every_column else resolved.features
    new = resolved.model_copy(update={"features": features})
    ignored = {"description"}
    one, other = (s.model_dump(mode="json", exclude=ignored) for s in (old, new))
    for block in (name for name in one if one[name] != other[name]):
        raise UsageError(
            f"--append: the schema differs from --base in {_difference(one, other, block)}. "
            "Use the same schema, or convert the whole table without --append."
        )
    return new


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], block: str) -> str:
    """Returns the first setting that differs in a block of a schema, with both values."""
    one, other = old[block], new[block]
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return f"{block}: expected {one!r}, got {other!r}"
    name = next(name for name in {**one, **other} if one.get(name) != other.get(name))
    return f"{block} > {_difference(one, other, name)}" if name in one and name in other else name


def _with_classes(analysis: Analysis, analyzer: Analyzer, resolved: Schema) -> ResolvedSchema:
    """Returns a schema with class names: as configured, declared by the source, or found.

    Args:
        analysis: the result over all rows.
        analyzer: the settings.
        resolved: the schema with all its features.
    """
    known = analyzer.base.manifest.classes if analyzer.base else {}
    declared, classes = analyzer.declared, dict[str, tuple[str, ...]]()
    for name in resolved.named_features:
        found = analysis.labels.get(name, LabelSet()).found
        names = analyzer.config.class_names or merged_class_names(
            found, known.get(name), declared.get(name, NO_CLASSES)
        )
        classes[name] = with_background(names, resolved.features[name].label_offset)
    by_id = frozenset(name for name, source in declared.items() if source.by_id)
    return ResolvedSchema(resolved, classes, by_id)


def _integral_floats(analysis: Analysis, classes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields a note for each feature whose labels are integers that are written as floats."""
    for name, labels in sorted(analysis.labels.items()):
        # Without class names, all labels are integers: those that are text have a fraction of 0.
        written = sorted(label for label in labels.found if isinstance(label, str))
        if written and not classes.get(name):
            yield f"labels of {name!r} such as {written[0]} are read as integers"


def _source(analyzer: Analyzer, notes: Iterable[str]) -> SourceEntry:
    declared, base, read = analyzer.declared, analyzer.base, analyzer.snapshots
    of_base = base.kept_snapshots if base else ()
    tables = {snapshot.table for snapshot in read}
    return SourceEntry(
        recognized=(*analyzer.recognized, *notes),
        # A later increment may read a table that this one does not.
        snapshots=(*(entry for entry in of_base if entry.table not in tables), *read),
        class_ids={
            feature: {name: id_ for id_, name in found.names}
            for feature, found in declared.items()
            if found.names
        },
        conflicts={name: found.conflict for name, found in declared.items() if found.conflict},
    )


def rows_by_split(counts: Mapping[str, int], ranges: SplitRanges | None) -> dict[str, int]:
    """Returns the number of rows of each split; where it is an estimate, at least 1.

    Args:
        counts: the number of rows by the split that they state, and of `UNASSIGNED` rows.
        ranges: the ranges of the splits, whose bounds have the shares of the unassigned rows.

    >>> rows_by_split({"": 4, "b": 5}, SplitRanges(("a", "b", "c"), (2**63, 2**64, 2**64)))
    {'b': 7, 'a': 2}
    """
    rows = {split: count for split, count in counts.items() if split != UNASSIGNED}
    begin = 0
    for split, end in zip(ranges.names, ranges.bounds, strict=True) if ranges else ():
        if end > begin and UNASSIGNED in counts:
            rows[split] = rows.get(split, 0) + -(-counts[UNASSIGNED] * (end - begin) >> 64)
        begin = end
    return rows


def _with_base(base: Base | None, shards: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of shards of each split, including those of the base version."""
    # Base shards keep their numbers. New rows are assigned to new shards after them, or to the same
    # shards, if these keep their records.
    counts = dict(shards)
    for split in base.manifest.splits if base else ():
        of_base = base.shards(split) if base else ()
        added = 0 if base and base.keeps_records and of_base else counts.get(split, 0)
        counts[split] = len(of_base) + added
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
    requested = config.requested_shards(split)
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
                f"per split, got {shards} for {split!r}. Increase the flag."
            )


def needs_sizes(analysis: Analysis, config: ConvertConfig) -> bool:
    """Returns whether the number of shards of any split depends on the size of images.

    Args:
        analysis: the result over all rows.
        config: the settings of the conversion.
    """
    if config.records_per_shard is not None:
        return False
    weighted = config.weights if UNASSIGNED in analysis.splits else ()
    return any(
        config.requested_shards(split) is None
        for split in {*analysis.splits, *weighted} - {UNASSIGNED}
    )


def _bytes_per_row(analysis: Analysis, image_sizes: Mapping[str, int], schema: Schema) -> float:
    """Returns the mean size of a record in bytes; rows with unreadable images are ignored."""
    overhead = _FRAME_BYTES + sum(_FEATURE_BYTES + len(name) for name in schema.features)
    sizes = [
        image_sizes[uri] + other if uri else other
        for _, uri, other in sampled_rows(analysis)
        if not uri or uri in image_sizes
    ]
    return overhead + (sum(sizes) / len(sizes) if sizes else 0)


def labels_in(value: Any, feature: Feature, is_text: bool) -> list[str | int]:
    """Returns the labels in a value; none if it is invalid, since `bind` will reject its row.

    Args:
        value: the value in a table.
        feature: the feature with labels.
        is_text: whether the value is untyped text.
    """
    try:
        value = value if feature.shape is not None else single_value(value)
        if is_missing(value, feature, is_text):
            return []
        items = [value] if feature.shape is None else items_of(value, feature, is_text)
    except RecordError:
        return []
    return [
        # An integer that is written as a float may be a class name, if other labels are.
        int(item) if looks_integer(item, is_text) else str(item)
        for item in items
        if isinstance(without_fraction(item), str | int)
    ]
