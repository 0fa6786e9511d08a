"""A written dataset: its shards, checkpoints, verification, row counts and statistics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from recordmill.schemas import manifest, statistics
from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.document import Document
from recordmill.schemas.masking import masked_values
from recordmill.schemas.option import Affects, fields_that_affect
from recordmill.schemas.plan import Plan, SourceEntry
from recordmill.schemas.records import ImageRef, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.row_counts import RowCounts, SplitCounts

# The part of its share, and the number of standard deviations, by which a class has to differ from
# the base version to be reported.
_CHANGED_SHARE, _DEVIATIONS = 0.5, 3


@dataclass(frozen=True, kw_only=True)
class WrittenShard(statistics.SplitTally):
    """A shard, as reported by its writer."""

    split: str
    index: int  # its number within the split, from 0
    payload: int  # bytes of all serialized examples, without framing
    crc32c: int  # checksum of the uncompressed stream of framed records
    index_crc32c: int
    images: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str = field(default="", compare=False)  # fingerprint of its input; "" if unknown
    # Its manifest entry, if it is the whole shard of a base version that keeps its records: it was
    # verified with that version.
    entry: manifest.ShardEntry | None = None


class ImageFault(Document):
    """A rejected reference, in a checkpoint."""

    position: int  # its number among the shard's references, from 0
    reason: Reason
    detail: str  # what is wrong, and what was expected

    @property
    def is_transient(self) -> bool:
        """Whether the machine or network may be the cause, so that a retry may succeed."""
        return self.reason.is_transient


class Checkpoint(Document):
    """The checkpoint of a finished shard."""

    fingerprint: str
    shard: WrittenShard
    sizes: tuple[int, int]  # the sizes of its two files in bytes: records and index
    versions: tuple[dict[str, str], dict[str, str]]  # the versions of both files in an object store
    faults: tuple[ImageFault, ...]

    def rejects(self, refs: Sequence[ImageRef]) -> Iterator[Reject]:
        """Yields the rejects of the shard, with the source locations in the current table."""
        for fault in self.faults:
            ref = refs[fault.position]
            yield Reject.of(ref, fault.reason, fault.detail, self.shard.split)


@dataclass(frozen=True)
class Problem:
    """A problem that verification found in a dataset."""

    file: str  # path of the file, relative to the dataset's folder
    message: str  # what is wrong, and what was expected
    record: int | None = None  # the number of the damaged record within its shard from 0, or None
    offset: int | None = None  # the first byte of the record in the uncompressed shard

    def __str__(self) -> str:
        location = "" if self.record is None else f" record {self.record} at byte {self.offset}:"
        file = self.file.replace("\n", "\\n")  # a file name may contain a line break
        return f"{file}:{location} {self.message}"


@dataclass(frozen=True, slots=True)
class ShardVerification:
    """The verification of a shard, which TensorFlow has re-read."""

    split: str
    index: int
    entry: manifest.ShardEntry  # its manifest entry, with counts and digests of the files as read
    index_crc32c: int
    problems: tuple[Problem, ...] = ()
    # Number of occurrences by feature and class id.
    classes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    # Fingerprint of the shard's input; "" if unknown.
    fingerprint: str = field(default="", compare=False)


@dataclass(frozen=True)
class DatasetInfo:
    """A written dataset with its verification, which is published unless there are problems."""

    plan: Plan
    counts: RowCounts
    splits: Mapping[str, SplitCounts]
    shards: tuple[ShardVerification, ...]  # the verification of each shard, in order
    problems: tuple[Problem, ...]
    # Number of occurrences by split, feature and class id.
    classes: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    content: statistics.DuplicateStats = field(default_factory=statistics.DuplicateStats)
    group_leaks: statistics.GroupLeakage = field(default_factory=statistics.GroupLeakage)
    findings: statistics.ImageFindings = field(default_factory=statistics.ImageFindings)
    shapes: statistics.ImageTally = field(default_factory=statistics.ImageTally)
    reused: int = 0  # number of shards that an earlier run has finished
    linked: int = 0  # number of shards taken from the base version without reading them
    # The records of a base version that keeps its records, by split; empty without one.
    copied: Mapping[str, statistics.CopiedCounts] = field(default_factory=dict)
    # Fingerprint of each shard's input, by file; a shard may lack one.
    fingerprints: Mapping[str, str] = field(default_factory=dict, compare=False)
    rejects: tuple[Reject, ...] = ()  # the first reject of each reason, in the order of the tables
    skipped: Mapping[str, SkippedInput] = field(default_factory=dict)


def manifest_of(
    info: DatasetInfo,
    config: ConvertConfig,
    sidecars: Mapping[str, str],
    base: manifest.BaseEntry | None = None,
    lines: Mapping[str, str] = MappingProxyType({}),
) -> manifest.Manifest:
    """Returns the manifest of a verified dataset.

    `sidecars`: sha256 of each file beside the shards, by name. `lines`: digests of the lines in
    rejects/ and dropped/, by folder.
    """
    near, quality = info.findings.near_duplicates, info.findings.quality
    of_run = fields_that_affect(type(config), Affects.RUN)
    return manifest.Manifest(
        format_version=FORMAT_VERSION,
        name=config.name,
        version=config.version,
        fingerprint=config.fingerprint,
        config=masked_values(config.model_dump(mode="json", exclude=of_run)),
        dataset_schema=info.plan.resolved.schema,
        classes=dict(info.plan.resolved.classes),
        input=info.counts,
        images=_sums(shard.entry.images for shard in info.shards),
        not_finite=_sums(shard.entry.not_finite for shard in info.shards),
        content=info.content,
        group_leaks=info.group_leaks if info.group_leaks.groups else None,
        near_duplicates=near if near.compared else None,
        quality=quality if quality.measured else None,
        shares=_shares(info, config),
        splits={split: _split_entry(info, split) for split in info.plan.shards},
        sidecars=dict(sidecars),
        lines=dict(lines),
        base=base,
        source=info.plan.source if info.plan.source != SourceEntry() else None,
    )


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for found in counts:
        total.update(found)
    return dict(sorted(total.items()))


def _shares(info: DatasetInfo, config: ConvertConfig) -> dict[str, manifest.Share] | None:
    if config.splits is None or config.split_column is not None or not info.counts.records:
        return None
    total = sum(config.splits.values())
    records = {name: counts.records for name, counts in info.splits.items()}
    return {
        name: manifest.Share(
            asked=round(float(weight / total), 6),
            actual=round(records.get(name, 0) / info.counts.records, 6),
        )
        for name, weight in sorted(config.splits.items())
        if weight
    }


def _split_entry(info: DatasetInfo, split: str) -> manifest.SplitEntry:
    shards = tuple(shard.entry for shard in info.shards if shard.split == split)
    classes = info.classes.get(split, {})
    return manifest.SplitEntry(**dict(info.splits[split]), classes=classes, shards=shards)


def base_entry(
    base: manifest.Base,
    info: DatasetInfo,
    config: ConvertConfig,
    removed_keys: Collection[str] = (),
) -> manifest.BaseEntry:
    """Returns the manifest entry that compares a new dataset with its base version.

    Unless the base version keeps its records, its first shards hold the rows of the base, later
    ones the new rows. `removed_keys`: sha256 of each key that this version removes.
    """
    kept, new, unchanged = dict[str, int](), dict[str, int](), 0
    for shard in info.shards:
        of_base = base.shards(shard.split)
        # A new version keeps the rows of a base shard in the shard of the same number.
        is_old = shard.index < len(of_base)
        counts = kept if is_old else new
        counts[shard.split] = counts.get(shard.split, 0) + shard.entry.records
        unchanged += is_old and of_base[shard.index].sha256 == shard.entry.sha256
    if base.keeps_records:
        kept = {split: counts.records for split, counts in info.copied.items()}
        new = {split: info.splits[split].records - count for split, count in kept.items()}
        kept, new = ({s: n for s, n in counts.items() if n} for counts in (kept, new))
    gone = {
        split: entry.records - kept.get(split, 0) for split, entry in base.manifest.splits.items()
    }
    return manifest.BaseEntry(
        version=base.manifest.version,
        manifest_sha256=base.manifest_sha256,
        kept=kept,
        new=new,
        gone=gone,
        shards_unchanged=unchanged,
        classes=_class_drifts(base, info, config),
        removed_keys_sha256=tuple(sorted(base.manifest.removed_keys.union(removed_keys))),
    )


def _class_drifts(
    base: manifest.Base, info: DatasetInfo, config: ConvertConfig
) -> dict[str, manifest.ClassDrift]:
    """Returns how classes differ, by feature; a sample has others by chance."""
    if config.sample is not None:
        return {}
    splits = base.manifest.splits.values()
    resolved = info.plan.resolved
    found = {}
    for feature in resolved.schema.class_features:
        old = Counter[str]()
        for split in splits:
            for label, count in split.classes.get(feature, {}).items():
                old[base.manifest.resolved.class_name(feature, label)] += count
        new = Counter[str]()
        for counts in info.classes.values():
            for label, count in counts.get(feature, {}).items():
                new[resolved.class_name(feature, label)] += count
        if old and new:
            found[feature] = _class_drift(old, new)
    return {feature: drift for feature, drift in found.items() if drift != manifest.ClassDrift()}


def _class_drift(old: Counter[str], new: Counter[str]) -> manifest.ClassDrift:
    """Returns how the sizes of classes differ.

    >>> _class_drift(Counter(a=50, b=50), Counter(a=90, b=10)).changed_examples
    (('a', 0.5, 0.9), ('b', 0.5, 0.1))
    """
    ratio = new.total() / old.total()
    added = Counter({name: count for name, count in new.items() if name not in old})
    gone = Counter({name: count for name, count in old.items() if name not in new})
    changed = dict[str, float]()
    for name in old.keys() & new.keys():
        expected = old[name] * ratio
        # Both counts are random: the variance is that of their difference, for Poisson counts.
        deviation = math.sqrt(expected * (1 + ratio))
        difference = abs(new[name] - expected)
        if difference > max(_CHANGED_SHARE * expected, _DEVIATIONS * deviation):
            changed[name] = difference
    largest = sorted(changed, key=lambda name: (-changed[name], name))[: statistics.EXAMPLES]
    return manifest.ClassDrift(
        added=len(added),
        gone=len(gone),
        changed=len(changed),
        added_examples=_most_frequent(added),
        gone_examples=_most_frequent(gone),
        changed_examples=tuple(
            (name, round(old[name] / old.total(), 6), round(new[name] / new.total(), 6))
            for name in largest
        ),
    )


def _most_frequent(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted(counts, key=lambda name: (-counts[name], name))[: statistics.EXAMPLES])
