"""Tries again what may well succeed the next time: with exponential backoff and full jitter.

Jitter decides when a request is made, never what it brings. See "Exponential Backoff And Jitter",
AWS Architecture Blog, 2015.
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

from recordmill.transforms.storage.stores.limits import TooSlowError

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
