"""How a process starts and ends: signals, streams, logs and memory, before Beam is imported.

Nothing is imported here that takes longer than a few milliseconds.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from recordmill.schemas.errors import Interrupted

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

INTERRUPTING = (signal.SIGTERM, signal.SIGINT)

_ALLOCATOR_LIMITS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # its own keeps 50 MB of 100,000 rows' index
    "MALLOC_ARENA_MAX": "2",  # for children: one arena for each of TensorFlow's threads keeps 30
}
_PARENT_SECONDS = 0.2
_AGAIN_SECONDS = 0.01

_exit_codes: list[int] = []


def set_up_process() -> None:
    """Prepares a process of the command line, each part before what needs it is imported."""
    exit_on_signals()
    from recordmill.pipelines.console.printing import (
        ignore_output_errors,
        open_closed_streams,
    )

    open_closed_streams()
    ignore_output_errors()
    from recordmill.pipelines.console.logs import set_up_logs

    set_up_logs()
    gc.disable()  # imported objects stay: to search them again and again takes 0.4 s
    atexit.register(_exit_at_once)  # before any import adds its own: the first one runs last


def collect_garbage() -> None:
    """Starts the collection of garbage, except of what exists already."""
    gc.freeze()
    gc.enable()


def end_process(code: int) -> int:
    """Returns the exit code with which the process will end; of a signal, ends it at once."""
    _exit_codes.append(code)
    if code > 128:  # what threads are still doing is not waited for
        _exit_at_once()
    return code


def _exit_at_once() -> None:
    """Ends the process where the destructors of native libraries would run.

    They abort one run in fifteen on a busy machine, when all is done ("terminate called without an
    active exception"), because a thread of TensorFlow is still there.
    """
    if _exit_codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_codes[-1])


def exit_on_signals() -> None:
    """Ends the process when the next signal arrives, without a traceback.

    An exception would be raised in whatever import is under way, where C extensions swallow it.
    """
    for number in INTERRUPTING:
        signal.signal(number, exit_by_signal)


def exit_by_signal(number: int, _: object) -> None:
    """Ends the process now, with the exit code of a signal."""
    name = signal.Signals(number).name
    os.write(2, f"recordmill: interrupted by {name}\n".encode())  # print may be interrupted itself
    os._exit(128 + number)


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
def handle_signals() -> Iterator[Interrupt]:
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

    if threading.current_thread() is not threading.main_thread():  # where signals cannot be handled
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


def limit_allocator_caches() -> None:
    """Makes Arrow here, and all allocators in children, keep little of the memory they free.

    Called before Arrow is used; variables that the environment has already stay.
    """
    for name, value in _ALLOCATOR_LIMITS.items():
        os.environ.setdefault(name, value)


def end_with_parent(parent: int) -> None:
    """Ends this process soon after its parent has ended, however that ended.

    Args:
        parent: its process number.
    """
    threading.Thread(target=_wait_for_end_of, args=(parent,), daemon=True).start()


def _wait_for_end_of(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)
