"""Lets tests that run as root meet file permissions, as other users do."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

# CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER. Source: capabilities(7).
_OVERRIDES = 1 << 1 | 1 << 2 | 1 << 3
_VERSION_3 = 0x20080522


@contextmanager
def unprivileged() -> Iterator[None]:
    """Gives up the right to pass over permissions, for this thread and those that it starts."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    before = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; low and high words
    assert libc.capget(header, before) == 0
    without = (ctypes.c_uint32 * 6)(*before)
    without[0] &= ~_OVERRIDES
    assert libc.capset(header, without) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0
