"""Compares images of rows before they are written: keeps similar ones together, or drops them.

Both take one more pass over all images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reject
from recordmill.transforms.duplicates import AssignedRow, Deduplicated, KeepOne
from recordmill.transforms.elements import AssignedRows, displayed
from recordmill.transforms.functional.near_duplicates import (
    Bucket,
    Groups,
    groups_of_bucket,
    merge_groups,
)
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.batches import OrderedRefs, RowBatch
from recordmill.transforms.functional.rows.clusters import (
    Clusters,
    check_groups,
    clusters_of,
    fixed_splits,
    hashes_by_bucket,
    images_of_rows,
    images_plan,
    separate_similar,
    splits_of_groups,
    with_clusters,
)
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.shards.build_examples import Pools, build_all
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.write_shards import check_of

# Images per element, which are spread over workers.
_CHUNK_ROWS = 64

_SIMILAR = "similar"


@dataclass(eq=False)
class ConnectSimilar(beam.PTransform):
    """Connects similar images: PCollection[(bucket, images)] → PCollection[Groups], one element."""

    def expand(self, buckets: PCollection[tuple[Bucket, bytes]]) -> PCollection[Groups]:
        """Adds the comparison in buckets, and the grouping on one worker."""
        return (
            buckets
            | "GroupByBucket" >> beam.GroupByKey()  # (bucket, [images]), encoded
            | "CompareBucket" >> beam.MapTuple(groups_of_bucket)
            | "ConnectGroups" >> beam.CombineGlobally(merge_groups)  # one Groups
        )


@dataclass(eq=False)
class FindSimilarRows(beam.PTransform):
    """Groups rows by their images: PCollection[OrderedRefs] → PCollection[Groups], one element.

    The id of a row is its order, in the first 64 bits.
    """

    config: ConvertConfig  # the checks of images: rows that they reject have no group
    plan: PCollection[Plan]

    def expand(self, rows: PCollection[OrderedRefs]) -> PCollection[Groups]:
        """Adds a pass over all images, and the comparison of their hashes."""
        count = (
            rows
            | "RowsOfChunk" >> beam.Map(len).with_output_types(int)
            | "CountRows" >> beam.CombineGlobally(sum)
        )
        # The count is also a barrier: all embedded images are staged before the first is read.
        return (
            rows
            | "SpreadImages" >> beam.Reshuffle()  # [(order, ImageRef)]
            | "HashImages"
            >> beam.ParDo(
                _HashImages(self.config), AsSingleton(count), AsSingleton(self.plan)
            ).with_output_types(tuple[Bucket, bytes])
            | "ConnectSimilar" >> ConnectSimilar()
            | "CheckGroups" >> beam.Map(check_groups, self.config.near_duplicates)
        )


class _HashImages(beam.DoFn):
    def __init__(self, config: ConvertConfig) -> None:
        self._config = config
        self._guard = ImageRootGuard(config.guard)
        self._shared = Shared()

    def setup(self) -> None:
        self._pools = self._shared.acquire(Pools)

    def process(self, rows: OrderedRefs, count: int, plan: Plan) -> Iterator[tuple[Bucket, bytes]]:
        check, decode, guard = check_of(self._config), self._config.decode, self._guard
        built = build_all(rows.refs, plan, decode, self._pools, guard=guard, check=check)
        shapes = [None if isinstance(one, Reject) else one.shape for one in built]
        yield from hashes_by_bucket(rows.column("order"), shapes, count)


def _chunks(rows: Iterable[tuple[bytes, ImageRef]]) -> Iterator[OrderedRefs]:
    found = OrderedRefs.of(rows)
    for start in range(0, len(found), _CHUNK_ROWS):
        yield found[start : start + _CHUNK_ROWS]


@dataclass(eq=False)
class FindClusters(beam.PTransform):
    """Finds rows to keep together: PCollection[RowBatch] → PCollection[Clusters], one element."""

    analyzer: Analyzer  # the schema, column mapping and options

    def expand(self, rows: PCollection[RowBatch]) -> PCollection[Clusters]:
        """Adds the comparison of all images, and the splits that are fixed."""
        analyzer = self.analyzer
        plan = rows.pipeline | "PlanOfImages" >> beam.Create([images_plan(analyzer.schema)])
        groups = (
            rows
            | "ImagesOfRows"
            >> beam.FlatMap(_images_of_rows, analyzer).with_output_types(OrderedRefs)
            | "FindSimilarRows" >> FindSimilarRows(analyzer.config, plan)
        )
        # Groups without a fixed split are distributed by the split method.
        fixed = rows.pipeline | "NoFixedSplits" >> beam.Create([])
        if analyzer.config.split_column or analyzer.base:
            fixed = (
                rows
                | "FixedSplits" >> beam.FlatMap(_fixed_splits, analyzer)  # (split, orders of rows)
                | "SplitsOfClusters"
                >> beam.FlatMap(splits_of_groups, AsSingleton(groups)).with_output_types(
                    tuple[bytes, str]
                )
                | "FirstSplit" >> beam.CombinePerKey(min)  # (root, split)
            )
        return groups | "Clusters" >> beam.Map(clusters_of, AsDict(fixed))


def _images_of_rows(rows: RowBatch, analyzer: Analyzer) -> Iterator[OrderedRefs]:
    return _chunks(images_of_rows(rows, analyzer))


def _fixed_splits(rows: RowBatch, analyzer: Analyzer) -> Iterator[tuple[str, bytes]]:
    return fixed_splits(rows, analyzer, base_shard_lookup(analyzer.base))


@dataclass(eq=False)
class KeepTogether(beam.PTransform):
    """Gives rows their clusters: PCollection[RowBatch] → PCollection[RowBatch]."""

    analyzer: Analyzer  # the schema, column mapping and options
    clusters: PCollection[Clusters]

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(self.analyzer.config, "near_duplicates")

    def expand(self, rows: PCollection[RowBatch]) -> PCollection[RowBatch]:
        """Adds the lookup; each worker holds the clusters, 16 bytes per row with a similar one."""
        lookup = beam.Map(_with_clusters, AsSingleton(self.clusters), self.analyzer)
        return rows | "Lookup" >> lookup.with_output_types(RowBatch)


def _with_clusters(rows: RowBatch, clusters: Clusters, analyzer: Analyzer) -> RowBatch:
    if not len(clusters.groups.members):
        return rows
    found = with_clusters(rows, clusters, analyzer, base_shard_lookup(analyzer.base))
    return RowBatch.of(list(found))


@dataclass(eq=False)
class DropSimilar(beam.PTransform):
    """Keeps one row of similar images: PCollection[AssignedRows] → Deduplicated.

    The row with the smallest key is kept, whatever its split, and rows of the base version before
    all others. Rows that will be rejected are not compared.
    """

    config: ConvertConfig  # `near_duplicates`, and the checks of images
    plan: PCollection[Plan]
    base: Base | None = None  # the base version; None if there is none

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(self.config, "near_duplicates")

    def expand(self, rows: PCollection[AssignedRows]) -> Deduplicated:
        """Adds a pass over all images, and a shuffle of the references of similar ones."""
        if self.config.near_duplicates != "drop":
            nothing = rows.pipeline | "NoneDropped" >> beam.Create([])
            return Deduplicated(rows, nothing, nothing)
        groups = (
            rows
            | "ImagesOfRows" >> beam.FlatMapTuple(_chunks_of_shard).with_output_types(OrderedRefs)
            | "FindSimilarRows" >> FindSimilarRows(self.config, self.plan)
        )
        separating = beam.FlatMap(_separate_similar, AsSingleton(groups))
        # Each output has a type, which chooses the coder of the shuffle after it.
        separating = separating.with_output_types(AssignedRows, similar=tuple[bytes, AssignedRow])
        found = rows | "SeparateSimilar" >> separating.with_outputs(_SIMILAR, main="others")
        kept = found[_SIMILAR] | "KeepOne" >> KeepOne(self.plan, self.base, "near_duplicate")
        all_rows = (found.others, kept.rows) | "AllDistinct" >> beam.Flatten()
        return Deduplicated(all_rows, kept.duplicates, kept.stats)


def _chunks_of_shard(_: tuple[str, int], refs: OrderedRefs) -> Iterator[OrderedRefs]:
    return _chunks(refs)


def _separate_similar(
    assigned: AssignedRows, groups: Groups
) -> Iterator[AssignedRows | TaggedOutput]:
    """Yields the rows without a similar image, and (root, row) of each of the others, tagged."""
    shard, refs = assigned
    others = list[tuple[bytes, ImageRef]]()
    for root, row in separate_similar(refs, groups):
        if root is None:
            others.append(row)
        else:
            yield TaggedOutput(_SIMILAR, (root, (shard, row)))
    if others:
        yield shard, OrderedRefs.of(others)
