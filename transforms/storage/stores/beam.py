"""Calls of Beam's file systems, with retries."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from apache_beam.io.aws import s3io

from recordmill.transforms.storage.stores.options import current_options
from recordmill.transforms.storage.stores.retries import (
    TooLargeError,
    TooSlowError,
    TransientError,
    is_transient_status,
    persist,
    seconds_of,
)

T = TypeVar("T")

# Errors of an invalid path, a missing extra or a bug, which a retry cannot fix.
_PERMANENT = (
    TypeError,
    ValueError,
    ImportError,
    AttributeError,
    NotImplementedError,
    AssertionError,
)

_CODE = re.compile(r"\b(?:HTTP |status(?: code)?:? )(\d{3})\b")


def request(call: Callable[[], T]) -> T:
    """Returns the result of a call of Beam's file systems, with retries of transient errors.

    Raises OSError if no attempt succeeds.
    """
    current_options()  # Beam raises in a worker without options
    share_s3_clients()  # here, because workers in Beam's containers do not run our start-up code

    def attempt() -> T:
        try:
            return call()
        except (TooLargeError, TooSlowError):
            raise
        except Exception as error:  # each store's client has its own exceptions
            raise _translate_error(error) from error

    return persist(attempt)


def _translate_error(error: Exception) -> OSError:
    """Translates the exception of a store's client to OSError, or TransientError to retry."""
    causes = list(_causes(error))
    root = causes[-1]
    what = str(getattr(root, "message", None) or root).strip().partition("\n")[0]
    status = next((code for cause in reversed(causes) if (code := _status(cause))), 0)
    kind = getattr(root, "exception", None)  # WebHDFS: the name of a Java exception
    if status == 404 or kind == "FileNotFoundException" or _is(FileNotFoundError, causes):
        return FileNotFoundError(f"no such file: {what}")
    if status in (401, 403) or kind == "AccessControlException":
        return PermissionError(f"access denied: {what}. Check credentials and permissions.")
    permanent = isinstance(root, _PERMANENT) or (status and not is_transient_status(status))
    if permanent:
        return OSError(what)
    return TransientError(what, max(map(_retry_after, causes)))


def _retry_after(error: BaseException) -> float:
    """Returns the wait that a store asks for, in seconds."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):  # of boto3, with names in lower case
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    else:
        headers = getattr(response, "headers", None) or {}
    return seconds_of(headers.get("retry-after") or headers.get("Retry-After"))


def _is(kind: type[Exception], causes: Sequence[BaseException]) -> bool:
    return any(isinstance(cause, kind) for cause in causes)


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


_s3_lock = threading.Lock()
_s3: dict[str, Any] = {"options": None, "client": None}


def share_s3_clients() -> None:
    """Patches Beam's S3 file system to use one boto3 client for all files; idempotent.

    Beam creates a client per file: 180 ms of CPU, as much as 150 images take, and new connections.
    Unnecessary once `S3FileSystem` keeps a client for `S3IO`; no upstream issue is known.
    """
    with _s3_lock:
        if s3io.BOTO3_INSTALLED and not issubclass(s3io.boto3_client.Client, _SharedClient):
            own = s3io.boto3_client.Client
            s3io.boto3_client.Client = type("Client", (_SharedClient, own), {})


class _SharedClient:
    """A mixin for Beam's client class that shares one boto3 client, which is thread-safe.

    The download stream remains an attribute of each instance, one per file.
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
