"""Locks a dataset, so that only one run at a time writes it.

The lock is a `flock` of the kernel on a file beside the dataset. The kernel releases it when its
process ends for any reason, so that a lock is never stale, and neither process ids nor clocks have
to be compared. It works between machines if the file system supports `flock`, as NFS does.

Within a process, a run is either published or abandoned: a signal interrupts the main thread while
a worker thread may be publishing.
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
_abandoned: set[str] = set()


@dataclass
class Lock:
    """A held lock, which the end of a `with` statement releases."""

    path: str
    # The open file; None after release, and in object stores, which have no locks.
    descriptor: int | None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Deletes the lock file, and releases the lock."""
        if self.descriptor is None:
            return
        with contextlib.suppress(OSError):  # if the folder became read-only, the file stays
            os.unlink(self.path)
        os.close(self.descriptor)
        self.descriptor = None


def lock(path: str, what: str) -> Lock:
    """Creates and locks a file.

    Raises DatasetExists if another run holds the lock. Raises UsageError if the file cannot be
    created, or is not a lock file.
    """
    # Repeated if the previous holder deletes the file between open() and flock().
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise DatasetExists(
                f"{what}: another run is writing it ({holder or 'it has just started'}). "
                "Wait until it ends, or choose another --output, --name or --version."
            ) from None
        except OSError as error:
            os.close(descriptor)
            logging.getLogger(__name__).warning(
                "%s: cannot be locked (%s): %s", path, error.strerror, _UNSUPPORTED_TEXT
            )
            return Lock(path, None)
        if (holder := _holder(descriptor)) and not holder.startswith("process "):
            os.close(descriptor)
            raise UsageError(f"{path}: is not a lock file of recordmill. Move it elsewhere.")
        if _is_at(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            return Lock(path, descriptor)
        os.close(descriptor)  # the previous holder deleted the file: lock the new one


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, _FLAGS, 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileExistsError(errno.EEXIST, "it is not a regular file")
        return descriptor
    except OSError as error:
        raise UsageError(
            f"--output: {path} cannot be created: {error.strerror}. Choose a writable folder."
        ) from error


def _holder(descriptor: int) -> str:
    """Returns the process and host in a lock file; "" if its holder has not written them yet."""
    return os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()


def _is_at(path: str, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


@contextmanager
def committing(run_id: str) -> Iterator[None]:
    """Prevents a run from being abandoned while the body publishes it.

    Raises RecordmillError if the run has been abandoned.
    """
    with _publishing:
        if run_id in _abandoned:
            raise RecordmillError("not published: the run was interrupted")
        yield


@contextmanager
def abandoning(run_id: str) -> Iterator[None]:
    """Prevents a run from being published while the body cleans up, and afterwards."""
    with _publishing:
        _abandoned.add(run_id)
        yield


def lock_target(
    config: ConvertConfig, context: RunContext, dry_run: bool = False
) -> tuple[Target, Lock] | None:
    """Locks the folders of a run, and prepares them; None if a published dataset is kept (`skip`).

    The files of an unfinished run are deleted, except for its finished shards. A dry run leaves all
    folders unchanged, and unlocked. Raises DatasetExists if the dataset is published and not
    replaced, or another run is writing it, and UsageError for files that no run has written.
    """
    _check_directory(config.directory, dry_run)
    try:
        return _lock_and_prepare(config, _target(config), context, dry_run)
    except OSError as error:
        raise UsageError(f"--output: {config.directory} cannot be used: {error}") from error


def _lock_and_prepare(
    config: ConvertConfig, target: Target, context: RunContext, dry_run: bool
) -> tuple[Target, Lock] | None:
    if target.needs_rollback and not dry_run:
        with lock_folders(target):
            target.recover()
    contents = target.contents()
    if contents.is_published and not contents.is_marked:
        contents.check()
    if (contents.is_published or target.needs_rollback) and config.if_exists != "replace":
        if not dry_run:
            _clean_up_after_kill(target)
        _reject_existing(config)
        return None
    contents.check()
    target.check_run()
    if dry_run:
        return target, Lock(_lock_path(target), None)
    held = lock_folders(target)
    try:
        # Checked again under the lock: another run may have published since.
        contents = target.contents()
        if contents.is_published and config.if_exists != "replace":
            _reject_existing(config)
            held.release()
            return None
        contents.check()
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
    # Stores have no rename: without a dataset to replace, the run writes in the final folder.
    if not is_local(final) and not exists(layout.join(final, layout.SUCCESS)):
        work = final
    return Target(final, work, run)


def _reject_existing(config: ConvertConfig) -> None:
    if config.if_exists == "fail":
        raise DatasetExists(
            f"{config.directory}: is already published. Raise --version, or choose "
            "--if_exists skip to keep it or --if_exists replace to write it again."
        )


def _clean_up_after_kill(target: Target) -> None:
    """Deletes the files of a killed run, unless another run is active."""
    if is_local(target.final) and (exists(target.run) or exists(_lock_path(target))):
        # A run that is active holds the lock; foreign files are left to the next `replace`.
        with contextlib.suppress(DatasetExists, UsageError), lock_folders(target):
            target.clean_up_if_published()


def lock_folders(target: Target) -> Lock:
    """Locks the folders of a run; in an object store, which has no locks, this does nothing.

    Raises DatasetExists if another run is writing the dataset. Raises UsageError if the lock file
    cannot be created.
    """
    if not is_local(target.final):
        return Lock(_lock_path(target), None)
    return lock(_lock_path(target), target.final)


def _lock_path(target: Target) -> str:
    return target.run.removesuffix(".run") + ".lock"


def _check_directory(directory: str, dry_run: bool) -> None:
    """Rejects folders that cannot be created, or that Beam's sinks would interpret as patterns."""
    if "[" in directory:
        raise UsageError(
            f"--output: {directory} contains '[', which Beam's sinks interpret as a pattern. "
            "Choose a folder without it."
        )
    if layout.is_web(directory):
        raise UsageError(
            f"--output: {directory} is a web address, which cannot be written to. "
            "Choose a folder on this machine, or in s3://, gs://, azfs:// or hdfs://."
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
                f"{_file_above(directory)}. Choose a writable folder."
            ) from error


def _file_above(directory: str) -> str:
    """Returns a note if a parent of a folder is a file."""
    while directory and not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    return f", {directory} is a file" if os.path.isfile(directory) else ""


def _check_folder(directory: str) -> None:
    """Raises the error that creating a folder would raise, by its nearest existing parent."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(os.path.abspath(directory))
    if not os.path.isdir(directory):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)
