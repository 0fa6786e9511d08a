"""Compares the splits of all rows of a group: which groups leak from one split to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.duplicates import GroupLeaks
from recordmill.transforms.assign_shards import Placed
from recordmill.transforms.functional.group_leaks import leaks_of, merge_group_leaks, splits_of


@dataclass(eq=False)
class CompareGroups(beam.PTransform):
    """Compares all groups: PCollection[Placed] → PCollection[GroupLeaks], one element.

    Attributes:
        parted: whether anything but the group decides a row's split: a column, or a base.
    """

    parted: bool

    def expand(self, placed: PCollection[Placed]) -> PCollection[GroupLeaks]:
        """Adds the comparing, if it can find anything; names of groups and splits travel."""
        if not self.parted:
            return placed.pipeline | "NoGroupLeaks" >> beam.Create([GroupLeaks()])
        return (
            placed
            | "SplitOfGroup"
            >> beam.FlatMap(split_of_group).with_output_types(tuple[str, tuple[str, ...]])
            | "SplitsByGroup" >> beam.CombinePerKey(splits_of)  # group, splits
            | "LeaksOfGroup" >> beam.FlatMapTuple(leaks_of)
            | "CombineGroupLeaks" >> beam.CombineGlobally(merge_group_leaks)
        )


def split_of_group(placed: Placed) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields a row's group and split; nothing for a row without a group."""
    (split, _), (_, ref) = placed
    if ref.group:
        yield ref.group, (split,)
