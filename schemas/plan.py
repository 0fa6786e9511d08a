"""The plan of a conversion, computed by the analyze pass, and the forecast of a dry run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

from pydantic import Field

from recordmill.schemas.document import Document, unwritten_if_empty
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding
from recordmill.schemas.origins import Origin
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.row_counts import ShardCounts
from recordmill.schemas.sums import Summed

_NUMERAL = re.compile(r"0|-?[1-9]\d*", re.ASCII)


class ClassIds(dict[str, int]):
    """Class ids by name; `by_id` if integers in labels are always ids, as the source declares."""

    # In labels, the integer of the first class is `first`, and its id is `offset`.
    by_id, first, offset = False, 0, 0

    @cached_property
    def has_numerals(self) -> bool:
        """Whether a class name looks like an integer, so that integers in labels are names."""
        # Labels are int64, which has up to 20 characters.
        return any(_NUMERAL.fullmatch(name) and len(name) <= 20 for name in self)


@dataclass(frozen=True)
class ResolvedSchema:
    """A schema whose sources, kinds and class names are resolved."""

    schema: Schema
    # Class names in the order of their ids, by feature; () if labels are integers.
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The features for which the source declares that integers in labels are ids.
    by_id: frozenset[str] = frozenset()

    @cached_property
    def class_ids(self) -> dict[str, ClassIds]:
        """Class ids by name, by feature; without names, labels are integers."""
        found = dict[str, ClassIds]()
        for key in self.schema.named_features:
            feature, names = self.schema.features[key], self.classes.get(key, ())
            found[key] = ids = ClassIds((name, i) for i, name in enumerate(names))
            ids.by_id = key in self.by_id
            ids.first, ids.offset = feature.first_label, feature.label_offset
        return found

    @cached_property
    def class_position(self) -> int | None:
        """The position of the first feature whose ids have names, or None."""
        named = self.schema.named_features
        return tuple(self.schema.features).index(named[0]) if named else None

    def class_feature_of(self, column: str) -> str | None:
        """Returns the feature with the class ids for the labels in a schema column, or None."""
        features = self.schema.features
        return next((f for f in self.schema.class_features if features[f].column == column), None)

    def number_of_classes(self, feature: str) -> int:
        """Returns the number of named classes, with those of no record; 0 if they have no names."""
        names = self.classes.get(feature)
        return len(names) - self.schema.features[feature].label_offset if names else 0

    @property
    def mask_classes(self) -> int:
        """The number of class names for the ids in mask files; 0 if these have no names."""
        names = self.classes.get(self.schema.mask_feature or "", ())
        return len(names) if self.schema.columns_from((Origin.MASK,)) else 0

    def class_name(self, feature: str, label: int) -> str:
        """Returns the class name of a label, or its number if classes have no names."""
        names = self.classes.get(feature)
        return names[label] if names else str(label)


class TableSnapshot(Document):
    """The snapshot of a lakehouse table that was converted."""

    input: str
    pinned: str  # its address with the snapshot, which reads the same rows again
    table: str  # the id of the table, which is not that of another one in its place
    id: int  # the version of a Delta table, or the id of an Iceberg snapshot


class SourceEntry(Document):
    """What the input was recognized as, and the classes that it declares."""

    # Descriptions of inputs whose layout was recognized, and of their splits.
    recognized: tuple[str, ...] = ()
    # The snapshots of lakehouse tables.
    snapshots: tuple[TableSnapshot, ...] = unwritten_if_empty(())
    # (name, id in the source) of each declared class, by feature.
    class_ids: dict[str, dict[str, int]] = Field(default_factory=dict)
    conflicts: dict[str, str] = Field(
        default_factory=dict
    )  # how the sources differ in their class ids, by feature
    # What was noticed before rows were read.
    findings: tuple[Finding, ...] = unwritten_if_empty(())


@dataclass(frozen=True)
class SplitRanges:
    """Splits as consecutive ranges of a 64-bit hash."""

    names: tuple[str, ...]  # the splits, in the order of the configuration
    bounds: tuple[int, ...]  # the exclusive end of each range; the last is 2^64
    # The bounds for rows with certain labels, if splits are stratified.
    strata: Mapping[Any, tuple[int, ...]] = field(default_factory=dict)
    # 1 + the number of the split of each group, by the first bits of its hash, if groups are
    # distributed by their rows.
    groups: Mapping[int, int] = field(default_factory=dict)
    group_bits: int = 64

    @classmethod
    def from_weights(cls, weights: Mapping[str, Decimal]) -> SplitRanges:
        """Returns ranges proportional to the weights, with an error of less than 2^-64."""
        # Exact fractions, not floats, so that the bounds are the same on every machine.
        weighted = {name: Fraction(weight) for name, weight in weights.items() if weight}
        total = sum(weighted.values(), Fraction(0))
        ends = accumulate(weighted.values())
        return cls(tuple(weighted), tuple(int(end / total * 2**64) for end in ends))


@dataclass(frozen=True)
class Plan:
    """The plan of a conversion."""

    resolved: ResolvedSchema
    shards: Mapping[str, int]
    rows: int  # number of rows read by the analyze pass
    # The hash position at which each shard except the first begins, by split; only with
    # `records_per_shard`, otherwise shards are equal ranges.
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # What the input was recognized as, and the classes that it declares.
    source: SourceEntry = field(default_factory=SourceEntry)
    # The ranges of the splits, for rows without a split of their own; None for those of the
    # weights.
    ranges: SplitRanges | None = None
    kept: int = 0  # number of records of a base version that stay without a row

    @property
    def most_records(self) -> int:
        """The number of records of the dataset, if no row is rejected or dropped."""
        return self.rows + self.kept


@dataclass
class RejectSum(Summed):
    """The rejects with one reason."""

    kept: ClassVar[int | None] = 3

    count: int = 0
    # The first rejects in the order of the tables, which does not depend on that of the sum.
    examples: list[Reject] = field(default_factory=list)


@dataclass(frozen=True)
class SampleEstimate:
    """Measurements of a sample of rows, from which a dry run built records."""

    rows: int  # number of rows in the sample; 0 if images are staged, so that none can be read
    size: int  # bytes of all records in the sample; without a sample, the estimated mean
    seconds: float
    rejects: tuple[Reject, ...]
    images: Counter[str]

    @property
    def bytes_per_row(self) -> float:
        """The mean size of the records."""
        return self.size / max(1, self.rows - len(self.rejects))


@dataclass(frozen=True)
class BaseForecast:
    """What a conversion with `--append` would do with its base version."""

    version: str
    records: int
    linked: int  # number of its shards that no new row is assigned to
    rewritten: int


@dataclass(frozen=True)
class Forecast:
    """The forecast of a conversion."""

    plan: Plan
    # Counts of the shards that are not empty, in the order of their names.
    shards: tuple[ShardCounts, ...]
    rejects: Mapping[str, RejectSum]  # rejects that are certain without reading images, by reason
    sample: SampleEstimate
    remote_images: int = 0  # number of images in object stores, each of which takes one GET request
    # Large gzipped text tables, each of which a single core reads.
    gzipped_tables: tuple[str, ...] = ()
    skipped: Mapping[str, SkippedInput] = field(default_factory=dict)
    seconds: float = 0.0  # how long the rows took to read and assign, without the sample
    # With `--append`, what happens to the base version; the rest is about new rows.
    base: BaseForecast | None = None

    @property
    def rejected(self) -> int:
        """Number of rows that will be rejected: invalid rows, and rejects of the sample."""
        return sum(found.count for found in self.rejects.values()) + len(self.sample.rejects)

    @property
    def reasons(self) -> Mapping[str, int]:
        """Number of rows that will be rejected, by reason."""
        total = Counter({reason: found.count for reason, found in self.rejects.items()})
        total.update(reject.reason.value for reject in self.sample.rejects)
        return total

    @property
    def rows(self) -> int:
        """Number of all rows, with those that cannot be read."""
        converted = sum(shard.converted for shard in self.shards)
        return converted + sum(found.count for found in self.rejects.values())

    def records(self, split: str) -> int:
        """Returns the number of records in a split if no image is rejected."""
        return sum(shard.records for shard in self.shards if shard.split == split)
