"""Finds the rows of a base: which shard of it holds a key.

Each process reads the keys of the base's records once, and keeps 20 bytes of each. They decide
where rows go: an index is used only if it is the one that the base's manifest lists.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from recordmill.schemas.base_version import Base
from recordmill.schemas.errors import ProofError, UsageError
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.rows.placement import Find, Home
from recordmill.transforms.storage.dataset import Dataset

_DIGEST_BYTES = 16
_THREADS = 16

_reading = threading.Lock()
_known: dict[str, _Keys] = {}


@dataclass(frozen=True)
class _Keys:
    """The digests of all keys, sorted.

    Attributes:
        first: the first 8 bytes of each.
        second: the others.
        shard: the number of the shard that holds it, among `homes`.
        homes: the shards.
    """

    first: npt.NDArray[np.uint64]
    second: npt.NDArray[np.uint64]
    shard: npt.NDArray[np.uint32]
    homes: tuple[Home, ...]

    def find(self, key: str) -> Home | None:
        """Returns the shard that holds a key; None if none does."""
        first, second = np.frombuffer(_digest(key), dtype=">u8").astype(np.uint64)
        place = int(np.searchsorted(self.first, first))
        while place < len(self.first) and self.first[place] == first:
            if self.second[place] == second:
                return self.homes[int(self.shard[place])]
            place += 1
        return None


def finder(base: Base | None) -> Find:
    """Returns what finds a key's shard in a base; nothing is found where there is no base.

    Raises:
        UsageError: if an index of the base is missing, or is not the published one.
    """
    if base is None:
        return _nowhere
    with _reading:
        if base.seal not in _known:
            _known.clear()
            _known[base.seal] = _read(base)
        return _known[base.seal].find


def _nowhere(key: str) -> Home | None:
    return None


def _read(base: Base) -> _Keys:
    dataset = Dataset(base.directory, base.manifest)
    shards = dataset.shards()
    with ThreadPoolExecutor(_THREADS) as executor:
        digests = list(executor.map(partial(_digests_of, dataset), shards.values()))
    words = np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))
    counts = [len(digest) // _DIGEST_BYTES for digest in digests]
    numbers = np.repeat(np.arange(len(shards), dtype=np.uint32), counts)
    return _Keys(words[order, 0], words[order, 1], numbers[order], tuple(shards))


def _digests_of(dataset: Dataset, shard: ShardEntry) -> bytes:
    """Returns the digests of the keys of a shard's records, one after the other."""
    try:
        keys = dataset.index(shard, ["key"])["key"].to_pylist()
    except ProofError as error:
        raise UsageError(f"--base {error}, choose another --base, or leave --base out") from error
    return b"".join(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8")).digest()[:_DIGEST_BYTES]
