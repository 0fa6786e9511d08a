"""The plan of a conversion, made by the analyze pass; and the forecast that a dry run makes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from recordmill.schemas.features import Schema
from recordmill.schemas.rejects import Reject
from recordmill.schemas.row_counts import ShardCounts
from recordmill.schemas.settings import is_integer

_NUMERAL = re.compile(r"0|-?[1-9]\d*", re.ASCII)


class ClassIds(dict[str, int]):
    """Class name to id."""

    @cached_property
    def has_numerals(self) -> bool:
        """Whether a class name looks like an integer: where one does, an integer is a name."""
        return any(_NUMERAL.fullmatch(name) and len(name) <= 20 for name in self)


@dataclass(frozen=True)
class ResolvedSchema:
    """A schema whose sources, kinds and class names are resolved.

    Attributes:
        schema: each feature has one source; nothing is left to find.
        classes: feature to its class names in the order of their ids; none if labels are integers.
    """

    schema: Schema
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def class_ids(self) -> dict[str, ClassIds]:
        """Feature to class name to id."""
        return {
            feature: ClassIds((name, i) for i, name in enumerate(names))
            for feature, names in self.classes.items()
            if names
        }

    def class_feature_of(self, column: str) -> str | None:
        """Returns the feature that holds the class ids of a schema column's labels, if any."""
        features = self.schema.features
        return next((f for f in self.schema.class_features if features[f].column == column), None)

    def class_name(self, feature: str, label: int) -> str:
        """Returns the text of a label: its class's name, or the number where there are none."""
        names = self.classes.get(feature)
        return names[label] if names else str(label)


@dataclass(frozen=True)
class Plan:
    """How the rows become a dataset.

    Attributes:
        resolved: the resolved schema.
        shards: split to its number of shards.
        rows: how many rows the analyze pass read.
        starts: split to where in the order each of its shards but the first begins, if they are to
            hold a number of records; otherwise they are equal ranges.
    """

    resolved: ResolvedSchema
    shards: Mapping[str, int]
    rows: int
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class RejectSum:
    """Rejects of one reason.

    Attributes:
        count: all of them.
        examples: the first in the order of the tables.
    """

    count: int = 0
    examples: list[Reject] = field(default_factory=list)

    def add(self, other: RejectSum, shown: int) -> RejectSum:
        """Returns the sum of both, with the first examples of all."""
        examples = sorted(self.examples + other.examples, key=_place)[:shown]
        return RejectSum(self.count + other.count, examples)


@dataclass(frozen=True)
class SampleEstimate:
    """What became of some rows that were made into examples, and then thrown away.

    Attributes:
        rows: how many were tried; 0 where images have no address before they are staged.
        size: bytes that they take in records; of none, the mean that is to be expected.
        seconds: how long it took.
        rejects: those that failed.
        images: how many images got which treatment.
    """

    rows: int
    size: int
    seconds: float
    rejects: tuple[Reject, ...]
    images: Counter[str]

    @property
    def bytes_per_row(self) -> float:
        """The mean of those that did not fail."""
        return self.size / max(1, self.rows - len(self.rejects))


@dataclass(frozen=True)
class Forecast:
    """What a conversion would do.

    Attributes:
        plan: classes and number of shards.
        shards: in the order of their names; those that would be empty are not there.
        rejects: reason to the rejects that are certain, without opening any image.
        trial: what became of a sample.
        remote: images in object stores, each of which is one GET.
        gzipped_tables: the large gzipped text tables, which one core reads each.
    """

    plan: Plan
    shards: tuple[ShardCounts, ...]
    rejects: Mapping[str, RejectSum]
    sample: SampleEstimate
    remote_images: int = 0
    gzipped_tables: tuple[str, ...] = ()

    @property
    def rejected(self) -> int:
        """Rows that are known to be rejected: all bad rows, and the images that were tried."""
        return sum(found.count for found in self.rejects.values()) + len(self.sample.rejects)

    @property
    def reasons(self) -> Mapping[str, int]:
        """The same by reason."""
        total = Counter({reason: found.count for reason, found in self.rejects.items()})
        total.update(reject.reason.value for reject in self.sample.rejects)
        return total

    @property
    def rows(self) -> int:
        """All rows, also those that cannot be read."""
        converted = sum(shard.converted for shard in self.shards)
        return converted + sum(found.count for found in self.rejects.values())

    def records(self, split: str) -> int:
        """Returns how many records a split would have, if all images are good."""
        return sum(shard.records for shard in self.shards if shard.split == split)


def _place(reject: Reject) -> tuple[str, int, str]:
    file, _, line = reject.source.rpartition(":")
    return file, int(line) if is_integer(line) else 0, reject.detail
