"""Logged events are one line each, as text or JSON; `--verbose` shows the traceback of an error."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import grpc
import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.console.logs import (
    _is_worth_reporting,
    only_events,
    set_up_logs,
    use_log_flags,
)
from recordmill.pipelines.console.terminal import print_error, warn

SERVER_FAILED = "Application error processing RPC"
URL = "https://host/a.jpg?X-Amz-Signature=secret"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Handler]:
    """Replaces the handlers of the root logger, and restores them afterwards."""
    handler, logger = logging.StreamHandler(), logging.getLogger()
    monkeypatch.setattr(logger, "handlers", [handler])
    level = logger.level
    yield handler
    use_log_flags(verbose=False, as_json=False)
    logger.setLevel(level)


def event(message: str) -> logging.LogRecord:
    """Returns an event with an error."""
    try:
        raise ValueError(f"no such\nthing as {URL}")
    except ValueError:
        return logging.LogRecord("store", logging.WARNING, "f", 1, message, (), sys.exc_info())


def test_an_event_is_one_line_of_text(root: logging.Handler) -> None:
    use_log_flags(verbose=False, as_json=False)
    logged = root.format(event("again\nin 3 s"))
    shown = "ValueError: no such\\nthing as https://host/a.jpg?"
    assert logged.startswith(f"WARNING store: again\\nin 3 s: {shown}")
    assert "secret" not in logged
    assert "\n" not in logged
    assert logging.getLogger().level == logging.WARNING


def test_every_line_on_standard_error_is_json(
    root: logging.Handler, capfd: pytest.CaptureFixture[str]
) -> None:
    use_log_flags(verbose=False, as_json=True)
    with only_events():
        warn("failed:\n  here")
        warn("warning: full")
        print_error("10 s: writing", "INFO")
        subprocess.run(["/bin/sh", "-c", "echo native >&2; echo >&2"], check=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(e["level"], e["logger"], e["message"]) for e in events] == [
        ("ERROR", "recordmill", "failed:\n  here"),
        ("WARNING", "recordmill", "full"),
        ("INFO", "recordmill", "10 s: writing"),
        ("WARNING", "stderr", "native"),
    ]


def test_text_is_not_json_after_the_events(capfd: pytest.CaptureFixture[str]) -> None:
    use_log_flags(verbose=False, as_json=False)
    warn("warning: full")
    assert capfd.readouterr().err == "recordmill: warning: full\n"


def test_an_event_is_one_line_of_json(root: logging.Handler) -> None:
    use_log_flags(verbose=False, as_json=True)
    line = root.format(event("again\nin 3 s"))
    assert "\n" not in line
    logged = json.loads(line)
    assert set(logged) == {"time", "level", "logger", "message", "error"}
    assert (logged["level"], logged["logger"], logged["message"]) == (
        "WARNING",
        "store",
        "again\nin 3 s",
    )
    assert "secret" not in line


@pytest.mark.parametrize("as_json", [False, True])
def test_verbose_shows_the_traceback_of_an_error(root: logging.Handler, as_json: bool) -> None:
    use_log_flags(verbose=True, as_json=as_json)
    logged = root.format(event("again"))
    assert "Traceback (most recent call last)" in logged
    assert "raise ValueError" in logged
    assert logging.getLogger().level == logging.INFO


@pytest.mark.usefixtures("root")
def test_a_usage_error_has_a_traceback_only_with_verbose(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["schema", "no_such_preset"]
    assert main(flags) == 2
    short = capsys.readouterr().err
    assert short.count("\n") == 1
    assert "Traceback" not in short
    assert main([*flags, "--verbose"]) == 2
    in_full = capsys.readouterr().err
    assert in_full.startswith("Traceback (most recent call last)")
    assert in_full.endswith(short)


class EndedCall(grpc.RpcError):
    """An RPC that ended with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__()
        self.code = lambda: code
        self.details = lambda: details


def record(
    message: str, module: str = "files", error: Exception | None = None, logger: str = "x"
) -> logging.LogRecord:
    """Returns an event of a module."""
    logged = (type(error), error, None) if error else None
    return logging.LogRecord(logger, logging.WARNING, f"/x/{module}.py", 1, message, (), logged)


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        (record("cannot be locked"), True),
        (record("it failed", error=OSError("full")), True),
        (record("apitools not found, and so on"), False),
        (record("disk full", logger="apache_beam.runners.common"), False),
        (record("a connection ended", error=grpc.RpcError()), False),
        (record("closed", error=EndedCall(grpc.StatusCode.CANCELLED, "bye")), False),
        (record("closed twice", error=EndedCall(grpc.StatusCode.UNKNOWN, SERVER_FAILED)), False),
        (record("failed", error=EndedCall(grpc.StatusCode.UNKNOWN, "no such file")), True),
        (record('Worker: log_location: "/x/apache_beam/x.py:7"', "local_job_service"), False),
        (record('Worker: log_location: "/x/transforms/files.py:7"', "local_job_service"), True),
    ],
)
def test_actionable_events_are_reported(logged: logging.LogRecord, expected: bool) -> None:
    assert _is_worth_reporting(logged) is expected


@pytest.mark.parametrize("name", ["urllib3.connection", "PIL.TiffImagePlugin"])
def test_events_of_libraries_about_the_input_are_not_reported(name: str) -> None:
    """Rejects report them, and urllib3 quotes full addresses."""
    assert not _is_worth_reporting(logging.LogRecord(name, logging.WARNING, "f", 1, URL, (), None))


def test_warnings_of_pillow_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    with warnings.catch_warnings(record=True) as logged:
        warnings.simplefilter("always")
        set_up_logs()
        warnings.warn_explicit("odd", UserWarning, "p.py", 1, module="PIL.TiffImagePlugin")
        warnings.warn_explicit("old", UserWarning, "q.py", 1, module="recordmill.pipelines.api")
    assert [str(each.message) for each in logged] == ["old"]
