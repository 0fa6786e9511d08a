"""Reads and writes HDFS with the WebHDFS client of Beam's file system (--hdfs_host, --hdfs_port).

The client is used directly, because Beam's file system requests a file's status before each read,
does not overwrite files, and does not list folders recursively.
"""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO, TypeVar

from apache_beam.io.filesystems import FileSystems

from recordmill.transforms.storage.stores.beam import request
from recordmill.transforms.storage.stores.objects import open_ranges
from recordmill.transforms.storage.stores.options import current_options
from recordmill.transforms.storage.stores.retries import TooLargeError, TooSlowError

T = TypeVar("T")

_SCHEME = "hdfs://"

# Seconds to connect, and seconds between two bytes.
_TIMEOUTS = (10.0, 30.0)

_MAX_SECONDS = 600.0
_CHUNK_BYTES = 2**20


def is_hdfs(uri: str) -> bool:
    """Returns whether a path is an hdfs:// URL."""
    return uri.startswith(_SCHEME)


def get(
    uri: str, start: int | None = None, stop: int | None = None, limit: int | None = None
) -> bytes:
    """Returns the bytes of a file, or a range of them, with one request.

    Args:
        uri: the file.
        start: the first byte; None for the whole file.
        stop: the byte after the last.
        limit: the maximum number of bytes.

    Raises:
        OSError: if the file cannot be read; FileNotFoundError if it does not exist;
            TooLargeError above `limit` bytes.
    """
    if start is None or stop is None:
        offset, length = 0, None
    elif stop <= start:
        return b""
    else:
        offset, length = start, stop - start

    def read(client: Any, path: str) -> bytes:
        with client.read(path, offset=offset, length=length) as reader:
            return _read(reader, limit)

    return _request(uri, read)


def put(uri: str, data: bytes) -> None:
    """Writes a whole file, replacing an existing one.

    Args:
        uri: the file.
        data: the content of the file.

    Raises:
        OSError: if the file cannot be written.
    """
    _request(uri, lambda client, path: client.write(path, data=data, overwrite=True))


def make_folder(uri: str) -> None:
    """Creates a folder and its parents; an existing one is not an error.

    Raises:
        OSError: if the file cannot be created.
    """
    _request(uri, lambda client, path: client.makedirs(path))


def move(source: str, target: str) -> None:
    """Renames a file, replacing an existing target.

    Args:
        source: the path of the file.
        target: the new path.

    Raises:
        OSError: if the file cannot be renamed.
    """
    delete(target)  # WebHDFS does not rename over an existing file
    make_folder(target.rpartition("/")[0])
    _request(source, lambda client, path: client.rename(path, _CLIENTS.of(target)[1]))


def delete(uri: str) -> None:
    """Deletes a file, or a folder with everything in it.

    Raises:
        OSError: if the file cannot be deleted.
    """
    _request(uri, lambda client, path: client.delete(path, recursive=True))


def state(uri: str) -> dict[str, Any] | None:
    """Returns the WebHDFS status of a file or folder, with `type` and `length`, or None.

    Raises:
        OSError: if HDFS does not answer.
    """
    found: dict[str, Any] | None = _request(uri, _status)
    return found


def names_below(uri: str) -> Iterator[str]:
    """Yields the names of all files below a folder, relative to it.

    Raises:
        OSError: if the files cannot be listed.
    """
    found = state(uri)
    if found is None or found["type"] != "DIRECTORY":
        return
    waiting = [""]  # folders to list, relative to the first
    while waiting:
        folder = waiting.pop()
        for name, is_folder in _request(uri, partial(_entries, folder=folder)):
            if is_folder:
                waiting.append(name)
            else:
                yield name


def entries(uri: str) -> tuple[list[str], list[str]]:
    """Returns the names of the folders and of the files directly in a folder, if it exists.

    Raises:
        OSError: if the folder cannot be listed.
    """
    found = state(uri)
    if found is None or found["type"] != "DIRECTORY":
        return [], []
    kinds = _request(uri, partial(_entries, folder=""))
    return [n for n, is_folder in kinds if is_folder], [
        n for n, is_folder in kinds if not is_folder
    ]


def open_file(uri: str) -> BinaryIO:
    """Opens a file for seekable reads, in range requests of a few megabytes.

    Raises:
        OSError: if the file cannot be read; FileNotFoundError if it does not exist.
    """
    found = state(uri)
    if found is None:
        raise FileNotFoundError("no such file")
    return open_ranges(int(found["length"]), lambda start, stop: get(uri, start, stop))


def _read(reader: Any, limit: int | None) -> bytes:
    """Returns the bytes of a reader, read in chunks.

    Raises:
        TooSlowError: after `_MAX_SECONDS`, even while bytes arrive.
        TooLargeError: above `limit` bytes.
    """
    parts, size, deadline = [], 0, time.monotonic() + _MAX_SECONDS
    while part := reader.read(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if limit is not None and size > limit:
            raise TooLargeError(limit)
        if time.monotonic() > deadline:
            raise TooSlowError(_MAX_SECONDS)
    return b"".join(parts)


def _status(client: Any, path: str) -> Any:
    return client.status(path, strict=False)


def _entries(client: Any, path: str, folder: str) -> list[tuple[str, bool]]:
    listed = client.list(posixpath.join(path, folder), status=True)
    return [(posixpath.join(folder, n), found["type"] == "DIRECTORY") for n, found in listed]


def _request(uri: str, call: Callable[[Any, str], T]) -> T:
    """Returns the result of a call with the client and the file's path, with retries."""

    def attempt() -> T:
        client, path = _CLIENTS.of(uri)
        return call(client, path)

    return request(attempt)


class _Clients:
    """The clients, one per thread, created again when the options change."""

    def __init__(self) -> None:
        self._local = threading.local()

    def of(self, uri: str) -> tuple[Any, str]:
        options = current_options()
        # One per thread: the client keeps a requests session, which may not be thread-safe.
        if getattr(self._local, "options", None) is not options:
            self._local.system = FileSystems.get_filesystem(uri)
            self._local.system._hdfs_client._timeout = _TIMEOUTS  # Beam does not set any
            self._local.options = options
        system = self._local.system
        return system._hdfs_client, system._parse_url(uri)[1]


_CLIENTS = _Clients()
