"""The analyze pass: counts the rows of each split, and collects class names and column kinds.

It also keeps a sample of rows, which depends only on their keys, to estimate the size of a record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.findings import Finding, Severity, finding
from recordmill.schemas.manifest import Base
from recordmill.schemas.option import MAX_SHARDS
from recordmill.schemas.origins import Kind
from recordmill.schemas.plan import Plan, ResolvedSchema, SourceEntry, SplitRanges, TableSnapshot
from recordmill.schemas.records import ImageRef, Location, Row
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.settings import AnnotationSettings
from recordmill.schemas.sums import Summed
from recordmill.schemas.tables import NO_CLASSES, DeclaredClasses
from recordmill.transforms.functional.records.framing import frame_size
from recordmill.transforms.functional.rows import feature_values, placement
from recordmill.transforms.functional.rows.annotations import CoordinateCounts, with_units
from recordmill.transforms.functional.rows.batches import RefBatch, RowBatch
from recordmill.transforms.functional.rows.binding import (
    Binding,
    broken_frame,
    by_halves,
    identities_of,
    resolve_path,
)
from recordmill.transforms.functional.rows.columns import ColumnKinds
from recordmill.transforms.functional.values import typed

# Sample size: gives the mean image size with an error of a few percent, and few stat calls.
SAMPLE_ROWS = 200

# Limit for the splits of a dataset, whose names and counts one worker holds.
MAX_SPLITS = 10_000

_COUNTED_FROM_ONE = "image/object/class/label"

# Counts rows whose split depends on all rows, until it is known.
UNASSIGNED = ""

# Limit for the columns of tables without a schema; rows of JSON can all have their own.
MAX_COLUMNS = 100_000


# Limit for the strata, whose counts one worker holds, and whose bounds all do.
MAX_STRATA = 2**18


def check_strata(number: int) -> None:
    """Raises UsageError for more label sets than can be counted."""
    if number > MAX_STRATA:
        raise UsageError(
            f"--split_method stratified: expected at most {MAX_STRATA:,} different combinations of "
            f"labels, got {number:,} or more. Choose --split_method exact, or a schema in which "
            "only labels with many rows are classes."
        )


@dataclass(frozen=True)
class Analyzer:
    """The settings of the analyze pass."""

    config: ConvertConfig
    schema: Schema
    binding: Binding  # the column mapping; its classes are not known yet
    ranges: SplitRanges  # the hash ranges of the splits, for rows that state no split
    base: Base | None = None  # the base version, whose rows stay in their shards, or None
    declared: Mapping[str, DeclaredClasses] = field(default_factory=dict)
    recognized: tuple[str, ...] = ()  # what the input was recognized as, for the manifest
    findings: tuple[Finding, ...] = ()  # what was noticed before rows were read, for the manifest
    # The splits that the source states, from its folders, files or lists.
    stated_splits: tuple[str, ...] = ()
    snapshots: tuple[TableSnapshot, ...] = ()

    @cached_property
    def listed(self) -> ResolvedSchema:
        """The schema with the classes of `--classes`, if it is set."""
        return feature_values.with_classes(self.schema, self.config.class_names)

    @cached_property
    def floats(self) -> tuple[str, ...]:
        """The table columns of floats that the schema names."""
        floats = (f for f in self.schema.features.values() if f.kind is Kind.FLOAT)
        return tuple(self.binding.table_column(f.column) for f in floats if f.column)

    @cached_property
    def stratified_features(self) -> tuple[str, ...]:
        """The features of which each label of the table is a stratum of rows, at least."""
        config, labels = self.config, self.schema.label_features
        is_grouped = config.group_column is not None or config.near_duplicates == "keep_together"
        are_others = self.base is not None or self.binding.split_column is not None
        if config.split_method != "stratified" or is_grouped or self.schema.sequence or are_others:
            return ()
        return tuple(name for name, feature in labels.items() if feature.shape is None)

    def with_source(
        self,
        classes: Mapping[str, DeclaredClasses],
        recognized: tuple[str, ...],
        snapshots: tuple[TableSnapshot, ...] = (),
    ) -> Analyzer:
        """Returns the analyzer of a source that declares classes."""
        columns = {
            name: self.binding.table_column(feature.source.name)
            for name, feature in self.schema.label_features.items()
        }
        declared = {name: classes[column] for name, column in columns.items() if column in classes}
        for name, found in declared.items():
            if found.unnamed:
                self._check_unnamed(name, found)
        return replace(self, declared=declared, recognized=recognized, snapshots=snapshots)

    def _check_unnamed(self, feature: str, found: DeclaredClasses) -> None:
        """Rejects class ids without names where they could become those of other classes."""
        ids, names = found.unnamed, self.config.class_names
        remedy = "Put the names with their ids beside the files, as label_map.pbtxt"
        if found.names and names is None:
            raise UsageError(
                f"--input: the class ids in {ids!r} of some files have no names, and others have "
                f"names for {feature!r}, so that an id may be another class. {remedy}, or set "
                "--classes."
            )
        if names and not self.schema.features[feature].first_label and ids == _COUNTED_FROM_ONE:
            raise UsageError(
                f"--classes: counts from 0, and ids in {ids!r} count from 1 by the convention of "
                f"the Object Detection API. {remedy}; or set --columns labels={ids} if they count "
                "from 0."
            )


@dataclass
class Analysis(Summed):
    """The result of the analyze pass over all rows or a part."""

    kept: ClassVar[int | None] = SAMPLE_ROWS

    rows: int = 0  # the number of rows, including rows that will be rejected
    # The number of rows of each split, without rows that stay in their base shards; that of
    # `UNASSIGNED` rows if their splits depend on all rows.
    splits: Counter[str] = field(default_factory=Counter)
    unsplit: int = 0  # the number of rows whose split column has no value
    labels: dict[str, feature_values.FoundLabels] = field(default_factory=dict)
    columns: ColumnKinds = field(default_factory=ColumnKinds)
    # The boxes and outlines without stated units, by the block of the schema.
    coordinates: dict[str, CoordinateCounts] = field(default_factory=dict)
    # [(order hash, image uri, size of the other values in bytes)] of the first rows by order; if
    # the size includes the image, the uri is "". Rows with several images are in it several times.
    sample: list[tuple[bytes, str, int]] = field(default_factory=list)
    # Rows with a later order are not in the sample.
    _last_order: bytes = field(default=b"\xff" * placement.ORDER_BYTES, init=False, compare=False)

    def add(
        self,
        rows: Sequence[Row],
        analyzer: Analyzer,
        find: placement.BaseShardLookup = placement.not_in_base,
    ) -> None:
        """Adds rows; values that cannot be read are ignored, and rejected when the row is bound."""
        self.rows += len(rows)
        if analyzer.schema.every_column:
            self.columns.add(rows)
        self.columns.add_floats(RowBatch.of(rows), analyzer.floats, analyzer.config.delimiter)
        # `bind_rows` rejects the rows without an identity.
        for part, identities in _identified(rows, analyzer.binding):
            if identities is None:
                continue
            self._add_labels(part, analyzer)
            analyzer.binding.annotations.count(part, self.coordinates)
            self._add_positions(part, identities, analyzer, find)
        self._check_limits()

    @classmethod
    def sum_of(cls, parts: Iterable[Analysis]) -> Analysis:
        """Returns the result of several parts of the rows."""
        total = super().sum_of(parts)
        total._check_limits()
        return total

    def part_of(self, whole: Analysis) -> Analysis:
        """Returns this analysis of a sample with the classes, columns and units of all rows."""
        labels, columns, coordinates = whole.labels, whole.columns, whole.coordinates
        return replace(self, labels=labels, columns=columns, coordinates=coordinates)

    def check_strata(self, analyzer: Analyzer) -> None:
        """Rejects more labels than splits can be stratified by, before the rows are counted."""
        for name in analyzer.stratified_features:
            check_strata(len(self.labels[name].found if name in self.labels else ()))

    def _check_limits(self) -> None:
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

    def _add_labels(self, rows: RowBatch, analyzer: Analyzer) -> None:
        if analyzer.config.class_names is not None:
            return
        for name, feature in analyzer.schema.label_features.items():
            column = analyzer.binding.table_column(feature.source.name)
            labels = self.labels.setdefault(name, feature_values.FoundLabels(name))
            for value in typed.distinct(rows.column(column)):
                labels.add(labels_in(value, feature, rows.untyped(column)))

    def _add_positions(
        self,
        rows: RowBatch,
        identities: RefBatch,
        analyzer: Analyzer,
        find: placement.BaseShardLookup,
    ) -> None:
        """Counts the splits of rows, and adds the first ones by order to the sample."""
        found = _splits_and_orders(identities, analyzer, find)
        self.splits.update(split for split, _ in filter(None, found))
        if analyzer.binding.split_column is not None:
            stated = zip(identities.column("split"), found, strict=True)
            self.unsplit += sum(assigned is not None and not split for split, assigned in stated)
        orders = {i: assigned[1] for i, assigned in enumerate(found) if assigned}
        if analyzer.schema.sequence:
            # Frames are sampled one by one, although a sequence has only one order hash.
            names = [f"{one.record_key}\0{one.key}" for one in identities]
            orders = {i: placement.order_of(names[i], analyzer.config.seed) for i in orders}
        first = [i for i, order in orders.items() if order <= self._last_order]
        if first:
            found_rows = zip(first, identities.take(first), rows.take(first), strict=True)
            for i, identity, row in found_rows:
                self._add_sample(orders[i], identity, row, analyzer)

    def _add_sample(self, order: bytes, identity: ImageRef, row: Row, analyzer: Analyzer) -> None:
        size, binding = typed.size_of_values(row.values.values()), analyzer.binding
        for name in analyzer.schema.image_names:
            column = binding.table_column(analyzer.schema.image_settings[name].column)
            if isinstance(value := row.values.get(column), Location):
                size += (value.stop or 0) - (value.start or 0)
            elif isinstance(value, str):
                uri = resolve_path(value, row.file, binding.image_root)
                self.sample.append((order, uri, 0))
        if identity.start is None or identity.stop is None:
            self.sample.append((order, identity.uri, size))
        else:  # a byte range states its size, without a stat call
            self.sample.append((order, "", size + identity.stop - identity.start))
        # Truncated only after every 7 * SAMPLE_ROWS rows, so that the cost per row is constant.
        if len(self.sample) >= 8 * SAMPLE_ROWS:
            self.sample = sorted(self.sample)[:SAMPLE_ROWS]
            self._last_order = self.sample[-1][0]


class RowPosition(NamedTuple):
    """The location of a row in the dataset."""

    split: str  # its split; `UNASSIGNED` if it depends on all rows
    order: bytes  # the order hash of its record
    row: Row
    entity: str  # the unit that must be in one split: the group of the row, or its key


def row_positions(
    rows: Sequence[Row], analyzer: Analyzer, find: placement.BaseShardLookup = placement.not_in_base
) -> Iterator[RowPosition]:
    """Yields the location of each row that has a key, and is not in a base shard."""
    for part, identities in _identified(rows, analyzer.binding):
        if identities is None:
            continue
        found = _splits_and_orders(identities, analyzer, find)
        for row, assigned, entity in zip(part, found, identities.entities, strict=True):
            if assigned:
                yield RowPosition(*assigned, row, entity)


class UnassignedRow(NamedTuple):
    """A row without a split of its own."""

    row: Row
    entity: str  # the unit that must be in one split: the group of the row, or its key
    base_split: str  # the split of the row in the base version, in which it stays; or ""


def unassigned_rows(
    rows: Sequence[Row], analyzer: Analyzer, find: placement.BaseShardLookup = placement.not_in_base
) -> Iterator[UnassignedRow]:
    """Yields the rows that have a key, and do not state their split."""
    for row, identity in rows_with_identity(rows, analyzer.binding):
        if identity is not None and not identity.split:
            shard = find(identity.record_key)
            yield UnassignedRow(row, identity.entity, shard[0] if shard else "")


def _identified(
    rows: Sequence[Row], binding: Binding
) -> Iterator[tuple[RowBatch, RefBatch | None]]:
    """Yields rows with their references without values; None for a row without a key."""
    for part, found in by_halves(identities_of, RowBatch.of(rows), binding):
        if not isinstance(found, RecordError):
            yield part, found
        elif frame := broken_frame(part[0], binding, found):  # is counted with its sequence
            yield part, RefBatch.of([frame._replace(key="", uri="")])
        else:
            yield part, None


def rows_with_identity(
    rows: Sequence[Row], binding: Binding
) -> Iterator[tuple[Row, ImageRef | None]]:
    """Yields each row with its reference without values; None if it has no key."""
    for part, found in _identified(rows, binding):
        yield from zip(part, found or [None], strict=True)


def _splits_and_orders(
    identities: RefBatch, analyzer: Analyzer, find: placement.BaseShardLookup
) -> list[tuple[str, bytes] | None]:
    """Returns the split and the order hash of rows; None for those that stay in a base shard."""
    seed, ranges, stated = analyzer.config.seed, analyzer.ranges, identities.column("split")
    splits: Sequence[str] = stated
    if analyzer.config.split_method == "hash":
        splits = placement.splits_of(stated, identities.entities, ranges, seed)
    found = zip(splits, placement.orders_of(identities.records, seed), strict=True)
    if find is placement.not_in_base:
        return list(found)
    rows = zip(identities.records, stated, found, strict=True)
    return [None if placement.stays_in_base(find(key), split) else one for key, split, one in rows]


def sampled_rows(analysis: Analysis) -> list[tuple[bytes, str, int]]:
    """Returns the sample for the estimate of the record size: the first rows by order hash."""
    return sorted(analysis.sample)[:SAMPLE_ROWS]


def labels_in(value: Any, feature: Feature, is_text: bool) -> list[str | int]:
    """Returns the labels in a value; none if it is invalid, since `bind` will reject its row."""
    try:
        value = value if feature.shape is not None else typed.single_value(value)
        if typed.is_missing(value, feature, is_text):
            return []
        items = [value] if feature.shape is None else typed.items_of(value, feature, is_text)
    except RecordError:
        return []
    return [
        # An integer that is written as a float may be a class name, if other labels are.
        int(item) if typed.looks_integer(item, is_text) else str(item)
        for item in items
        if isinstance(typed.without_fraction(item), str | int)
    ]


_FEATURE_BYTES = 12  # protobuf: approximate size of the tags and lengths of a feature


def build_plan(
    analysis: Analysis,
    analyzer: Analyzer,
    image_sizes: Mapping[str, int],
    shard_starts: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ranges: SplitRanges | None = None,
) -> Plan:
    """Computes the plan of a run from the result of its analyze pass.

    `image_sizes` has the bytes of each sampled image that is readable, by uri. `shard_starts` are
    the hash positions of all shards but the first of each split, with `records_per_shard`. `ranges`
    are those of the splits, if they depend on all rows. Raises UsageError for rows without columns.
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
    resolved, findings = with_units(resolved, analyzer.binding.columns, analysis.coordinates)
    if base and base.keeps_records:
        resolved, kept = _schema_of_base(resolved, base), base.manifest.input.records
    rows = _rows_by_split(analysis.splits, ranges)
    with_classes, splits = _with_classes(analysis, analyzer, resolved), sorted(rows)
    classes = with_classes.classes
    notes = _integral_floats(analysis, classes)
    findings += analysis.columns.doubtful_values()
    findings += (*_unnamed(analyzer, classes), *_split_findings(analysis, analyzer))
    source = _source(analyzer, notes, findings)
    if config.records_per_shard is not None:
        starts = {split: shard_starts.get(split, ()) for split in splits}
        shards = _with_base(base, {s: len(starts[s]) + 1 for s in splits})
        return Plan(with_classes, shards, analysis.rows, starts, source, ranges, kept)
    bytes_per_row = _bytes_per_row(analysis, image_sizes, resolved)
    shards = {s: _num_shards(rows[s] * bytes_per_row, config, s) for s in splits}
    with_base = _with_base(base, shards)
    return Plan(with_classes, with_base, analysis.rows, {}, source, ranges, kept)


