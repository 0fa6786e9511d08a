"""Rewrites the lines that native code and child processes print to standard error."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# Marks the end of a body's output: child processes may keep the pipe open after it.
_END = b"\0\n"


@contextmanager
def rewritten_standard_error(rewrite: Callable[[bytes], bytes]) -> Iterator[None]:
    """Passes each line on standard error through a function while the body runs.

    Native libraries and child processes write to file descriptor 2. It is replaced by a pipe, whose
    reader writes the lines to the former descriptor, also those of child processes that outlive the
    body. `rewrite`: returns the replacement of a line. The last line may lack its line end.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    source, sink = os.pipe()
    is_copied = threading.Event()
    copying = (source, kept, rewrite, is_copied)
    threading.Thread(target=_copy, args=copying, daemon=True).start()
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.write(2, _END)
        os.dup2(kept, 2)
        is_copied.wait()


def _copy(
    source: int, target: int, rewrite: Callable[[bytes], bytes], is_copied: threading.Event
) -> None:
    """Copies lines from one file descriptor to another, and closes both."""
    with open(source, "rb") as lines, open(target, "wb", buffering=0) as kept:
        for line in lines:
            with suppress(OSError):  # keeps reading: a full pipe would block its writers
                kept.write(rewrite(line.removesuffix(_END)))
            if line.endswith(_END):
                is_copied.set()
