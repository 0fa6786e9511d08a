"""Shows how far a run is: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from transforms.progress import PULSE, Pulse

_POLL_SECONDS = 0.2
_LINE_SECONDS = 10.0


class Stage(NamedTuple):
    """What a run is at.

    Attributes:
        name: in a word.
        done: rows that are through it.
        total: rows that have to be, or None while nobody knows.
    """

    name: str
    done: int
    total: int | None


def stage_of(pulse: Pulse) -> Stage:
    """Returns the stage that the counts of a run tell.

    >>> stage_of(Pulse(surveyed=7)), stage_of(Pulse(total=9, placed=9, written=2, rejected=1))
    (Stage(name='surveying', done=7, total=None), Stage(name='writing', done=3, total=9))
    """
    if not pulse.total:
        return Stage("surveying", pulse.surveyed, None)
    if pulse.verified:
        return Stage("verifying", pulse.verified, pulse.written)
    if pulse.written or pulse.rejected:
        return Stage("writing", pulse.written + pulse.rejected, pulse.placed)
    return Stage("placing", pulse.placed, pulse.total)


@contextmanager
def progress(console: Console, watch: bool) -> Iterator[None]:
    """Shows progress while the body runs.

    Args:
        console: where to.
        watch: whether workers share this process, so that their counts can be seen.
    """
    PULSE.reset()
    if not watch:
        yield
        return
    done = threading.Event()
    show = _show_bar if console.is_terminal else _show_lines
    thread = threading.Thread(target=show, args=(console, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show_bar(console: Console, done: threading.Event) -> None:
    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        name, began = "surveying", time.monotonic()
        task = bar.add_task(name, total=None, counts="")
        while not done.wait(_POLL_SECONDS):
            stage = stage_of(PULSE)
            if stage.name != name:
                name, began = stage.name, time.monotonic()
                bar.reset(task, description=name, total=stage.total)
            counts = describe(stage, time.monotonic() - began, PULSE.rejected)
            bar.update(task, completed=stage.done, total=stage.total, counts=counts)


def _show_lines(console: Console, done: threading.Event) -> None:
    began = time.monotonic()
    while not done.wait(_LINE_SECONDS):
        stage, seconds = stage_of(PULSE), time.monotonic() - began
        of_all = f" of {stage.total:,}" if stage.total else ""
        line = f"{seconds:.0f} s: {stage.name}, {stage.done:,}{of_all} rows"
        console.print(f"{line}, {PULSE.rejected:,} rejected", highlight=False)


def describe(stage: Stage, seconds: float, rejected: int) -> str:
    """Returns a stage's counts in words: how many of how many, how fast, how many rejected."""
    of_all = f"/{stage.total:,}" if stage.total else ""
    rate = stage.done / seconds if seconds > 0 else 0
    lost = f", {rejected:,} rejected" if rejected else ""
    return f"{stage.done:,}{of_all} ({rate:,.0f}/s{lost})"