def _schema_of_base(resolved: Schema, base: Base) -> Schema:
    """Returns the schema of a base version that keeps its records, which new rows must match too.

    The types of columns without a schema are those of the base version: a row that does not fit is
    rejected.
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
    # Neither a description nor the columns and units of rows change what records contain.
    of_rows = set(AnnotationSettings.model_fields) | {"columns", "column", "order"}
    ignored: Any = {"description": True, "boxes": of_rows, "masks": of_rows}
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
    known = analyzer.base.manifest.classes if analyzer.base else {}
    declared, classes = analyzer.declared, dict[str, tuple[str, ...]]()
    for name in resolved.named_features:
        found = analysis.labels[name].found if name in analysis.labels else ()
        names = analyzer.config.class_names or feature_values.merged_class_names(
            found, known.get(name), declared.get(name, NO_CLASSES)
        )
        classes[name] = feature_values.with_background(names, resolved.features[name].label_offset)
    by_id = frozenset(name for name, source in declared.items() if source.by_id)
    return ResolvedSchema(resolved, classes, by_id)


def _integral_floats(analysis: Analysis, classes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields a note for each feature whose labels are integers that are written as floats."""
    for name, labels in sorted(analysis.labels.items()):
        # Without class names, all labels are integers: those that are text have a fraction of 0.
        written = sorted(label for label in labels.found if isinstance(label, str))
        if written and not classes.get(name):
            yield f"labels of {name!r} such as {written[0]} are read as integers"


