"""Opens files on this machine, and only regular ones: a table can name any path.

A FIFO is waited for until somebody writes to it, a device may never end, and some do things when
they are opened.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from recordmill.transforms.storage.stores.retries import TooLargeError

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class NotRegularError(OSError):
    """A path that names something else than a regular file or a folder."""


def open_regular(path: str) -> BinaryIO:
    """Returns a regular file's bytes; never waits for anything else.

    Raises:
        NotRegularError: for a FIFO, a socket or a device.
        OSError: if it cannot be opened; IsADirectoryError for a folder.
        ValueError: if the path has a null byte.
    """
    return open(path, "rb", opener=_open)


def version_tag(state: os.stat_result) -> str:
    """Returns the version tag of a file: it changes when the file's content does."""
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"


def read_regular(path: str, start: int | None, stop: int | None, limit: int) -> tuple[bytes, str]:
    """Returns a regular file's bytes, or those from `start` to before `stop`, and its version tag.

    The tag is that of the very file that is read, as it was before: links may lead elsewhere since.

    Raises:
        TooLargeError: above `limit` bytes.
        OSError: as `open_regular`.
        ValueError: also.
    """
    with open_regular(path) as stream:
        first, state = start or 0, os.fstat(stream.fileno())
        size = max(0, state.st_size - first)
        most = limit + 1 if stop is None else min(limit + 1, stop - first)
        if min(size, most) > limit:
            raise TooLargeError(limit)
        stream.seek(first)
        data = stream.read(min(size + 1, most)) or b""  # None where one of /proc would block
        if size < len(data) < most:  # it grows, or is one of /proc, whose sizes are 0
            data += stream.read(most - len(data)) or b""
    if len(data) > limit:
        raise TooLargeError(limit)
    return data, version_tag(state)


def is_special(path: str) -> bool:
    """Returns whether a path leads to a FIFO, a socket or a device."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode) in _KINDS
    except OSError:
        return False


def _open(path: str, flags: int) -> int:
    _check(os.stat(path), path)  # some devices act when they are opened
    descriptor = os.open(path, flags | os.O_NONBLOCK)  # it may have been replaced since
    try:
        _check(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check(state: os.stat_result, path: str) -> None:
    kind = stat.S_IFMT(state.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if kind != stat.S_IFREG:
        raise NotRegularError(f"is {_KINDS.get(kind, 'special')}; expected a regular file")
