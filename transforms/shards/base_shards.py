"""Reuses a shard of a base version: under another name, by a hard link where that is possible."""

from __future__ import annotations

import os
import shutil
import uuid

from recordmill.schemas import layout
from recordmill.schemas.base_version import Base
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.rows.fingerprint import Fingerprint
from recordmill.transforms.shards.checkpoints import Staging
from recordmill.transforms.storage.files import is_local, open_binary, write_bytes
from recordmill.transforms.storage.shard_files import Digests, digests, local_copy


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
