"""Writer processes: they write the shards of many records, if one machine runs all steps.

A third of the work on a photograph is Python, for which the threads of one process wait for each
other; of that on a small record, nearly all. So processes of their own write the shards, if there
are enough rows to repay their start. Of fewer shards than processes, which the process of the run
writes itself, they build the records with images. Until they have started, it does all of it. All
are forked from one process, which has imported what they need. A command forks it from itself
before it has threads; a host program may have some, so there it is a new interpreter.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, cast

from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reject
from recordmill.transforms.elements import EncodedRefs, ShardId
from recordmill.transforms.functional.read_ahead import Inline
from recordmill.transforms.shards import build_examples
from recordmill.transforms.shards.shard_task import ShardTask
from recordmill.transforms.storage.stores.options import current_options, use_options
from recordmill.transforms.workers import service_process
from recordmill.transforms.workers.process import collect_garbage, limit_cores, num_cores
from recordmill.transforms.workers.progress import COUNTERS, advance, observe, take_observed

# Rows, or images, that take about two seconds of one core, as importing what they need does.
MANY_ROWS, MANY_IMAGES = 100_000, 10_000
_STANDARD_INPUT = 0
_TASK_REFS = 16  # small images take ten times as long to build as these to be sent
_AHEAD = 20  # a process that was forked ahead is ready in a twentieth of that time


class Answer(NamedTuple):
    """What a writer process has done."""

    found: list[Reject | WrittenShard]
    counts: dict[str, int]
    observed: dict[str, list[int]]  # the values of Beam's distributions

    def reported(self) -> list[Reject | WrittenShard]:
        """Returns the results, after the counts are added to those of the calling step."""
        for name, number in self.counts.items():
            if number:
                advance(name, number)  # type: ignore[arg-type] # a name of the counters
        for name, values in self.observed.items():
            observe(name, *values)
        return self.found


class WriterProcesses:
    """Processes that write one shard each at a time, or build records of one.

    `pools`: those with which records are built in the processes.
    """

    def __init__(self, number: int) -> None:
        """Starts the processes."""
        self.number = number
        self._threads = ThreadPoolExecutor(number, thread_name_prefix="writer")
        forked = _forked.pop(os.getpid()) if os.getpid() in _forked else None
        self._service = forked or service_process.ServiceProcess(__name__, number)
        self._service.send(current_options())
        self.pools = build_examples.Pools(self._threads, self._build, _TASK_REFS)
        self._lock = threading.Lock()
        self._known: list[Any] = []
        self._are_ready = threading.Event()
        if forked:  # loads nothing more
            self._are_ready.set()
        else:
            threading.Thread(target=self._wait_until_ready, daemon=True).start()

    @property
    def are_ready(self) -> bool:
        """Whether the processes have started: until then, requests wait."""
        return self._are_ready.is_set()

    def _wait_until_ready(self) -> None:
        # If it fails, the next request fails as well, and the step reports it.
        with suppress(RecordmillError):
            self._number(None)
        self._are_ready.set()

    def submit(
        self, task: ShardTask, shard: ShardId, rows: Iterable[EncodedRefs]
    ) -> Future[Answer]:
        """Writes a shard after those submitted before; RecordmillError if the process has died."""
        return self._threads.submit(self.run, task, shard, rows)

    def run(self, task: ShardTask, shard: ShardId, rows: Iterable[EncodedRefs]) -> Answer:
        """Writes a shard in one of the processes, as `submit` does."""
        what = f"the process that writes shard {shard[1]} of split {shard[0]!r}"
        answer: Answer = self._service.request(what, "run", self._number(task), shard, rows)
        return answer

    def _build(
        self, images: build_examples.ImageBuilder, refs: Sequence[build_examples.ToRead]
    ) -> list[build_examples.Built]:
        number, what = self._number(images), "a process that builds records"
        built: list[build_examples.Built]
        built, notes = self._service.request(what, "build", number, refs)
        images.add_notes(notes)
        return built

    def _number(self, common: ShardTask | build_examples.ImageBuilder | None) -> int:
        """Returns the number by which the processes know what shards or records have in common."""
        with self._lock:
            for number, known in enumerate(self._known):
                if known is common:
                    return number
            sent = (
                common.without_notes()
                if isinstance(common, build_examples.ImageBuilder)
                else common
            )
            self._service.request_each("remember", sent)
            self._known.append(common)
            return len(self._known) - 1

    def end(self) -> None:
        """Kills the processes and waits for their end."""
        self._threads.shutdown(cancel_futures=True)
        self._service.end()


# The process that was forked ahead, and awaits the run of this process, by process id.
_forked: dict[int, service_process.ServiceProcess] = {}


@contextmanager
def forked_ahead() -> Iterator[None]:
    """Forks this process, which must have no other thread, for the run in the body."""
    process = os.getpid()
    if num_cores() > 1:
        _forked[process] = service_process.ServiceProcess(serve, num_cores())
    try:
        yield
    finally:
        if service := _forked.pop(process, None):
            service.end()


# The writer processes of each run of this process that may have some, by its folder.
_of_runs: dict[str, WriterProcesses | None] = {}
_starting = threading.Lock()


@contextmanager
def writer_processes_allowed(scratch: str) -> Iterator[None]:
    """Allows the run in a folder to start writer processes while the body runs, and then ends them.

    `scratch`: the folder of the run on this machine; "" to allow none.
    """
    if scratch:
        _of_runs[scratch] = None
    try:
        yield
    finally:
        if scratch and (processes := _of_runs.pop(scratch)):
            processes.end()


def start_writers(scratch: str, plan: Plan, refs: Sequence[ImageRef] = ()) -> None:
    """Starts the writer processes of a run if they are allowed, and pay off.

    Remote images are built by threads, which wait for them. `refs` are those of a shard, if rows
    have images; without them, there have to be as many shards as processes.
    """
    cores, many = num_cores(), MANY_IMAGES if refs else MANY_ROWS
    if os.getpid() in _forked:
        many //= _AHEAD
    may_start = scratch in _of_runs and plan.rows >= many and cores > 1
    if may_start and (refs or are_enough(plan, cores)) and build_examples.are_near(refs):
        with _starting:  # threads of the in-process runner may come here together
            _of_runs[scratch] = _of_runs[scratch] or WriterProcesses(cores)


def are_enough(plan: Plan, processes: int) -> bool:
    """Returns whether there is a shard for each process."""
    return processes <= sum(plan.shards.values())


def writers_of(scratch: str) -> WriterProcesses | None:
    """Returns the writer processes of a run; None if its process has to write shards itself."""
    processes = _of_runs.get(scratch)
    return processes if processes and processes.are_ready else None


def serve(descriptors: Sequence[int]) -> None:
    """Forks a writer process for each connection, and waits until all end, or one of them fails."""
    limit_cores(1)  # before pools of threads and processes are made

    connections = [Connection(descriptor) for descriptor in descriptors]
    if connections[0] not in wait([connections[0], _STANDARD_INPUT]):
        os._exit(0)  # the run has ended without a need for them
    use_options(connections[0].recv())
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
    service_process.end_with_parent()
    take_observed()
    known, pools = list[Any](), build_examples.Pools(Inline())

    def run(number: int, shard: ShardId, rows: Iterable[EncodedRefs]) -> Answer:
        before, task = asdict(COUNTERS), cast(ShardTask, known[number])
        found = list(task.run(shard, rows, pools))
        counts = {name: count - before[name] for name, count in asdict(COUNTERS).items()}
        return Answer(found, counts, take_observed())

    def build(
        number: int, refs: Sequence[build_examples.ToRead]
    ) -> tuple[list[build_examples.Built], build_examples.Notes]:
        images = cast(build_examples.ImageBuilder, known[number])
        return images.read_and_build(refs), images.take_notes()

    services: dict[str, Callable[..., Any]] = {"remember": known.append, "run": run, "build": build}
    service_process.answer_all(connection, services)
    os._exit(0)
