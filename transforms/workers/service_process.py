"""A separate process that answers requests until it is ended or its parent ends for any reason.

It is a new interpreter, or a fork of this process, which has imported what it needs. Commands start
some before they import anything slow, so this module imports nothing slow.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, TypeAlias

from recordmill.schemas.errors import RecordmillError

# Seconds in which a process whose connection was closed ends by itself.
_END_SECONDS = 1.0
_STANDARD_ERROR = 2

# The functions of a service by name.
Services: TypeAlias = Mapping[str, Callable[..., Any]]


class ServiceProcess:
    """A process of this machine; each of its `connections` carries one request at a time."""

    def __init__(
        self,
        service: str | Callable[[Sequence[int]], None],
        concurrency: int,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Starts the process.

        `service` is the module whose function `serve` answers requests, given file descriptors, in
        a new interpreter, where it calls `collect_garbage` after its last import; or this function,
        for a fork of this process, which must have no other thread. `environment`: environment
        variables of the interpreter, unless this process has other values.
        """
        pairs = [Pipe() for _ in range(concurrency)]  # [(our end, its end)]
        descriptors = [remote.fileno() for _, remote in pairs]
        # Nothing is written: the process watches for the end of its standard input.
        source, sink = os.pipe()
        self._open = open(sink, "wb")  # noqa: SIM115 - closed by `end`
        start = f"import gc, sys; gc.disable(); sys.path[:] = {sys.path!r}"
        serve = f"from {service} import serve; serve({descriptors!r})"
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-c", f"{start}; {serve}"],
            stdin=source,
            stdout=subprocess.DEVNULL,
            env={**environment, **os.environ},
            pass_fds=descriptors,
            preexec_fn=partial(_serve, service, descriptors) if callable(service) else None,
            start_new_session=True,  # a terminal sends Ctrl-C to all processes of a session
        )
        os.close(source)
        self.pid = self._process.pid
        self.connections = [local for local, _ in pairs]
        self._free: SimpleQueue[Connection] = SimpleQueue()
        for local, remote in pairs:
            remote.close()
            self._free.put(local)

    def send(self, message: Any) -> None:
        """Sends a message that `serve` awaits; unlike an argument, it may contain secrets."""
        self.connections[0].send(message)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def request(
        self, what: str, service: str, *arguments: Any, timeout: float | None = None
    ) -> Any:
        """Returns the result of a function of the process, on whichever connection is free.

        `what` is a description of the process, for the message if it dies. Raises RecordmillError
        if the process has died; TimeoutError if there is no answer within `timeout` seconds, after
        which it has to be killed. Raises Exception: any exception of the function.
        """
        connection = self._free.get()
        try:
            connection.send((service, arguments))
            is_answered = connection.poll(timeout)
            answer = connection.recv() if is_answered else TimeoutError(f"{what} does not answer")
        except (EOFError, OSError) as error:
            raise RecordmillError(f"{what} has died: {self._killed()}") from error
        finally:
            self._free.put(connection)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def request_each(self, service: str, *arguments: Any) -> None:
        """Calls a function of the process once on each connection."""
        taken = [self._free.get() for _ in self.connections]
        try:
            for connection in taken:
                connection.send((service, arguments))
            for connection in taken:
                connection.recv()
        except (EOFError, OSError) as error:
            raise RecordmillError(f"a process has died: {self._killed()}") from error
        finally:
            for connection in taken:
                self._free.put(connection)

    def _killed(self) -> str:
        """Waits for the process or kills it; returns its exit code or the name of its signal.

        A closed connection means a dead process or a dead part of it: killing the process ends both
        cases; waiting for a process that lost one thread would never end.
        """
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"exit code {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"

    def kill(self) -> None:
        """Kills the process, which has no forks."""
        self._process.kill()
        self._process.wait()
        self._open.close()

    def end(self) -> None:
        """Ends the process, and waits for that and for the end of its forks."""
        self._open.close()
        self._killed()
        for connection in self.connections:
            with suppress(OSError):
                while os.read(connection.fileno(), 2**16):  # until its other end is closed
                    pass


def _serve(service: Callable[[Sequence[int]], None], descriptors: Sequence[int]) -> None:
    """Serves in a fork, in place of the start of an interpreter; does not return."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # Who holds the other ends of these awaits that they are closed, as `Popen` does.
    for descriptor in map(int, os.listdir("/dev/fd")):
        if descriptor > _STANDARD_ERROR and descriptor not in descriptors:
            with suppress(OSError):  # that of the listing
                os.close(descriptor)
    service(descriptors)


def answer_all(connection: Connection, services: Services) -> None:
    """Answers the requests of a connection until it is closed."""
    while True:
        try:
            service, arguments = connection.recv()
        except (EOFError, OSError):  # the other end was closed, possibly in the middle of a request
            return
        try:
            answer = services[service](*arguments)
        except (OSError, RecordmillError) as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - raised by the requester; may not be picklable
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except OSError:
            return


def answer_in_threads(connections: Sequence[Connection], services: Services) -> None:
    """Answers the requests of connections, each in a thread, and then exits the process."""
    threads = [
        threading.Thread(target=answer_all, args=(connection, services))
        for connection in connections
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)  # skips the clean-up of libraries at exit, which only takes time


def end_with_parent() -> None:
    """Starts a thread that ends this process when its parent ends or closes our standard input."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    os.read(0, 1)
    os._exit(0)
