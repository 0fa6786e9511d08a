"""Retries of transient errors, by exponential backoff with equal jitter.

Half of each wait is random, so that requests that failed together are not repeated together; the
other half is fixed, so that every request outlasts an outage of 15 s. See "Exponential Backoff And
Jitter", AWS Architecture Blog, 2015. Jitter affects the time of a request, never its result. Files
that are too large or too slow are not retried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from email.utils import mktime_tz, parsedate_tz
from typing import NoReturn, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
    wait_random_exponential,
)


class TooLargeError(OSError):
    """An image above `--max_image_bytes`."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"is larger than {limit:,} bytes; --max_image_bytes allows no more")


class TooSlowError(OSError):
    """A file that was not read in time; not retried."""

    def __init__(self, seconds: float, error: object = "") -> None:
        cause = f"{error}; " if error else ""
        super().__init__(f"{cause}not read within {seconds:g} s")


T = TypeVar("T")

# Attempts per request. The waits between them add up to 16 s at least, and 32 s at most.
ATTEMPTS = 8

# Limit of the wait that a server asks for with Retry-After, in seconds.
_MAX_SERVER_WAIT = 120.0

_backoff = wait_exponential(multiplier=0.125, max=8) + wait_random_exponential(0.125, max=8)


class TransientError(OSError):
    """A failed request that may succeed if it is retried.

    `wait` is the wait that the server asks for, in seconds.
    """

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


def is_transient_status(status: int) -> bool:
    """Returns whether a request with this HTTP status may succeed later.

    >>> [status for status in (400, 403, 404, 429, 500, 501, 503) if is_transient_status(status)]
    [429, 500, 503]
    """
    # Request Timeout, Too Early, Too Many Requests; 501 is Not Implemented.
    return status in (408, 425, 429) or (status >= 500 and status != 501)


def seconds_of(retry_after: str | None) -> float:
    """Returns the seconds of a Retry-After header, which has seconds or a date; 0.0 if invalid."""
    if not retry_after:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        date = parsedate_tz(retry_after)
        return max(0.0, mktime_tz(date) - time.time()) if date else 0.0
    except (ValueError, OverflowError):  # not a valid date, or out of range
        return 0.0


def persist(request: Callable[[], T], seconds: float = math.inf) -> T:
    """Returns the result of a request, retried as long as it raises TransientError.

    `seconds` is the time limit; no attempt starts after it. Raises OSError: the last error, with
    the number of attempts and the elapsed time. Raises TooSlowError: after the time limit, with the
    last error.
    """
    deadline = time.monotonic() + seconds

    def attempt() -> T:
        try:
            return request()
        except TransientError as error:
            # Raised as another type, which is not retried.
            if time.monotonic() + error.wait >= deadline:
                raise TooSlowError(seconds, error) from error
            raise

    return _attempts(attempt)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait if isinstance(error, TransientError) else 0.0
    return max(_backoff(state), min(asked, _MAX_SERVER_WAIT))


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
