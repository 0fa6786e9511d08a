"""A process apart for what can crash, hang, or take all memory: decoding odd images.

Native code that dies takes its process along, and no thread can be stopped from outside. So such
work is done in child processes, one for each core, that are killed when they overrun and made anew
when they die; the worker, whatever runner it belongs to, only sees a reject.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from schemas.rejects import Reason, RecordError

T = TypeVar("T")

MEMORY_BYTES = 2 * 2**30
"""Address space of a child: what needs more is refused."""

_lock = threading.Lock()
_pools: dict[int, ProcessPool] = {}


def run_apart(function: Callable[..., T], *arguments: Any, timeout: float) -> T:
    """Returns `function(*arguments)`, computed in a child process.

    Args:
        function: what to call; it and its arguments are pickled.
        arguments: what to call it with.
        timeout: seconds after which the child is killed.

    Raises:
        RecordError: timeout, decoder_crash, too_many_pixels for want of memory, and whatever the
            function raises.
    """
    future = _pool().schedule(function, args=arguments, timeout=timeout)
    try:
        result: T = future.result()
    except FutureTimeoutError as error:
        raise RecordError(Reason.TIMEOUT, f"decoding takes over {timeout:g} s") from error
    except MemoryError as error:
        detail = f"decoding takes over {MEMORY_BYTES // 2**20} MiB of memory"
        raise RecordError(Reason.TOO_MANY_PIXELS, detail) from error
    except ProcessExpired as error:
        detail = f"the decoder crashed: exit code {error.exitcode}"
        raise RecordError(Reason.DECODER_CRASH, detail) from error
    return result


def _pool() -> ProcessPool:
    """Returns this process's pool, made on first use; a fork does not inherit its parent's."""
    with _lock:
        if os.getpid() not in _pools:
            _pools[os.getpid()] = ProcessPool(
                max_workers=os.cpu_count() or 1,
                initializer=_limit_memory,
                context=multiprocessing.get_context("spawn"),  # threads and locks do not fork
            )
        return _pools[os.getpid()]


def _limit_memory() -> None:
    """Bounds the memory of a child, so that a bomb ends as a MemoryError there."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
