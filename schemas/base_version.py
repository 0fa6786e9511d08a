"""The dataset that a new version is made from: `--base DIR/NAME/1.0.0`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recordmill.schemas.dataset_info import DatasetInfo
from recordmill.schemas.manifest import BaseEntry, Manifest, ShardEntry


@dataclass(frozen=True)
class Base:
    """A published dataset whose rows and shards are kept.

    Attributes:
        directory: where it is.
        manifest_sha256: sha256 of its manifest.
        manifest: what it consists of.
        fingerprints: shard file to what decided its bytes; of those that its run could tell.
    """

    directory: str
    manifest_sha256: str
    manifest: Manifest
    fingerprints: Mapping[str, str]

    @property
    def seed(self) -> int:
        """By which its records are in order."""
        return int(self.manifest.config["seed"])

    def shards(self, split: str) -> tuple[ShardEntry, ...]:
        """Returns the shards of a split; none if it has no such split."""
        entry = self.manifest.splits.get(split)
        return entry.shards if entry else ()

    def same_shard(self, split: str, index: int, fingerprint: str) -> ShardEntry | None:
        """Returns a shard of the base if it is what would be written now."""
        shards = self.shards(split)
        if index >= len(shards):
            return None
        shard = shards[index]
        return shard if self.fingerprints.get(shard.file) == fingerprint else None


def base_entry(base: Base, info: DatasetInfo) -> BaseEntry:
    """Returns what a new dataset's manifest says of its base.

    Rows of the base are in the shards that the base has, new ones in those that come after them.
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
