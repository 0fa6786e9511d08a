"""Counts of the work of a process: progress counters, and Beam's metrics; row counts use neither.

Each process has its own progress counters. Worker processes report them in small files of a shared
folder, which the driver polls. `advance` also feeds Beam's metrics, which engines show for each
step of a job, but cannot be polled: Beam's portable runner requests them once per job and keeps the
first answer (`PipelineResult.metrics`, 2.77.0). Engines count a retried bundle again, and lose the
metrics of a driver that dies.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Literal, TypeVar

from apache_beam.metrics.metric import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.schemas import layout
from recordmill.transforms.storage.files import files_below, is_local, open_binary, write_bytes
from recordmill.transforms.storage.stores.options import pipeline_options

NAMESPACE = "recordmill"

T = TypeVar("T")


# Beam looks up the step at each call, by the thread: all threads and steps can share these objects.
@cache
def counter(name: str) -> Metrics.DelegatingCounter:
    """Returns a counter of whatever step the calling thread executes; in other threads, of none."""
    return Metrics.counter(NAMESPACE, name)


@cache
def _distribution(name: str) -> Metrics.DelegatingDistribution:
    """Returns a distribution of a step, as `counter` does; its name ends with the unit."""
    return Metrics.distribution(NAMESPACE, name)


# The values that `observe` keeps in a process without steps, until `take_observed`; None if it has
# steps.
_observed: dict[str, list[int]] | None = None


def observe(name: str, *values: int) -> None:
    """Updates a distribution of the step that the calling thread executes."""
    if _observed is not None:
        _observed.setdefault(name, []).extend(values)
        return
    for value in values:
        _distribution(name).update(value)


def take_observed() -> dict[str, list[int]]:
    """Returns the values of each distribution since the last call.

    The first call makes this a process without steps: another one reports its values.
    """
    global _observed
    taken, _observed = _observed or {}, {}
    return taken


class Measurements:
    """Measurements of threads that work for a step, until the step's own thread reports them.

    Beam finds the step of a metric by the thread: in other threads it would be lost.
    """

    def __init__(self) -> None:
        self._values: deque[tuple[str, int]] = deque()

    def add(self, name: str, value: int) -> None:
        """Adds a value, from any thread."""
        self._values.append((name, value))

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the microseconds that the body takes."""
        start = time.perf_counter_ns()
        yield
        self.add(name, (time.perf_counter_ns() - start) // 1000)

    def taken(self) -> Iterator[tuple[str, int]]:
        """Yields the values that were added, and forgets them."""
        while self._values:
            yield self._values.popleft()

    def reported(self, results: Iterable[T]) -> Iterator[T]:
        """Yields the results of the threads, and reports the values that were added meanwhile."""
        for result in results:
            for name, value in self.taken():
                observe(name, value)
            yield result


# Rows that are counted together where there are many of them: a moment's work.
BATCH_ROWS = 128

# Interval of reports to a local folder.
_SECONDS = 2.0

# Interval of reports to an object store, where each is a billed request.
_STORE_SECONDS = 10.0

_Count = Literal["read", "analyzed", "assigned", "written", "rejected", "verified"]


@dataclass
class ProgressCounters:
    """Progress counters; a retried bundle is counted twice."""

    read: int = 0  # rows read from tables, or files found in folders
    analyzed: int = 0
    total: int = 0  # the number of all rows, known after the analyze pass
    assigned: int = 0  # rows assigned to a shard, or rejected before
    written: int = 0
    rejected: int = 0  # rows rejected while records were written
    verified: int = 0

    def reset(self) -> None:
        """Sets all counters to 0."""
        self.__init__()  # type: ignore[misc]


# The counters of this process.
COUNTERS = ProgressCounters()


# "analyzed" would equal "read", and rejects are counted by reason elsewhere. Created once, because
# the counters are updated for every row.
_METRICS = {what: counter(f"rows_{what}") for what in ("read", "assigned", "written", "verified")}


class ProgressOptions(PipelineOptions):
    """The folder in which workers report their counters; set by the driver, not by users."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--progress_folder", default="", help=argparse.SUPPRESS)


def advance(what: _Count, number: int = 1) -> None:
    """Increments a counter of this process and of Beam, and reports all of them if a report is due.

    `what` is the name of the counter; Beam's is called `rows_…`.
    """
    # Concurrent threads can lose increments here: a progress bar tolerates that, and a lock for
    # every row would be slow.
    setattr(COUNTERS, what, getattr(COUNTERS, what) + number)
    if what in _METRICS:
        _METRICS[what].inc(number)
    _REPORTER.report()


def set_total(rows: int) -> None:
    """Sets the total number of rows and reports it immediately."""
    COUNTERS.total = rows
    _REPORTER.report(immediately=True)


def sum_of(processes: Iterable[ProgressCounters]) -> ProgressCounters:
    """Returns the sum of the counters of several processes; `total` is the maximum.

    >>> sum_of([ProgressCounters(read=3, total=9), ProgressCounters(read=2)])
    ProgressCounters(read=5, analyzed=0, total=9, assigned=0, written=0, rejected=0, verified=0)
    """
    known = list(processes)
    names = [field.name for field in fields(ProgressCounters) if field.name != "total"]
    counts = {name: sum(getattr(counters, name) for counters in known) for name in names}
    return ProgressCounters(total=max((counters.total for counters in known), default=0), **counts)


def read_counters(folder: str) -> dict[str, ProgressCounters]:
    """Returns the reported counters of all worker processes, by file name."""
    found = {}
    for name in files_below(folder, "*.json"):
        try:
            with open_binary(layout.join(folder, name)) as stream:
                found[name] = ProgressCounters(**json.loads(stream.read()))
        except (OSError, ValueError, TypeError):
            continue  # being written or deleted: the next poll reads it
    return found


class _Reporter:
    """Writes the counters of this process to its file every few seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due = 0.0
        self._folder = ""
        self._timer: threading.Timer | None = None

    def report(self, immediately: bool = False) -> None:
        """Writes the counters if a report is due and a folder is set; never blocks."""
        if time.monotonic() >= self._due or immediately:
            self._write()
        elif self._timer is None and self._folder and is_local(self._folder):
            # Without a timer, the last counts before a pause would not be reported.
            self._timer = threading.Timer(_SECONDS, self._write)
            self._timer.daemon = True
            self._timer.start()

    def _write(self) -> None:
        if not self._lock.acquire(blocking=False):  # another thread is writing the same counters
            return
        try:
            self._timer = None
            if options := pipeline_options():
                self._folder = options.view_as(ProgressOptions).progress_folder
            is_here = is_local(self._folder)
            self._due = time.monotonic() + (_SECONDS if is_here else _STORE_SECONDS)
            if self._folder:
                # An id of this process, unique over all machines; a fork gets another one.
                path = layout.join(self._folder, f"{uuid.uuid5(_RUN, str(os.getpid()))}.json")
                write_bytes(path, json.dumps(asdict(COUNTERS)).encode(), with_folders=False)
        except Exception:  # noqa: BLE001 - a progress bar must not fail a run
            self._due = time.monotonic() + _STORE_SECONDS
        finally:
            self._lock.release()


_RUN = uuid.uuid4()
_REPORTER = _Reporter()
