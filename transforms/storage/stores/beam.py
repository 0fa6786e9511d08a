"""The stores that only Beam's file systems can access: HDFS, and odd keys of object stores.

obstore rejects keys with empty parts, `.` and `..`; Beam's file systems read those.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.transforms.storage.stores import store
from recordmill.transforms.storage.stores.options import (
    WebFlags,
    add_store_flags,
    current_options,
    pipeline_options,
    use_options,
)

T = TypeVar("T")

# Maximum number of files in one call of Beam's file systems.
_BATCH = 100

_MAX_SECONDS = 600.0
_CHUNK_BYTES = 2**20

# Seconds for HDFS to connect, and seconds between two bytes; Beam does not set any.
_HDFS_SECONDS = (10.0, 30.0)

# Errors of an invalid path, a missing extra or a bug, which a retry cannot fix.
_PERMANENT = (
    TypeError, ValueError, ImportError, AttributeError,
    NotImplementedError, AssertionError,
)  # fmt: skip

_CODE = re.compile(r"\b(?:HTTP |status(?: code)?:? )(\d{3})\b")


class WebOptions(PipelineOptions):
    """Limits for reading images, and tables at `http://` and `https://`, among Beam's options."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        add_store_flags(parser, WebFlags)


def use_pipeline_options(options: PipelineOptions) -> None:
    """Applies Beam options to this process."""
    use_options(None)
    FileSystems.set_options(options)


class _BeamStore(store.Store):
    def open(self, path: str) -> BinaryIO:
        return _request(lambda: _open(path))

    def read(
        self, path: str, span: store.Span | None = None, limit: int = sys.maxsize
    ) -> store.TaggedBytes:
        def attempt() -> bytes:
            with _open(path) as stream:
                stream.seek(span[0] if span else 0)
                return _content(stream, limit, span and span[1] - span[0])

        return _request(attempt), None

    def create(self, path: str) -> BinaryIO:
        created = FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)
        return cast("BinaryIO", created)

    def write(self, path: str, data: bytes, with_folders: bool) -> None:
        _request(lambda: super(_BeamStore, self).write(path, data, with_folders))

    def copy(self, source: str, target: str) -> None:
        def attempt() -> None:
            # The file systems of S3 and Azure return errors instead of raising them.
            for *_, error in FileSystems.copy([source], [target]) or ():
                if error is not None:
                    raise error

        _request(attempt)

    def delete_files(self, paths: Sequence[str], directory: str) -> None:
        for start in range(0, len(paths), _BATCH):
            _request(partial(FileSystems.delete, list(paths[start : start + _BATCH])))

    def names_below(self, root: str, prefix: str = "") -> Iterator[str]:
        matched = _request(lambda: FileSystems.match([f"{root}{prefix}**"]))
        return (file.path[len(root) :] for file in matched[0].metadata_list)

    def exists(self, path: str) -> bool:
        return bool(_request(lambda: FileSystems.exists(path)))

    def size(self, path: str) -> int | None:
        found = _request(lambda: FileSystems.get_filesystem(path).metadata(path))
        return int(found.size_in_bytes)


BEAM = _BeamStore()


def _open(path: str) -> BinaryIO:
    opened = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return cast("BinaryIO", opened)


def _content(stream: Any, limit: int, size: int | None = None) -> bytes:
    """Returns the bytes of a stream, at most `size`.

    Raises TooLargeError above `limit` bytes; TooSlowError after `_MAX_SECONDS`, even while bytes
    arrive.
    """
    # One byte more than the limit, to distinguish a file at the limit from a larger one.
    parts, left = list[bytes](), limit + 1 if size is None else min(limit + 1, size)
    deadline = time.monotonic() + _MAX_SECONDS
    while part := stream.read(min(left, _CHUNK_BYTES)):
        parts.append(part)
        left -= len(part)
        if time.monotonic() > deadline:
            raise store.TooSlowError(_MAX_SECONDS)
    data = b"".join(parts)
    if len(data) > limit:
        raise store.TooLargeError(limit)
    return data


