"""What a run knows of the dataset it has written: shards, their verification, row counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.manifest import Base, BaseEntry, File, Manifest, ShardEntry, SplitEntry
from recordmill.schemas.masking import masked_values
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.row_counts import RowCounts, ShardCounts, SplitCounts
from recordmill.schemas.statistics import (
    NO_CONTENT,
    DuplicateStats,
    GroupLeakage,
    ImageTally,
    Timeline,
)

_RUN_ONLY = {"output", "if_exists", "report"}

_PASSING = frozenset(
    {
        Reason.READ_ERROR,
        Reason.TIMEOUT,
        Reason.DECODER_CRASH,
        Reason.TOO_MANY_PIXELS,
        Reason.OUTSIDE_ROOT,  # where links lead is in no fingerprint
    }
)


@dataclass(frozen=True, kw_only=True)
class WrittenShard(ShardCounts):
    """One shard, as its writer knows it.

    Attributes:
        payload: bytes of all serialized examples, without framing.
        crc32c: of the uncompressed stream of framed records.
        index_crc32c: of the file that indexes its records.
        staged: its file and its index in the staging area, until they have their final names.
        images: how many images got which treatment.
        shapes: image statistics.
        timeline: how many records were written when.
        reused: whether an earlier run has finished it.
        linked: whether it is a shard of the base version under another name.
        fingerprint: of what its bytes were made from; "" if that is not known.
    """

    payload: int
    crc32c: int
    index_crc32c: int
    staged: tuple[File, File] = field(compare=False)
    images: Mapping[str, int] = field(default_factory=dict)
    shapes: ImageTally = field(default_factory=ImageTally)
    timeline: Timeline = field(default_factory=Timeline, compare=False)
    reused: bool = field(default=False, compare=False)
    linked: bool = field(default=False, compare=False)
    fingerprint: str = field(default="", compare=False)


class ImageFault(BaseModel):
    """A reference that could not become a record.

    Attributes:
        position: its number among the shard's references, from 0.
        reason: one of the closed list.
        detail: in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    position: int
    reason: Reason
    detail: str

    @property
    def passing(self) -> bool:
        """Whether the machine or the network may be to blame, so that the next try may succeed."""
        return self.reason in _PASSING


class Checkpoint(BaseModel):
    """A finished shard.

    Attributes:
        settings: fingerprint of what decided the bytes of all shards of the run.
        fingerprint: of what decided those of this one.
        shard: what it holds, and its two files in the staging area: records, and their index.
        final: the names of both files below the dataset's folder.
        sizes: of both files, in bytes.
        faults: which of its references were rejected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: str
    fingerprint: str
    shard: WrittenShard
    final: tuple[File, File]
    sizes: tuple[int, int]
    faults: tuple[ImageFault, ...]

    def rejects(self, refs: Sequence[ImageRef]) -> Iterator[Reject]:
        """Yields the rejects of the shard, with the source locations of today's table."""
        for fault in self.faults:
            ref = refs[fault.position]
            yield Reject.of(ref, fault.reason, fault.detail, self.shard.split)


@dataclass(frozen=True)
class Problem:
    """Something in a published dataset that is not as it should be.

    Attributes:
        file: where, below the dataset's folder.
        what: got and expected, in words.
        record: the number of the record within its shard from 0, if one is to blame.
        offset: the byte at which it begins in the uncompressed shard.
    """

    file: str
    what: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        place = "" if self.record is None else f" record {self.record} at byte {self.offset}:"
        file = self.file.replace("\n", "\\n")  # a file's name does not end the line of a message
        return f"{file}:{place} {self.what}"


@dataclass(frozen=True)
class ShardVerification:
    """One shard, as TensorFlow re-read it.

    Attributes:
        split: which split it belongs to.
        index: its number within the split.
        entry: what was counted in its files, and their digests.
        index_crc32c: checksum of the file that indexes its records.
        problems: what is wrong with it.
    """

    split: str
    index: int
    entry: ShardEntry
    index_crc32c: int
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class DatasetInfo:
    """A written dataset with its verification, to be published unless there are problems.

    Attributes:
        plan: what it was written by.
        counts: where all rows went.
        splits: where the rows of each split went.
        shards: their verification, in order.
        images: how many images got which treatment.
        problems: why it must not be published, if there is a reason.
        content: which images are duplicates.
        group_leaks: which groups are in more than one split.
        shapes: image statistics.
        timeline: how many records were written when.
        reused: how many of the shards were finished by an earlier run.
        linked: how many of them are those of the base version, under another name.
        fingerprints: shard file to the fingerprint of what it was made from, where that is known.
    """

    plan: Plan
    counts: RowCounts
    splits: Mapping[str, SplitCounts]
    shards: tuple[ShardVerification, ...]
    images: Mapping[str, int]
    problems: tuple[Problem, ...]
    content: DuplicateStats = NO_CONTENT
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
        info: the dataset.
        config: the settings it was written by.
        sidecars: the files beside the shards, and the sha256 of each.
        base: how many records it shares with its base version, if it has one.
        lines: folder of rejects or of dropped rows to the digest of its lines.
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
    return SplitEntry(**dict(info.splits[split]), shards=shards)


def base_entry(base: Base, info: DatasetInfo) -> BaseEntry:
    """Returns the manifest entry that compares a new dataset with its base version.

    Args:
        base: the base version.
        info: the new dataset. Its first shards hold the rows of the base, later ones the new rows.
    """
    kept, new, unchanged = dict[str, int](), dict[str, int](), 0
    for shard in info.shards:
        of_base = base.shards(shard.split)
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
