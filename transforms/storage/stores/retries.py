"""Requests made again when they may succeed the next time: exponential backoff with full jitter.

Jitter decides when a request is made, never what it brings. See "Exponential Backoff And Jitter",
AWS Architecture Blog, 2015. What no retry helps is a file that is too large, or too late.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)


class TooLargeError(OSError):
    """An image above `--max_image_bytes`."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"is larger than {limit:,} bytes; --max_image_bytes allows no more")


class TooSlowError(OSError):
    """A file that did not come in time; no further attempt is made."""

    def __init__(self, seconds: float, error: object = "") -> None:
        told = f"{error}; " if error else ""
        super().__init__(f"{told}not read within {seconds:g} s")


T = TypeVar("T")

ATTEMPTS = 8
"""With the waits between them, 16 s on the average and 32 s at the most."""

_MAX_WAIT_ASKED = 120.0

_backoff = wait_random_exponential(multiplier=0.25, max=16)


class TransientError(OSError):
    """A request that failed and may succeed the next time.

    Attributes:
        wait: seconds that the server asks to wait.
    """

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


def is_transient_status(status: int) -> bool:
    """Returns whether a status of HTTP says that the same request may succeed later.

    >>> [status for status in (400, 403, 404, 429, 500, 501, 503) if is_transient_status(status)]
    [429, 500, 503]
    """
    return status in (408, 425, 429) or (status >= 500 and status != 501)


def persist(request: Callable[[], T], seconds: float = math.inf) -> T:
    """Returns what a request brings, made again as long as it raises TransientError.

    Args:
        request: makes one attempt.
        seconds: after which no other is made, nor where its host asks to wait until then.

    Raises:
        OSError: what the last attempt met, with how often and for how long it was tried.
        TooSlowError: what the last attempt in time met.
    """
    deadline = time.monotonic() + seconds

    def attempt() -> T:
        try:
            return request()
        except TransientError as error:
            if time.monotonic() + error.wait >= deadline:
                raise TooSlowError(seconds, error) from error
            raise

    return _attempts(attempt)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait if isinstance(error, TransientError) else 0.0
    return max(_backoff(state), min(asked, _MAX_WAIT_ASKED))


def _give_up(state: RetryCallState) -> NoReturn:
    error = state.outcome.exception() if state.outcome else None
    tried = f"given up after {state.attempt_number} attempts in {state.seconds_since_start:.1f} s"
    raise OSError(f"{error}; {tried}") from error


_attempts = Retrying(
    retry=retry_if_exception_type(TransientError),
    wait=_wait,
    stop=stop_after_attempt(ATTEMPTS),
    retry_error_callback=_give_up,
)
