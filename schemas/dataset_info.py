"""A written dataset: its shards, checkpoints, verification, row counts and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.manifest import Base, BaseEntry, Manifest, ShardEntry, SplitEntry
from recordmill.schemas.masking import masked_values
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.row_counts import RowCounts, ShardCounts, SplitCounts
from recordmill.schemas.statistics import (
    DuplicateStats,
    GroupLeakage,
    ImageTally,
    Timeline,
)

_RUN_ONLY = {"output", "if_exists", "report"}

_TRANSIENT = frozenset(
    {
        Reason.READ_ERROR,
        Reason.TIMEOUT,
        Reason.DECODER_CRASH,
        Reason.TOO_MANY_PIXELS,
        Reason.OUTSIDE_ROOT,  # fingerprints do not cover the targets of symbolic links
    }
)


@dataclass(frozen=True, kw_only=True)
class WrittenShard(ShardCounts):
    """A shard, as reported by its writer.

    Attributes:
        payload: bytes of all serialized examples, without framing.
        crc32c: checksum of the uncompressed stream of framed records.
        index_crc32c: checksum of its index file.
        images: number of images by treatment.
        shapes: image statistics.
        timeline: number of records written over time.
        reused: whether an earlier run has finished it.
        linked: whether it was taken from the base version without reading it.
        fingerprint: fingerprint of its input; "" if unknown.
    """

    payload: int
    crc32c: int
    index_crc32c: int
    images: Mapping[str, int] = field(default_factory=dict)
    shapes: ImageTally = field(default_factory=ImageTally)
    timeline: Timeline = field(default_factory=Timeline, compare=False)
    reused: bool = field(default=False, compare=False)
    linked: bool = field(default=False, compare=False)
    fingerprint: str = field(default="", compare=False)


class ImageFault(BaseModel):
    """A rejected reference, in a checkpoint.

    Attributes:
        position: its number among the shard's references, from 0.
        reason: the rejection reason.
        detail: what is wrong, and what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    position: int
    reason: Reason
    detail: str

    @property
    def is_transient(self) -> bool:
        """Whether the machine or network may be the cause, so that a retry may succeed."""
        return self.reason in _TRANSIENT


