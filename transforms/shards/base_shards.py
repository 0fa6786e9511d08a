"""What a new version takes from its base version: the places of its rows, and whole shards.

Each process reads the keys of the base's records once, and keeps 20 bytes of each. They decide
where rows go: an index is used only if it is the one that the base's manifest lists. An unchanged
shard is published under its new name, by a hard link where that is possible.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.transforms.functional.rows.placement import BaseShard, FindBaseShard
from recordmill.transforms.shards.checkpoints import Staging
from recordmill.transforms.shards.fingerprint import Fingerprint
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import is_local, open_binary, write_bytes
from recordmill.transforms.storage.shard_files import Digests, digests, local_copy

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
    homes: tuple[BaseShard, ...]

    def find(self, key: str) -> BaseShard | None:
        """Returns the shard that holds a key; None if none does."""
        first, second = np.frombuffer(_digest(key), dtype=">u8").astype(np.uint64)
        place = int(np.searchsorted(self.first, first))
        while place < len(self.first) and self.first[place] == first:
            if self.second[place] == second:
                return self.homes[int(self.shard[place])]
            place += 1
        return None


def finder(base: Base | None) -> FindBaseShard:
    """Returns what finds a key's shard in a base; nothing is found where there is no base.

    Raises:
        UsageError: if an index of the base is missing, or is not the published one.
    """
    if base is None:
        return _no_shard
    with _reading:
        if base.manifest_sha256 not in _known:
            _known.clear()
            _known[base.manifest_sha256] = _read(base)
        return _known[base.manifest_sha256].find


def _no_shard(key: str) -> BaseShard | None:
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
    except VerificationFailed as error:
        raise UsageError(f"--base {error}, choose another --base, or leave --base out") from error
    return b"".join(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8")).digest()[:_DIGEST_BYTES]


def link_shard(
    base: Base, entry: ShardEntry, staging: Staging, fingerprint: Fingerprint
) -> WrittenShard | None:
    """Returns a shard of a base, in the staging area; None if its files are not as published.

    Args:
        base: the dataset that has it.
        entry: what the base's manifest states about it.
        staging: where to.
        fingerprint: of the shard that is to be written.
    """
    sources = [layout.join(base.directory, name) for name in (entry.file, entry.index_file)]
    of_shard, of_index = map(_digests, sources)
    if of_shard is None or of_shard.sha256 != entry.sha256:
        return None
    if of_index is None or of_index.sha256 != entry.index_sha256:
        return None
    uid = f"{fingerprint.index:05d}-{uuid.uuid4()}"
    targets = [
        layout.join(staging.folder(kind, fingerprint.split), f"{uid}.{source.rpartition('/')[2]}")
        for kind, source in zip(("shards", "records"), sources, strict=True)
    ]
    for source, target in zip(sources, targets, strict=True):
        _link(source, target)
    return WrittenShard(
        split=fingerprint.split,
        index=fingerprint.index,
        records=entry.records,
        payload=entry.payload,
        crc32c=entry.crc32c,
        index_crc32c=of_index.crc32c,
        staged=(staging.name(targets[0]), staging.name(targets[1])),
        classes=entry.classes,
        frames=entry.frames,
        images=entry.images,
        linked=True,
        fingerprint=fingerprint.digest,
    )


def _digests(path: str) -> Digests | None:
    try:
        with local_copy(path) as copy:
            return digests(copy)
    except OSError:
        return None


def _link(source: str, target: str) -> None:
    if is_local(source) and is_local(target):
        try:
            os.link(source, target)
        except OSError:  # on another disk, or on one without links
            shutil.copyfile(source, target)
        return
    with open_binary(source) as stream:
        write_bytes(target, stream.read())