def _unnamed(analyzer: Analyzer, classes: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    merge = "if they differ, convert each input with its names as --classes FILE, then the datasets"
    hint = merge if len(analyzer.config.inputs) > 1 else ""
    for feature, names in classes.items():
        column = analyzer.declared.get(feature, NO_CLASSES).unnamed or (feature if hint else "")
        if column and not names:
            text = f"the class ids in {column!r} are kept as they are, because nothing names them"
            yield finding("note", "unnamed_classes", text, hint, feature=feature)


def _split_findings(analysis: Analysis, analyzer: Analyzer) -> Iterator[Finding]:
    """Yields rows without a split, and each split that the source states without a row for it."""
    config = analyzer.config
    if analysis.unsplit:
        names = analyzer.ranges.names
        where = f"by the shares of {', '.join(names)}" if len(names) > 1 else f"to {names[0]}"
        what = f"{analysis.unsplit:,} of {analysis.rows:,} rows have no value in the split column"
        text = f"{what} {analyzer.binding.split_column!r}, and are assigned {where}"
        figures = {"rows": analysis.unsplit, "all": analysis.rows}
        severity: Severity = "note" if len(names) > 1 else "warning"
        yield finding(severity, "rows_without_split", text, figures=figures)
    if config.sample is None and not config.append:
        outside = " or outside of --where" if config.where is not None else ""
        # Rows that stay in the shards of the base version are not counted here.
        of_base = analyzer.base.manifest.splits if analyzer.base else ()
        for split in analyzer.stated_splits:
            if not analysis.splits[split] and split not in of_base:
                why = f"it has none, or all were rejected{outside}"
                text = f"the input states the split {split!r}, but no row is left for it: {why}"
                yield finding("warning", "empty_split", text, splits=(split,))


def _source(analyzer: Analyzer, notes: Iterable[str], findings: Iterable[Finding]) -> SourceEntry:
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
        findings=(*analyzer.findings, *findings),
    )


