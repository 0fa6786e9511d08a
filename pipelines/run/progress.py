"""Reports the progress of a run: a live bar on a terminal, plain lines elsewhere.

Workers keep progress counters, in this process or in files that `poll_workers` reads.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from recordmill.pipelines.console.terminal import print_error
from recordmill.pipelines.engines.runners import is_in_process
from recordmill.transforms.storage.files import delete, is_local, make_folders
from recordmill.transforms.workers.progress import (
    COUNTERS,
    ProgressCounters,
    ProgressOptions,
    read_counters,
    sum_of,
)

_POLL_SECONDS = 0.2
_LINE_SECONDS = 10.0
_LINE_POLL_SECONDS = 1.0
_FOLDER_SECONDS = 1.0
_STORE_SECONDS = 10.0

# A function that returns the sum of all workers' progress counters.
Poll = Callable[[], ProgressCounters]


class Stage(NamedTuple):
    """The current stage of a run."""

    name: str
    done: int  # number of rows that have passed the stage
    total: int | None  # number of rows that will pass it; None if unknown


def _stage_of(counters: ProgressCounters) -> Stage:
    """Returns the stage of a run from its counters.

    >>> _stage_of(ProgressCounters(analyzed=7))
    Stage(name='analyzing', done=7, total=None)
    """
    if not counters.total:
        if counters.analyzed:
            return Stage("analyzing", counters.analyzed, None)
        # Folders are listed and tables joined before anything is analyzed.
        return Stage("reading" if counters.read else "starting", counters.read, None)
    if written := counters.written + counters.rejected:
        # Shards are verified while others are written, so this stage is that of the last shards.
        if written >= counters.assigned:
            return _of("verifying", counters.verified, counters.written)
        return _of("writing", written, counters.assigned)
    return _of("assigning", counters.assigned, counters.total)


def _of(name: str, done: int, total: int) -> Stage:
    """Returns a stage of known size. Retried work is counted twice, but not beyond the total."""
    return Stage(name, min(done, total), total)


@contextmanager
def progress(poll: Poll) -> Iterator[None]:
    """Shows progress on standard error while the body runs."""
    console = Console(stderr=True)
    done = threading.Event()
    show = _show_bar if console.is_terminal else _show_lines
    thread = threading.Thread(target=show, args=(console, poll, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show_bar(console: Console, poll: Poll, done: threading.Event) -> None:
    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
        TextColumn("+"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        name, began = "starting", time.monotonic()
        task = bar.add_task(name, total=None, counts="")
        while not done.wait(_POLL_SECONDS):
            counters = poll()
            stage = _stage_of(counters)
            if stage.name != name:
                name, began = stage.name, time.monotonic()
                bar.reset(task, description=name, total=stage.total)
            rate = stage.done / max(time.monotonic() - began, _POLL_SECONDS)
            counts = f"{_describe(stage, counters.rejected).removeprefix(', ')} ({rate:,.0f}/s)"
            bar.update(task, completed=stage.done, total=stage.total, counts=counts)


def _show_lines(_: Console, poll: Poll, done: threading.Event) -> None:
    """Prints a line every ten seconds and at each new stage, but none in the first ten seconds."""
    began, due, name = time.monotonic(), _LINE_SECONDS, ""
    while not done.wait(_LINE_POLL_SECONDS):
        seconds = time.monotonic() - began
        if seconds < _LINE_SECONDS:
            continue
        counters = poll()
        stage = _stage_of(counters)
        if seconds < due and stage.name == name:
            continue
        due, name = seconds + _LINE_SECONDS, stage.name
        print_error(f"{seconds:.0f} s: {stage.name}{_describe(stage, counters.rejected)}", "INFO")


def _describe(stage: Stage, rejected: int) -> str:
    """Returns the rows that have passed a stage, and those rejected in the whole run.

    >>> _describe(Stage("writing", 500, 2000), 3), _describe(Stage("starting", 0, None), 0)
    (', 500 of 2,000 rows, 3 rejected', '')
    """
    of_all = f" of {stage.total:,}" if stage.total else ""
    rows = f", {stage.done:,}{of_all} rows" if stage.done or stage.total else ""
    return f"{rows}, {rejected:,} rejected" if rejected else rows


@contextmanager
def poll_workers(folder: str, options: PipelineOptions) -> Iterator[Poll]:
    """Provides a function that returns the workers' progress counters while the body runs.

    `folder` is the folder where workers in other processes write their counters; it is created
    before the body, and deleted afterwards.
    """
    COUNTERS.reset()
    if is_in_process(options):
        yield lambda: COUNTERS
        return
    folder = os.path.abspath(folder) if is_local(folder) else folder
    delete(folder)  # a killed run may have left it
    make_folders(folder)
    options.view_as(ProgressOptions).progress_folder = folder
    try:
        yield _WorkerFiles(folder)
    finally:
        with contextlib.suppress(OSError):  # deleted again when the run or the next run cleans up
            delete(folder)


class _WorkerFiles:
    """Sums the counters in the workers' files, which it reads as often as they are written."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pause = _FOLDER_SECONDS if is_local(folder) else _STORE_SECONDS
        self._due = 0.0
        self._known: dict[str, ProgressCounters] = {}

    def __call__(self) -> ProgressCounters:
        if time.monotonic() >= self._due:
            with contextlib.suppress(OSError):  # a store may fail once; the next poll tries again
                self._known.update(read_counters(self._folder))
            self._due = time.monotonic() + self._pause
        return sum_of(self._known.values())
