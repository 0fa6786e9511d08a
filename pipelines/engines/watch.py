"""Lets the driver see how far workers are, in this process or in any other."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.engines.runners import is_in_process
from recordmill.transforms.storage.files import delete, is_local, make_folder
from recordmill.transforms.workers.progress import PULSE, ProgressOptions, Pulse, sum_of, told_in

_SECONDS = 1.0
_STORE_SECONDS = 10.0

Watch = Callable[[], Pulse]
"""Returns how far all workers together are."""


@contextmanager
def watch(folder: str, options: PipelineOptions) -> Iterator[Watch]:
    """Gives a way to see how far workers are while the body runs.

    Args:
        folder: where workers of other processes tell it; made for the purpose, and deleted.
        options: Beam's; they carry the folder's name to the workers.
    """
    PULSE.reset()
    if is_in_process(options):
        yield lambda: PULSE
        return
    folder = os.path.abspath(folder) if is_local(folder) else folder
    delete(folder)  # of a run that was killed
    make_folder(folder)
    options.view_as(ProgressOptions).progress_folder = folder
    try:
        yield _Told(folder)
    finally:
        with contextlib.suppress(OSError):  # the next run, or this one's end, takes it away
            delete(folder)


class _Told:
    """Adds up what workers have told, and looks no more often than they tell."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pause = _SECONDS if is_local(folder) else _STORE_SECONDS
        self._due = 0.0
        self._known: dict[str, Pulse] = {}

    def __call__(self) -> Pulse:
        if time.monotonic() >= self._due:
            with contextlib.suppress(OSError):  # what cannot be listed now may be next time
                self._known.update(told_in(self._folder))
            self._due = time.monotonic() + self._pause
        return sum_of(self._known.values())
