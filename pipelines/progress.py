"""Shows how far a run is: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from transforms.progress import PULSE, Pulse

_POLL_SECONDS = 0.25
_LINE_SECONDS = 10.0


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
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("surveying", total=0, note="")
        began = time.monotonic()
        while not done.wait(_POLL_SECONDS):
            began = began if PULSE.written else time.monotonic()
            stage, completed = stage_of(PULSE)
            seconds = max(time.monotonic() - began, _POLL_SECONDS)
            note = f"{PULSE.written / seconds:,.0f}/s  {PULSE.rejected:,} rejected"
            bar.update(task, description=stage, completed=completed, total=PULSE.total, note=note)


def _show_lines(console: Console, done: threading.Event) -> None:
    began = time.monotonic()
    while not done.wait(_LINE_SECONDS):
        stage, completed = stage_of(PULSE)
        console.print(
            f"{time.monotonic() - began:.0f} s: {stage}, {completed:,} of {PULSE.total:,} rows, "
            f"{PULSE.rejected:,} rejected",
            highlight=False,
        )


def stage_of(pulse: Pulse) -> tuple[str, int]:
    """Returns the stage that a run is in, and the rows that are through it."""
    if not pulse.total:
        return "surveying", 0
    if pulse.verified:
        return "verifying", pulse.verified + pulse.rejected
    return "writing", pulse.written + pulse.rejected
