"""manifest.json: what a dataset consists of, to be proven again at any time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
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
from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.dataset_info import ClassCounts, DatasetInfo, ShardAudit, SplitBooks
from recordmill.schemas.duplicates import Content, GroupLeaks
from recordmill.schemas.features import Schema
from recordmill.schemas.masking import masked_values
from recordmill.schemas.plan import ResolvedSchema

_RUN_ONLY = {"output", "if_exists", "report"}


def _below(name: str) -> str:
    if not layout.is_below(name):
        raise ValueError(f"{name!r} is not a name below the dataset's folder")
    return name


Count = Annotated[int, Field(ge=0, lt=2**63)]
File = Annotated[str, AfterValidator(_below)]
"""Named as below the dataset's folder; never outside of it, whoever wrote the manifest."""


class _Counted(BaseModel):
    """Records that were counted.

    Attributes:
        frames: of all of them, if they are sequences; otherwise it is not written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    frames: Count | None = None

    @model_serializer(mode="wrap")
    def _without_no_frames(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if self.frames is None:
            document.pop("frames", None)
        return document


class ShardEntry(_Counted):
    """One shard as published: file names are relative to the dataset's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


class SplitEntry(_Counted):
    """One split as published, with where its rows went: of sequences, to `frames` of `records`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Count
    records: Count
    rejected: Count
    duplicates: Count
    shards: tuple[ShardEntry, ...]

    @property
    def written(self) -> int:
        """How many rows the records were made from."""
        return self.records if self.frames is None else self.frames


class InputEntry(_Counted):
    """What was read, what of it was refused, and what made no row at all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Count
    records: Count
    rejected: Count
    duplicates: Count
    unplaced: Count
    reasons: dict[str, Count]
    asides: dict[str, Count] = Field(default_factory=dict)

    @property
    def written(self) -> int:
        """How many rows the records were made from."""
        return self.records if self.frames is None else self.frames


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
        dataset_schema: the settled schema; "schema" in the file.
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
    input: InputEntry
    images: dict[str, Count]
    content: Content
    group_leaks: GroupLeaks | None = None
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
        """The settled schema, as records were encoded by it."""
        return ResolvedSchema(self.dataset_schema, self.classes)


def manifest_of(
    info: DatasetInfo,
    config: ConvertConfig,
    sidecars: Mapping[str, str],
    base: BaseEntry | None = None,
    lines: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """Returns the manifest of a proven dataset."""
    books = info.books
    return Manifest(
        format_version=FORMAT_VERSION,
        name=config.name,
        version=config.version,
        fingerprint=config.fingerprint,
        config=masked_values(config.model_dump(mode="json", exclude=_RUN_ONLY)),
        dataset_schema=info.plan.resolved.schema,
        classes=dict(info.plan.resolved.classes),
        input=InputEntry(
            rows=books.rows_read,
            records=books.written,
            rejected=books.rejected,
            duplicates=sum(split.duplicates for split in books.splits.values()),
            unplaced=books.unplaced,
            reasons=dict(books.reasons),
            asides=dict(info.asides),
            frames=books.frames,
        ),
        images=dict(info.images),
        content=info.content,
        group_leaks=info.group_leaks if info.group_leaks.groups else None,
        splits={split: _split_entry(info, split) for split in info.plan.shards},
        sidecars=dict(sidecars),
        lines=dict(lines),
        base=base,
    )


def _split_entry(info: DatasetInfo, split: str) -> SplitEntry:
    books = info.books.splits.get(split, SplitBooks())
    return SplitEntry(
        rows=books.rows,
        records=books.written,
        rejected=books.rejected,
        duplicates=books.duplicates,
        shards=tuple(
            _shard_entry(audit, info.treatments.get((split, audit.index), {}))
            for audit in info.shards
            if audit.split == split
        ),
        frames=books.frames,
    )


def _shard_entry(audit: ShardAudit, images: Mapping[str, int]) -> ShardEntry:
    return ShardEntry(
        file=audit.file,
        records=audit.records,
        bytes=audit.size,
        payload=audit.payload,
        sha256=audit.sha256,
        crc32c=audit.crc32c,
        index_file=audit.index_file,
        index_sha256=audit.index_sha256,
        classes=_plain(audit.classes),
        images=dict(sorted(images.items())),
        frames=audit.frames,
    )


def _plain(classes: ClassCounts) -> dict[str, dict[int, int]]:
    return {feature: dict(sorted(counts.items())) for feature, counts in classes.items()}
