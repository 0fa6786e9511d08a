"""SIGTERM and Ctrl-C: a run that is asked to end does so cleanly, and says how to go on."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from recordmill.pipelines.run.startup import INTERRUPTING, exit_by_signal
from recordmill.schemas.errors import Interrupted

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_AGAIN_SECONDS = 0.01


@dataclass
class Interrupt:
    """Whether the process was asked to end.

    Attributes:
        number: of the signal that came; None if none did.
        code: the exit code of a command that has done its work: no signal changes it any more.
    """

    number: int | None = None
    code: int | None = None

    def error(self, advice: str = "") -> Interrupted | None:
        """Returns what to end with, if a signal came."""
        if self.number is None:
            return None
        name = signal.Signals(self.number).name
        return Interrupted(f"interrupted by {name}{advice}", self.number)


@contextmanager
def heed_signals() -> Iterator[Interrupt]:
    """Makes the first SIGTERM or SIGINT a KeyboardInterrupt; a second one ends the process."""
    interrupt = Interrupt()

    def note(number: int, _: FrameType | None) -> None:
        if interrupt.code is not None:
            os._exit(interrupt.code)
        interrupt.number = number
        logging.disable(logging.ERROR)  # what fails from now on fails for this
        for each in INTERRUPTING:
            signal.signal(each, exit_by_signal)
        raise KeyboardInterrupt

    def retry(unraisable: UnraisableHookArgs) -> None:
        """Raises it again where it was raised in a finalizer, which swallows it."""
        number = interrupt.number
        if number is None or not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before_hook(unraisable)
            return
        signal.signal(number, note)
        threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()

    if threading.current_thread() is not threading.main_thread():  # where signals cannot be heeded
        yield interrupt
        return
    before = {number: signal.signal(number, note) for number in INTERRUPTING}
    before_hook, sys.unraisablehook = sys.unraisablehook, retry
    try:
        yield interrupt
    finally:
        sys.unraisablehook = before_hook
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            if interrupt.code is None or handler is not exit_by_signal:
                signal.signal(number, handler)
