"""Compares images of rows before they are written: keeps similar ones together, or drops them.

Both take one more pass over all images. A row is known by 64 bits of a hash: of its key, or when
rows are kept together, of its group or key, so that similar images connect whole groups. Two rows
with equal hashes, of which 10^8 rows have a pair in 3,700 tables, count as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.pvalue import AsDict, AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import ShardVerification
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.records import Cluster, ImageRef, ImageShape, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.statistics import ImageFindings, NearDuplicates
from recordmill.transforms.duplicates import AssignedRow, Deduplicated, KeepOne
from recordmill.transforms.elements import AssignedRows, displayed
from recordmill.transforms.functional.duplicates import label_text
from recordmill.transforms.functional.near_duplicates import (
    MAX_GROUPED,
    Bucket,
    GroupMember,
    Groups,
    Ids,
    groups_of_bucket,
    merge_groups,
    pack,
    split_by_bucket,
    statistics_of_group,
)
from recordmill.transforms.functional.records import image_columns
from recordmill.transforms.functional.rows.analysis import Analyzer, rows_with_identity
from recordmill.transforms.functional.rows.batches import OrderedRefs, RowBatch
from recordmill.transforms.functional.rows.placement import POSITION_BYTES, order_of
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.shards.build_examples import Pools, build_all
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.local_files import ImageRootGuard

# Images per element, which are spread over workers.
_CHUNK_ROWS = 64

_SIMILAR = "similar"


@dataclass(frozen=True)
class Clusters:
    """Rows that are kept in one split, because their images are similar."""

    groups: Groups  # the clusters, by the ids of groups or keys
    # The split of each cluster in which that of a row is fixed, by its root; the first by name if
    # there are several.
    splits: Mapping[int, str] = field(default_factory=dict)


def _ids_of(orders: Iterable[bytes]) -> Ids:
    """Returns the ids of rows by their orders, (rows,)."""
    first = b"".join(order[:POSITION_BYTES] for order in orders)
    ids: Ids = np.frombuffer(first, ">u8").astype(np.uint64)
    return ids


def _images_plan(schema: Schema) -> Plan:
    """Returns a plan of records with nothing but their image."""
    features = {"image": {"kind": "bytes", "from": "image:bytes"}}
    document = {"name": "images", "features": features, "image": schema.image.model_dump()}
    return Plan(ResolvedSchema(Schema.model_validate(document)), {}, 0)


def _images_of_rows(rows: RowBatch, analyzer: Analyzer) -> Iterator[OrderedRefs]:
    """Yields references to the images of rows, with the orders of the rows' groups or keys."""
    seed = analyzer.config.seed
    identities = (found for _, found in rows_with_identity(rows, analyzer.binding))
    # The schema of `_images_plan` has one feature, the image, which is read later.
    yield from _chunks(
        (order_of(found.entity, seed), found._replace(values=(None,), frame=None))
        for found in identities
        if found and found.uri
    )


def _hashes_by_bucket(
    orders: Sequence[bytes], shapes: Sequence[ImageShape | None], rows: int
) -> Iterator[tuple[Bucket, bytes]]:
    """Yields (bucket, images) of the images that have a perceptual hash.

    `orders` is the order of each row. `shapes` is its image; None if it is rejected.
    """
    hashes = image_columns.describe(list(shapes)).column("phash")
    ids = _ids_of(orders)[hashes.is_valid().to_numpy(zero_copy_only=False)]
    yield from split_by_bucket(pack(ids, hashes.drop_null().to_pylist()), rows)


def _check_groups(_: bytes, mode: str, groups: Groups) -> Groups:
    """Returns groups that are complete; else raises UsageError."""
    if groups.overflow:
        raise UsageError(
            f"--near_duplicates {mode}: expected at most {MAX_GROUPED:,} rows with similar images, "
            "got more. Drop identical images with --deduplicate content in a first version, or "
            "choose --near_duplicates report."
        )
    return groups


def _fixed_splits(rows: RowBatch, analyzer: Analyzer) -> Iterator[tuple[str, bytes]]:
    """Yields (split, orders of rows that stay in it): as a column or the base version says."""
    find = base_shard_lookup(analyzer.base)
    found = dict[str, list[bytes]]()
    for _, identity in rows_with_identity(rows, analyzer.binding):
        if identity is None:
            continue
        split = identity.split or (find(identity.record_key) or ("",))[0]
        if split:
            order = order_of(identity.entity, analyzer.config.seed)
            found.setdefault(split, []).append(order[:POSITION_BYTES])
    for split, orders in found.items():
        yield split, b"".join(orders)


def _splits_of_groups(fixed: tuple[str, bytes], groups: Groups) -> Iterator[tuple[bytes, str]]:
    """Yields (root, split) of each group with a row in a split.

    `fixed` is the split, and the first 8 bytes of the orders of rows in it.
    """
    split, orders = fixed
    _, roots = groups.roots_of(np.frombuffer(orders, ">u8").astype(np.uint64))
    for root in np.unique(roots).tolist():
        yield _as_key(root), split


