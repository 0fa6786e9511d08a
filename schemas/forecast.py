"""What a dry run finds: what a conversion would do, as far as that is known before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from recordmill.schemas.dataset_info import ShardCounts
from recordmill.schemas.plan import Plan
from recordmill.schemas.rejects import Reject
from recordmill.schemas.settings import is_integer


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
    """

    plan: Plan
    shards: tuple[ShardCounts, ...]
    rejects: Mapping[str, RejectSum]
    trial: SampleEstimate
    remote: int = 0

    @property
    def rejected(self) -> int:
        """Rows that are known to be rejected: all bad rows, and the images that were tried."""
        return sum(found.count for found in self.rejects.values()) + len(self.trial.rejects)

    @property
    def reasons(self) -> Mapping[str, int]:
        """The same by reason."""
        total = Counter({reason: found.count for reason, found in self.rejects.items()})
        total.update(reject.reason.value for reject in self.trial.rejects)
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
