"""Sets up logging: warnings that users can act on, without the noise of libraries."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
import warnings
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from types import TracebackType

from recordmill.pipelines.console import terminal
from recordmill.transforms.workers.process import rewritten_standard_error

_NOISE = (
    "apitools not found",  # logged by Beam at import without its extra [gcp]
    "Really starting service",  # logged by the job server, once for each run on an engine
    "Really destroying service",
    "Waiting for grpc channel",
)

# Loggers whose warnings are also rejects; those of urllib3 contain URLs with their secrets.
_ABOUT_INPUT = ("urllib3.", "PIL.")

_STEPS = frozenset({"apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker"})
_OWN = re.compile(r'log_location: "[^"]*/(?:transforms|schemas|pipelines)/')
_HUNG_UP = frozenset({"StatusCode.CANCELLED", "StatusCode.UNAVAILABLE"})

# The answer, with the code UNKNOWN, of a Java server whose own code failed: of an engine that
# closes a stream while the worker closes it. Whatever waits for an answer on the stream fails with
# this error, so a failed run is reported without it.
_SERVER_FAILED = "Application error processing RPC"


def set_up_logs() -> None:
    """Logs warnings to standard error; called before Beam is imported, which logs on import."""
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_worth_reporting)
    use_log_flags(verbose=False, as_json=False)
    warnings.filterwarnings("ignore", module=r"PIL\.")
    threading.excepthook = _report_thread_failure
    sys.excepthook = _report_failure


def leave_logs_to_the_runner() -> None:
    """Disables output in a worker process, whose log records are sent to the runner's process."""
    logging.getLogger().addHandler(logging.NullHandler())
    sys.excepthook = _report_worker_failure


def _is_worth_reporting(record: logging.LogRecord) -> bool:
    if record.funcName == "read_messages" and record.module == "portable_runner":
        return False  # the reason of a failed job, which is also the command's last message
    if record.name.startswith(_ABOUT_INPUT):
        return False
    if record.name in _STEPS and not logging.getLogger().isEnabledFor(logging.INFO):
        return False  # the traceback of a step, whose error is the command's last message
    if record.module == "local_job_service" and not _OWN.search(record.getMessage()):
        return False  # logged by Beam itself in a worker process
    error = record.exc_info[1] if record.exc_info else None
    return not record.getMessage().startswith(_NOISE) and not _is_hang_up(error)


def _is_hang_up(error: BaseException | None) -> bool:
    """Returns whether an error means that an engine closed its connection to a worker.

    Engines end workers in this way, after failed and successful runs alike.
    """
    code = getattr(error, "code", None)
    if code is None:
        return type(error).__name__ == "RpcError"  # errors of the server side have no code
    if not callable(code):
        return False
    details = getattr(error, "details", str)
    return str(code()) in _HUNG_UP or details() == _SERVER_FAILED


def _report_thread_failure(failure: threading.ExceptHookArgs) -> None:
    if _is_hang_up(failure.exc_value) or failure.exc_type is SystemExit:
        return
    name = failure.thread.name if failure.thread else "?"
    text = traceback.format_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    terminal.print_error(f"Exception in thread {name}:\n{''.join(text)}")


def _report_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Prints an uncaught exception as Python does, with control characters escaped."""
    terminal.print_error("".join(traceback.format_exception(kind, error, trace)))


def _report_worker_failure(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if not _is_hang_up(error):
        sys.__excepthook__(kind, error, traceback)


def use_log_flags(verbose: bool, as_json: bool) -> None:
    """Sets the level and format of log records: one line each, unless tracebacks are included."""
    terminal.use_events(as_json)
    logging.captureWarnings(as_json)
    root = logging.getLogger()
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    for handler in root.handlers:
        handler.setFormatter(_Json(verbose) if as_json else _Line(verbose))


def only_events() -> AbstractContextManager[None]:
    """Makes every line on standard error a JSON object while the body runs."""
    return rewritten_standard_error(_as_event)


def _as_event(line: bytes) -> bytes:
    """Returns a line as an event, which it may already be; nothing for an empty one."""
    text = line.decode("utf-8", "backslashreplace").rstrip("\r\n")
    if text and not _is_event(text):
        text = terminal.event("WARNING", "stderr", text)
    return f"{text}\n".encode() if text else b""


def _is_event(line: str) -> bool:
    try:
        return line.startswith("{") and "level" in json.loads(line)
    except ValueError:
        return False


class _Line(logging.Formatter):
    """Formats a log record as one line of text, followed by its traceback if verbose."""

    def __init__(self, verbose: bool) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        if self._verbose:
            return terminal.printable(super().format(record))
        text = f"{record.levelname} {record.name}: {record.getMessage()}{_error_suffix(record)}"
        return terminal.printable_line(text.replace("\r", "\\r").replace("\n", "\\n"))


class _Json(logging.Formatter):
    """Formats a log record as one line of JSON: time, level, logger, message, and error if any."""

    def __init__(self, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        created = datetime.fromtimestamp(record.created, timezone.utc)
        more = {"time": created.isoformat("T", "milliseconds")}
        if record.exc_info and record.exc_info[1] is not None:
            in_full = self.formatException(record.exc_info)
            more["error"] = in_full if self._verbose else repr(record.exc_info[1])
        return terminal.event(record.levelname, record.name, record.getMessage(), **more)


def _error_suffix(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    return f": {type(error).__name__}: {error}" if error is not None else ""
