"""Looks up the shards of the keys of a base version.

Each process reads the keys of the base's records once and keeps 20 bytes per key. The keys decide
the shards of rows, so an index is used only if its checksum is the one in the base's manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.transforms.functional.rows.placement import BaseShard, BaseShardLookup, not_in_base
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.drafts import Draft
from recordmill.transforms.storage.files import file_size, is_local, open_binary
from recordmill.transforms.storage.shard_files import Digests, ShardFiles, digests, local_copy
from recordmill.transforms.storage.stores import objects
from recordmill.transforms.storage.stores.objects import Version

# Bytes of SHA-256 that stand for a key: among 10^9 keys, a collision has a chance of 10^-21.
_DIGEST_BYTES = 16

# Concurrent reads of indexes: they wait for the file system or store, not for a core.
_THREADS = 16

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
    shards: tuple[BaseShard, ...]

    def find(self, key: str) -> BaseShard | None:
        """Returns the shard that holds a key; None if none does."""
        first, second = np.frombuffer(_digest(key), dtype=">u8").astype(np.uint64)
        i = int(np.searchsorted(self.first, first))
        while i < len(self.first) and self.first[i] == first:  # nearly always a single pass
            if self.second[i] == second:
                return self.shards[int(self.shard[i])]
            i += 1
        return None


def base_shard_lookup(base: Base | None) -> BaseShardLookup:
    """Returns a function that looks up the base shard of a key; without a base, it returns None.

    Raises UsageError if an index of the base version is missing, or is not the published one.
    """
    if base is None:
        return not_in_base
    with _lock:  # all threads of a worker wait for one read
        if base.manifest_sha256 not in _by_manifest:
            _by_manifest.clear()
            _by_manifest[base.manifest_sha256] = _read(base)
        return _by_manifest[base.manifest_sha256].find


def _read(base: Base) -> _Keys:
    dataset = Dataset(base.directory, base.manifest)
    shards = dataset.shards()
    with ThreadPoolExecutor(_THREADS) as executor:
        digests = list(executor.map(partial(_digests_of, dataset), shards.values()))
    # Two big-endian words per digest, so that numbers sort as the digests do: (keys, 2).
    words = np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))  # by the first word, then the second
    counts = [len(digest) // _DIGEST_BYTES for digest in digests]
    numbers = np.repeat(np.arange(len(shards), dtype=np.uint32), counts)
    return _Keys(words[order, 0], words[order, 1], numbers[order], tuple(shards))


def _digests_of(dataset: Dataset, shard: ShardEntry) -> bytes:
    """Returns the concatenated digests of the keys of a shard's records."""
    try:
        keys = dataset.index(shard, ["key"])["key"].to_pylist()
    except VerificationFailed as error:
        raise UsageError(f"--base {error} Or choose another --base, or omit it.") from error
    return b"".join(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8")).digest()[:_DIGEST_BYTES]


def link_shard(
    base: Base,
    entry: ShardEntry,
    files: ShardFiles,
    fingerprint: str,
    replaced: Sequence[Version | None],
) -> WrittenShard:
    """Publishes a shard of the base version and its index under their new names, unread.

    `replaced` is the versions of the files that an earlier run left; None for a missing file.
    Raises UsageError if the shard does not have its size in the manifest.
    """
    sources, targets = (entry.file, entry.index_file), (files.file, files.records)
    sizes = (entry.bytes, None)
    for name, target, size, version in zip(sources, targets, sizes, replaced, strict=True):
        source = layout.join(base.directory, name)
        _publish_link(source, files.directory, target, version, size)
    return WrittenShard(
        split=files.split,
        index=files.index,
        records=entry.records,
        payload=entry.payload,
        crc32c=entry.crc32c,
        index_crc32c=0,  # the index is not read
        classes={},  # the manifest has those of the whole split
        frames=entry.frames,
        images=entry.images,
        linked=True,
        fingerprint=fingerprint,
    )


def unchanged_index(base: Base, entry: ShardEntry) -> Digests | None:
    """Returns the digests of a shard's index; None if the shard or the index was changed.

    Reads both.
    """
    shard, index = (
        _digests(layout.join(base.directory, f)) for f in (entry.file, entry.index_file)
    )
    if shard is None or shard.sha256 != entry.sha256:
        return None
    return index if index and index.sha256 == entry.index_sha256 else None


def _digests(path: str) -> Digests | None:
    try:
        with local_copy(path) as copy:
            return digests(copy)
    except OSError:
        return None


def _publish_link(
    source: str,
    directory: str,
    name: str,
    replaced: Version | None,
    size: int | None = None,
) -> None:
    """Gives a file of the base version its name in a new version, without reading it if possible.

    It becomes a hard link, or a copy that the object store makes; elsewhere, it is copied.
    `replaced` is the version of the file that an earlier run left; None if there is none. `size` is
    the expected bytes; None to accept any. Raises UsageError if it is missing, or has another size.
    """
    found = file_size(source)
    if found is None or size not in (None, found):
        what = "is missing" if found is None else f"expected {size:,} bytes, got {found:,}"
        raise UsageError(f"--base {source}: {what}. Restore it from a backup.")
    target = layout.join(directory, name)
    copied = objects.copy(source, target)
    # A server that ignores the header of a copy, as fake-gcs-server does, writes an empty object.
    if copied and file_size(target) == found:
        return
    draft = Draft(directory, name)
    _link(source, draft)
    draft.commit({} if copied else replaced)


def _link(source: str, draft: Draft) -> None:
    if is_local(source) and is_local(draft.path):
        with contextlib.suppress(OSError):  # another file system, or one without hard links
            os.link(source, draft.path)
            return
    with open_binary(source) as stream, draft.open() as copy:
        shutil.copyfileobj(stream, copy)
