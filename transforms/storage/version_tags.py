"""What stands for the content of a file where reading it would cost too much.

Of a file on this machine its size, its inode and the times at which its content (mtime) and its
entry (ctime) were last changed, in nanoseconds: ctime cannot be set, so that a file with a date
made to look old is seen, too, and two files that were written within one tick of a coarse clock
have inodes of their own. Not its device: that has another number after a restart or in another
container. Of an object its size and its ETag, which come with its bytes. Files of the web and of
HDFS have none. Images that a run stages need none: their references have the hash of their bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.storage.files import ABSENT, VersionTags, is_local, remote_version_tag
from recordmill.transforms.storage.image_root import ImageRootGuard
from recordmill.transforms.storage.stores.local import version_tag

_THREADS = 64


def file_version_tags(refs: Iterable[ImageRef], guard: ImageRootGuard, remote: bool) -> VersionTags:
    """Returns the tags of the files that references are read from; to be taken before they are.

    A file that changes later has another tag when it is looked at again.

    Args:
        refs: the references.
        guard: what is outside of it is not looked at, and has no tag.
        remote: whether stores are asked, at a request a file; otherwise only this machine is.
    """
    files = dict.fromkeys(chain.from_iterable(map(_files_of, refs)))
    here = [uri for uri in files if is_local(uri)]
    tags: VersionTags = {uri: _version_tag_of(uri, guard) for uri in here}
    if remote and len(here) < len(files):
        there = [uri for uri in files if not is_local(uri)]
        with ThreadPoolExecutor(_THREADS) as executor:
            found = executor.map(partial(_version_tag_of, guard=guard), there)
            tags.update(zip(there, found, strict=True))
    return tags


def ref_version_tags(refs: Iterable[ImageRef], taken: VersionTags) -> list[str] | None:
    """Returns the version tag of each reference's image and mask; None if one has none.

    Args:
        refs: the references.
        taken: the tags of their files.
    """
    tags = []
    for ref in refs:
        found = [tag for uri in _files_of(ref) if (tag := taken.get(uri)) is not None]
        if len(found) < len(_files_of(ref)):
            return None
        tags.append("\n".join(found))
    return tags


def _files_of(ref: ImageRef) -> tuple[str, ...]:
    """Returns the files that a reference is read from, without those that a run stages."""
    image = () if ref.staged else (ref.uri,)
    return (*image, ref.mask_uri) if ref.mask_uri else image


def _version_tag_of(uri: str, guard: ImageRootGuard) -> str | None:
    try:
        guard.check(uri)
    except RecordError:
        return None  # a link may lead elsewhere next time, and the file stay as it is
    return _local_version_tag(uri) if is_local(uri) else remote_version_tag(uri)


def _local_version_tag(path: str) -> str | None:
    if not path:
        return ""  # the schema needs no image
    try:
        state = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except (OSError, ValueError):
        return None
    return version_tag(state)
