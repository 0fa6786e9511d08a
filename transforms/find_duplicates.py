"""Finds duplicate images by their digests, and the groups and images that leak between splits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.duplicates import DuplicateStats, GroupLeakage
from recordmill.schemas.plan import Plan
from recordmill.transforms.assign_shards import Placed
from recordmill.transforms.functional.duplicates import (
    Tally,
    distinct_splits,
    duplicate_stats,
    group_leakage,
    label_text,
    merge,
    merge_duplicate_stats,
    merge_group_leaks,
    num_buckets,
    split_by_bucket,
    tally_shard,
)
from recordmill.transforms.storage.dataset import read_index


@dataclass(eq=False)
class FindDuplicateImages(beam.PTransform):
    """Compares all images: PCollection[WrittenShard] → PCollection[Content], one element.

    Digests and keys travel, some hundred bytes an image; they are read from the indexes of the
    shards, so that a shard that was kept from an earlier run counts like any other.

    Attributes:
        directory: the dataset's folder.
        plan: how many shards and rows there are.
    """

    directory: str
    plan: PCollection[Plan]

    def expand(self, shards: PCollection[WrittenShard]) -> PCollection[DuplicateStats]:
        """Adds the comparing; images are compared in parts that fit in memory."""
        return (
            shards
            | "ReadDigests"
            >> beam.FlatMap(_read, self.directory, AsSingleton(self.plan)).with_output_types(
                tuple[int, Tally]
            )
            | "GroupByBucket" >> beam.GroupByKey()  # (bucket, [Tally]), a tally a shard
            | "ContentOfBucket" >> beam.Map(_content_of_bucket)
            | "CombineContents" >> beam.CombineGlobally(_merge_contents)
        )


def shard_tally(path: str, split: str) -> Tally:
    """Returns the tally of a shard, from the index of its records."""
    table = read_index(path, ["key", "sha256", "class"])
    keys, digests, labels = (table[name].to_pylist() for name in ("key", "sha256", "class"))
    return tally_shard(
        split,
        (
            (key, digest, label_text(label))
            for key, digest, label in zip(keys, digests, labels, strict=True)
            if digest
        ),
    )


def _read(info: WrittenShard, directory: str, plan: Plan) -> Iterator[tuple[int, Tally]]:
    if plan.resolved.schema.has_image:
        name = layout.records_name(info.split, info.index, plan.shards[info.split])
        tally = shard_tally(layout.join(directory, name), info.split)
        yield from split_by_bucket(tally, num_buckets(plan.rows)).items()


def _content_of_bucket(bucket: tuple[int, Iterable[Tally]]) -> DuplicateStats:
    total: Tally = {}
    for tally in bucket[1]:
        merge(total, tally)
    return duplicate_stats(total)


def _merge_contents(contents: Iterable[DuplicateStats]) -> DuplicateStats:
    return merge_duplicate_stats(contents)


@dataclass(eq=False)
class FindGroupLeaks(beam.PTransform):
    """Compares all groups: PCollection[Placed] → PCollection[GroupLeaks], one element.

    Attributes:
        parted: whether anything but the group decides a row's split: a column, or a base.
    """

    parted: bool

    def expand(self, placed: PCollection[Placed]) -> PCollection[GroupLeakage]:
        """Adds the comparing, if it can find anything; names of groups and splits travel."""
        if not self.parted:
            return placed.pipeline | "NoGroupLeaks" >> beam.Create([GroupLeakage()])
        return (
            placed
            | "SplitOfGroup"
            >> beam.FlatMap(split_of_group).with_output_types(tuple[str, tuple[str, ...]])
            | "SplitsByGroup" >> beam.CombinePerKey(distinct_splits)  # (group, splits)
            | "LeaksOfGroup" >> beam.FlatMapTuple(group_leakage)
            | "CombineGroupLeaks" >> beam.CombineGlobally(merge_group_leaks)
        )


def split_of_group(placed: Placed) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields a row's group and split; nothing for a row without a group."""
    (split, _), (_, ref) = placed
    if ref.group:
        yield ref.group, (split,)
