"""Finds duplicate images and groups that leak between splits, and drops duplicate images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.statistics import Conflicts, Duplicate, DuplicateStats, GroupLeakage
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
    with_dropped_row,
)
from recordmill.transforms.functional.records.index import row_class
from recordmill.transforms.reconcile_counts import WriteLines
from recordmill.transforms.shards.build_examples import new_executor
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.local_files import UNRESTRICTED, ImageRootGuard


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
            | "DuplicatesOfBucket" >> beam.Map(_duplicates_of_bucket)
            | "CombineDuplicates" >> beam.CombineGlobally(_merge_contents)
        )


def shard_tally(path: str, split: str) -> Tally:
    """Returns the tally of a shard's images, from the index of its records.

    Args:
        path: the index.
        split: the shard's split.
    """
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


def _duplicates_of_bucket(bucket: tuple[int, Iterable[Tally]]) -> DuplicateStats:
    total: Tally = {}
    for tally in bucket[1]:
        merge(total, tally)
    return duplicate_stats(total)


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


_DUPLICATES = "duplicates"
_CONFLICTS = "conflicts"
_BATCH_REFS = 256


class Deduplicated(NamedTuple):
    """What is left, and what is not.

    Attributes:
        placed: the rows that are kept.
        duplicates: those that are dropped.
        content: the images of which rows with different labels were dropped.
        files: where the duplicates are written.
    """

    placed: PCollection[Placed]
    duplicates: PCollection[Duplicate]
    content: PCollection[DuplicateStats]
    files: PCollection[str]


@dataclass(eq=False)
class DropDuplicates(beam.PTransform):
    """Keeps one row of each image: PCollection[Placed] → Deduplicated.

    The row with the smallest key is kept, in whichever split it is. Images are the same if their
    bytes are, as they are found: every one is read for that, once. Those that cannot be read are
    kept, and rejected when they are written.

    Attributes:
        config: whether to drop any.
        directory: the dataset's folder.
        plan: resolves the schema, so that labels can be compared.
        base: the dataset whose rows stay, if any: they go before new ones.
        staged: whether images are put into files first. They can be read once all of their part
            is there: so the comparison waits until every row was.
    """

    config: ConvertConfig
    directory: str
    plan: PCollection[Plan]
    base: Base | None = None
    staged: bool = False

    def expand(self, placed: PCollection[Placed]) -> Deduplicated:
        """Adds the reading, and a shuffle of references by digest; if asked for."""
        if self.config.deduplicate == "none":
            nothing = placed.pipeline | "NoDuplicates" >> beam.Create([])
            return Deduplicated(placed, nothing, nothing, nothing)
        awaited = []
        if self.staged:
            awaited = [AsSingleton(placed | "CountPlaced" >> beam.combiners.Count.Globally())]
        dropping = (
            placed
            | "BatchPlaced" >> beam.BatchElements(min_batch_size=1, max_batch_size=_BATCH_REFS)
            | "DigestImages"
            >> beam.ParDo(
                _DigestImages(ImageRootGuard(self.config.guard)), *awaited
            ).with_output_types(tuple[bytes, Placed])
            | "GroupByDigest" >> beam.GroupByKey()  # (digest, [Placed])
            | "KeepFirst"
            >> beam.FlatMap(_keep_first, AsSingleton(self.plan), self.base).with_outputs(
                _DUPLICATES, _CONFLICTS, main="placed"
            )
        )
        kept: PCollection[Placed] = dropping.placed | "Kept" >> beam.Map(_same).with_output_types(
            Placed
        )  # so that the shuffle encodes them by their coder
        content = (
            dropping[_CONFLICTS]
            | "ConflictsOfDropped" >> beam.Map(_conflict_stats)
            | "CombineDropped" >> beam.CombineGlobally(_merge_contents)
        )
        files = dropping[_DUPLICATES] | "WriteDropped" >> WriteLines(self.directory, layout.DROPPED)
        return Deduplicated(kept, dropping[_DUPLICATES], content, files)


def digest_of(ref: ImageRef, guard: ImageRootGuard = UNRESTRICTED) -> bytes:
    """Returns the digest of a reference's image; of an unreadable image, one that no other has.

    Args:
        ref: the reference.
        guard: the folder that the image has to be in.
    """
    try:
        if not ref.staged:
            guard.check(ref.uri)
        return hashlib.sha256(read_bytes(ref.uri, ref.start, ref.stop)).digest()
    except RecordError:
        return repr((ref.key, ref.source)).encode("utf-8", "backslashreplace")


class _DigestImages(beam.DoFn):
    def __init__(self, guard: ImageRootGuard) -> None:
        self._digest = partial(digest_of, guard=guard)
        self._shared = Shared()

    def setup(self) -> None:
        self._executor = self._shared.acquire(new_executor)

    def process(self, batch: list[Placed], _rows: int = 0) -> Iterator[tuple[bytes, Placed]]:
        refs = [ref for _, (_, ref) in batch]
        return zip(self._executor.map(self._digest, refs), batch, strict=True)


def _keep_first(
    group: tuple[bytes, Iterable[Placed]], plan: Plan, base: Base | None
) -> Iterator[Placed | TaggedOutput]:
    """Yields the row with the smallest key, and the duplicates; one row at a time is in memory."""
    _, rows = group
    first = min(rows, key=lambda row: (_is_new(row, base), _name(row)))
    label = _label(first, plan)
    conflicts = Conflicts()
    kept = False
    for row in rows:
        if not kept and _name(row) == _name(first):  # rows without a table can be the same in all
            kept = True
            yield row
        else:
            duplicate = _dropped_row(row, first, _label(row, plan), label)
            conflicts = with_dropped_row(conflicts, duplicate)
            yield TaggedOutput(_DUPLICATES, duplicate)
    if conflicts.images:
        yield TaggedOutput(_CONFLICTS, conflicts)


def _is_new(row: Placed, base: Base | None) -> bool:
    (split, index), _ = row
    return base is None or index >= len(base.shards(split))


def _name(row: Placed) -> tuple[str, str, int]:
    _, (_, ref) = row
    return ref.key, ref.file, ref.line


def _label(row: Placed, plan: Plan) -> str:
    _, (_, ref) = row
    return label_text(row_class(ref.values, plan.resolved))


def _dropped_row(row: Placed, first: Placed, label: str, kept_label: str) -> Duplicate:
    (split, _), (_, ref) = row
    _, (_, kept) = first
    differs = label != kept_label
    return Duplicate(
        key=ref.key,
        uri=ref.shown_uri,
        source=ref.source,
        split=split,
        kept=kept.key,
        label=label if differs else "",
        kept_label=kept_label if differs else "",
    )


def _same(placed: Placed) -> Placed:
    return placed


def _conflict_stats(conflicts: Conflicts) -> DuplicateStats:
    return DuplicateStats(dropped_conflicts=conflicts)


def _merge_contents(contents: Iterable[DuplicateStats]) -> DuplicateStats:
    return merge_duplicate_stats(contents)
