"""A process apart for what can crash, hang, or take all memory: decoding odd images.

Native code that dies takes its process along, and no thread can be stopped from outside. So such
work is done in child processes, one for each core, that are killed when they overrun and replaced
when they die; the worker, whatever runner it belongs to, only sees a reject.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import context, popen_spawn_posix, process, resource_tracker, spawn
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.source_image import (
    SourceImage,
    examine,
    examine_in_process,
)
from recordmill.transforms.workers.cores import num_cores

T = TypeVar("T")

MEMORY_BYTES = 2 * 2**30
"""Address space of a child: what needs more is rejected."""

_START_SECONDS = 60
"""Within them a child begins, however busy the machine."""

_children = num_cores()
_slots = threading.BoundedSemaphore(_children)
_stopped = threading.Event()
_lock = threading.Lock()
_pools: dict[int, ProcessPool] = {}


def run_in_subprocess(function: Callable[..., T], *arguments: Any, timeout: float) -> T:
    """Returns `function(*arguments)`, computed in a child process.

    Args:
        function: what to call; it and its arguments are pickled.
        arguments: what to call it with.
        timeout: seconds after which the child is killed.

    Raises:
        RecordError: timeout, decoder_crash, too_many_pixels for want of memory, and whatever the
            function raises.
    """
    call = partial(_call, function, arguments, timeout)
    with _slots:
        try:
            try:
                return call()
            except BrokenProcessPool:  # what broke it may have been another image
                return call()
        except FutureTimeoutError as error:
            raise RecordError(Reason.TIMEOUT, f"decoding takes over {timeout:g} s") from error
        except MemoryError as error:
            detail = f"decoding takes over {MEMORY_BYTES // 2**20} MiB of memory"
            raise RecordError(Reason.TOO_MANY_PIXELS, detail) from error
        except ProcessExpired as error:
            detail = f"the decoder crashed: exit code {error.exitcode}"
            raise RecordError(Reason.DECODER_CRASH, detail) from error
        except BrokenProcessPool as error:
            detail = "the decoder could not be kept running; is memory short?"
            raise RecordError(Reason.DECODER_CRASH, detail) from error


def _call(function: Callable[..., T], arguments: tuple[Any, ...], timeout: float) -> T:
    pool = _pool()
    try:
        try:
            with _interrupts_blocked():
                future = pool.schedule(function, args=arguments, timeout=timeout)
        except RuntimeError as error:  # it is not running any more
            raise BrokenProcessPool(str(error)) from error
        return _outcome(pool, future, timeout)
    except BrokenProcessPool:
        _give_up(pool)
        raise


def _outcome(pool: ProcessPool, future: ProcessFuture[T], timeout: float) -> T:
    """Waits for a task, as long as there is hope.

    Pebble forgets one whose child is killed before it has said that it begins, and one that is
    scheduled while its pool breaks. As there are as many slots as children, none waits for another.
    """
    deadline = time.monotonic() + timeout + _START_SECONDS
    while not future.done():
        wait([future], timeout=1)
        if not future.done() and (not pool.active or time.monotonic() > deadline):
            raise BrokenProcessPool("the task was lost")
    return future.result()


def allow_children() -> None:
    """Takes back what `stop_children` says, for a run that begins."""
    _stopped.clear()


def stop_children() -> None:
    """Kills the children of this process; whatever asks for one from now on meets a crash."""
    _stopped.set()
    with _lock:
        pool = _pools.pop(os.getpid(), None)
    if pool:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _give_up(pool: ProcessPool) -> None:
    """Stops a pool whose children die before they begin; whatever comes next has a new one."""
    with _lock:
        if _pools.get(os.getpid()) is pool:
            del _pools[os.getpid()]
    pool.stop()  # type: ignore[no-untyped-call]


def _pool() -> ProcessPool:
    """Returns this process's pool, made on first use; a fork does not inherit its parent's.

    Raises:
        BrokenProcessPool: after `stop_children`.
    """
    with _lock:
        if _stopped.is_set():
            raise BrokenProcessPool("the run is ending")
        if os.getpid() not in _pools:
            _start_quiet_tracker()
            _pools[os.getpid()] = ProcessPool(
                max_workers=_children,
                initializer=_set_up_child,
                context=_Context(),
            )
        return _pools[os.getpid()]


def _preparation_data(name: str) -> dict[str, Any]:
    """Returns the preparation data of a child process, without the main module."""
    data = spawn.get_preparation_data(name)
    return {key: value for key, value in data.items() if not key.startswith("init_main")}


class _Popen(popen_spawn_posix.Popen):
    """Starts a child that does not import the main module of this process.

    `multiprocessing` has every child import it: a script that calls `convert()` at its top level
    would call it again in each. Unnecessary once a context can skip it; no issue is known.
    """

    _launch = FunctionType(
        vars(popen_spawn_posix.Popen)["_launch"].__code__,
        {
            **vars(popen_spawn_posix),
            "spawn": SimpleNamespace(**{**vars(spawn), "get_preparation_data": _preparation_data}),
        },
    )


class _Process(context.SpawnProcess):
    @staticmethod
    def _Popen(process_obj: process.BaseProcess) -> _Popen:  # noqa: N802 - its name there
        return _Popen(process_obj)


class _Context(context.SpawnContext):
    """Spawns children, since threads and locks do not fork."""

    Process = _Process


def _start_quiet_tracker() -> None:
    """Starts what deletes the semaphores of a pool whose process is killed, and does not say so.

    `multiprocessing` starts it with the first semaphore, and with the warning options of then.
    """
    sys.warnoptions.append("ignore:resource_tracker")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove("ignore:resource_tracker")


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks Ctrl-C, which a terminal sends to all, in threads and children that are started here.

    It is for the main thread of the parent to answer; a child would print a traceback, from its
    first import on.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _set_up_child() -> None:
    """Bounds the memory of a child, so that a bomb ends as a MemoryError there.

    Nothing is printed: what is wrong with an image, its reject says. Pillow's own limit of pixels,
    which some of its plugins check, is off in the child: that of the settings is checked before.
    """
    from PIL import Image  # only a child needs it

    Image.MAX_IMAGE_PIXELS = None
    warnings.simplefilter("ignore")
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


_SECONDS = 10.0


def examine_in_subprocess(data: bytes) -> SourceImage:
    """Returns what the header of an image says, which anybody may have made.

    Raises:
        RecordError: as `examine`; timeout or decoder_crash, too.
    """
    return examine_in_process(data) or run_in_subprocess(examine, data, timeout=_SECONDS)
