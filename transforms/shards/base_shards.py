"""Takes a shard of a base as it is: under another name, by a hard link where that can be."""

from __future__ import annotations

import os
import shutil
import uuid

import google_crc32c

from recordmill.schemas import layout
from recordmill.schemas.base_version import Base
from recordmill.schemas.dataset_info import ShardInfo
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.rows.fingerprint import ShardMark
from recordmill.transforms.shards.checkpoints import Staging
from recordmill.transforms.shards.writer import WrittenShard
from recordmill.transforms.storage.files import is_local, open_binary, write_bytes
from recordmill.transforms.storage.shard_files import digests, local_copy


def link_shard(
    base: Base, entry: ShardEntry, staging: Staging, mark: ShardMark
) -> WrittenShard | None:
    """Returns a shard of a base, in the staging area; None if its files are not as published.

    Args:
        base: the dataset that has it.
        entry: what the base's manifest says of it.
        staging: where to.
        mark: what is wanted.
    """
    sources = [layout.join(base.directory, name) for name in (entry.file, entry.index_file)]
    if not all(map(_is, sources, (entry.sha256, entry.index_sha256))):
        return None
    uid = f"{mark.index:05d}-{uuid.uuid4()}"
    targets = [
        layout.join(staging.folder(kind, mark.split), f"{uid}.{source.rpartition('/')[2]}")
        for kind, source in zip(("shards", "records"), sources, strict=True)
    ]
    for source, target in zip(sources, targets, strict=True):
        _link(source, target)
    info = ShardInfo(
        split=mark.split,
        index=mark.index,
        records=entry.records,
        payload=entry.payload,
        crc32c=entry.crc32c,
        index_crc32c=_crc32c(sources[1]),
        classes=entry.classes,
        frames=entry.frames,
        images=entry.images,
        linked=True,
        fingerprint=mark.fingerprint,
    )
    return WrittenShard(info, *targets)


def _is(path: str, sha256: str) -> bool:
    try:
        with local_copy(path) as copy:
            return digests(copy).sha256 == sha256
    except OSError:
        return False


def _crc32c(path: str) -> int:
    with open_binary(path) as stream:
        return int(google_crc32c.value(stream.read()))


def _link(source: str, target: str) -> None:
    if is_local(source) and is_local(target):
        try:
            os.link(source, target)
        except OSError:  # on another disk, or on one without links
            shutil.copyfile(source, target)
        return
    with open_binary(source) as stream:
        write_bytes(target, stream.read())
