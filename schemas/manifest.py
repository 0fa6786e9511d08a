"""manifest.json: what a dataset consists of, to be verified again at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from recordmill.schemas import layout
from recordmill.schemas.config import FORMAT_VERSION
from recordmill.schemas.features import Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.row_counts import Count, Counted, RowCounts, SplitCounts, mismatches
from recordmill.schemas.statistics import DuplicateStats, GroupLeakage


def _below(name: str) -> str:
    if not layout.is_below(name):
        raise ValueError(f"{name!r} is not a name below the dataset's folder")
    return name


File = Annotated[str, AfterValidator(_below)]
"""Named as below the dataset's folder; never outside of it, whoever wrote the manifest."""


class ShardEntry(Counted):
    """One shard as published: file names are relative to the dataset's folder."""

    file: File
    records: Count
    bytes: Count
    payload: Count
    sha256: str
    crc32c: Count
    index_file: File
    index_sha256: str
    classes: dict[str, dict[int, Count]]
    images: dict[str, Count]


class SplitEntry(SplitCounts):
    """One split as published."""

    shards: tuple[ShardEntry, ...]


class BaseEntry(BaseModel):
    """What became of the dataset that this one was made from.

    Attributes:
        version: of the base.
        manifest_sha256: of its manifest.
        kept: split to its records of the base.
        new: split to its other records.
        gone: split of the base to its records that are not in it any more.
        shards_unchanged: how many shards are those of the base, to the byte.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    manifest_sha256: str
    kept: dict[str, Count]
    new: dict[str, Count]
    gone: dict[str, Count]
    shards_unchanged: Count


class Manifest(BaseModel):
    """The whole of manifest.json.

    Attributes:
        format_version: of the way that records are placed and encoded; a later one is not read.
        name: the dataset's name.
        version: its version.
        fingerprint: digest of every option that decides the content.
        config: the options.
        dataset_schema: the resolved schema; "schema" in the file.
        classes: feature to its class names.
        input: where all rows went.
        images: how many images got which treatment.
        content: which images are repeated, within splits and across them.
        group_leaks: which groups are in more than one split; not written if none is.
        splits: where each split's rows went, and its shards.
        sidecars: the other files' digests.
        lines: rejects and dropped rows to the digest of their lines, in any order; none where an
            earlier release has published.
        base: what became of the dataset that this one was made from, if any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)]
    name: str
    version: str
    fingerprint: str
    config: dict[str, Any]
    dataset_schema: Schema
    classes: dict[str, tuple[str, ...]]
    input: RowCounts
    images: dict[str, Count]
    content: DuplicateStats
    group_leaks: GroupLeakage | None = None
    splits: dict[str, SplitEntry]
    sidecars: dict[File, str]
    lines: dict[str, str] = {}
    base: BaseEntry | None = None

    @model_serializer(mode="wrap")
    def _without_no_leaks(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if self.group_leaks is None:
            document.pop("group_leaks", None)
        return document

    @property
    def files(self) -> frozenset[str]:
        """Every file of the dataset, below its folder: nothing else belongs there."""
        shards = [shard for split in self.splits.values() for shard in split.shards]
        return frozenset(
            {
                *(shard.file for shard in shards),
                *(shard.index_file for shard in shards),
                *self.sidecars,
                *map(layout.lines_name, layout.LINES),
                *(layout.SUCCESS, layout.MANIFEST, layout.RUN, layout.REPORT),
            }
        )

    @property
    def resolved(self) -> ResolvedSchema:
        """The resolved schema, as records were encoded by it."""
        return ResolvedSchema(self.dataset_schema, self.classes)

    def count_mismatches(self) -> Iterator[str]:
        """Yields the counts that do not match, in words: rows, then records, frames and images."""
        yield from mismatches(self.input, self.splits)
        images = Counter[str]()
        for name, split in self.splits.items():
            for shard in split.shards:
                images.update(shard.images)
            frames = [shard.frames for shard in split.shards if shard.frames is not None]
            if split.records != sum(shard.records for shard in split.shards):
                yield f"split {name!r}: its records are not those of its shards"
            if split.frames is not None and split.frames != sum(frames):
                yield f"split {name!r}: its frames are not those of its shards"
        if self.images != images:
            yield "the images are not those of the shards"


@dataclass(frozen=True)
class Base:
    """The published dataset that a new version is made from: `--base DIR/NAME/1.0.0`.

    Attributes:
        directory: where it is.
        manifest_sha256: sha256 of its manifest.
        manifest: what it consists of.
        fingerprints: shard file to the fingerprint of what it was made from, where that is known.
    """

    directory: str
    manifest_sha256: str
    manifest: Manifest
    fingerprints: Mapping[str, str]

    @property
    def seed(self) -> int:
        """The seed that its records are ordered by."""
        return int(self.manifest.config["seed"])

    def shards(self, split: str) -> tuple[ShardEntry, ...]:
        """Returns the shards of a split; none if it has no such split."""
        entry = self.manifest.splits.get(split)
        return entry.shards if entry else ()

    def same_shard(self, split: str, index: int, fingerprint: str) -> ShardEntry | None:
        """Returns the shard of the base version that can be reused; None if its bytes would differ.

        Args:
            split: the shard's split.
            index: its number within the split.
            fingerprint: of what the shard would be made from now.
        """
        shards = self.shards(split)
        if index >= len(shards):
            return None
        shard = shards[index]
        return shard if self.fingerprints.get(shard.file) == fingerprint else None
