"""Whether a run publishes or gives up: in one process one of the two happens, and not both.

A signal interrupts the main thread while a worker's thread may be publishing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from recordmill.schemas.errors import RunError

_lock = threading.Lock()
_given_up: set[str] = set()


@contextmanager
def committing(run_id: str) -> Iterator[None]:
    """Publishes in its body; whoever gives up waits.

    Args:
        run_id: which run.

    Raises:
        RunError: if that run has given up.
    """
    with _lock:
        if run_id in _given_up:
            raise RunError("not published: the run was interrupted")
        yield


@contextmanager
def giving_up(run_id: str) -> Iterator[None]:
    """Clears up in its body a run that has published or never will.

    Args:
        run_id: which run.
    """
    with _lock:
        _given_up.add(run_id)
        yield
