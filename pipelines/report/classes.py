"""How the classes of a dataset are spread over its splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recordmill.pipelines.report.charts import Histogram, number_text, of_values
from recordmill.schemas.manifest import Manifest

MAX_ROWS = 200
READABLE_ROWS = 30
SAMPLED_CLASSES = 24


@dataclass(frozen=True)
class ClassRow:
    """One class.

    Attributes:
        name: its name, or its number.
        id: its number.
        counts: how often it occurs in each split, in their order.
    """

    name: str
    id: int
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """How often it occurs."""
        return sum(self.counts)

    @property
    def missing(self) -> bool:
        """Whether a split has none of it."""
        return 0 in self.counts


@dataclass(frozen=True)
class ClassTable:
    """The classes of one feature, most frequent first.

    Attributes:
        feature: the Example key.
        splits: their names.
        rows: all classes.
    """

    feature: str
    splits: tuple[str, ...]
    rows: tuple[ClassRow, ...]

    @property
    def shown(self) -> tuple[ClassRow, ...]:
        """The rows that a page has room for: the most frequent and the rarest."""
        return ends_of(self.rows, MAX_ROWS)

    @property
    def largest(self) -> int:
        """How often the most frequent occurs."""
        return self.rows[0].total

    @property
    def sizes(self) -> Histogram | None:
        """How many classes are how large, where there are too many to be read at once."""
        if len(self.rows) <= READABLE_ROWS:
            return None
        return of_values([row.total for row in self.rows], _whole)

    @property
    def present(self) -> tuple[ClassRow, ...]:
        """The classes that occur at all."""
        return tuple(row for row in self.rows if row.total)

    def totals(self) -> tuple[int, ...]:
        """Returns how many labels each split has."""
        return tuple(sum(row.counts[i] for row in self.rows) for i in range(len(self.splits)))

    def missing_in(self, split: int) -> tuple[str, ...]:
        """Returns the classes that occur, but not in this split."""
        return tuple(row.name for row in self.present if not row.counts[split])


def class_tables(manifest: Manifest) -> list[ClassTable]:
    """Returns a table for each feature that holds classes."""
    features = manifest.dataset_schema.class_features
    return [table for feature in features if (table := _table(manifest, feature)).rows]


def _table(manifest: Manifest, feature: str) -> ClassTable:
    counts = {name: _of_split(manifest, name, feature) for name in manifest.splits}
    names = manifest.classes.get(feature, ())
    found = {label for of_split in counts.values() for label in of_split}
    rows = (
        ClassRow(
            manifest.resolved.class_name(feature, label),
            label,
            tuple(of_split.get(label, 0) for of_split in counts.values()),
        )
        for label in found | set(range(len(names)))
    )
    ranked = tuple(sorted(rows, key=lambda row: (-row.total, row.id)))
    return ClassTable(feature, tuple(manifest.splits), ranked)


def _whole(value: float) -> str:
    return number_text(round(value))


def _of_split(manifest: Manifest, split: str, feature: str) -> Mapping[int, int]:
    total: dict[int, int] = {}
    for shard in manifest.splits[split].shards:
        for label, count in shard.classes.get(feature, {}).items():
            total[label] = total.get(label, 0) + count
    return total


def ends_of(rows: tuple[ClassRow, ...], number: int) -> tuple[ClassRow, ...]:
    """Returns the first and the last of rows, so many in all."""
    if len(rows) <= number:
        return rows
    return (*rows[: number - number // 2], *rows[-(number // 2) :])
