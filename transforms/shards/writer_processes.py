"""Writer processes: they write the shards of large tables whose records are small.

Building a small record is mostly Python, for which the threads of one process wait for each other.
So the in-process runner has such shards written by processes of their own, if there are enough rows
to repay their start. All are forked from one process, which has imported what they need.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.plan import Plan
from recordmill.schemas.rejects import Reject
from recordmill.transforms.functional.read_ahead import Inline
from recordmill.transforms.shards.build_examples import Pools
from recordmill.transforms.storage.files import file_size, is_local
from recordmill.transforms.workers.cores import limit_cores, num_cores
from recordmill.transforms.workers.garbage_collection import collect_garbage
from recordmill.transforms.workers.metrics import observe, take_observed
from recordmill.transforms.workers.progress import COUNTERS, advance
from recordmill.transforms.workers.service_process import (
    ServiceProcess,
    answer_all,
    end_with_parent,
)

# Rows that take about two seconds of one core, which the start of the processes takes as well.
MANY_ROWS, MANY_IMAGES = 100_000, 10_000

# The module that makes tasks, whose imports all processes share.
_TASKS = "recordmill.transforms.write_shards"

# Mean bytes of an image up to which Python takes more time than the decoder, which needs no GIL.
SMALL_BYTES = 2**14


class Task(Protocol):
    """What all shards of a run have in common; it can be pickled."""

    def write(
        self, shard: tuple[str, int], rows: Sequence[Any], pools: Pools
    ) -> Iterator[Reject | WrittenShard]:
        """Yields the rejects of a shard, and then the shard.

        Args:
            shard: the split and number of the shard.
            rows: its references.
            pools: the threads that read and decode.
        """


class Answer(NamedTuple):
    """What a writer process has done.

    Attributes:
        found: the rejects of the shard, and then the shard.
        counts: the increments of progress counters.
        observed: the values of Beam's distributions.
    """

    found: list[Reject | WrittenShard]
    counts: dict[str, int]
    observed: dict[str, list[int]]

    def reported(self) -> list[Reject | WrittenShard]:
        """Returns the results, after the counts are added to those of the calling step."""
        for name, number in self.counts.items():
            if number:
                advance(name, number)  # type: ignore[arg-type] # a name of the counters
        for name, values in self.observed.items():
            observe(name, *values)
        return self.found


class WriterProcesses:
    """Processes that write one shard each at a time.

    Attributes:
        number: how many there are.
    """

    def __init__(self, number: int) -> None:
        """Starts the processes.

        Args:
            number: how many.
        """
        self.number = number
        self._service = ServiceProcess(__name__, number)
        self._lock = threading.Lock()
        self._known: Task | None = None

    def write(self, task: Task, shard: tuple[str, int], rows: Sequence[Any]) -> Answer:
        """Writes a shard in one of the processes.

        Args:
            task: what all shards have in common, which the processes remember.
            shard: the split and number of the shard.
            rows: its references.

        Raises:
            RecordmillError: if the process has died.
        """
        with self._lock:
            if task is not self._known:
                self._service.request_each("remember", task)
                self._known = task
        split, index = shard
        what = f"the process that writes shard {index} of split {split!r}"
        answer: Answer = self._service.request(what, "write", shard, rows)
        return answer

    def end(self) -> None:
        """Kills the processes and waits for their end."""
        self._service.end()


# Whether this process may still start writer processes, and those that it has started.
_allowed = False
_started: list[WriterProcesses] = []


@contextmanager
def writer_processes_allowed(are_allowed: bool) -> Iterator[None]:
    """Allows this process to start writer processes while the body runs, and then ends them.

    Args:
        are_allowed: False to write all shards in this process.
    """
    global _allowed
    _allowed = are_allowed
    try:
        yield
    finally:
        _allowed = False
        while _started:
            _started.pop().end()


def prepare(rows: int, images: Sequence[tuple[str, int]]) -> None:
    """Starts writer processes if they are allowed, and pay off; decides once there are enough rows.

    Args:
        rows: the number of all rows.
        images: (uri, size in bytes) of a sample of their images, where the size of a whole file is
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

    Args:
        plan: the number of shards: fewer than there are cores are written by threads, which share
            the work on one shard.
    """
    if _started and sum(plan.shards.values()) >= _started[0].number:
        return _started[0]
    return None


def serve(descriptors: Sequence[int]) -> None:
    """Forks a writer process for each connection, and waits until all end, or one of them fails.

    Args:
        descriptors: the file descriptors of the connections.
    """
    limit_cores(1)  # before pools of threads and processes are made
    importlib.import_module(_TASKS)

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

    def write(shard: tuple[str, int], rows: Sequence[Any]) -> Answer:
        before = asdict(COUNTERS)
        found = list(known[-1].write(shard, rows, pools))
        counts = {name: count - before[name] for name, count in asdict(COUNTERS).items()}
        return Answer(found, counts, take_observed())

    answer_all(connection, {"remember": known.append, "write": write})
    os._exit(0)
