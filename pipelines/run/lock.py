"""One run at a time on one dataset.

The lock is the kernel's, on a file beside the dataset: it goes with the process that holds it,
however that ends. So a dead run's lock is none, and nobody has to guess from process numbers,
which other machines reuse and cannot see, or from clocks. It holds between machines where the file
system carries `flock`, as NFS does.

Within a process, a run either publishes or gives up, and not both: a signal interrupts the main
thread while a thread of a worker may be publishing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from recordmill.schemas.errors import DatasetExists, RecordmillError, UsageError

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_UNSUPPORTED_TEXT = "two runs at once would not see each other"

_publishing = threading.Lock()
_given_up: set[str] = set()


@dataclass
class Lock:
    """A lock that is held.

    Attributes:
        path: of the file.
        descriptor: of the open file; None once it is released, or where there is nothing to lock.
    """

    path: str
    descriptor: int | None

    def release(self) -> None:
        """Gives the lock back, and deletes its file."""
        if self.descriptor is None:
            return
        with contextlib.suppress(OSError):  # a folder that became read-only keeps an empty file
            os.unlink(self.path)
        os.close(self.descriptor)
        self.descriptor = None


def lock(path: str, what: str) -> Lock:
    """Returns the lock of a file.

    Args:
        path: the file; it is made.
        what: what it stands for, in messages.

    Raises:
        DatasetExists: if another run holds it.
        UsageError: if the file cannot be made.
    """
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise DatasetExists(
                f"{what}: another run is writing it ({holder or 'it began just now'}); "
                "wait until it ends, or choose another --output, --name or --version"
            ) from None
        except OSError as error:
            os.close(descriptor)
            logging.getLogger(__name__).warning(
                "%s: cannot be locked (%s): %s", path, error.strerror, _UNSUPPORTED_TEXT
            )
            return Lock(path, None)
        if (holder := _holder(descriptor)) and not holder.startswith("process "):
            os.close(descriptor)
            raise UsageError(f"{path}: is not a lock of a run; move it away")
        if _is_still(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            return Lock(path, descriptor)
        os.close(descriptor)  # its holder has just deleted it


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, _FLAGS, 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileExistsError(errno.EEXIST, "it is not a regular file")
        return descriptor
    except OSError as error:
        raise UsageError(
            f"--output: {path} cannot be made: {error.strerror}; "
            "choose a folder that can be written to"
        ) from error


def _holder(descriptor: int) -> str:
    """Returns who holds a lock, or held it last, in words; "" if nobody has written it yet."""
    return os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()


def _is_still(path: str, descriptor: int) -> bool:
    """Returns whether an open file is the one that its path names."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


@contextmanager
def committing(run_id: str) -> Iterator[None]:
    """Publishes in its body; whoever gives up waits.

    Args:
        run_id: which run.

    Raises:
        RunError: if that run has given up.
    """
    with _publishing:
        if run_id in _given_up:
            raise RecordmillError("not published: the run was interrupted")
        yield


@contextmanager
def giving_up(run_id: str) -> Iterator[None]:
    """Clears up in its body a run that has published or never will.

    Args:
        run_id: which run.
    """
    with _publishing:
        _given_up.add(run_id)
        yield
