"""Garbage collection of a process, which is disabled while the process imports what it needs."""

from __future__ import annotations

import gc

_COLLECTED_OBJECTS = 10_000


def collect_garbage() -> None:
    """Enables garbage collection, except for the objects that exist already."""
    gc.freeze()
    # Rows are many small objects without cycles. By default, every 700 new objects are scanned, and
    # the older ones every 70,000: a tenth of the CPU time of a table.
    gc.set_threshold(_COLLECTED_OBJECTS)
    gc.enable()
