"""Links shards of a base version: an unchanged one is published under its new name.

It becomes a hard link where the file system allows it, or a copy that the object store makes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.transforms.storage.drafts import Draft
from recordmill.transforms.storage.files import file_size, is_local, open_binary
from recordmill.transforms.storage.shard_files import Digests, ShardFiles, digests, local_copy
from recordmill.transforms.storage.stores import objects
from recordmill.transforms.storage.stores.objects import Version


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