class Checkpoint(BaseModel):
    """The checkpoint of a finished shard.

    Attributes:
        fingerprint: fingerprint of the shard's input.
        shard: the shard.
        sizes: the sizes of its two files in bytes: records and index.
        versions: the versions of both files in an object store.
        faults: the rejected references.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str
    shard: WrittenShard
    sizes: tuple[int, int]
    versions: tuple[dict[str, str], dict[str, str]]
    faults: tuple[ImageFault, ...]

    def rejects(self, refs: Sequence[ImageRef]) -> Iterator[Reject]:
        """Yields the rejects of the shard, with the source locations in the current table."""
        for fault in self.faults:
            ref = refs[fault.position]
            yield Reject.of(ref, fault.reason, fault.detail, self.shard.split)


@dataclass(frozen=True)
class Problem:
    """A problem that verification found in a dataset.

    Attributes:
        file: path of the file, relative to the dataset's folder.
        message: what is wrong, and what was expected.
        record: the number of the damaged record within its shard from 0, or None.
        offset: the first byte of the record in the uncompressed shard.
    """

    file: str
    message: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        location = "" if self.record is None else f" record {self.record} at byte {self.offset}:"
        file = self.file.replace("\n", "\\n")  # a file name may contain a line break
        return f"{file}:{location} {self.message}"


@dataclass(frozen=True)
class ShardVerification:
    """The verification of a shard, which TensorFlow has re-read.

    Attributes:
        split: the shard's split.
        index: its number within the split.
        entry: its manifest entry, with counts and digests of the files as read.
        index_crc32c: checksum of its index file.
        problems: the problems found.
        classes: number of occurrences by feature and class id.
        fingerprint: fingerprint of the shard's input; "" if unknown.
    """

    split: str
    index: int
    entry: ShardEntry
    index_crc32c: int
    problems: tuple[Problem, ...] = ()
    classes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    fingerprint: str = field(default="", compare=False)


@dataclass(frozen=True)
class DatasetInfo:
    """A written dataset with its verification, which is published unless there are problems.

    Attributes:
        plan: the plan of the conversion.
        counts: row counts of the dataset.
        splits: row counts by split.
        shards: the verification of each shard, in order.
        images: number of images by treatment.
        problems: the problems that prevent publishing.
        classes: number of occurrences by split, feature and class id.
        content: statistics of duplicate images.
        group_leaks: groups that are in more than one split.
        shapes: image statistics.
        timeline: number of records written over time.
        reused: number of shards that an earlier run has finished.
        linked: number of shards taken from the base version without reading them.
        fingerprints: fingerprint of each shard's input, by file; a shard may lack one.
    """

    plan: Plan
    counts: RowCounts
    splits: Mapping[str, SplitCounts]
    shards: tuple[ShardVerification, ...]
    images: Mapping[str, int]
    problems: tuple[Problem, ...]
    classes: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    content: DuplicateStats = field(default_factory=DuplicateStats)
    group_leaks: GroupLeakage = field(default_factory=GroupLeakage)
    shapes: ImageTally = field(default_factory=ImageTally)
    timeline: Timeline = field(default_factory=Timeline, compare=False)
    reused: int = 0
    linked: int = 0
    fingerprints: Mapping[str, str] = field(default_factory=dict, compare=False)


def manifest_of(
    info: DatasetInfo,
    config: ConvertConfig,
    sidecars: Mapping[str, str],
    base: BaseEntry | None = None,
    lines: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """Returns the manifest of a verified dataset.

    Args:
        info: the written dataset.
        config: the options.
        sidecars: sha256 of each file beside the shards, by name.
        base: the comparison with the base version, if there is one.
        lines: digests of the lines in rejects/ and dropped/, by folder.
    """
    return Manifest(
        format_version=FORMAT_VERSION,
        name=config.name,
        version=config.version,
        fingerprint=config.fingerprint,
        config=masked_values(config.model_dump(mode="json", exclude=_RUN_ONLY)),
        dataset_schema=info.plan.resolved.schema,
        classes=dict(info.plan.resolved.classes),
        input=info.counts,
        images=dict(info.images),
        content=info.content,
        group_leaks=info.group_leaks if info.group_leaks.groups else None,
        splits={split: _split_entry(info, split) for split in info.plan.shards},
        sidecars=dict(sidecars),
        lines=dict(lines),
        base=base,
    )


def _split_entry(info: DatasetInfo, split: str) -> SplitEntry:
    shards = tuple(shard.entry for shard in info.shards if shard.split == split)
    classes = info.classes.get(split, {})
    return SplitEntry(**dict(info.splits[split]), classes=classes, shards=shards)


def base_entry(base: Base, info: DatasetInfo) -> BaseEntry:
    """Returns the manifest entry that compares a new dataset with its base version.

    Args:
        base: the base version.
        info: the new dataset. Its first shards hold the rows of the base, later ones the new rows.
    """
    kept, new, unchanged = dict[str, int](), dict[str, int](), 0
    for shard in info.shards:
        of_base = base.shards(shard.split)
        # A new version keeps the rows of a base shard in the shard of the same number.
        is_old = shard.index < len(of_base)
        counts = kept if is_old else new
        counts[shard.split] = counts.get(shard.split, 0) + shard.entry.records
        unchanged += is_old and of_base[shard.index].sha256 == shard.entry.sha256
    gone = {
        split: entry.records - kept.get(split, 0) for split, entry in base.manifest.splits.items()
    }
    return BaseEntry(
        version=base.manifest.version,
        manifest_sha256=base.manifest_sha256,
        kept=kept,
        new=new,
        gone=gone,
        shards_unchanged=unchanged,
    )