def _clusters_of(groups: Groups, splits: Mapping[bytes, str]) -> Clusters:
    return Clusters(groups, {int.from_bytes(root, "big"): split for root, split in splits.items()})


def _with_clusters(rows: RowBatch, clusters: Clusters, analyzer: Analyzer) -> RowBatch:
    """Returns rows with their clusters, in the same order."""
    if not len(clusters.groups.members):
        return rows
    find, found = base_shard_lookup(analyzer.base), list[Row]()
    known = list(rows_with_identity(rows, analyzer.binding))
    seed = analyzer.config.seed
    orders = [order_of(found.entity if found else "", seed) for _, found in known]
    member, of_members = clusters.groups.roots_of(_ids_of(orders))
    # Only members have a root; both are in the order of the rows.
    roots = iter(of_members.tolist())
    for (row, identity), is_member in zip(known, member.tolist(), strict=True):
        if is_member:
            root = next(roots)
            # Rows of the base version stay where they are, whatever the split of their cluster.
            in_base = identity is not None and find(identity.record_key) is not None
            split = "" if in_base else clusters.splits.get(root, "")
            row = row._replace(cluster=Cluster(f"similar images {root:016x}", split))
        found.append(row)
    return RowBatch.of(found)


def _separate_similar(
    assigned: AssignedRows, groups: Groups
) -> Iterator[AssignedRows | TaggedOutput]:
    """Yields the rows without a similar image, and (root, row) of each of the others, tagged."""
    shard, refs = assigned
    member, of_members = groups.roots_of(_ids_of(refs.column("order")))
    roots = iter(of_members.tolist())
    for row, is_member in zip(refs, member.tolist(), strict=True):
        if is_member:
            yield TaggedOutput(_SIMILAR, (_as_key(next(roots)), (shard, row)))
    if not member.all():
        yield shard, refs.take(np.flatnonzero(~member).tolist())


def _as_key(root: int) -> bytes:
    return root.to_bytes(POSITION_BYTES, "big")  # bytes, because coders of integers are signed


@dataclass(eq=False)
class ConnectSimilar(beam.PTransform):
    """Connects similar images: PCollection[(bucket, images)] → PCollection[Groups], one at most."""

    def expand(self, buckets: PCollection[tuple[Bucket, bytes]]) -> PCollection[Groups]:
        """Adds the comparison in buckets, and the grouping on one worker."""
        return (
            buckets
            | "GroupByBucket" >> beam.GroupByKey()  # (bucket, [images]), encoded
            | "CompareBucket" >> beam.MapTuple(groups_of_bucket)
            | "ConnectGroups" >> beam.CombineGlobally(merge_groups).without_defaults()
        )


def _as_groups(connected: PCollection[Groups]) -> AsSingleton:
    """Returns the connected groups as a side input; there may be no element, of no image."""
    return AsSingleton(connected, merge_groups(()))


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
            | "CountRows" >> beam.CombineGlobally(sum).without_defaults()
        )
        # The count is also a barrier: all embedded images are staged before the first is read.
        connected = (
            rows
            | "SpreadImages" >> beam.Reshuffle()  # [(order, ImageRef)]
            | "HashImages"
            >> beam.ParDo(
                _HashImages(self.config), AsSingleton(count, 0), AsSingleton(self.plan)
            ).with_output_types(tuple[Bucket, bytes])
            | "ConnectSimilar" >> ConnectSimilar()
        )
        checking = beam.Map(_check_groups, self.config.near_duplicates, _as_groups(connected))
        return rows.pipeline | "Once" >> beam.Impulse() | "CheckGroups" >> checking


class _HashImages(beam.DoFn):
    def __init__(self, config: ConvertConfig) -> None:
        self._config = config
        self._guard = ImageRootGuard(config.guard)
        self._shared = Shared()

    def setup(self) -> None:
        self._pools = self._shared.acquire(Pools)

    def process(self, rows: OrderedRefs, count: int, plan: Plan) -> Iterator[tuple[Bucket, bytes]]:
        built = build_all(rows.refs, plan, self._config, self._pools, self._guard)
        shapes = [None if isinstance(one, Reject) else one.shape for one in built]
        yield from _hashes_by_bucket(rows.column("order"), shapes, count)


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
        plan = rows.pipeline | "PlanOfImages" >> beam.Create([_images_plan(analyzer.schema)])
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
                >> beam.FlatMap(_splits_of_groups, AsSingleton(groups)).with_output_types(
                    tuple[bytes, str]
                )
                | "FirstSplit" >> beam.CombinePerKey(min)  # (root, split)
            )
        return groups | "Clusters" >> beam.Map(_clusters_of, AsDict(fixed))


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


_FINDINGS = "findings"

# A member as it is shuffled, without the name of its class, which Beam would repeat in each.
_PlainMember: TypeAlias = tuple[str, str, str, str, int, int]

# Hexadecimal digits of a SHA-256 that are shuffled: images of one group differ in 64 bits of it.
_DIGEST_DIGITS = 16

# Bits of the id of a record: its number in the shard, and that of the shard; the rest is its split.
_INDEX_BITS, _SHARD_BITS = 32, 17


