"""Ends a worker process with the process that started it, however that ends."""

from __future__ import annotations

import os
import threading
import time

_SECONDS = 0.2


def end_with_parent(parent: int) -> None:
    """Ends this process soon after its parent has ended.

    Args:
        parent: its process number.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS)
    os._exit(1)
