"""Puts a folder in the place of another, so that readers find the one or the other at any time."""

from __future__ import annotations

import ctypes
import os
import sys

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: str, other: str) -> bool:
    """Gives each of two folders the name of the other, at once; returns whether that was possible.

    By Linux's renameat2, on file systems that know it: ext4, XFS, Btrfs, tmpfs, overlayfs, and
    some network file systems. Source: renameat2(2).
    """
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:  # glibc before 2.28
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)
