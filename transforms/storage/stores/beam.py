"""Writes, copies and deletes through Beam's file systems, as Beam's own sinks do; and persists."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from apache_beam.io.aws import s3io
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from recordmill.transforms.storage.stores.options import current_options
from recordmill.transforms.storage.stores.retries import (
    TooLargeError,
    TooSlowError,
    TransientError,
    is_transient_status,
    persist,
)

T = TypeVar("T")

_BATCH = 100
"""How many files Beam's file systems take at once."""

_HOPELESS = (
    TypeError,
    ValueError,
    ImportError,
    AttributeError,
    NotImplementedError,
    AssertionError,
)
"""What a wrong path, a missing extra or a mistake in a program raises: it never passes."""

_CODE = re.compile(r"\b(?:HTTP |status(?: code)?:? )(\d{3})\b")


def write(path: str, data: bytes) -> None:
    """Writes a whole file, replacing what is there.

    Raises:
        OSError: if it cannot be written.
    """

    def attempt() -> None:
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as stream:
            stream.write(data)

    request(attempt)


def copy(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Copies files within a store, which moves no byte through this machine.

    Raises:
        OSError: if one cannot be copied.
    """
    for start in range(0, len(sources), _BATCH):
        _copy_batch(list(sources[start : start + _BATCH]), list(targets[start : start + _BATCH]))


def _copy_batch(sources: list[str], targets: list[str]) -> None:
    def attempt() -> None:
        results = FileSystems.copy(sources, targets) or ()  # S3 and Azure return what went wrong
        for *_, error in results:
            if error is not None:
                raise error

    request(attempt)


def delete(paths: Sequence[str]) -> None:
    """Deletes files; what is not there is deleted already.

    Raises:
        OSError: if one cannot be deleted.
    """
    for start in range(0, len(paths), _BATCH):
        request(partial(FileSystems.delete, list(paths[start : start + _BATCH])))


def request(call: Callable[[], T]) -> T:
    """Returns what a call of Beam's file systems brings, made again where that may help.

    Raises:
        OSError: if none does.
    """
    current_options()  # Beam rejects to reach a store in a worker that was given none
    share_s3_clients()  # a worker of Beam's own containers runs no start-up code of this program

    def attempt() -> T:
        try:
            return call()
        except (TooLargeError, TooSlowError):
            raise
        except Exception as error:  # each store's client raises what it likes
            raise in_words(error) from error

    return persist(attempt)


def in_words(error: Exception) -> OSError:
    """Returns what went wrong, and whether it may pass, from whatever a store's client raised."""
    causes = list(_causes(error))
    root = causes[-1]
    what = str(getattr(root, "message", None) or root).strip().partition("\n")[0]
    status = next((code for cause in reversed(causes) if (code := _status(cause))), 0)
    kind = getattr(root, "exception", None)  # WebHDFS gives a name, and no status
    if status == 404 or kind == "FileNotFoundException" or _is(FileNotFoundError, causes):
        return FileNotFoundError(f"no such file: {what}")
    if status in (401, 403) or kind == "AccessControlException":
        return PermissionError(f"access denied: {what}; check the credentials and their rights")
    hopeless = isinstance(root, _HOPELESS) or (status and not is_transient_status(status))
    return OSError(what) if hopeless else TransientError(what)


def _is(kind: type[Exception], causes: Sequence[BaseException]) -> bool:
    return any(isinstance(cause, kind) for cause in causes)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and what it was raised for, the first cause last."""
    yield error
    details = getattr(error, "exception_details", None)
    inner = next(iter(details.values()), None) if isinstance(details, Mapping) else error.__cause__
    if isinstance(inner, BaseException):
        yield from _causes(inner)


def _status(error: BaseException) -> int:
    """Returns the status of HTTP that an error of Beam, boto3, Google or Azure tells; 0 if none."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    for told in (getattr(error, "code", None), getattr(error, "status_code", None), response):
        if isinstance(told, int):
            return told
    found = _CODE.search(str(error))
    return int(found[1]) if found else 0


_s3_lock = threading.Lock()
_s3: dict[str, Any] = {"options": None, "client": None}


def share_s3_clients() -> None:
    """Makes Beam's S3 file system use one boto3 client for all files.

    Beam makes a client for each file that it touches: 180 ms of CPU, as much as 150 images, and
    connections of its own. Unnecessary once `S3FileSystem` keeps the client that `S3IO` can be
    given; no issue is known. Calling this again changes nothing.
    """
    with _s3_lock:
        if s3io.BOTO3_INSTALLED and not issubclass(s3io.boto3_client.Client, _SharedClient):
            own = s3io.boto3_client.Client
            s3io.boto3_client.Client = type("Client", (_SharedClient, own), {})


class _SharedClient:
    """Precedes Beam's own client class.

    Threads may share a client of boto3; the stream that is being read stays each file's own.
    """

    _download_request: Any = None
    _download_stream: Any = None
    _download_pos = 0

    def __init__(self, options: Any) -> None:
        with _s3_lock:
            if _s3["options"] is not options:
                super().__init__(options)  # type: ignore[call-arg]
                _s3.update(options=options, client=vars(self)["client"])
            self.client = _s3["client"]
