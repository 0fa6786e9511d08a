"""manifest.json: the content of a published dataset, with counts and checksums to verify it by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, FailFast, Field, model_validator

from recordmill.schemas import layout, statistics
from recordmill.schemas.config import FORMAT_VERSION, OnConflict
from recordmill.schemas.document import Document, unwritten_if_empty
from recordmill.schemas.features import Schema
from recordmill.schemas.plan import ResolvedSchema, SourceEntry, TableSnapshot
from recordmill.schemas.row_counts import Count, Counted, RowCounts, SplitCounts, mismatches


def _checked_name(name: str) -> str:
    if not layout.is_below(name):
        raise ValueError(f"{name!r} is not a path within the dataset's folder")
    return name


# A path relative to the dataset's folder. A malicious manifest cannot name a file outside it.
File = Annotated[str, AfterValidator(_checked_name)]


class ShardEntry(Counted):
    """A published shard; file names are relative to the dataset's folder."""

    file: File
    records: Count
    bytes: Count
    payload: Count
    sha256: str
    crc32c: Count
    index_file: File
    index_sha256: str
    images: dict[str, Count]
    not_finite: dict[str, Count] = unwritten_if_empty({})  # as in `Manifest`

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the values only: pydantic's own pickles take twice the memory."""
        return _entry_of, tuple(getattr(self, name) for name in _FIELDS)


_FIELDS = tuple(ShardEntry.model_fields)
_SET_FIELDS = set(_FIELDS)  # one for all entries


def _entry_of(*values: Any) -> ShardEntry:
    return ShardEntry.model_construct(_SET_FIELDS, **dict(zip(_FIELDS, values, strict=True)))


class SplitEntry(SplitCounts):
    """A published split."""

    # Number of occurrences by feature and class id.
    classes: dict[str, dict[int, Count]] = Field(default_factory=dict)
    # Its shards, in order. Each error keeps its input: 1 MB of empty objects would take 2 GB.
    shards: Annotated[tuple[ShardEntry, ...], FailFast()]

    def __repr_args__(self) -> Iterator[tuple[str, int]]:
        """Yields the counts that a notebook shows in place of a page of classes and shards."""
        yield "records", self.records
        yield "shards", len(self.shards)


class ClassDrift(Document):
    """How the classes of a feature differ from those of the base version."""

    added: Count = 0  # number of classes that occur, and do not in the base version
    gone: Count = 0  # number of classes that occur in the base version only
    # Number of other classes whose share of all labels differs by more than half of it, and by more
    # than three standard deviations.
    changed: Count = 0
    added_examples: tuple[str, ...] = ()
    gone_examples: tuple[str, ...] = ()
    # (class, share in the base version, share) of the largest changes.
    changed_examples: tuple[tuple[str, float, float], ...] = ()


class BaseEntry(Document):
    """A comparison of a dataset with its base version."""

    version: str
    manifest_sha256: str
    kept: dict[str, Count]  # number of records from the base version, by split
    new: dict[str, Count]  # number of other records, by split
    gone: dict[str, Count]  # number of records of the base version that were removed, by its split
    shards_unchanged: Count  # number of shards that are byte-identical to those of the base version
    # How classes differ, by feature; without features whose classes do not.
    classes: dict[str, ClassDrift] = Field(default_factory=dict)
    # sha256 of each key that was removed from this version or an earlier one, sorted.
    removed_keys_sha256: tuple[str, ...] = unwritten_if_empty(())


class Share(Document):
    """The part of all records that is in a split."""

    asked: float  # the part by the weights in `--splits`
    actual: float


