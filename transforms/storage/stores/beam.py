"""Writes, copies and deletes through Beam's file systems, as Beam's own sinks do; and persists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from recordmill.transforms.storage.stores.limits import TooLargeError, TooSlowError
from recordmill.transforms.storage.stores.options import current_options
from recordmill.transforms.storage.stores.persistence import (
    TransientError,
    is_transient_status,
    persist,
)
from recordmill.transforms.storage.stores.shared_s3 import share_clients

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

share_clients()


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
    current_options()  # Beam refuses to reach a store in a worker that was given none

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
