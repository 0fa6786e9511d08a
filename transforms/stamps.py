"""What stands for the content of a file where reading it would cost too much.

Of a file on this machine its size and the times at which its content (mtime) and its entry (ctime)
were last changed, in nanoseconds: ctime cannot be set, so that a file with a date made to look old
is seen, too. Of an object its size and its ETag, which come with its bytes. Files of the web and of
HDFS have none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from schemas.layout import is_staged
from schemas.records import ImageRef
from transforms.files import ABSENT, Stamps, is_local, stamp

_THREADS = 64


def stamps_of(refs: Iterable[ImageRef]) -> list[str] | None:
    """Returns the stamp of each reference's image; None if one cannot be had.

    To be taken before the images are read: one that changes later has another stamp when it is
    looked at again.
    """
    files = [_files_of(ref) for ref in refs]
    different = list(dict.fromkeys(chain.from_iterable(files)))
    if all(map(is_local, different)):
        stamps = list(map(_local_stamp, different))
    else:
        with ThreadPoolExecutor(_THREADS) as executor:
            stamps = list(executor.map(stamp_of, different))
    known = {uri: stamp for uri, stamp in zip(different, stamps, strict=True) if stamp is not None}
    if len(known) < len(different):
        return None
    return ["\n".join(known[uri] for uri in uris) for uris in files]


def stamps_seen(refs: Iterable[ImageRef], seen: Stamps) -> list[str] | None:
    """Returns the stamp of each reference's image, as they were when they were read.

    None if one was not read, or not from where files have stamps.
    """
    known = dict(seen)
    stamps = []
    for ref in refs:
        for uri in _files_of(ref):
            if uri not in known:  # a table with images, say
                known[uri] = stamp_of(uri) if uri == ref.file or is_local(uri) else None
        found = [known[uri] for uri in _files_of(ref)]
        if None in found:
            return None
        stamps.append("\n".join(map(str, found)))
    return stamps


def _files_of(ref: ImageRef) -> tuple[str, ...]:
    """Returns what a reference is read from; of images that a run stages, their table."""
    own = ref.file if is_staged(ref.uri) else ref.uri
    return (own, ref.mask_uri) if ref.mask_uri else (own,)


def stamp_of(uri: str) -> str | None:
    """Returns what stands for the content of a file; None if that cannot be had."""
    return _local_stamp(uri) if is_local(uri) else stamp(uri)


def _local_stamp(path: str) -> str | None:
    if not path:
        return ""  # the schema needs no image
    try:
        state = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except (OSError, ValueError):
        return None
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}"
