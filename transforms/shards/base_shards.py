"""Shards of a base version: finds the shard of a key, links shards, and merges in new records.

Each process reads the keys of the base's records once and keeps 20 bytes per key. The keys decide
the shards of rows, so an index is used only if its checksum is the one in the base's manifest.

Old records do not travel: each shard of the base version whose records stay is planned again, and
meets its new rows and removals where it is written.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.schemas import layout
from recordmill.schemas.config import OnConflict
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.findings import counted
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import CopiedRecord, ImageRef, SerializedExample, Unchanged
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.statistics import CopiedCounts
from recordmill.transforms.functional.compare import both_values, change_text, changed_features
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.functional.records.index import arrow_schema
from recordmill.transforms.functional.rows import placement
from recordmill.transforms.shards.checkpoints import Fingerprint
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.drafts import Draft
from recordmill.transforms.storage.files import file_size, is_local, link, open_binary
from recordmill.transforms.storage.shard_files import Digests, MeasuredShard, ShardFiles, digests
from recordmill.transforms.storage.stores.store import Version

# Bytes of SHA-256 that stand for a key: among 10^9 keys, a collision has a chance of 10^-21.
_DIGEST_BYTES = 16


_lock = threading.Lock()

# The keys of the latest base version, by the checksum of its manifest.
_by_manifest: dict[str, _Keys] = {}


@dataclass(frozen=True)
class _Keys:
    """The digests of all keys as sorted arrays, 20 bytes per key, and the shard of each."""

    first: npt.NDArray[np.uint64]  # the first 8 bytes of each digest, (keys,)
    second: npt.NDArray[np.uint64]  # its last 8 bytes, (keys,)
    # The shard that holds the key, as an index into `shards`, (keys,).
    shard: npt.NDArray[np.uint32]
    shards: tuple[placement.BaseShard, ...]

    def find(self, key: str) -> placement.BaseShard | None:
        """Returns the shard that holds a key; None if none does."""
        first, second = np.frombuffer(_digest(key), dtype=">u8").astype(np.uint64)
        i = int(np.searchsorted(self.first, first))
        while i < len(self.first) and self.first[i] == first:  # nearly always a single pass
            if self.second[i] == second:
                return self.shards[int(self.shard[i])]
            i += 1
        return None


def base_shard_lookup(base: Base | None) -> placement.BaseShardLookup:
    """Returns a function that looks up the base shard of a key; without a base, it returns None.

    Raises UsageError if an index of the base version is missing, or is not the published one.
    """
    if base is None:
        return placement.not_in_base
    with _lock:  # all threads of a worker wait for one read
        if base.manifest_sha256 not in _by_manifest:
            _by_manifest.clear()
            _by_manifest[base.manifest_sha256] = _read(base)
        return _by_manifest[base.manifest_sha256].find


def _read(base: Base) -> _Keys:
    dataset = DatasetFolder(base.directory, base.manifest)
    shards = dataset.shards()
    digests = list(map_in_threads(partial(_digests_of, dataset), shards.values()))
    # Two big-endian words per digest, so that numbers sort as the digests do: (keys, 2).
    words = np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))  # by the first word, then the second
    counts = [len(digest) // _DIGEST_BYTES for digest in digests]
    numbers = np.repeat(np.arange(len(shards), dtype=np.uint32), counts)
    return _Keys(words[order, 0], words[order, 1], numbers[order], tuple(shards))


def _digests_of(dataset: DatasetFolder, shard: ShardEntry) -> bytes:
    """Returns the concatenated digests of the keys of a shard's records."""
    try:
        keys = dataset.index(shard, ["key"])["key"].to_pylist()
    except VerificationFailed as error:
        raise UsageError(f"--base {error} Or choose another --base, or omit it.") from error
    return b"".join(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8")).digest()[:_DIGEST_BYTES]


def link_identical(
    base: Base, fingerprint: Fingerprint, files: ShardFiles, replaced: Sequence[Version | None]
) -> WrittenShard | None:
    """Links the shard of the base version with a fingerprint; None if there is none, or it changed.

    Reads it and its index. `replaced` is the versions of the files that an earlier run left; None
    for a missing file.
    """
    entry = base.reusable_shard(fingerprint.split, fingerprint.index, fingerprint.digest)
    if entry is None:
        return None
    names = entry.file, entry.index_file
    shard, index = (_digests(layout.join(base.directory, name)) for name in names)
    if not shard or not index or (shard.sha256, index.sha256) != (entry.sha256, entry.index_sha256):
        return None
    return replace(_linked(base, entry, files, replaced), index_crc32c=index.crc32c)


def _digests(path: str) -> Digests | None:
    try:
        return digests(path)
    except OSError:
        return None


def _linked(
    base: Base, entry: ShardEntry, files: ShardFiles, replaced: Sequence[Version | None]
) -> WrittenShard:
    """Publishes a shard of the base version and its index under their new names, unread."""
    pairs = ((entry.file, files.file, entry.bytes), (entry.index_file, files.records, None))
    for (name, target, size), version in zip(pairs, replaced, strict=True):
        _publish_link(layout.join(base.directory, name), files.directory, target, version, size)
    return WrittenShard(
        split=files.split,
        index=files.index,
        records=entry.records,
        payload=entry.payload,
        crc32c=entry.crc32c,
        index_crc32c=0,  # the index is not read
        frames=entry.frames,
        images=entry.images,
        linked=1,
        fingerprint=base.fingerprints.get(entry.file, ""),
    )


def _publish_link(
    source: str, directory: str, name: str, replaced: Version | None, size: int | None = None
) -> None:
    """Gives a file of the base version its name in a new version, without reading it if possible.

    It becomes a hard link, or a copy that the object store makes; elsewhere, it is copied.
    `replaced` is the version of the file that an earlier run left. Raises UsageError if it is
    missing, or does not have the expected `size`.
    """
    found = file_size(source)
    if found is None or size not in (None, found):
        what = "is missing" if found is None else f"expected {size:,} bytes, got {found:,}"
        raise UsageError(f"--base {source}: {what}. Restore it from a backup.")
    target = layout.join(directory, name)
    copied = not is_local(target) and link(source, target)
    # A server that ignores the header of a copy, as fake-gcs-server does, writes an empty object.
    if copied and file_size(target) == found:
        return
    draft = Draft(directory, name)
    if not link(source, draft.path):
        with open_binary(source) as stream, draft.open() as copy:
            shutil.copyfileobj(stream, copy)
    draft.commit({} if copied else replaced)


_REMEDY = "Restore it from a backup, or convert the whole table without --append."

# How much of a changed record a reject shows: features, and characters of each value.
_SHOWN_FEATURES, _SHOWN_VALUE = 3, 80

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

    def merged(
        self, new: Iterable[SerializedExample | Reject], resolved: ResolvedSchema
    ) -> Iterator[Merged]:
        """Yields the shard's records and those of new rows, in order."""
        order = partial(placement.order_of, seed=self.base.seed)
        return _merge_records(self._records(), new, resolved, order, self.base.on_conflict)

    def _records(self) -> Iterator[CopiedRecord]:
        """Yields the shard's records in order, in one pass that checks every checksum.

        Raises UsageError if the shard or its index is not the published one.
        """
        dataset = DatasetFolder(self.base.directory, self.base.manifest)
        path = dataset.path(self.entry.file)
        try:
            index = dataset.index(self.entry, arrow_schema(self.base.manifest.resolved).names)
            batches = index.to_batches(_BATCH_ROWS)
            rows = (row for batch in batches for row in batch.to_pylist())
            with MeasuredShard(path) as file:
                for frame, row in zip(read_frames(file.stream), rows, strict=True):
                    yield CopiedRecord(row["key"], frame.data, row, row["key"] in self.removed)
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
        """Links the shard as it is; it was verified with the base version."""
        entry = self.entry
        return replace(
            _linked(self.base, entry, files, replaced),
            copied=CopiedCounts(entry.records, entry.converted),
            entry=entry.model_copy(update={"file": files.file, "index_file": files.records}),
        )


# What a shard is written from; rejects and unchanged rows are counted.
Merged: TypeAlias = "CopiedRecord | SerializedExample | Unchanged | Reject"

# The treatment of copied images, if it is not known.
COPIED = "copied"


def _merge_records(
    old: Iterable[CopiedRecord],
    new: Iterable[SerializedExample | Reject],
    resolved: ResolvedSchema,
    order: Callable[[str], bytes],
    on_conflict: OnConflict,
) -> Iterator[Merged]:
    """Yields the records of a shard in order, and the outcome of each new row.

    Records with one key are the same if their bytes are. Of two that differ, `on_conflict` keeps
    one; "fail" rejects the new row. All old records are yielded, those left out as `is_removed`.
    `order` returns the order hash of a key, by which old and new records are sorted.
    """
    remaining = iter(old)
    waiting = next(remaining, None)
    for record in new:
        if isinstance(record, Reject):  # an old record with its key stays
            yield record
            continue
        key = record.ref.key
        # Different keys can have one order hash: references, too, are sorted by hash and key.
        position = (order(key), key)
        while waiting and (order(waiting.key), waiting.key) < position:
            yield waiting
            waiting = next(remaining, None)
        if waiting and waiting.key == key:
            yield from _outcomes(waiting, record, resolved, on_conflict)
            waiting = next(remaining, None)
        else:
            yield record
    if waiting:
        yield waiting
    yield from remaining


def _outcomes(
    old: CopiedRecord, new: SerializedExample, resolved: ResolvedSchema, on_conflict: OnConflict
) -> Iterator[Merged]:
    """Yields the outcome of two records with one key."""
    if old.is_removed:
        yield old
        yield new
        return
    split = old.row["split"]
    moves = new.ref.split not in ("", split)
    if on_conflict == "keep" or (old.data == new.data and not moves):
        yield old
        yield Unchanged(new.rows)
    elif on_conflict == "update" and not moves:
        yield old._replace(is_removed=True)
        yield new
    else:
        changes = "; ".join(_changes(old.data, new.data, resolved))
        detail = f"differs from the record with its key in --base in {changes}"
        if new.ref.key.endswith(f":{new.ref.line}"):
            detail += "; the key is the number of the row, so set --key_column if rows may move"
        if moves:
            expected = f"expected {split!r}, as in --base. Fix it."
            detail = f"states the split {new.ref.split!r}; {expected}"
        yield old
        for row in new.frames or (new,):
            yield Reject.of(row.ref, Reason.CHANGED_RECORD, detail)


def _changes(old: bytes, new: bytes, resolved: ResolvedSchema) -> Iterator[str]:
    """Yields the first features that differ in two records, with both values."""
    changed = changed_features(old, new, [*resolved.schema.features])
    first, classes = changed[:_SHOWN_FEATURES], resolved.classes
    for name, values in both_values(first, (old, classes), (new, classes)).items():
        yield f"{name}: {change_text(values, _SHOWN_VALUE)}"
    if more := len(changed) - len(first):
        yield f"and {counted(more, 'more feature')}"


def copied_images(images: Mapping[str, int], records: int, removed: int) -> Counter[str]:
    """Returns the number of copied images by treatment.

    `images`: those of the base's shard. `removed`: how many of them are not copied, whose
    treatments are not known.

    >>> copied_images({"jpeg kept": 3}, 3, 1), copied_images({"jpeg kept": 2, "png kept": 1}, 3, 1)
    (Counter({'jpeg kept': 2}), Counter({'copied': 2}))
    """
    if not removed or not images:
        return Counter(images)
    if len(images) == 1 and images.get(next(iter(images))) == records:
        return Counter({name: records - removed for name in images if records > removed})
    return Counter({COPIED: records - removed} if records > removed else {})
