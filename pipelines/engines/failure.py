"""What an engine says of a failure: its own words, without the stack traces in them."""

from __future__ import annotations

import re

from recordmill.schemas.errors import RecordmillError

_SHORT = 6
_HUNG_UP = "Channel closed prematurely"
"""Beam's in-process runner, when a worker's data breaks off before anyone sees that it died."""

_AGAIN = "then run the same command again: finished shards are kept"
_REMEDIES = {
    "No space left on device": f"free some space where --output is, {_AGAIN}",
    "Disk quota exceeded": f"free some space where --output is, or ask for more, {_AGAIN}",
    "File too large": f"allow larger files where --output is (see ulimit -f), {_AGAIN}",
    "Read-only file system": f"make --output writable, {_AGAIN}",
    "Permission denied": f"let this user read and write there, {_AGAIN}",
}
"""What helps, by what the system said."""

_STEP = re.compile(r" \[while running '[^']*'\]$")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Failure)(?::|$)")


def short_message(error: Exception) -> str:
    """Returns the first line of what an engine raised, the last error within it, and what helps.

    Of a worker's bare traceback the last error alone.

    Engines wrap the traceback of a Python worker into those of their own, some hundred lines.

    >>> short_message(RuntimeError("job 7 failed: disk full"))
    'RuntimeError: job 7 failed: disk full'
    """
    text = str(error)
    if _HUNG_UP in text:
        return dead_worker_message("it hung up")
    remedies = [f"\n  {remedy}" for said, remedy in _REMEDIES.items() if said in text]
    return _first_and_last(error) + "".join(remedies)


def without_step(error: RecordmillError) -> RecordmillError:
    """Returns an error of this program without the step of its pipeline, which Beam adds."""
    error.args = (_STEP.sub("", str(error)), *error.args[1:])
    return error


def _first_and_last(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    if raised and lines[0].startswith("Traceback "):
        return raised[-1]
    first = f"{type(error).__name__}: {lines[0] if lines else ''}"
    if len(lines) <= _SHORT:
        return "\n  ".join([first, *lines[1:]])
    return "\n  ".join([first, *raised[-1:], "the engine's own log has the rest"])


def dead_worker_message(how: str) -> str:
    """Returns what a person can do about a worker process that died, and how it did."""
    return (
        f"a worker process died ({how}); 137 or -9 means that it was killed, usually "
        "because memory ran out: use fewer workers "
        "(--direct_num_workers), or --direct_running_mode=multi_threading"
    )
