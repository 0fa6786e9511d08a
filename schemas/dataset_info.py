"""What a run knows of the dataset it has written: shards, their verification, row counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.duplicates import NO_CONTENT, DuplicateStats, GroupLeakage
from recordmill.schemas.manifest import BaseEntry, File, Manifest, ShardEntry, SplitEntry
from recordmill.schemas.masking import masked_values
from recordmill.schemas.plan import Plan
from recordmill.schemas.row_counts import Converted, RowCounts, SplitCounts
from recordmill.schemas.tallies import ImageTally, Timeline

_RUN_ONLY = {"output", "if_exists", "report"}


@dataclass(frozen=True, kw_only=True)
class ShardCounts(Converted):
    """What one shard holds, or would hold if all images are good.

    Attributes:
        split: which split it belongs to.
        index: its number within the split, from 0.
        records: how many it holds.
        classes: feature to class id to the number of times that it occurs.
        frames: of all its sequences; None if each record is made from one row.
    """

    split: str
    index: int
    records: int
    classes: Mapping[str, Mapping[int, int]]
    frames: int | None = None


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
