"""Looks up the shards of the keys of a base version.

Each process reads the keys of the base's records once and keeps 20 bytes per key. The keys decide
the shards of rows, so an index is used only if its checksum is the one in the base's manifest.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.transforms.functional.rows.placement import BaseShard, BaseShardLookup, not_in_base
from recordmill.transforms.storage.dataset import Dataset

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
