"""SIGTERM and Ctrl-C while there is nothing to clean up yet: the process ends, without a traceback.

An exception would be raised wherever an import happens to be, and C extensions swallow it there.
"""

from __future__ import annotations

import os
import signal

INTERRUPTING = (signal.SIGTERM, signal.SIGINT)


def exit_on_signals() -> None:
    """Ends the process when the next signal arrives."""
    for number in INTERRUPTING:
        signal.signal(number, exit_by_signal)


def exit_by_signal(number: int, _: object) -> None:
    """Ends the process now, with the exit code of a signal."""
    name = signal.Signals(number).name
    os.write(2, f"recordmill: interrupted by {name}\n".encode())  # print may be interrupted itself
    os._exit(128 + number)
