"""Runs a baseline in a new Python process and measures its time and memory.

With a new process per run, peak memory and CPU time belong to one baseline alone, and no baseline
profits from what another one has imported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType

import psutil  # type: ignore[import-untyped, unused-ignore]

from benchmarks.baseline import Outcome
from benchmarks.environments import python_of

_CHECKOUT = Path(__file__).resolve().parent.parent
_POLL_SECONDS = 0.1
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_LAST_LINES = 20


class BaselineFailedError(Exception):
    """A baseline failed, or skipped rows."""


@dataclass(frozen=True)
class Run:
    """The measurements of one run of a baseline, including start-up.

    Attributes:
        seconds: wall time.
        cpu_seconds: user and system time of all its processes.
        peak_bytes: highest resident memory of all its processes together, shared memory once.
        bytes_shuffled: bytes that crossed its GroupByKeys; None if it has none.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    bytes_shuffled: int | None


def run_baseline(name: str, table: Path, rows: int, work: Path) -> Run:
    """Runs a baseline and deletes its output.

    Args:
        name: of the baseline; hyphens are underscores in the name of its module.
        table: path of the table to convert.
        rows: number of rows of the table.
        work: a folder for its output.

    Raises:
        BaselineFailedError: if it fails, or converts a different number of rows.
    """
    output, log = work / "output", work / "log.txt"
    os.sync()  # so that this run does not wait for an earlier one's writes
    try:
        seconds, usage, peak = _run_process(_command(name, table, output), work, log)
        outcome = _outcome_of(work, name)
    except BaselineFailedError as error:
        raise BaselineFailedError(f"{name}: {error}\n{_last_lines(log)}") from error
    finally:
        shutil.rmtree(output, ignore_errors=True)
    if outcome.records != rows:
        raise BaselineFailedError(f"{name}: converted {outcome.records} of {rows} rows")
    return Run(seconds, usage, peak, outcome.bytes_shuffled)


def _command(name: str, table: Path, output: Path) -> list[str]:
    module = f"benchmarks.baselines.{name.replace('-', '_')}"
    return [python_of(name), "-m", module, str(table), str(output)]


def _run_process(command: list[str], work: Path, log: Path) -> tuple[float, float, int]:
    """Returns the wall seconds, the CPU seconds and the peak memory in bytes of a process."""
    with (work / "stdout.txt").open("wb") as stdout, log.open("wb") as stderr:
        began = perf_counter()
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, cwd=_CHECKOUT)
        try:
            with _PeakMemory(process.pid) as memory:
                _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
    seconds = perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BaselineFailedError(f"exit code {process.returncode}")
    peak = max(memory.peak_bytes, usage.ru_maxrss * _MAXRSS_UNIT)
    return seconds, usage.ru_utime + usage.ru_stime, peak


class _PeakMemory:
    """Polls the resident memory of a process and its descendants together.

    Memory that processes share is counted once, where the system states it.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_POLL_SECONDS):
            self.peak_bytes = max(self.peak_bytes, self._resident_bytes())

    def _resident_bytes(self) -> int:
        total = 0
        try:
            for process in (self._root, *self._root.children(recursive=True)):
                memory = process.memory_full_info()
                total += getattr(memory, "pss", memory.rss)
        except psutil.Error:  # a process ended between listing and reading
            return 0
        return total


def _outcome_of(work: Path, name: str) -> Outcome:
    lines = (work / "stdout.txt").read_text("utf-8", "replace").splitlines()
    try:
        return Outcome(**json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError) as error:
        raise BaselineFailedError("the last line of its output is not an outcome") from error


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:])
