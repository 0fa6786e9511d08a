"""A shard of a base version whose records stay: it is linked as a whole, or its records are copied.

This is a published dataset as a source of records. Old records do not travel: each shard of the
base version is planned again, and meets its new rows and removals where it is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.schemas.records import CopiedRecord, ImageRef, SerializedExample
from recordmill.schemas.rejects import Reject
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.statistics import CopiedCounts
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.functional.records.index import arrow_schema
from recordmill.transforms.functional.records.merge import Merged, merge_records
from recordmill.transforms.functional.rows.placement import order_of
from recordmill.transforms.shards.base_shards import link_shard
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.shard_files import MeasuredShard, ShardFiles
from recordmill.transforms.storage.stores.objects import Version

_REMEDY = "Restore it from a backup, or convert the whole table without --append."

# Rows of an index that are converted to Python at a time.
_BATCH_ROWS = 1024


@dataclass(frozen=True)
class KeptShard:
    """A shard of a base version that keeps its records."""

    base: Base
    entry: ShardEntry
    removed: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, base: Base | None, split: str, index: int) -> KeptShard | None:
        """Returns the kept shard that a new shard continues; None if there is none."""
        entry = base.kept_shard(split, index) if base else None
        return cls(base, entry) if base and entry else None

    def take_removals(
        self, assigned: Iterable[tuple[bytes, ImageRef]]
    ) -> Iterator[tuple[bytes, ImageRef]]:
        """Yields the rows of a shard; collects the keys of its removals."""
        for order, ref in assigned:
            if ref.is_removal:
                self.removed.add(ref.key)
            else:
                yield order, ref

    def fingerprint(self, settings: str) -> str:
        """Returns the settings fingerprint, extended by all that decides the copied records."""
        decisive = (settings, self.entry.sha256, self.base.on_conflict, sorted(self.removed))
        return hashlib.sha256(repr(decisive).encode("utf-8", "backslashreplace")).hexdigest()

    def merged(self, new: Iterable[SerializedExample | Reject]) -> Iterator[Merged]:
        """Yields the shard's records and those of new rows, in order."""
        seed = self.base.seed
        return merge_records(
            self.records(),
            new,
            order=lambda key: order_of(key, seed),
            on_conflict=self.base.on_conflict,
            removed=self.removed,
        )

    def records(self) -> Iterator[CopiedRecord]:
        """Yields the shard's records in order, in one pass that checks every checksum.

        Raises UsageError if the shard or its index is not the published one.
        """
        dataset = Dataset(self.base.directory, self.base.manifest)
        path = dataset.path(self.entry.file)
        try:
            index = dataset.index(self.entry, arrow_schema(self.base.manifest.resolved).names)
            batches = index.to_batches(_BATCH_ROWS)
            rows = (row for batch in batches for row in batch.to_pylist())
            with MeasuredShard(path) as file:
                for frame, row in zip(read_frames(file.stream), rows, strict=True):
                    yield CopiedRecord(row["key"], frame.data, row)
                found = file.digests().sha256
        except VerificationFailed as error:
            raise UsageError(f"--base {error}") from error
        except FrameError as error:
            where = f"{path}: record {error.record} at byte {error.offset}"
            raise UsageError(f"--base {where}: {error}. {_REMEDY}") from error
        except (OSError, ValueError, *DAMAGED_STREAM) as error:
            raise UsageError(f"--base {path}: cannot be read: {error}. {_REMEDY}") from error
        if found != self.entry.sha256:
            raise UsageError(
                f"--base {path}: is not the file that {layout.MANIFEST} lists: its sha256 differs. "
                f"{_REMEDY}"
            )

    def link(self, files: ShardFiles, replaced: Sequence[Version | None]) -> WrittenShard:
        """Publishes the shard under its new name; it was verified with the base version.

        `replaced` is the versions of the files that an earlier run left; None for a missing file.
        Raises UsageError if the shard does not have its size in the manifest.
        """
        entry = self.entry
        fingerprint = self.base.fingerprints.get(entry.file, "")
        return replace(
            link_shard(self.base, entry, files, fingerprint, replaced),
            copied=CopiedCounts(entry.records, entry.converted),
            entry=entry.model_copy(update={"file": files.file, "index_file": files.records}),
        )