class _HdfsStore(_BeamStore):
    """HDFS, by the WebHDFS client of Beam's file system.

    Beam's file system neither overwrites files nor lists folders recursively, and requests a file's
    status before each read.
    """

    def _request(self, call: Callable[[Any, str], T], path: str) -> T:
        def attempt() -> T:
            system = FileSystems.get_filesystem(path)
            system._hdfs_client._timeout = _HDFS_SECONDS
            return call(system._hdfs_client, system._parse_url(path)[1])

        return _request(attempt)

    def open(self, path: str) -> BinaryIO:
        return store.Store.open(self, path)

    def read(
        self, path: str, span: store.Span | None = None, limit: int = sys.maxsize
    ) -> store.TaggedBytes:
        if span and span[0] >= span[1]:
            return b"", None
        part = {"offset": span[0], "length": span[1] - span[0]} if span else {}

        def content(client: Any, path: str) -> bytes:
            with client.read(path, **part) as stream:
                return _content(stream, limit)

        return self._request(content, path), None

    def write(self, path: str, data: bytes, with_folders: bool) -> None:
        self._request(lambda client, path: client.write(path, data=data, overwrite=True), path)

    def move(self, source: str, target: str) -> None:
        self.delete(target)  # WebHDFS does not rename over an existing file
        self.make_folder(target.rpartition("/")[0])
        to = self._request(lambda _, path: path, target)
        self._request(lambda client, path: client.rename(path, to), source)

    def delete(self, path: str) -> None:
        self._request(lambda client, path: client.delete(path, recursive=True), path)

    def delete_files(self, paths: Sequence[str], directory: str) -> None:
        for path in paths:
            self.delete(path)
        if not any(self.names_below(directory.rstrip("/") + "/")):
            self.delete(directory)

    def make_folder(self, path: str) -> None:
        self._request(lambda client, path: client.makedirs(path), path)

    def names_below(self, root: str, prefix: str = "") -> Iterator[str]:
        return store.Store.names_below(self, root, prefix)

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        if self._status(folder).get("type") != "DIRECTORY":
            return [], []
        listed = self._request(lambda client, path: client.list(path, status=True), folder)
        found = [(name, status["type"] == "DIRECTORY") for name, status in listed]
        return [n for n, is_dir in found if is_dir], [n for n, is_dir in found if not is_dir]

    def exists(self, path: str) -> bool:
        return bool(self._status(path))

    def is_file(self, path: str) -> bool:
        return bool(self._status(path).get("type") == "FILE")

    def size(self, path: str) -> int | None:
        if not (found := self._status(path)):
            raise FileNotFoundError("no such file")
        return int(found["length"])

    def _status(self, path: str) -> Mapping[str, Any]:
        found = self._request(lambda client, path: client.status(path, strict=False), path)
        return found or {}


HDFS = _HdfsStore()


def _request(call: Callable[[], T]) -> T:
    """Returns the result of a call of Beam's file systems, with retries of transient errors."""
    if pipeline_options() is None:  # Beam's file systems raise without options
        given = {name: value for name, value in asdict(current_options()).items() if value}
        FileSystems.set_options(PipelineOptions.from_dictionary(given))

    def attempt() -> T:
        try:
            return call()
        except (store.TooLargeError, store.TooSlowError):
            raise
        except Exception as error:  # each store's client has its own exceptions
            raise _translate_error(error) from error

    return store.persist(attempt)


def _translate_error(error: Exception) -> OSError:
    """Translates the exception of a store's client to OSError, or TransientError to retry."""
    causes = list(_causes(error))
    root = causes[-1]
    what = str(getattr(root, "message", None) or root).strip().partition("\n")[0]
    status = next((code for cause in reversed(causes) if (code := _status(cause))), 0)
    kind = getattr(root, "exception", None)  # WebHDFS: the name of a Java exception
    is_missing = any(isinstance(cause, FileNotFoundError) for cause in causes)
    if status == 404 or kind == "FileNotFoundException" or is_missing:
        return FileNotFoundError(f"no such file: {what}")
    if status in (401, 403) or kind == "AccessControlException":
        return PermissionError(f"access denied: {what}. Check credentials and permissions.")
    if isinstance(root, _PERMANENT) or (status and not store.is_transient_status(status)):
        return OSError(what)
    return store.TransientError(what, max(map(_retry_after, causes)))


def _retry_after(error: BaseException) -> float:
    """Returns the wait that a store asks for, in seconds."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):  # of boto3, with names in lower case
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    else:
        headers = getattr(response, "headers", None) or {}
    return store.seconds_of(headers.get("retry-after") or headers.get("Retry-After"))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and its causes, the root cause last."""
    yield error
    details = getattr(error, "exception_details", None)
    inner = next(iter(details.values()), None) if isinstance(details, Mapping) else error.__cause__
    if isinstance(error, AttributeError):
        # Beam's own failure to find the status of a broken connection, which has no response.
        inner = error.__context__
    if isinstance(inner, BaseException):
        yield from _causes(inner)


def _status(error: BaseException) -> int:
    """Returns the HTTP status of an error of Beam, boto3, Google or Azure, or 0."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    # Beam and Google set `code`, Azure `status_code`, boto3 a dict as `response`.
    for status in (getattr(error, "code", None), getattr(error, "status_code", None), response):
        if isinstance(status, int):
            return status
    found = _CODE.search(str(error))
    return int(found[1]) if found else 0
