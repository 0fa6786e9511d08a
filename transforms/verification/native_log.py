"""Drops what native libraries log of themselves, and nothing that anything else prints."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NOISE = re.compile(
    rb"(?:WARNING: All log messages before absl|To enable the following instructions:"
    rb"|I\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ).*\n"
)
"""Of absl's log, notes only: warnings and errors are printed."""

_CHUNK_BYTES = 2**16
_END_SECONDS = 1


@contextmanager
def without_native_notes() -> Iterator[None]:
    """Prints all that this process writes to standard error, except for the notes of absl's log.

    At its import TensorFlow 2.21 heeds no log level. Other threads may print meanwhile, and native
    code knows standard error by its number alone: so that becomes a pipe while the body runs.
    """
    kept = os.dup(2)
    source, sink = os.pipe()
    printer = threading.Thread(target=_print_rest, args=(source, kept), daemon=True)
    printer.start()
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        printer.join(_END_SECONDS)  # a process that was started meanwhile may still hold the pipe


def _print_rest(source: int, target: int) -> None:
    """Copies from one descriptor to another, until nobody writes any more; closes both."""
    with open(source, "rb", buffering=0) as pipe, open(target, "wb", buffering=0) as kept:
        while chunk := pipe.read(_CHUNK_BYTES):
            with suppress(OSError):  # whoever writes to the pipe must never wait for long
                kept.write(_NOISE.sub(b"", chunk))