def _rows_by_split(counts: Mapping[str, int], ranges: SplitRanges | None) -> dict[str, int]:
    """Returns the number of rows of each split, given those `UNASSIGNED`; estimates are 1 or more.

    >>> _rows_by_split({"": 4, "b": 5}, SplitRanges(("a", "b", "c"), (2**63, 2**64, 2**64)))
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
    # Base shards keep their numbers. New rows are assigned to new shards after them, or to the same
    # shards, if these keep their records.
    counts = dict(shards)
    for split in base.manifest.splits if base else ():
        of_base = base.shards(split) if base else ()
        added = 0 if base and base.keeps_records and of_base else counts.get(split, 0)
        counts[split] = len(of_base) + added
    return dict(sorted(counts.items()))


def _num_shards(split_bytes: float, config: ConvertConfig, split: str) -> int:
    requested = config.requested_shards(split)
    if requested is not None:
        return requested
    return min(max(1, math.ceil(split_bytes / config.shard_size)), MAX_SHARDS)


def check_shard_counts(records: Mapping[str, int], records_per_shard: int) -> None:
    """Raises RecordmillError if a split has too many shards."""
    for split, count in sorted(records.items()):
        shards = -(-count // records_per_shard)
        if shards > MAX_SHARDS:
            raise RecordmillError(
                f"--records_per_shard {records_per_shard}: expected at most {MAX_SHARDS} shards "
                f"per split, got {shards} for {split!r}. Increase the flag."
            )


def needs_sizes(analysis: Analysis, config: ConvertConfig) -> bool:
    """Returns whether the number of shards of any split depends on the size of images."""
    if config.records_per_shard is not None:
        return False
    weighted = config.weights if UNASSIGNED in analysis.splits else ()
    return any(
        config.requested_shards(split) is None
        for split in {*analysis.splits, *weighted} - {UNASSIGNED}
    )


def _bytes_per_row(analysis: Analysis, image_sizes: Mapping[str, int], schema: Schema) -> float:
    """Returns the mean size of a record in bytes; rows with unreadable images are ignored."""
    overhead = frame_size(sum(_FEATURE_BYTES + len(name) for name in schema.features))
    sizes = [
        (order, image_sizes[uri] + other if uri else other)
        for order, uri, other in sampled_rows(analysis)
        if not uri or uri in image_sizes
    ]
    rows = len({order for order, _ in sizes})
    return overhead + (sum(size for _, size in sizes) / rows if rows else 0)
