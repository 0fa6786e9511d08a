"""A sandbox of child processes for work that can crash, hang or exhaust memory: decoding images.

A crash in native code ends its process, and a thread cannot be stopped from outside. A task
therefore has a child process to itself, which is killed after a timeout, and replaced when it dies.
On any runner, the worker turns such a failure into a reject.
"""

from __future__ import annotations

import logging
import os
import resource
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, TypeAlias, TypeVar, cast

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.codecs import SourceImage, examine, examine_in_process
from recordmill.transforms.workers import service_process
from recordmill.transforms.workers.process import collect_garbage, num_cores

T = TypeVar("T")

# The result of a task, or the exception that it raised.
_Outcome: TypeAlias = tuple[Any, Exception | None]

# Limit of a child's address space; an image that needs more is rejected.
MEMORY_BYTES = 2 * 2**30

_STANDARD_ERROR = 2

# What is read of standard error: libtiff can print a line for each row of an image.
_PRINTED_BYTES = 4096

# Time allowed for a child to start, even on a machine that is too busy for its import.
_START_SECONDS = 300

_DECODER = "the decoder"  # in messages

# Tasks at a time. Writer processes have one each, and one child.
_slots = threading.BoundedSemaphore(num_cores())


def run_in_subprocess(function: Callable[..., T], *arguments: Any, timeout: float) -> T:
    """Returns `function(*arguments)`, called in a child process.

    `function` is the function to call; pickled, like its arguments. `timeout`: seconds after which
    the child is killed. Raises RecordError (timeout); decoder_crash; too_many_pixels if the memory
    limit is exceeded. Raises Exception: any exception of the function.
    """
    request = (_DECODER, "attempt", function, arguments)
    try:
        with _slots:
            try:
                result, error = _answer(request, timeout)
            except RecordmillError:  # the system may be killing all that were free
                result, error = _answer(request, timeout, by_new_child=True)
    except TimeoutError as late:
        raise RecordError(Reason.TIMEOUT, f"decoding takes over {timeout:g} s") from late
    except RecordmillError as died:
        raise RecordError(Reason.DECODER_CRASH, str(died)) from died
    if isinstance(error, MemoryError):
        detail = f"decoding takes over {MEMORY_BYTES // 2**20} MiB of memory"
        raise RecordError(Reason.TOO_MANY_PIXELS, detail) from error
    if error is not None:
        raise error
    return cast(T, result)


def _answer(request: tuple[Any, ...], timeout: float, *, by_new_child: bool = False) -> _Outcome:
    with _children().lent(by_new_child) as child:
        answer: _Outcome = child.request(*request, timeout=timeout)
    return answer


class _Children:
    """The children of a process, which are started as they are needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[service_process.ServiceProcess] = []
        self._running = set[service_process.ServiceProcess]()
        self.are_stopped = False

    @contextmanager
    def lent(self, must_be_new: bool) -> Iterator[service_process.ServiceProcess]:
        """Lends a child for one task; it is killed if the body raises an error.

        Raises RecordmillError: after `stop`, or if the child does not start.
        """
        child, is_new = self._take(must_be_new)
        try:
            if is_new:
                _await_start(child)
            yield child
        except BaseException:
            with self._lock:
                self._running.discard(child)
            child.kill()
            raise
        with self._lock:
            self._free.append(child)

    def _take(self, must_be_new: bool) -> tuple[service_process.ServiceProcess, bool]:
        """Returns a child without a task, and whether it is new."""
        with self._lock:
            if self.are_stopped:
                raise RecordmillError(f"{_DECODER} was ended with the run")
            while self._free and not must_be_new:
                if (child := self._free.pop()).is_alive:
                    return child, False
                self._running.discard(child)  # the system may kill it, if memory is short
            child = service_process.ServiceProcess(__name__, 1)
            self._running.add(child)
            return child, True

    def stop(self) -> None:
        """Kills all children, also those with a task; no other is started."""
        with self._lock:
            self.are_stopped = True
            running = list(self._running)
        for child in running:
            child.kill()


def _await_start(child: service_process.ServiceProcess) -> None:
    """Waits until a child can perform tasks, whose time does not include its start."""
    try:
        child.request(_DECODER, "attempt", int, (), timeout=_START_SECONDS)
    except TimeoutError as error:
        raise RecordmillError(f"{_DECODER} has not started in {_START_SECONDS} s") from error


# The children that a process started, by process id: a fork must not use its parent's.
_of_process: dict[int, _Children] = {}


def _children() -> _Children:
    return _of_process.setdefault(os.getpid(), _Children())


def allow_children() -> None:
    """Allows children to start after `stop_children`, for a new run; those alive stay."""
    _children().are_stopped = False


def stop_children() -> None:
    """Kills the children of this process; later tasks fail with decoder_crash."""
    _children().stop()


def serve(descriptors: Sequence[int]) -> None:
    """Performs the tasks of a child until its connection is closed."""
    service_process.end_with_parent()
    (descriptor,) = descriptors
    _set_up_child()
    collect_garbage()
    # What cannot be pickled ends the child, as a crash does.
    service_process.answer_all(Connection(descriptor), {"attempt": _attempt})


def _attempt(function: Callable[..., Any], arguments: Sequence[Any]) -> _Outcome:
    """Returns the result of a function, or the exception that it raises."""
    try:
        return function(*arguments), None
    except Exception as error:  # noqa: BLE001 - raised again by the requester
        return None, error


def reject_printed_errors(function: Callable[..., T], *arguments: Any) -> T:
    """Returns `function(*arguments)` in a child, unless native code prints an error.

    libtiff prints its errors. Pillow ignores those after which libtiff continues: the pixels of a
    damaged strip are wrong, and nothing else states it.
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
    """Returns the header of an untrusted image; a child reads all formats except JPEG and PNG."""
    return examine_in_process(data) or run_in_subprocess(examine, data, timeout=_EXAMINE_SECONDS)
