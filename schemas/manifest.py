"""manifest.json: what a dataset consists of, to be proven again at any time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from schemas.config import FORMAT_VERSION, ConvertConfig
from schemas.dataset_info import ClassCounts, DatasetInfo, ShardAudit
from schemas.features import Schema
from schemas.plan import ResolvedSchema

_RUN_ONLY = {"output", "if_exists"}


class ShardEntry(BaseModel):
    """One shard as published: file names are relative to the dataset's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    records: int
    bytes: int
    payload: int
    sha256: str
    crc32c: int
    index_file: str
    index_sha256: str
    classes: dict[str, dict[int, int]]


class SplitEntry(BaseModel):
    """One split as published, with where its rows went."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    records: int
    rejected: int
    duplicates: int
    shards: tuple[ShardEntry, ...]


class InputEntry(BaseModel):
    """What was read, and what of it was refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    records: int
    rejected: int
    duplicates: int
    unplaced: int
    reasons: dict[str, int]


class Manifest(BaseModel):
    """The whole of manifest.json.

    Attributes:
        format_version: of the way that records are placed and encoded.
        name: the dataset's name.
        version: its version.
        fingerprint: digest of every option that decides the content.
        config: the options.
        dataset_schema: the settled schema; "schema" in the file.
        classes: feature to its class names.
        input: where all rows went.
        images: how many images got which treatment.
        splits: where each split's rows went, and its shards.
        sidecars: the other files' digests.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int
    name: str
    version: str
    fingerprint: str
    config: dict[str, Any]
    dataset_schema: Schema
    classes: dict[str, tuple[str, ...]]
    input: InputEntry
    images: dict[str, int]
    splits: dict[str, SplitEntry]
    sidecars: dict[str, str]

    @property
    def resolved(self) -> ResolvedSchema:
        """The settled schema, as records were encoded by it."""
        return ResolvedSchema(self.dataset_schema, self.classes)


def manifest_of(info: DatasetInfo, config: ConvertConfig, sidecars: Mapping[str, str]) -> Manifest:
    """Returns the manifest of a proven dataset."""
    books = info.books
    return Manifest(
        format_version=FORMAT_VERSION,
        name=config.name,
        version=config.version,
        fingerprint=config.fingerprint,
        config=config.model_dump(mode="json", exclude=_RUN_ONLY),
        dataset_schema=info.plan.resolved.schema,
        classes=dict(info.plan.resolved.classes),
        input=InputEntry(
            rows=books.rows_read,
            records=books.written,
            rejected=books.rejected,
            duplicates=sum(split.duplicates for split in books.splits.values()),
            unplaced=books.unplaced,
            reasons=dict(books.reasons),
        ),
        images=dict(info.images),
        splits={split: _split_entry(info, split) for split in info.plan.shards},
        sidecars=dict(sidecars),
    )


def _split_entry(info: DatasetInfo, split: str) -> SplitEntry:
    books = info.books.splits[split]
    return SplitEntry(
        rows=books.rows,
        records=books.written,
        rejected=books.rejected,
        duplicates=books.duplicates,
        shards=tuple(_shard_entry(audit) for audit in info.shards if audit.split == split),
    )


def _shard_entry(audit: ShardAudit) -> ShardEntry:
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
    )


def _plain(classes: ClassCounts) -> dict[str, dict[int, int]]:
    return {feature: dict(sorted(counts.items())) for feature, counts in classes.items()}
