"""Removes informational lines of TensorFlow's log from standard error."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Lines of absl's log that are informational; warnings and errors do not match.
_INFO_LINES = re.compile(
    rb"(?:WARNING: All log messages before absl|To enable the following instructions:"
    rb"|I\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ).*\n"
)

_CHUNK_BYTES = 2**16
_PRINTER_SECONDS = 1


@contextmanager
def filtered_native_log() -> Iterator[None]:
    """Removes informational lines of absl's log from standard error while the body runs.

    TensorFlow 2.21 ignores its log level during the import. Native code writes to file descriptor
    2 and other threads may print concurrently, so the descriptor is replaced by a pipe, and a
    thread copies everything else.
    """
    kept = os.dup(2)
    source, sink = os.pipe()
    printer = threading.Thread(target=_copy_filtered, args=(source, kept), daemon=True)
    printer.start()
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        # With a timeout: a child process started by another thread may still hold the pipe open.
        printer.join(_PRINTER_SECONDS)


def _copy_filtered(source: int, target: int) -> None:
    """Copies one file descriptor to another until its end, except `_INFO_LINES`; closes both."""
    with open(source, "rb", buffering=0) as pipe, open(target, "wb", buffering=0) as kept:
        while chunk := pipe.read(_CHUNK_BYTES):
            with suppress(OSError):  # keeps reading: a full pipe would block its writers
                kept.write(_INFO_LINES.sub(b"", chunk))
