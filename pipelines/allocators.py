"""Allocators that give memory back: of what a process and its children use when they begin."""

from __future__ import annotations

import os

_FRUGAL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # its own keep 50 MB of 100,000 rows' index
    "MALLOC_ARENA_MAX": "2",  # for children: one arena for each of TensorFlow's threads keeps 30
}


def use_frugal_allocators() -> None:
    """Has Arrow here, and all allocators in children, keep little of what they no longer use.

    Called before Arrow is used; what the environment says already stays.
    """
    for name, value in _FRUGAL.items():
        os.environ.setdefault(name, value)