class Manifest(Document):
    """The content of manifest.json."""

    # Version of the order and encoding of records; later versions are rejected.
    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)]
    name: str
    version: str
    fingerprint: str  # digest of all options that affect the content
    config: dict[str, Any]
    dataset_schema: Schema
    classes: dict[str, tuple[str, ...]]  # class names in the order of their ids, by feature
    input: RowCounts
    images: dict[str, Count]
    # Number of values that are NaN or infinite, by feature, as re-read; not written if there are
    # none.
    not_finite: dict[str, Count] = unwritten_if_empty({})
    content: statistics.DuplicateStats
    # Mean and standard deviation of the color channels, in a sample of the first split that has
    # records; not written if there are no images.
    channels: statistics.ChannelStatistics | None = unwritten_if_empty(None)
    # Groups that are in more than one split; not written if there are none.
    group_leaks: statistics.GroupLeakage | None = unwritten_if_empty(None)
    # Statistics of similar images; not written if none were compared.
    near_duplicates: statistics.NearDuplicates | None = unwritten_if_empty(None)
    # Statistics of the quality of images; not written if none were measured.
    quality: statistics.ImageQuality | None = unwritten_if_empty(None)
    # The asked and actual share of each split that `--splits` gives a weight above 0; not written
    # without weights, or if rows can state their splits.
    shares: dict[str, Share] | None = unwritten_if_empty(None)
    splits: dict[str, SplitEntry]
    sidecars: dict[File, str]  # sha256 of each other file
    # Digests of the lines in rejects/ and dropped/, independent of their order; empty in datasets
    # of earlier releases.
    lines: dict[str, str] = Field(default_factory=dict)
    base: BaseEntry | None = None  # comparison with the base version, if there is one
    # What the input was recognized as, and its class ids; not written if empty.
    source: SourceEntry | None = unwritten_if_empty(None)

    @model_validator(mode="after")
    def _check_shards(self) -> Manifest:
        shards = [shard for split in self.splits.values() for shard in split.shards]
        files = Counter(name for s in shards for name in (s.file, s.index_file) if name)
        if repeated := [name for name, count in files.items() if count > 1]:
            raise ValueError(f"the shard {repeated[0][:80]!r} is listed twice")
        return self

    @property
    def ordered_splits(self) -> dict[str, SplitEntry]:
        """The splits in the order of tables for people: train, validation, test, others."""
        return {name: self.splits[name] for name in sorted(self.splits, key=layout.split_rank)}

    @property
    def removed_keys(self) -> frozenset[str]:
        """The sha256 of each key that was removed from this version or an earlier one."""
        return frozenset(self.base.removed_keys_sha256 if self.base else ())

    @property
    def files(self) -> frozenset[str]:
        """The paths of all files of the dataset, relative to its folder."""
        shards = [shard for split in self.splits.values() for shard in split.shards]
        return frozenset(
            {
                *(shard.file for shard in shards),
                *(shard.index_file for shard in shards),
                *self.sidecars,
                *map(layout.lines_name, (*layout.LINES, *self.lines)),
                *(layout.SUCCESS, layout.MANIFEST, layout.RUN, layout.REPORT),
            }
        )

    @property
    def resolved(self) -> ResolvedSchema:
        """The resolved schema of the records."""
        return ResolvedSchema(self.dataset_schema, self.classes)

    @property
    def snapshots(self) -> tuple[TableSnapshot, ...]:
        """The snapshots of the lakehouse tables whose rows the dataset has, without labels."""
        found = self.source.snapshots if self.source else ()
        return tuple(entry for entry in found if entry.input != self.config.get("labels"))

    def count_mismatches(self) -> Iterator[str]:
        """Yields a message for each mismatch of rows, records, frames or images."""
        yield from mismatches(self.input, self.splits)
        images, not_finite = Counter[str](), Counter[str]()
        for name, split in self.splits.items():
            for shard in split.shards:
                images.update(shard.images)
                not_finite.update(shard.not_finite)
            frames = [shard.frames for shard in split.shards if shard.frames is not None]
            if split.records != sum(shard.records for shard in split.shards):
                yield f"split {name!r}: its number of records differs from that of its shards"
            if split.frames is not None and split.frames != sum(frames):
                yield f"split {name!r}: its number of frames differs from that of its shards"
        if self.images != images:
            yield "the image counts differ from those of the shards"
        if self.not_finite != not_finite:
            yield "the counts of values that are not finite differ from those of the shards"


@dataclass(frozen=True)
class Base:
    """The base version of a new dataset: `--base DIR/NAME/1.0.0`."""

    directory: str
    manifest_sha256: str  # sha256 of its manifest
    manifest: Manifest
    # Fingerprint of each shard's input, by file; a shard may lack one.
    fingerprints: Mapping[str, str]
    # Whether its records stay although the input lacks their rows: `--append`.
    keeps_records: bool = False
    # What to do with a row whose record differs from that with its key.
    on_conflict: OnConflict = "fail"

    @property
    def seed(self) -> int:
        """The seed that determines the order of its records."""
        return int(self.manifest.config["seed"])

    @property
    def kept_snapshots(self) -> tuple[TableSnapshot, ...]:
        """The snapshots of the lakehouse tables whose rows stay; () if the input has all rows."""
        return self.manifest.snapshots if self.keeps_records else ()

    def shards(self, split: str) -> tuple[ShardEntry, ...]:
        """Returns the shards of a split; () if there is no such split."""
        entry = self.manifest.splits.get(split)
        return entry.shards if entry else ()

    def first_new_shard(self, split: str) -> int:
        """Returns the number of the first shard of a split that takes new rows."""
        return 0 if self.keeps_records else len(self.shards(split))

    def kept_shard(self, split: str, index: int) -> ShardEntry | None:
        """Returns the shard whose records stay in a new shard; None if the input has all rows."""
        shards = self.shards(split) if self.keeps_records else ()
        return shards[index] if index < len(shards) else None

    def reusable_shard(self, split: str, index: int, fingerprint: str) -> ShardEntry | None:
        """Returns the shard of the base version that can be reused; None if its bytes differ."""
        shards = self.shards(split)
        if index >= len(shards):
            return None
        shard = shards[index]
        return shard if self.fingerprints.get(shard.file) == fingerprint else None