@dataclass(eq=False)
class FindImageIssues(beam.PTransform):
    """Compares and measures images: PCollection[ShardVerification] → parts of one ImageFindings.

    The measures are read from the indexes of the shards, so shards reused from an earlier run or
    linked from a base version are included. The shuffle carries 34 bytes per image, of its record
    and its hash; in a large dataset, up to four times.
    """

    directory: str
    plan: PCollection[Plan]

    def expand(
        self, shards: PCollection[ShardVerification]
    ) -> tuple[PCollection[ImageFindings], ...]:
        """Adds the comparison in buckets, the grouping on one worker, and the statistics."""
        plan = AsSingleton(self.plan)
        reading = beam.FlatMap(_read, self.directory, plan).with_output_types(tuple[Bucket, bytes])
        read = shards | "ReadMeasures" >> reading.with_outputs(_FINDINGS, main="images")
        groups = read.images | "ConnectSimilar" >> ConnectSimilar()
        of_groups = (
            shards
            | "ReadMembers"
            >> beam.FlatMap(_members, self.directory, plan, _as_groups(groups)).with_output_types(
                tuple[int, _PlainMember]
            )
            | "GroupMembers" >> beam.GroupByKey()  # (root, [_PlainMember])
            | "CountGroup" >> beam.FlatMap(_findings_of_group)
        )
        limits = groups | "LimitsOfGroups" >> beam.Map(_limits)
        return read[_FINDINGS], of_groups, limits


@dataclass(frozen=True)
class _Images:
    """The images of one shard."""

    measures: pa.Table  # the columns of the index that describe images, with one image per row
    records: npt.NDArray[np.int64]

    @classmethod
    def of(cls, index: pa.Table, names: Iterable[str], is_sequence: bool) -> _Images:
        """Returns the images of an index, whose columns are lists for sequences."""
        chosen = index.select(list(names)).combine_chunks()
        if not is_sequence:
            return cls(chosen, np.arange(len(index)))
        frames = index["frames"].to_numpy()
        columns = {name: pa.chunked_array(chosen[name].chunks).combine_chunks() for name in names}
        flat = pa.table({name: column.flatten() for name, column in columns.items()})
        return cls(flat, np.repeat(np.arange(len(index)), frames))


def _ids(
    shard: ShardVerification, plan: Plan, records: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Returns the ids of records: their split, shard and number in 64 bits."""
    split = sorted(plan.shards).index(shard.split)
    first = (split << _SHARD_BITS | shard.index) << _INDEX_BITS
    ids: Ids = records.astype(np.uint64) + np.uint64(first)
    return ids


def _read(
    shard: ShardVerification, directory: str, plan: Plan
) -> Iterator[tuple[Bucket, bytes] | TaggedOutput]:
    schema = plan.resolved.schema
    # With problems, the index may be unreadable, and the dataset is not published.
    if not schema.has_image or shard.problems:
        return
    frames = ["frames"] if schema.sequence else []
    index = read_index(
        layout.join(directory, shard.entry.index_file),
        ["key", *frames, "phash", *image_columns.MEASURES],
    )
    images = _Images.of(index, ("phash", *image_columns.MEASURES), bool(frames))
    keys = index["key"]
    quality = image_columns.quality_of_shard(
        shard.split, shard.index, images.measures, keys, images.records
    )
    # Uniform images have no hash, and none has with --near_duplicates none.
    hashed = images.measures["phash"].is_valid().to_numpy()
    compared = NearDuplicates(compared=int(hashed.sum()))
    yield TaggedOutput(_FINDINGS, ImageFindings(compared, quality))
    hashes = images.measures["phash"].drop_null().to_pylist()
    packed = pack(_ids(shard, plan, images.records[hashed]), hashes)
    yield from split_by_bucket(packed, plan.most_records)


def _members(
    shard: ShardVerification, directory: str, plan: Plan, groups: Groups
) -> Iterator[tuple[int, _PlainMember]]:
    """Yields (root, member) for each record of a shard that is in a group."""
    if not len(groups.members) or shard.problems:
        return
    found, roots = groups.roots_of(_ids(shard, plan, np.arange(shard.entry.records)))
    if not found.any():
        return
    names = ("key", "sha256", "class")
    index = read_index(layout.join(directory, shard.entry.index_file), names)
    rows = index.filter(pa.array(found))
    columns = (rows[name].to_pylist() for name in names)
    for root, number, key, sha256, classes in zip(
        roots.tolist(), np.flatnonzero(found).tolist(), *columns, strict=True
    ):
        digest = sha256[:_DIGEST_DIGITS]
        yield root, (shard.split, label_text(classes), key, digest, shard.index, number)


def _findings_of_group(group: tuple[int, Iterable[_PlainMember]]) -> Iterator[ImageFindings]:
    """Yields the statistics of a group, unless all of its images are identical."""
    near = statistics_of_group(GroupMember(*member) for member in group[1])
    if near.groups:
        yield ImageFindings(near)


def _limits(groups: Groups) -> ImageFindings:
    return ImageFindings(NearDuplicates(full_buckets=groups.full, overflow=groups.overflow))
