"""Audits shards in a process apart, which imports TensorFlow while this one still writes.

The import takes 3 s of one core, an audit some more: another process shares neither the
interpreter's lock with the writing nor, if TensorFlow dies of a file, its end.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue

from schemas.config import Verify
from schemas.dataset_info import ShardAudit
from schemas.errors import RunError
from schemas.plan import ResolvedSchema
from transforms.audit import audit_shard
from transforms.cores import num_cores
from transforms.shard_file import ShardFiles
from transforms.tensorflow_reader import tensorflow, tensorflow_in_threads

_auditors: dict[int, Auditor] = {}
"""By the process that began it: a fork has none."""


@contextmanager
def audits_apart() -> Iterator[None]:
    """Has this process's audits made by another one while the body runs.

    Where there is one already, or TensorFlow is imported here, nothing is to be gained.
    """
    process = os.getpid()
    if process in _auditors or "tensorflow" in sys.modules:
        yield
        return
    auditor = _auditors[process] = Auditor(num_cores())
    try:
        yield
    finally:
        del _auditors[process]
        auditor.end()


def prepare() -> None:
    """Imports TensorFlow, unless another process has done so for this one."""
    if os.getpid() not in _auditors:
        tensorflow()


def audit(shard: ShardFiles, resolved: ResolvedSchema, verify: Verify) -> ShardAudit:
    """Returns what `audit_shard` does, here or apart; the arguments and what is raised are its own.

    Raises:
        RunError: if the process apart has died.
    """
    auditor = _auditors.get(os.getpid())
    return (auditor.audit if auditor else audit_shard)(shard, resolved, verify)


class Auditor:
    """A process that audits shards on this machine, until it is told to end or this one dies.

    Attributes:
        pid: the number that the system gave it.
    """

    def __init__(self, at_once: int) -> None:
        """Starts it, with a connection for each audit that may be under way."""
        pairs = [Pipe() for _ in range(at_once)]
        theirs = [there.fileno() for _, there in pairs]
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve"
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", f"{code}({theirs!r})"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=theirs,
            start_new_session=True,  # Ctrl-C, which a terminal sends to all, is for this one
        )
        self.pid = self._process.pid
        self._free: SimpleQueue[Connection] = SimpleQueue()
        for here, there in pairs:
            there.close()
            self._free.put(here)

    def audit(self, shard: ShardFiles, resolved: ResolvedSchema, verify: Verify) -> ShardAudit:
        """Returns what the process finds in a shard.

        Raises:
            RunError: if it has died.
        """
        connection = self._free.get()
        try:
            connection.send((shard, resolved, verify))
            answer = connection.recv()
        except (EOFError, OSError) as error:
            self._process.kill()  # else a thread that died alone would be waited for
            code = self._process.wait()
            what = "the process that re-reads it with TensorFlow has died"
            raise RunError(f"{shard.file}: {what}: {_told(code)}") from error
        finally:
            self._free.put(connection)
        if isinstance(answer, Exception):
            raise answer
        found: ShardAudit = answer
        return found

    def end(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        self._process.wait()


def _told(code: int) -> str:
    """Returns how a process ended, in words."""
    return f"exit code {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"


def serve(descriptors: list[int]) -> None:
    """Audits what comes through connections, until they are closed at the other end."""
    gc.disable()  # what is imported stays: to look through it, again and again, takes time
    tensorflow_in_threads()
    gc.freeze()
    gc.enable()
    threads = [threading.Thread(target=_answer, args=(Connection(fd),)) for fd in descriptors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)  # nothing here to be put in order


def _answer(connection: Connection) -> None:
    while True:
        try:
            asked = connection.recv()
        except EOFError:
            return
        try:
            answer: ShardAudit | Exception = audit_shard(*asked)
        except OSError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked; may not pickle
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        connection.send(answer)
