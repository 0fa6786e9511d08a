"""Audits shards in a separate process, which imports TensorFlow while this one still writes.

The import takes 3 s of one core, an audit some more: another process shares neither the
interpreter's lock with the writing nor, if TensorFlow dies of a file, its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.workers.cores import num_cores

if TYPE_CHECKING:  # it is begun before anything is loaded
    from recordmill.schemas.config import Verify
    from recordmill.schemas.dataset_info import ShardVerification
    from recordmill.schemas.plan import ResolvedSchema
    from recordmill.transforms.storage.shard_files import ShardFiles

_SERVES = "recordmill.transforms.verification.verifier_process"

IN_PROCESS_RUNNERS = frozenset({"DirectRunner", "FnApiRunner"})

_auditors: dict[int, VerifierProcess] = {}
"""By the process that began it: a fork has none."""


def workers_are_threads(
    runner: str | None, direct_running_mode: str | None, environment_type: str | None
) -> bool:
    """Returns whether a run's workers are threads of the process that starts it.

    Only such workers reach the process that is started here. The arguments are Beam's options of
    these names, None where they are not given: to decide takes no import of Beam.
    """
    if (runner or "DirectRunner") in IN_PROCESS_RUNNERS:
        return direct_running_mode != "multi_processing"
    return environment_type == "LOOPBACK"


@contextmanager
def verifier_process_started() -> Iterator[None]:
    """Has this process's audits made by another one while the body runs.

    Where there is one already, or TensorFlow is imported here, nothing is to be gained.
    """
    process = os.getpid()
    if process in _auditors or "tensorflow" in sys.modules:
        yield
        return
    auditor = _auditors[process] = VerifierProcess(num_cores())
    try:
        yield
    finally:
        del _auditors[process]
        auditor.end()


def begun() -> VerifierProcess | None:
    """Returns the one that works for this process, if there is one."""
    return _auditors.get(os.getpid())


class VerifierProcess:
    """A process that audits shards on this machine, until it is reported to end or this one dies.

    Attributes:
        pid: the number that the system gave it.
    """

    def __init__(self, at_once: int) -> None:
        """Starts it, with a connection for each audit that may be under way."""
        pairs = [Pipe() for _ in range(at_once)]
        theirs = [there.fileno() for _, there in pairs]
        code = f"import sys; sys.path[:] = {sys.path!r}; from {_SERVES} import serve; serve"
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", f"{code}({theirs!r})"],
            stdin=subprocess.PIPE,  # nothing is written: it is closed when this process ends
            stdout=subprocess.DEVNULL,
            pass_fds=theirs,
            start_new_session=True,  # Ctrl-C, which a terminal sends to all, is for this one
        )
        self.pid = self._process.pid
        self._free: SimpleQueue[Connection] = SimpleQueue()
        for here, there in pairs:
            there.close()
            self._free.put(here)

    def audit(
        self, shard: ShardFiles, resolved: ResolvedSchema, verify: Verify
    ) -> ShardVerification:
        """Returns what the process finds in a shard.

        Raises:
            RunError: if it has died.
        """
        what = f"{shard.file}: the process that re-reads it with TensorFlow"
        found: ShardVerification = self._answer(what, "audit", shard, resolved, verify)
        return found

    def decode_fault(self, *arguments: Any) -> str | None:
        """Returns what `verifier_process.decode_fault` does; the arguments are its own.

        Raises:
            RunError: if the process has died.
        """
        what = "the process that decodes images with TensorFlow"
        fault: str | None = self._answer(what, "decode_fault", *arguments)
        return fault

    def _answer(self, what: str, service: str, *arguments: Any) -> Any:
        connection = self._free.get()
        try:
            connection.send((service, arguments))
            answer = connection.recv()
        except (EOFError, OSError) as error:
            self._process.kill()  # else a thread that died alone would be waited for
            code = self._process.wait()
            raise RecordmillError(f"{what} has died: {_told(code)}") from error
        finally:
            self._free.put(connection)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        self._process.communicate()  # waits, and closes the pipe


def _told(code: int) -> str:
    """Returns how a process ended, in words."""
    return f"exit code {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"
