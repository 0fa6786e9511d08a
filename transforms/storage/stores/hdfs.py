"""HDFS, by the client that Beam's own file system sets up: WebHDFS, at --hdfs_host and --hdfs_port.

Beam's file system itself asks for a file's state before each read, writes over nothing, and lists
no folder within a folder.
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
_TIMEOUTS = (10.0, 30.0)
"""Seconds to connect, and without a byte."""

_MAX_SECONDS = 600.0
_CHUNK_BYTES = 2**20


def is_hdfs(uri: str) -> bool:
    """Returns whether a path is one of HDFS."""
    return uri.startswith(_SCHEME)


def get(
    uri: str, start: int | None = None, stop: int | None = None, limit: int | None = None
) -> bytes:
    """Returns a file's bytes, or those from `start` to before `stop`, opened once.

    Raises:
        OSError: if they cannot be had; FileNotFoundError if there is no such file; TooLargeError
            if they are more than `limit`.
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
    """Writes a whole file, replacing what is there.

    Raises:
        OSError: if it cannot be written.
    """
    _request(uri, lambda client, path: client.write(path, data=data, overwrite=True))


def make_folder(uri: str) -> None:
    """Makes a folder and those above it; what is there is made already.

    Raises:
        OSError: if it cannot be made.
    """
    _request(uri, lambda client, path: client.makedirs(path))


def move(source: str, target: str) -> None:
    """Gives a file another name, in the place of what has it.

    Raises:
        OSError: if it cannot be renamed.
    """
    delete(target)
    make_folder(target.rpartition("/")[0])
    _request(source, lambda client, path: client.rename(path, _CLIENTS.of(target)[1]))


def delete(uri: str) -> None:
    """Deletes a file, or a folder with all that is in it.

    Raises:
        OSError: if it cannot be deleted.
    """
    _request(uri, lambda client, path: client.delete(path, recursive=True))


def state(uri: str) -> dict[str, Any] | None:
    """Returns what WebHDFS describes a file or folder, its `type` and `length`; None if none is.

    Raises:
        OSError: if that cannot be found out.
    """
    found: dict[str, Any] | None = _request(uri, _status)
    return found


def names_below(uri: str) -> Iterator[str]:
    """Yields the names of all files below a folder, as they are below it.

    Raises:
        OSError: if they cannot be listed.
    """
    found = state(uri)
    if found is None or found["type"] != "DIRECTORY":
        return
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        for name, is_folder in _request(uri, partial(_entries, folder=folder)):
            if is_folder:
                waiting.append(name)
            else:
                yield name


def open_file(uri: str) -> BinaryIO:
    """Returns a file's bytes as a file that can be sought in, read some megabytes a request.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is no such file.
    """
    found = state(uri)
    if found is None:
        raise FileNotFoundError("no such file")
    return open_ranges(int(found["length"]), lambda start, stop: get(uri, start, stop))


def _read(reader: Any, limit: int | None) -> bytes:
    """Returns all that a reader gives, some megabytes at a time.

    Raises:
        TooSlowError: after `_MAX_SECONDS`, however little comes at a time.
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
    """Returns what a call of the client with the file's path brings."""

    def attempt() -> T:
        client, path = _CLIENTS.of(uri)
        return call(client, path)

    return request(attempt)


class _Clients:
    """The client of each thread, regenerated when the options change."""

    def __init__(self) -> None:
        self._local = threading.local()

    def of(self, uri: str) -> tuple[Any, str]:
        options = current_options()
        if getattr(self._local, "options", None) is not options:
            self._local.system = FileSystems.get_filesystem(uri)
            self._local.system._hdfs_client._timeout = _TIMEOUTS  # Beam sets none
            self._local.options = options
        system = self._local.system
        return system._hdfs_client, system._parse_url(uri)[1]


_CLIENTS = _Clients()
