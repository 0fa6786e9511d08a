"""How a process starts and ends: signals, streams, logs and memory, before Beam is imported.

Nothing is imported here that takes longer than a few milliseconds.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time

INTERRUPTING = (signal.SIGTERM, signal.SIGINT)

_FRUGAL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # its own keeps 50 MB of 100,000 rows' index
    "MALLOC_ARENA_MAX": "2",  # for children: one arena for each of TensorFlow's threads keeps 30
}
_PARENT_SECONDS = 0.2

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


def use_frugal_allocators() -> None:
    """Makes Arrow here, and all allocators in children, keep little of the memory they free.

    Called before Arrow is used; variables that the environment has already stay.
    """
    for name, value in _FRUGAL.items():
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
