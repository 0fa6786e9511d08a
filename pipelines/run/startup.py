"""Sets up and ends the process of a command: signals, streams, logs, memory and exit code.

This module is imported before Beam, and imports only modules that load in a few milliseconds.
"""

from __future__ import annotations

import atexit
import ctypes
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

# By default, glibc maps blocks of megabytes, and returns free memory above 128 KB, until it has
# adapted to them: mapping the arrays of a batch of images again takes as long as measuring them.
_KEPT_BYTES = 2**25

_ALLOCATOR_LIMITS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the default keeps 50 MB of the index of 100,000 rows
    "MALLOC_ARENA_MAX": "2",  # for subprocesses: arenas of TensorFlow's threads keep 30 MB
    "MALLOC_MMAP_THRESHOLD_": str(_KEPT_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES),
}

# The same settings as parameters of `mallopt` (malloc.h), because glibc reads the environment only
# when a process starts.
_MALLOPT = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
_PARENT_SECONDS = 0.2
_AGAIN_SECONDS = 0.01

_exit_codes: list[int] = []


def set_up_process() -> None:
    """Sets up signals, streams, logs and garbage collection, before heavy imports."""
    _exit_on_signals()
    from recordmill.pipelines.console.terminal import ignore_output_errors, open_closed_streams

    open_closed_streams()
    ignore_output_errors()
    from recordmill.pipelines.console.logs import set_up_logs

    set_up_logs()
    gc.disable()  # imported objects are permanent: collecting during imports takes 0.4 s
    # Registered before any import registers a handler: the first one registered runs last.
    atexit.register(_exit_immediately)


def end_process(code: int) -> int:
    """Stores and returns the exit code; after a signal, exits immediately."""
    _exit_codes.append(code)
    if code > 128:  # a signal: do not wait for threads
        _exit_immediately()
    return code


def _exit_immediately() -> None:
    """Exits without running the destructors of native libraries.

    On a busy machine, they abort one in fifteen successful runs ("terminate called without an
    active exception"), because a thread of TensorFlow is still running.
    """
    if _exit_codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_codes[-1])


def _exit_on_signals() -> None:
    """Makes the next signal end the process, without a traceback.

    KeyboardInterrupt could be raised within an import, where C extensions swallow it.
    """
    for number in INTERRUPTING:
        signal.signal(number, _exit_by_signal)


def _exit_by_signal(number: int, _: object) -> None:
    """Ends the process immediately, with the exit code of a signal."""
    # Not by print, which is not reentrant.
    os.write(2, f"recordmill: interrupted by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)


@dataclass
class Interrupt:
    """The signal that interrupted the process, if any."""

    number: int | None = None
    # The exit code of a command whose work is done, which later signals do not change.
    code: int | None = None

    def error(self, advice: str = "") -> Interrupted | None:
        """Returns the error for the signal; None if no signal arrived."""
        if self.number is None:
            return None
        name = signal.Signals(self.number).name
        return Interrupted(f"interrupted by {name}{advice}", self.number)


@contextmanager
def handle_signals() -> Iterator[Interrupt]:
    """Raises KeyboardInterrupt for the first SIGTERM or SIGINT; a second one ends the process."""
    interrupt = Interrupt()

    def raise_interrupt(number: int, _: FrameType | None) -> None:
        if interrupt.code is not None:
            os._exit(interrupt.code)
        interrupt.number = number
        logging.disable(logging.ERROR)  # errors after a signal are its consequences
        for each in INTERRUPTING:
            signal.signal(each, _exit_by_signal)
        raise KeyboardInterrupt

    def raise_again(unraisable: UnraisableHookArgs) -> None:
        """Sends the signal again if its exception was raised in a finalizer, which ignores it."""
        number = interrupt.number
        if number is None or not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before_hook(unraisable)
            return
        signal.signal(number, raise_interrupt)
        threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()

    # Python allows signal handlers only in the main thread.
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, raise_interrupt) for number in INTERRUPTING}
    before_hook, sys.unraisablehook = sys.unraisablehook, raise_again
    try:
        yield interrupt
    finally:
        sys.unraisablehook = before_hook
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            if interrupt.code is None or handler is not _exit_by_signal:
                signal.signal(number, handler)


def limit_allocator_caches() -> None:
    """Limits the freed memory that Arrow, and the allocators of this process and others, keep.

    It must be called before Arrow is used. Variables that are already set keep their values.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only in the C libraries of Linux
    for name, value in _ALLOCATOR_LIMITS.items():
        if name not in os.environ and name in _MALLOPT and mallopt:
            mallopt(_MALLOPT[name], int(value))
        os.environ.setdefault(name, value)


def end_with_parent(parent: int) -> None:
    """Starts a thread that ends this process soon after its parent has ended for any reason."""
    threading.Thread(target=_wait_for_end_of, args=(parent,), daemon=True).start()


def _wait_for_end_of(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)
