"""Finds the rows of a base: which shard of it holds a key.

Each process reads the keys of the base's records once, and keeps 20 bytes of each.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas import layout
from schemas.base import Base
from transforms.files import open_binary
from transforms.functional.one_thread_parquet import read_table
from transforms.functional.placement import Find, Home

_DIGEST_BYTES = 16

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
    """Returns what finds a key's shard in a base; nothing is found where there is no base."""
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
    homes, digests, shards = list[Home](), list[bytes](), list[npt.NDArray[np.uint32]]()
    for split, entry in base.manifest.splits.items():
        for index, shard in enumerate(entry.shards):
            with open_binary(layout.join(base.directory, shard.index_file)) as stream:
                keys = read_table(stream.read(), ["key"])["key"].to_pylist()
            digests.append(b"".join(map(_digest, keys)))
            shards.append(np.full(len(keys), len(homes), dtype=np.uint32))
            homes.append((split, index))
    words = np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))
    numbers = np.concatenate(shards) if shards else np.empty(0, dtype=np.uint32)
    return _Keys(words[order, 0], words[order, 1], numbers[order], tuple(homes))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8")).digest()[:_DIGEST_BYTES]
