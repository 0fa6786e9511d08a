"""The analyze pass: counts the rows of each split, and collects class names and column kinds.

It also keeps a sample of rows, which depends only on their keys, to estimate the size of a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.findings import Finding
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import SplitRanges, TableSnapshot
from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.sums import Summed
from recordmill.schemas.tables import DeclaredClasses
from recordmill.transforms.functional.rows.annotations import CoordinateCounts, count_coordinates
from recordmill.transforms.functional.rows.batches import RefBatch, RowBatch
from recordmill.transforms.functional.rows.binding import (
    Binding,
    broken_frame,
    by_halves,
    identities_of,
)
from recordmill.transforms.functional.rows.columns import ColumnKinds
from recordmill.transforms.functional.rows.feature_values import FoundLabels
from recordmill.transforms.functional.rows.placement import (
    ORDER_BYTES,
    BaseShardLookup,
    not_in_base,
    order_of,
    orders_of,
    splits_of,
    stays_in_base,
)
from recordmill.transforms.functional.values.typed import (
    distinct,
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
    def label_features(self) -> dict[str, Feature]:
        """The feature with the labels of each feature with class names."""
        found = {name: self.schema.labels_of(name) for name in self.schema.named_features}
        return {name: feature for name, feature in found.items() if feature is not None}

    @cached_property
    def stratified_features(self) -> tuple[str, ...]:
        """The features of which each label of the table is a stratum of rows, at least."""
        config, single = self.config, (n for n, f in self.label_features.items() if f.shape is None)
        is_grouped = config.group_column is not None or config.near_duplicates == "keep_together"
        are_others = self.base is not None or self.binding.split_column is not None
        if config.split_method != "stratified" or is_grouped or self.schema.sequence or are_others:
            return ()
        return tuple(single)

    def with_source(
        self,
        classes: Mapping[str, DeclaredClasses],
        recognized: tuple[str, ...],
        snapshots: tuple[TableSnapshot, ...] = (),
    ) -> Analyzer:
        """Returns the analyzer of a source that declares classes."""
        columns = {
            name: self.binding.table_column(feature.source.name)
            for name, feature in self.label_features.items()
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
        if names is not None and ids == _COUNTED_FROM_ONE:
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
    labels: dict[str, FoundLabels] = field(default_factory=dict)
    columns: ColumnKinds = field(default_factory=ColumnKinds)
    # The boxes and outlines without stated units, by the block of the schema.
    coordinates: dict[str, CoordinateCounts] = field(default_factory=dict)
    # [(order hash, image uri, size of the other values in bytes)] of the first rows by order; if
    # the size includes the image, the uri is "".
    sample: list[tuple[bytes, str, int]] = field(default_factory=list)
    # Rows with a later order are not in the sample.
    _last_order: bytes = field(default=b"\xff" * ORDER_BYTES, init=False, compare=False)

    def add(
        self, rows: Sequence[Row], analyzer: Analyzer, find: BaseShardLookup = not_in_base
    ) -> None:
        """Adds rows; values that cannot be read are ignored, and rejected when the row is bound.

        `rows`: rows with the same columns of untyped text, one at least.
        """
        self.rows += len(rows)
        if analyzer.schema.every_column:
            self.columns.add(rows)
        # `bind_rows` rejects the rows without an identity.
        for part, identities in _identified(rows, analyzer.binding):
            if identities is None:
                continue
            self._add_labels(part, analyzer)
            count_coordinates(part, analyzer.schema, analyzer.binding.columns, self.coordinates)
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

    def _add_labels(self, rows: RowBatch, analyzer: Analyzer) -> None:
        if analyzer.config.class_names is not None:
            return
        for name, feature in analyzer.label_features.items():
            column = analyzer.binding.table_column(feature.source.name)
            labels = self.labels.setdefault(name, FoundLabels(name))
            for value in distinct(rows.column(column)):
                labels.add(labels_in(value, feature, rows.untyped(column)))

    def _add_positions(
        self, rows: RowBatch, identities: RefBatch, analyzer: Analyzer, find: BaseShardLookup
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
            orders = {i: order_of(names[i], analyzer.config.seed) for i in orders}
        first = [i for i, order in orders.items() if order <= self._last_order]
        if first:
            found_rows = zip(first, identities.take(first), rows.take(first), strict=True)
            for i, identity, row in found_rows:
                self._add_sample(orders[i], identity, row.values)

    def _add_sample(self, order: bytes, identity: ImageRef, values: Mapping[str, Any]) -> None:
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
    """The location of a row in the dataset."""

    split: str  # its split; `UNASSIGNED` if it depends on all rows
    order: bytes  # the order hash of its record
    row: Row
    entity: str  # the unit that must be in one split: the group of the row, or its key


def row_positions(
    rows: Sequence[Row], analyzer: Analyzer, find: BaseShardLookup = not_in_base
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
    rows: Sequence[Row], analyzer: Analyzer, find: BaseShardLookup = not_in_base
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
    identities: RefBatch, analyzer: Analyzer, find: BaseShardLookup
) -> list[tuple[str, bytes] | None]:
    """Returns the split and the order hash of rows; None for those that stay in a base shard."""
    seed, ranges, stated = analyzer.config.seed, analyzer.ranges, identities.column("split")
    splits: Sequence[str] = stated
    if analyzer.config.split_method == "hash":
        splits = splits_of(stated, identities.entities, ranges, seed)
    found = zip(splits, orders_of(identities.records, seed), strict=True)
    if find is not_in_base:
        return list(found)
    rows = zip(identities.records, stated, found, strict=True)
    return [None if stays_in_base(find(key), split) else one for key, split, one in rows]


def sampled_rows(analysis: Analysis) -> list[tuple[bytes, str, int]]:
    """Returns the sample for the estimate of the record size: the first rows by order hash."""
    return sorted(analysis.sample)[:SAMPLE_ROWS]


def labels_in(value: Any, feature: Feature, is_text: bool) -> list[str | int]:
    """Returns the labels in a value; none if it is invalid, since `bind` will reject its row."""
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
