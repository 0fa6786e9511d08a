"""Reads and writes HDFS with the WebHDFS client of Beam's file system (--hdfs_host, --hdfs_port).

The client is used directly, because Beam's file system requests a file's status before each read,
does not overwrite files, and does not list folders recursively.
"""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, TypeVar

from apache_beam.io.filesystems import FileSystems

from recordmill.transforms.storage.stores.beam import request
from recordmill.transforms.storage.stores.options import current_options
from recordmill.transforms.storage.stores.range_files import open_ranges
from recordmill.transforms.storage.stores.retries import TooLargeError, TooSlowError
from recordmill.transforms.storage.stores.store import Store, TaggedBytes

T = TypeVar("T")

_SCHEME = "hdfs://"

# Seconds to connect, and seconds between two bytes.
_TIMEOUTS = (10.0, 30.0)

_MAX_SECONDS = 600.0
_CHUNK_BYTES = 2**20


def is_hdfs(uri: str) -> bool:
    """Returns whether a path is an hdfs:// URL."""
    return uri.startswith(_SCHEME)


class _HdfsStore(Store):
    def open(self, path: str) -> BinaryIO:
        size = self.size(path)
        if size is None:
            raise FileNotFoundError("no such file")
        return open_ranges(size, lambda start, stop: self.read(path, start, stop, stop - start)[0])

    def read(self, path: str, start: int | None, stop: int | None, limit: int) -> TaggedBytes:
        offset, length = 0, None
        if start is not None and stop is not None:
            offset, length = start, stop - start
            if length <= 0:
                return b"", None

        def read(client: Any, path: str) -> bytes:
            with client.read(path, offset=offset, length=length) as reader:
                return _read(reader, limit)

        return _request(path, read), None

    def write(self, path: str, data: bytes, with_folders: bool) -> None:
        _request(path, lambda client, path: client.write(path, data=data, overwrite=True))

    def move(self, source: str, target: str) -> None:
        self.delete(target)  # WebHDFS does not rename over an existing file
        self.make_folder(target.rpartition("/")[0])
        _request(source, lambda client, path: client.rename(path, _CLIENTS.of(target)[1]))

    def delete(self, path: str) -> None:
        _request(path, lambda client, path: client.delete(path, recursive=True))

    def delete_files(self, paths: Sequence[str], directory: str) -> None:
        for path in paths:
            self.delete(path)
        if not any(self.names_below(directory)):
            self.delete(directory)

    def make_folder(self, path: str) -> None:
        _request(path, lambda client, path: client.makedirs(path))

    def names_below(self, root: str) -> Iterator[str]:
        if _type(root) != "DIRECTORY":
            return
        waiting = [""]  # folders to list, relative to the first
        while waiting:
            folder = waiting.pop()
            for name, is_folder in _request(root, partial(_entries, folder=folder)):
                if is_folder:
                    waiting.append(name)
                else:
                    yield name

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        if _type(folder) != "DIRECTORY":
            return [], []
        kinds = _request(folder, partial(_entries, folder=""))
        return [n for n, is_dir in kinds if is_dir], [n for n, is_dir in kinds if not is_dir]

    def exists(self, path: str) -> bool:
        return _type(path) is not None

    def is_file(self, path: str) -> bool:
        return _type(path) == "FILE"

    def size(self, path: str) -> int | None:
        found = _request(path, _status)
        return int(found["length"]) if found else None


HDFS = _HdfsStore()


def _read(reader: Any, limit: int | None) -> bytes:
    """Returns the bytes of a reader, read in chunks.

    Raises TooSlowError: after `_MAX_SECONDS`, even while bytes arrive. Raises TooLargeError: above
    `limit` bytes.
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


def _type(uri: str) -> str | None:
    """Returns "FILE" or "DIRECTORY", or None if nothing has this path."""
    found = _request(uri, _status)
    return found["type"] if found else None


def _status(client: Any, path: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = client.status(path, strict=False)
    return found


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
