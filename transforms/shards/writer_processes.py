"""Writer processes: they read large tables whose records are small, and write their shards.

A small record is mostly Python, for which the threads of one process wait for each other. So the
in-process runner has such tables read, and their shards written, by processes of their own, if
there are enough rows to repay their start. All are forked from one process, which has imported what
they need.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.plan import Plan
from recordmill.transforms.functional.read_ahead import Inline
from recordmill.transforms.shards.build_examples import Pools
from recordmill.transforms.storage.files import file_size, is_local
from recordmill.transforms.workers.process import collect_garbage, limit_cores, num_cores
from recordmill.transforms.workers.progress import COUNTERS, advance, observe, take_observed
from recordmill.transforms.workers.service_process import (
    ServiceProcess,
    answer_all,
    end_with_parent,
)

# Rows that take about two seconds of one core, which the start of the processes takes as well.
MANY_ROWS, MANY_IMAGES = 100_000, 10_000

# Bytes of tables that have so many rows most likely, if they have no images.
MANY_BYTES = 8 * 2**20

# The modules of tasks, whose imports all processes share.
_TASKS = tuple(
    f"recordmill.transforms.{name}" for name in ("analyze_rows", "read_assigned", "write_shards")
)

# Mean bytes of an image up to which Python takes more time than the decoder, which needs no GIL.
SMALL_BYTES = 2**14


class Task(Protocol):
    """What all elements of a step have in common; it can be pickled."""

    def run(self, *arguments: Any) -> Iterator[Any]:
        """Yields the results of an element.

        `arguments` is the element, and then the threads that read and decode.
        """


class Answer(NamedTuple):
    """What a writer process has done."""

    found: list[Any]
    counts: dict[str, int]
    observed: dict[str, list[int]]  # the values of Beam's distributions

    def reported(self) -> list[Any]:
        """Returns the results, after the counts are added to those of the calling step."""
        for name, number in self.counts.items():
            if number:
                advance(name, number)  # type: ignore[arg-type] # a name of the counters
        for name, values in self.observed.items():
            observe(name, *values)
        return self.found


class WriterProcesses:
    """Processes that work on one element each at a time."""

    def __init__(self, number: int) -> None:
        """Starts the processes."""
        self.number = number
        self._service = ServiceProcess(__name__, number)
        self._lock = threading.Lock()
        self._known: Task | None = None
        self._are_ready = threading.Event()
        threading.Thread(target=self._wait_until_ready, daemon=True).start()

    @property
    def are_ready(self) -> bool:
        """Whether the processes have started: until then, requests wait."""
        return self._are_ready.is_set()

    def _wait_until_ready(self) -> None:
        # If it fails, the next request fails as well, and the step reports it.
        with self._lock, suppress(RecordmillError):
            self._service.request_each("remember", None)
        self._are_ready.set()

    def run(self, what: str, task: Task, *element: Any) -> Answer:
        """Runs a task on an element in one of the processes.

        `what` is a description of the process, for the message if it dies. `task`: what all
        elements have in common, which the processes remember. Raises RecordmillError if the process
        has died.
        """
        with self._lock:
            if task is not self._known:
                self._service.request_each("remember", task)
                self._known = task
        answer: Answer = self._service.request(what, "run", *element)
        return answer

    def end(self) -> None:
        """Kills the processes and waits for their end."""
        self._service.end()


class Answers:
    """The answers that a step waits for, in the order of its requests."""

    def __init__(self) -> None:
        """Waits for none yet."""
        self._awaited: deque[Future[Answer]] = deque()

    def add(self, awaited: Future[Answer], number: int) -> Iterator[Any]:
        """Yields the results of the oldest requests, so that few elements are in memory.

        `number`: how many requests may be awaited.
        """
        self._awaited.append(awaited)
        while len(self._awaited) > number:
            yield from self._next()

    def rest(self) -> Iterator[Any]:
        """Yields the results of all requests."""
        while self._awaited:
            yield from self._next()

    def _next(self) -> list[Any]:
        return self._awaited.popleft().result().reported()  # by the step's own thread


# Whether this process may still start writer processes, and those that it has started.
_allowed = False
_started: list[WriterProcesses] = []


@contextmanager
def writer_processes_allowed(are_allowed: bool, table_bytes: int = 0) -> Iterator[None]:
    """Allows this process to start writer processes while the body runs, and then ends them.

    `table_bytes` is the size of tables without images: many rows have them started now.
    """
    global _allowed
    _allowed = are_allowed
    if table_bytes >= MANY_BYTES:
        prepare(MANY_ROWS, ())
    try:
        yield
    finally:
        _allowed = False
        while _started:
            _started.pop().end()


def prepare(rows: int, images: Sequence[tuple[str, int]]) -> None:
    """Starts writer processes if they are allowed, and pay off; decides once there are enough rows.

    `images`: (uri, size in bytes) of a sample of their images, where the size of a whole file is
    not known; empty for rows without images.
    """
    global _allowed
    if not _allowed or rows < (MANY_IMAGES if images else MANY_ROWS):
        return
    _allowed, cores = False, num_cores()
    if cores > 1 and _are_small(images):
        _started.append(WriterProcesses(cores))


def _are_small(images: Sequence[tuple[str, int]]) -> bool:
    if not all(is_local(uri) for uri, _ in images):
        return False
    total = sum((file_size(uri) or 0) if uri else size for uri, size in images)
    return total <= SMALL_BYTES * len(images)


def writers_for(plan: Plan) -> WriterProcesses | None:
    """Returns the writer processes; None if this process writes shards itself.

    `plan` is the number of shards: fewer than there are cores are written by threads, which share
    the work on one shard.
    """
    if _started and sum(plan.shards.values()) >= _started[0].number:
        return _started[0]
    return None


def readers() -> WriterProcesses | None:
    """Returns the writer processes if they are ready to read; None if this process reads itself."""
    return _started[0] if _started and _started[0].are_ready else None


def serve(descriptors: Sequence[int]) -> None:
    """Forks a writer process for each connection, and waits until all end, or one of them fails."""
    limit_cores(1)  # before pools of threads and processes are made
    for module in _TASKS:
        importlib.import_module(module)

    connections = [Connection(descriptor) for descriptor in descriptors]
    connections[0].recv()
    collect_garbage()  # from new objects: collecting others would copy memory that all share
    for connection in connections:
        if os.fork() == 0:
            for other in connections:
                if other is not connection:
                    other.close()
            _answer(connection)
    for connection in connections:
        connection.close()
    for _ in connections:
        code = os.waitstatus_to_exitcode(os.wait()[1])
        if code < 0:  # killed by a signal, by which this process ends as well
            os.kill(os.getpid(), -code)
        if code:
            break
    os._exit(code)


def _answer(connection: Connection) -> None:
    end_with_parent()
    take_observed()
    known, pools = list[Task](), Pools(Inline())

    def run(*element: Any) -> Answer:
        before = asdict(COUNTERS)
        found = list(known[-1].run(*element, pools))
        counts = {name: count - before[name] for name, count in asdict(COUNTERS).items()}
        return Answer(found, counts, take_observed())

    answer_all(connection, {"remember": known.append, "run": run})
    os._exit(0)
