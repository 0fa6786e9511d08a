"""Version tags of the files that references name, from which a changed image is detected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.rows.ref_batch import RefBatch
from recordmill.transforms.storage.files import VersionTags, is_local, store_of
from recordmill.transforms.storage.local_files import ImageRootGuard

# Concurrent requests for version tags: they wait for the store, not for a core.
_THREADS = 64

# The version tag of a missing file.
ABSENT = "absent"


def file_version_tags(refs: Sequence[ImageRef], guard: ImageRootGuard, remote: bool) -> VersionTags:
    """Returns the version tags of the files of references.

    Tags are taken before the files are read, so that a later change results in another tag. Files
    on the web and in HDFS have no tags. Images staged by the run need none, because their
    references have a hash of the bytes. `guard`: confines files to the image root; files outside
    have no tag. `remote`: whether to request the tags of objects in stores, with one request per
    file.
    """
    # Each file once, in a deterministic order: many references can share an archive.
    files = dict.fromkeys(chain.from_iterable(_files_of(refs)))
    local_files = [uri for uri in files if is_local(uri)]
    tags: VersionTags = {uri: _guarded_version_tag(uri, guard) for uri in local_files}
    if remote and len(local_files) < len(files):
        remote_files = [uri for uri in files if not is_local(uri)]
        with ThreadPoolExecutor(_THREADS) as executor:
            found = executor.map(partial(_guarded_version_tag, guard=guard), remote_files)
            tags.update(zip(remote_files, found, strict=True))
    return tags


def ref_version_tags(refs: Sequence[ImageRef], tags: VersionTags) -> list[str] | None:
    """Returns the version tag of each reference: the tags of its image and mask, joined.

    Returns the tags in order; None if the tag of any file is unknown.
    """
    joined = []
    for files in _files_of(refs):
        found = [tag for uri in files if (tag := tags.get(uri)) is not None]
        if len(found) < len(files):
            return None
        joined.append("\n".join(found))
    return joined if len(joined) == len(refs) else joined * len(refs)


def _files_of(refs: Sequence[ImageRef]) -> Iterator[tuple[str, ...]]:
    """Yields the image and mask files of each reference, without files staged by the run.

    If no row has other files than the first, they are yielded once.
    """
    for uri, mask, staged in RefBatch.of(refs).select("uri", "mask_uri", "staged"):
        image = () if staged else (uri,)
        yield (*image, mask) if mask else image


def _guarded_version_tag(uri: str, guard: ImageRootGuard) -> str | None:
    if not uri:
        return ""  # the schema has no image
    try:
        guard.check(uri)
        return store_of(uri).version_tag(uri)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    # Of a file outside of the root, the reject depends on where links lead, which no tag shows.
    except (OSError, ValueError, RecordError):
        return None
