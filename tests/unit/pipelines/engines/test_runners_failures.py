"""An engine's failure in a few lines."""

from __future__ import annotations

import errno
import os

import pytest

from recordmill.pipelines.engines.runners import short_message, without_step
from recordmill.schemas.errors import UsageError

TRACE = """Pipeline job failed in state FAILED: java.lang.RuntimeException: Error from SDK harness:
Traceback (most recent call last):
  File "sdk_worker.py", line 311, in _execute
    response = task()
               ^^^^^^
  File "write_shards.py", line 90, in process
    place(ref)
schemas.errors.RunError: labels.csv:3: split 'x' is new: the table changed while it was read

\tat org.apache.beam.runners.Harness.run(Harness.java:12)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_a_short_one_is_reported_whole() -> None:
    assert short_message(ValueError("a\n\n b\nc")) == "ValueError: a\n  b\n  c"
    assert short_message(ValueError()) == "ValueError: "


def test_of_a_long_one_the_error_within_is_reported() -> None:
    assert short_message(RuntimeError(TRACE)).splitlines() == [
        "RuntimeError: Pipeline job failed in state FAILED: "
        "java.lang.RuntimeException: Error from SDK harness:",
        "  schemas.errors.RunError: labels.csv:3: split 'x' is new: "
        "the table changed while it was read",
        "  the engine's own log has the rest",
    ]


def test_of_a_bare_traceback_the_error_alone_is_reported() -> None:
    told = short_message(RuntimeError(TRACE.partition("\n")[2].partition("\n\n")[0]))
    assert told == TRACE.splitlines()[-4]


def test_a_long_one_without_an_error_within_is_cut() -> None:
    told = short_message(RuntimeError("\n".join(f"stage-{i} pending" for i in range(300))))
    assert told == "RuntimeError: stage-0 pending\n  the engine's own log has the rest"


def test_a_worker_that_hung_up_died() -> None:
    told = short_message(RuntimeError("Channel closed prematurely."))
    assert told.startswith("a worker process died (it hung up); 137 or -9 means that it was killed")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "free some space where --output is"),
        (errno.EDQUOT, "free some space where --output is, or ask for more"),
        (errno.EFBIG, "allow larger files where --output is (see ulimit -f)"),
        (errno.EROFS, "make --output writable"),
        (errno.EACCES, "let this user read and write there"),
    ],
)
def test_what_the_system_rejected_is_reported_with_what_helps(code: int, remedy: str) -> None:
    told = short_message(OSError(code, os.strerror(code)))
    again = "then run the same command again: finished shards are kept"
    assert told.splitlines()[1:] == [f"  {remedy}, {again}"]


def test_the_step_that_beam_adds_is_no_part_of_a_message() -> None:
    error = without_step(UsageError("t.csv: no column [x] [while running 'AnalyzeRows/Plan']"))
    assert (type(error), str(error)) == (UsageError, "t.csv: no column [x]")
