"""Finds similar images and images of low quality, by the measures in the indexes of the shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import ShardVerification
from recordmill.schemas.plan import Plan
from recordmill.schemas.statistics import ImageFindings, NearDuplicates
from recordmill.transforms.functional.duplicates import label_text
from recordmill.transforms.functional.near_duplicates import (
    Bucket,
    GroupMember,
    Groups,
    Ids,
    pack,
    split_by_bucket,
    statistics_of_group,
)
from recordmill.transforms.functional.records.image_columns import (
    MEASURES,
    quality_of_shard,
)
from recordmill.transforms.similar_rows import ConnectSimilar, as_groups
from recordmill.transforms.storage.dataset import read_index

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
            >> beam.FlatMap(_members, self.directory, plan, as_groups(groups)).with_output_types(
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
        layout.join(directory, shard.entry.index_file), ["key", *frames, "phash", *MEASURES]
    )
    images = _Images.of(index, ("phash", *MEASURES), bool(frames))
    keys = index["key"]
    quality = quality_of_shard(shard.split, shard.index, images.measures, keys, images.records)
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
