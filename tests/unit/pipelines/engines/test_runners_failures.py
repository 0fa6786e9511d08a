"""Messages for failures of engines."""

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
schemas.errors.UsageError: labels.csv:3: split 'x' is new: the table changed while it was read

\tat org.apache.beam.runners.Harness.run(Harness.java:12)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_a_short_error_is_kept() -> None:
    assert short_message(ValueError("a\n\n b\nc")) == "ValueError: a\n  b\n  c"
    assert short_message(ValueError()) == "ValueError: "


def test_a_long_error_is_shortened_to_its_first_line_and_its_last_cause() -> None:
    assert short_message(RuntimeError(TRACE)).splitlines() == [
        "RuntimeError: Pipeline job failed in state FAILED: "
        "java.lang.RuntimeException: Error from SDK harness:",
        "  schemas.errors.UsageError: labels.csv:3: split 'x' is new: "
        "the table changed while it was read",
        "  See the engine's log for details.",
    ]


def test_a_bare_traceback_is_shortened_to_its_error() -> None:
    message = short_message(RuntimeError(TRACE.partition("\n")[2].partition("\n\n")[0]))
    assert message == TRACE.splitlines()[-4]


def test_a_long_error_without_a_cause_is_shortened_to_its_first_line() -> None:
    message = short_message(RuntimeError("\n".join(f"stage-{i} pending" for i in range(300))))
    assert message == "RuntimeError: stage-0 pending\n  See the engine's log for details."


def test_a_closed_connection_is_reported_as_a_dead_worker() -> None:
    message = short_message(RuntimeError("Channel closed prematurely."))
    assert message.startswith(
        "a worker process died (its connection was closed); 137 or -9 means that it was killed"
    )


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "Free some space where --output is"),
        (errno.EDQUOT, "Free some space where --output is, or raise the quota"),
        (errno.EFBIG, "Allow larger files where --output is (see ulimit -f)"),
        (errno.EROFS, "Make --output writable"),
        (errno.EACCES, "Let this user read and write there"),
    ],
)
def test_an_error_of_the_operating_system_is_reported_with_a_remedy(code: int, remedy: str) -> None:
    message = short_message(OSError(code, os.strerror(code)))
    again = "then run the same command again: finished shards are kept."
    assert message.splitlines()[1:] == [f"  {remedy}, {again}"]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
)
def test_exhausted_memory_is_reported_with_a_remedy(error: Exception) -> None:
    _, remedy = short_message(error).splitlines()
    assert remedy.startswith("  Memory or threads ran out, or a limit on them was reached")
    assert remedy.endswith("Allow more, or use fewer workers (--direct_num_workers).")


def test_a_job_server_that_is_not_published_is_reported_with_a_remedy() -> None:
    found = "Unable to fetch remote job server jar at https://repo/x.jar: HTTP Error 404: Not Found"
    message, remedy = short_message(RuntimeError(found)).splitlines()
    assert message == f"RuntimeError: {found}"
    assert remedy.startswith("  Name the version of your engine, as in --flink_version=1.20, or ")


def test_the_step_name_that_beam_appends_is_removed_from_a_message() -> None:
    error = without_step(UsageError("t.csv: no column [x] [while running 'AnalyzeRows/Plan']"))
    assert (type(error), str(error)) == (UsageError, "t.csv: no column [x]")
