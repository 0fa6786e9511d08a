"""SIGTERM and Ctrl-C: a run that is asked to end does so cleanly, and says how to go on."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from schemas.errors import Interrupted

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class Interrupt:
    """Whether the process was asked to end.

    Attributes:
        number: of the signal that came; None if none did.
    """

    number: int | None = None

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
        interrupt.number = number
        logging.disable(logging.ERROR)  # what fails from now on fails for this
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # where signals cannot be heeded
        yield interrupt
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield interrupt
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)
