"""A sandbox of child processes for work that can crash, hang or exhaust memory: decoding images.

A crash in native code ends its process, and a thread cannot be stopped from outside. The sandbox
therefore has one child process per core, kills it after a timeout, and replaces it when it dies. On
any runner, the worker turns such a failure into a reject.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import tempfile
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
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.codecs import SourceImage, examine, examine_in_process
from recordmill.transforms.workers.process import num_cores

T = TypeVar("T")

# Limit of a child's address space; an image that needs more is rejected.
MEMORY_BYTES = 2 * 2**30

_STANDARD_ERROR = 2

# What is read of standard error: libtiff can print a line for each row of an image.
_PRINTED_BYTES = 4096

# Time allowed for a child to start a task, even on a busy machine.
_START_SECONDS = 60

# Tasks at a time. Writer processes have one each, and one child.
_slots = threading.BoundedSemaphore(num_cores())
_stopped = threading.Event()
_lock = threading.Lock()

# The pool that a process made, by process id: a fork must not use its parent's.
_pools: dict[int, ProcessPool] = {}

_launching = threading.Lock()


def run_in_subprocess(function: Callable[..., T], *arguments: Any, timeout: float) -> T:
    """Returns `function(*arguments)`, called in a child process.

    `function` is the function to call; pickled, like its arguments. `timeout`: seconds after which
    the child is killed. Raises RecordError (timeout); decoder_crash; too_many_pixels if the memory
    limit is exceeded. Raises Exception: any exception of the function.
    """
    call = partial(_call, function, arguments, timeout)
    with _slots:
        try:
            try:
                return call()
            except BrokenProcessPool:  # another image may have broken the pool
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
            detail = "the decoder process could not be kept running; is the machine out of memory?"
            raise RecordError(Reason.DECODER_CRASH, detail) from error


def _call(function: Callable[..., T], arguments: tuple[Any, ...], timeout: float) -> T:
    pool = _pool()
    try:
        try:
            with _interrupts_blocked():
                future = pool.schedule(function, args=arguments, timeout=timeout)
        except RuntimeError as error:  # the pool was stopped
            raise BrokenProcessPool(str(error)) from error
        return _outcome(pool, future, timeout)
    except BrokenProcessPool:
        _discard(pool)
        raise


def _outcome(pool: ProcessPool, future: ProcessFuture[T], timeout: float) -> T:
    """Waits for the result of a task, with a deadline of our own.

    Pebble loses a task if its child is killed before it has acknowledged the task, or if the pool
    breaks while the task is scheduled. Slots equal children, so no task waits for another one.
    `timeout`: seconds that the task may run. Raises BrokenProcessPool if the task was lost.
    """
    deadline = time.monotonic() + timeout + _START_SECONDS
    while not future.done():
        wait([future], timeout=1)
        if not future.done() and (not pool.active or time.monotonic() > deadline):
            raise BrokenProcessPool("the task was lost")
    return future.result()


def allow_children() -> None:
    """Allows children to start again after `stop_children`, for a new run."""
    _stopped.clear()


def stop_children() -> None:
    """Kills the children of this process; later tasks fail with decoder_crash."""
    _stopped.set()
    with _lock:
        pool = _pools.pop(os.getpid(), None)
    if pool:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _discard(pool: ProcessPool) -> None:
    """Stops a broken pool; the next task makes a new one."""
    with _lock:
        if _pools.get(os.getpid()) is pool:
            del _pools[os.getpid()]
    pool.stop()  # type: ignore[no-untyped-call]


def _pool() -> ProcessPool:
    """Returns this process's pool, made on first use.

    Raises BrokenProcessPool: after `stop_children`.
    """
    with _lock:
        if _stopped.is_set():
            raise BrokenProcessPool("the run is ending")
        if os.getpid() not in _pools:
            _start_quiet_tracker()
            _pools[os.getpid()] = ProcessPool(
                max_workers=num_cores(), initializer=_set_up_child, context=_Context()
            )
        return _pools[os.getpid()]


@contextmanager
def _main_module_skipped() -> Iterator[None]:
    """Starts children of this thread without the main module of this process.

    `multiprocessing` makes every child import it, so a script that calls `convert()` at its top
    level would call it again in each child. No context can skip it; no upstream issue is known.
    """
    thread = threading.get_ident()

    def without_main(name: str) -> dict[str, Any]:
        data = preparation_data(name)
        if threading.get_ident() != thread:  # starts a child of the host program
            return data
        return {key: value for key, value in data.items() if not key.startswith("init_main_")}

    with _launching:
        preparation_data = spawn.get_preparation_data
        spawn.get_preparation_data = without_main
        try:
            yield
        finally:
            spawn.get_preparation_data = preparation_data


class _Popen(popen_spawn_posix.Popen):
    """Starts a child that does not import the main module."""

    def _launch(self, process_obj: process.BaseProcess) -> None:
        with _main_module_skipped():
            super()._launch(process_obj)  # type: ignore[misc] # typeshed leaves it out


class _Process(context.SpawnProcess):
    @staticmethod
    def _Popen(process_obj: process.BaseProcess) -> _Popen:  # noqa: N802 - its name there
        return _Popen(process_obj)


class _Context(context.SpawnContext):
    """Spawns children: a fork would copy locks that other threads hold."""

    Process = _Process


def _start_quiet_tracker() -> None:
    """Starts the resource tracker without its warnings.

    The tracker deletes the semaphores of a killed process, and warns about them. `multiprocessing`
    starts it with the first semaphore, and passes on the warning options of that moment.
    """
    sys.warnoptions.append("ignore:resource_tracker")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove("ignore:resource_tracker")


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT in threads and children started by the body, which inherit the mask.

    A terminal sends Ctrl-C to children, too. The main thread of the parent handles it; a child
    would print a traceback, even during its first import.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reject_printed_errors(function: Callable[..., T], *arguments: Any) -> T:
    """Returns `function(*arguments)` in a child, unless native code prints an error.

    libtiff prints its errors. Pillow ignores those after which libtiff continues: the pixels of a
    damaged strip are wrong, and nothing else states it. Raises RecordError (that) of the function,
    with the first error that was printed; corrupt if only native code reports damage.
    """
    os.ftruncate(_STANDARD_ERROR, 0)
    os.lseek(_STANDARD_ERROR, 0, os.SEEK_SET)
    try:
        result = function(*arguments)
    except RecordError as error:
        if printed := _printed_error():
            raise RecordError(error.reason, f"{error.detail}: {printed}") from error
        raise
    if printed := _printed_error():
        raise RecordError(Reason.CORRUPT, printed)
    return result


def _printed_error() -> str:
    """Returns the first error in the child's file of standard error; "" if there is none."""
    text = os.pread(_STANDARD_ERROR, _PRINTED_BYTES, 0).decode("utf-8", "backslashreplace")
    errors = (line for line in text.splitlines() if ": Warning, " not in line)
    return next(errors, "").removeprefix("tempfile.tif: ").removesuffix(".")  # Pillow's name of all


def _set_up_child() -> None:
    """Prepares a child: limits its memory and silences it.

    A decompression bomb then raises a MemoryError.
    """
    from PIL import Image  # only a child needs it

    Image.MAX_IMAGE_PIXELS = None  # `max_pixels` of the settings is checked instead
    warnings.simplefilter("ignore")  # the reject states what is wrong with an image
    logging.disable()
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), _STANDARD_ERROR)  # libtiff prints errors without a file name
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


_EXAMINE_SECONDS = 10.0


def examine_in_subprocess(data: bytes) -> SourceImage:
    """Returns the header of an untrusted image; a child reads all formats except JPEG and PNG.

    Raises RecordError (as) `examine` does; also timeout and decoder_crash.
    """
    return examine_in_process(data) or run_in_subprocess(examine, data, timeout=_EXAMINE_SECONDS)
