"""How many cores there are to work with."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
