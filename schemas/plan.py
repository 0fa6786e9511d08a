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
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.row_counts import ShardCounts
from recordmill.schemas.settings import is_integer

_NUMERAL = re.compile(r"0|-?[1-9]\d*", re.ASCII)


class ClassIds(dict[str, int]):
    """Class ids by name.

    Attributes:
        by_id: whether integers in labels are always ids, as the source declares.
    """

    by_id = False

    @cached_property
    def has_numerals(self) -> bool:
        """Whether a class name looks like an integer, so that integers in labels are names."""
        # Labels are int64, which has up to 20 characters.
        return any(_NUMERAL.fullmatch(name) and len(name) <= 20 for name in self)


@dataclass(frozen=True)
class ResolvedSchema:
    """A schema whose sources, kinds and class names are resolved.

    Attributes:
        schema: a schema in which each feature has one source.
        classes: class names in the order of their ids, by feature; () if labels are integers.
        by_id: the features for which the source declares that integers in labels are ids.
    """

    schema: Schema
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_id: frozenset[str] = frozenset()

    @cached_property
    def class_ids(self) -> dict[str, ClassIds]:
        """Class ids by name, by feature."""
        found = {
            feature: ClassIds((name, i) for i, name in enumerate(names))
            for feature, names in self.classes.items()
            if names
        }
        for feature, ids in found.items():
            ids.by_id = feature in self.by_id
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

    def class_name(self, feature: str, label: int) -> str:
        """Returns the class name of a label, or its number if classes have no names.

        Args:
            feature: the feature with the label.
            label: a class id.
        """
        names = self.classes.get(feature)
        return names[label] if names else str(label)


class TableSnapshot(BaseModel):
    """The snapshot of a lakehouse table that was converted.

    Attributes:
        input: the address of the table, as it was given.
        pinned: its address with the snapshot, which reads the same rows again.
        table: the id of the table, which is not that of another one in its place.
        id: the version of a Delta table, or the id of an Iceberg snapshot.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str
    pinned: str
    table: str
    id: int


class SourceEntry(BaseModel):
    """What the input was recognized as, and the classes that it declares.

    Attributes:
        recognized: descriptions of inputs whose layout was recognized, and of their splits.
        snapshots: the snapshots of lakehouse tables; not written if there are none.
        class_ids: (name, id in the source) of each declared class, by feature.
        conflicts: how the sources differ in their class ids, by feature.
        findings: what was noticed before rows were read; not written if empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    recognized: tuple[str, ...] = ()
    snapshots: tuple[TableSnapshot, ...] = ()
    class_ids: dict[str, dict[str, int]] = {}
    conflicts: dict[str, str] = {}
    findings: tuple[Finding, ...] = ()

    @model_serializer(mode="wrap")
    def _omit_missing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        for name in ("snapshots", "findings"):
            if not getattr(self, name):
                document.pop(name, None)
        return document


@dataclass(frozen=True)
class SplitRanges:
    """Splits as consecutive ranges of a 64-bit hash.

    Attributes:
        names: the splits, in the order of the configuration.
        bounds: the exclusive end of each range; the last is 2^64.
        strata: the bounds for rows with certain labels, if splits are stratified.
        groups: 1 + the number of the split of each group, by the first bits of its hash, if groups
            are distributed by their rows.
        group_bits: number of these bits.
    """

    names: tuple[str, ...]
    bounds: tuple[int, ...]
    strata: Mapping[Any, tuple[int, ...]] = field(default_factory=dict)
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
    """The plan of a conversion.

    Attributes:
        resolved: the resolved schema.
        shards: number of shards by split.
        rows: number of rows read by the analyze pass.
        starts: the hash position at which each shard except the first begins, by split; only with
            `records_per_shard`, otherwise shards are equal ranges.
        source: what the input was recognized as, and the classes that it declares.
        ranges: the ranges of the splits, for rows without a split of their own; None for those of
            the weights.
        kept: number of records of a base version that stay without a row.
    """

    resolved: ResolvedSchema
    shards: Mapping[str, int]
    rows: int
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    source: SourceEntry = field(default_factory=SourceEntry)
    ranges: SplitRanges | None = None
    kept: int = 0

    @property
    def most_records(self) -> int:
        """The number of records of the dataset, if no row is rejected or dropped."""
        return self.rows + self.kept


@dataclass
class RejectSum:
    """The rejects with one reason.

    Attributes:
        count: number of rejects.
        examples: the first rejects in the order of the tables.
    """

    count: int = 0
    examples: list[Reject] = field(default_factory=list)

    def add(self, other: RejectSum, shown: int) -> RejectSum:
        """Returns the sum of both.

        Args:
            other: rejects with the same reason.
            shown: maximum number of examples.
        """
        # In the order of the tables, so that the examples do not depend on the order of the sum.
        examples = sorted(self.examples + other.examples, key=_source_order)[:shown]
        return RejectSum(self.count + other.count, examples)


@dataclass(frozen=True)
class SampleEstimate:
    """Measurements of a sample of rows, from which a dry run built records.

    Attributes:
        rows: number of rows in the sample; 0 if images are staged, so that none can be read.
        size: bytes of all records in the sample; without a sample, the estimated mean.
        seconds: time to build the records.
        rejects: the rows that were rejected.
        images: number of images by treatment.
    """

    rows: int
    size: int
    seconds: float
    rejects: tuple[Reject, ...]
    images: Counter[str]

    @property
    def bytes_per_row(self) -> float:
        """The mean size of the records."""
        return self.size / max(1, self.rows - len(self.rejects))


@dataclass(frozen=True)
class BaseForecast:
    """What a conversion with `--append` would do with its base version.

    Attributes:
        version: the base version.
        records: number of its records, all of which stay.
        linked: number of its shards that no new row is assigned to.
        rewritten: number of its other shards.
    """

    version: str
    records: int
    linked: int
    rewritten: int


@dataclass(frozen=True)
class Forecast:
    """The forecast of a conversion.

    Attributes:
        plan: classes and number of shards.
        shards: counts of the shards that are not empty, in the order of their names.
        rejects: rejects that are certain without reading images, by reason.
        sample: measurements of a sample of rows.
        remote_images: number of images in object stores, each of which takes one GET request.
        gzipped_tables: large gzipped text tables, each of which a single core reads.
        skipped: skipped inputs by kind.
        base: with `--append`, what happens to the base version; the rest is about new rows.
    """

    plan: Plan
    shards: tuple[ShardCounts, ...]
    rejects: Mapping[str, RejectSum]
    sample: SampleEstimate
    remote_images: int = 0
    gzipped_tables: tuple[str, ...] = ()
    skipped: Mapping[str, SkippedInput] = field(default_factory=dict)
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


def _source_order(reject: Reject) -> tuple[str, int, str]:
    """Returns a sort key: file, line as a number, and detail."""
    file, _, line = reject.source.rpartition(":")
    return file, int(line) if is_integer(line) else 0, reject.detail
