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

from recordmill.pipelines.run.run_record import RunContext
from recordmill.pipelines.run.target import DATASET, Target
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import DatasetExists, RecordmillError, UsageError
from recordmill.transforms.storage.files import exists, is_local

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_UNSUPPORTED_TEXT = "concurrent runs would not detect each other"

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
            f"--output: {path} cannot be created: {error.strerror}; "
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
def abandoning(run_id: str) -> Iterator[None]:
    """Clears up in its body a run that has published or never will.

    Args:
        run_id: which run.
    """
    with _publishing:
        _given_up.add(run_id)
        yield


def choose_target(
    config: ConvertConfig, context: RunContext, dry_run: bool = False
) -> tuple[Target, Lock] | None:
    """Returns where to write, locked; None if the dataset is there and is to be left (`skip`).

    What a run that did not finish has left is deleted, except for its finished shards; in a dry run
    nothing is touched.

    Raises:
        DatasetExists: if it is there and is not to be replaced, or another run is writing it.
        UsageError: if the folder holds files that no run of this program has left.
    """
    _check_directory(config.directory, dry_run)
    try:
        return _choose(config, _target(config), context, dry_run)
    except OSError as error:
        raise UsageError(f"--output: {config.directory} cannot be used: {error}") from error


def _choose(
    config: ConvertConfig, target: Target, context: RunContext, dry_run: bool
) -> tuple[Target, Lock] | None:
    if target.needs_rollback and not dry_run:
        held = _lock(target)
        try:
            target.recover()
        finally:
            held.release()
    there = target.contents()
    if there.is_published and not there.is_marked:
        there.check()
    if (there.is_published or target.needs_rollback) and config.if_exists != "replace":
        if not dry_run:
            _clean_up_after_kill(target)
        _reject_existing(config)
        return None
    there.check()
    target.check_run()
    if dry_run:
        return target, Lock(_lock_path(target), None)
    held = _lock(target)
    try:
        there = target.contents()  # again, now that no other run is at work
        if there.is_published and config.if_exists != "replace":  # by a run that just ended
            _reject_existing(config)
            held.release()
            return None
        there.check()
        target.check_run()
        target.resume(context)
    except BaseException:
        held.release()
        raise
    return target, held


def _target(config: ConvertConfig) -> Target:
    final = config.directory
    run = layout.run_folder(layout.join(config.output, config.name), config.version)
    work = layout.join(run, DATASET)
    if not is_local(final) and not exists(layout.join(final, layout.SUCCESS)):
        work = final
    return Target(final, work, run)


def _reject_existing(config: ConvertConfig) -> None:
    if config.if_exists == "fail":
        raise DatasetExists(
            f"{config.directory}: a published dataset is there; raise --version, or choose "
            "--if_exists skip to keep it or --if_exists replace to write it again"
        )


def _clean_up_after_kill(target: Target) -> None:
    """Clears up after a killed run, if there was one and none is at work."""
    if is_local(target.final) and (exists(target.run) or exists(_lock_path(target))):
        with contextlib.suppress(DatasetExists, UsageError):  # it is at work, or not to be touched
            held = _lock(target)
            try:
                target.clean_up_if_published()
            finally:
                held.release()


def _lock(target: Target) -> Lock:
    if not is_local(target.final):
        return Lock(_lock_path(target), None)
    return lock(_lock_path(target), target.final)


def _lock_path(target: Target) -> str:
    return target.run.removesuffix(".run") + ".lock"


def _check_directory(directory: str, dry_run: bool) -> None:
    """Rejects folders that cannot be made, or that Beam's sinks would take for patterns."""
    if "[" in directory:
        raise UsageError(
            f"--output: {directory} holds '[', which Beam's sinks take for a pattern of names; "
            "choose a folder without it"
        )
    if layout.is_web(directory):
        raise UsageError(
            f"--output: {directory} is a web address, which is only read from; "
            "choose a folder on this machine, or in s3://, gs://, azfs:// or hdfs://"
        )
    if is_local(directory):
        try:
            if dry_run:
                _check_folder(directory)
                return
            os.makedirs(os.path.dirname(directory), exist_ok=True)
            if os.path.lexists(directory) and not os.path.isdir(directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
        except OSError as error:
            raise UsageError(
                f"--output: {directory} cannot be created: {error.strerror}"
                f"{_file_above(directory)}; choose a folder that can be written to"
            ) from error


def _file_above(directory: str) -> str:
    """Returns the file that is in the place of a folder, if there is one."""
    while directory and not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    return f", {directory} is a file" if os.path.isfile(directory) else ""


def _check_folder(directory: str) -> None:
    """Does what making a folder does where it cannot be made: the nearest that is there decides."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(os.path.abspath(directory))
    if not os.path.isdir(directory):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)
