"""removal.json: the certificate of a version from which records were removed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import DatasetInfo, Problem
from recordmill.schemas.document import Document
from recordmill.schemas.manifest import Base, File, Manifest, ShardEntry
from recordmill.schemas.row_counts import Count


def digest_of_key(key: str) -> str:
    """Returns the SHA-256 of a key in hexadecimal, as certificates state it."""
    return hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()


class ShardDigest(Document):
    """A shard of one version."""

    file: File
    records: Count
    sha256: str  # sha256 of the file
    index_sha256: str  # sha256 of its file in records/

    @classmethod
    def of(cls, entry: ShardEntry) -> ShardDigest:
        """Returns the digests of a shard in a manifest."""
        return cls(**{name: getattr(entry, name) for name in cls.model_fields})


class RewrittenShard(Document):
    """A shard that had removed records."""

    before: ShardDigest
    after: ShardDigest  # the shard without the removed records


class RemovedRecords(Document):
    """The records that are removed."""

    keys_sha256: tuple[str, ...]  # sha256 of each key, sorted
    # sha256 of each removed image as stored, sorted, except for those that remain.
    images_sha256: tuple[str, ...]
    # sha256 of each removed image that a remaining record has as well.
    remaining_images_sha256: tuple[str, ...] = ()


class Removal(RemovedRecords):
    """The content of removal.json.

    It has digests in place of keys and images: who has one of these can check that it was removed.
    """

    name: str
    version: str  # the version without the records
    base_version: str
    base_manifest_sha256: str  # sha256 of the manifest of that version
    removed_at: datetime
    records: Count
    remaining_records: Count
    shards: tuple[RewrittenShard, ...]  # the shards that had removed records, in order

    def false_statements(self, manifest: Manifest) -> Iterator[Problem]:
        """Yields the counts and digests that are not those of the version's manifest."""
        for what, stated, found in self._statements(manifest):
            if stated != found:
                message = f"states {what} {stated}, but the manifest has {found}"
                yield Problem(layout.REMOVAL, message)

    def _statements(self, manifest: Manifest) -> Iterator[tuple[str, object, object]]:
        """Yields (what, the certificate's value, the manifest's value)."""
        base = manifest.base
        yield "the name", self.name, manifest.name
        yield "the version", self.version, manifest.version
        yield "the base version", self.base_version, base and base.version
        yield "the base's sha256", self.base_manifest_sha256, base and base.manifest_sha256
        yield "removed records:", self.records, sum(base.gone.values()) if base else 0
        yield "distinct keys:", len(set(self.keys_sha256)), self.records
        yield "remaining records:", self.remaining_records, manifest.input.records
        gone = sum(pair.before.records - pair.after.records for pair in self.shards)
        yield "records removed from its shards:", gone, self.records
        entries = (entry for split in manifest.splits.values() for entry in split.shards)
        digests = {entry.file: ShardDigest.of(entry) for entry in entries}
        for pair in self.shards:
            yield f"the shard {pair.after.file}:", pair.after, digests.get(pair.after.file)


def certificate_of(
    removed: RemovedRecords, base: Base, info: DatasetInfo, version: str, removed_at: datetime
) -> Removal:
    """Returns the certificate of a new version."""
    shards = []
    for shard in info.shards:
        before = base.shards(shard.split)[shard.index]
        if before.records != shard.entry.records:
            pair = ShardDigest.of(before), ShardDigest.of(shard.entry)
            shards.append(RewrittenShard(before=pair[0], after=pair[1]))
    return Removal(
        **dict(removed),
        name=base.manifest.name,
        version=version,
        base_version=base.manifest.version,
        base_manifest_sha256=base.manifest_sha256,
        removed_at=removed_at,
        records=len(removed.keys_sha256),
        remaining_records=info.counts.records,
        shards=tuple(shards),
    )
