"""Runs one baseline in an interpreter of its own, and measures it from outside.

A fresh process for each run makes peak memory and CPU time the baseline's own, and lets none
profit from what another has imported.
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

BASELINES = (
    "floor",
    "recordmill",
    "recordmill-header",
    "seed-loop",
    "plain-beam",
    "tfds-plain",
    "tfds-beam",
)

_CHECKOUT = Path(__file__).resolve().parent.parent
_POLL_SECONDS = 0.1
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_LAST_LINES = 20


class BaselineFailedError(Exception):
    """A baseline did not come to its end, or left rows out."""


@dataclass(frozen=True)
class Run:
    """One run of a baseline, start-up included.

    Attributes:
        seconds: from its start to its end, by the clock.
        cpu_seconds: of its processes, in user and system mode.
        peak_bytes: resident memory of all its processes together, at its highest.
        bytes_shuffled: what crossed its GroupByKeys; None if it has none.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    bytes_shuffled: int | None


def run_baseline(name: str, table: Path, rows: int, work: Path) -> Run:
    """Runs a baseline, and clears away what it wrote.

    Args:
        name: which one; its module has underscores for hyphens.
        table: what it converts.
        rows: how many rows that has.
        work: a folder for its output.

    Raises:
        BaselineFailedError: if it fails, or goes through another number of rows.
    """
    output, log = work / "output", work / "log.txt"
    os.sync()  # what others wrote is not for this one to wait for
    try:
        seconds, usage, peak = _run_process(_command(name, table, output), work, log)
        outcome = _outcome_of(work, name)
    except BaselineFailedError as error:
        raise BaselineFailedError(f"{name}: {error}\n{_last_lines(log)}") from error
    finally:
        shutil.rmtree(output, ignore_errors=True)
    if outcome.records != rows:
        raise BaselineFailedError(f"{name}: went through {outcome.records} of {rows} rows")
    return Run(seconds, usage, peak, outcome.bytes_shuffled)


def _command(name: str, table: Path, output: Path) -> list[str]:
    module = f"benchmarks.baselines.{name.replace('-', '_')}"
    return [sys.executable, "-m", module, str(table), str(output)]


def _run_process(command: list[str], work: Path, log: Path) -> tuple[float, float, int]:
    """Returns the seconds and CPU seconds that a process took, and its peak memory in bytes."""
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
    """Watches the memory of a process and all below it: several may add up to more than one."""

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
                total += process.memory_info().rss
        except psutil.Error:  # one has ended meanwhile
            return 0
        return total


def _outcome_of(work: Path, name: str) -> Outcome:
    lines = (work / "stdout.txt").read_text("utf-8", "replace").splitlines()
    try:
        return Outcome(**json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError) as error:
        raise BaselineFailedError("its last line states no outcome") from error


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:])
