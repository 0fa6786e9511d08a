"""The simulated duration of a job, and its cost.

The simulation schedules row groups and shards on workers that differ in speed, wait for slow
objects, and fail.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.scaling.inputs import Assumed, Cluster, Job, Measured, Prices
from recordmill.schemas.option import MAX_SHARDS

GIB = 2**30
ROWS_PER_SPLIT = 100_000  # a row group of Parquet, or a byte range of a text table


@dataclass(frozen=True)
class Seconds:
    """Duration of each phase; a phase starts when the one before it has ended everywhere."""

    start: float
    read: float
    write: float
    verify: float
    finish: float

    @property
    def total(self) -> float:
        """The duration of the job."""
        return self.start + self.read + self.write + self.verify + self.finish


@dataclass
class Worker:
    """A simulated worker.

    Attributes:
        slowness: its time per task, relative to the mean.
        fails_at: simulated time of its next failure.
    """

    slowness: float
    fails_at: float


@dataclass
class Simulation:
    """Runs one job on one cluster; equal seeds give equal results.

    Attributes:
        measured: CPU times.
        assumed: properties of the service.
        cluster: the workers.
        seed: of all random draws.
        now: simulated time.
        failures: how many workers failed while they had a task.
    """

    measured: Measured
    assumed: Assumed
    cluster: Cluster
    seed: int = 0
    now: float = 0.0
    failures: int = 0

    def __post_init__(self) -> None:
        """Draws the speed and the first failure of each worker."""
        self._random = random.Random(self.seed)  # noqa: S311 - a simulation
        workers, slow = self.cluster.workers, self.assumed.slow_workers
        self.workers = [self._worker(number < round(workers * slow)) for number in range(workers)]

    def run(self, job: Job) -> Seconds:
        """Returns the duration of each phase of a job."""
        measured, assumed = self.measured, self.assumed
        rows = [job.images / job.splits * measured.row_cpu / assumed.engine_share] * job.splits
        sizes = self._shard_sizes(job)
        return Seconds(
            start=assumed.start_seconds + measured.start_cpu,
            # Rows are read twice: to plan the dataset, and to assign them to shards.
            read=self.stage(rows) + self.stage(rows),
            write=self.stage([self._write_seconds(images) for images in sizes]),
            verify=self.stage([self._verify_seconds(images) for images in sizes]),
            finish=job.shards * measured.finish_cpu + assumed.put_seconds,
        )

    def stage(self, tasks: Sequence[float]) -> float:
        """Returns the seconds until the last task of a stage has ended.

        Args:
            tasks: seconds of each on a core of mean speed.
        """
        began, left, numbers = self.now, len(tasks), count()
        cores = [worker for worker in self.workers for _ in range(self.cluster.cores)]
        shared = self.cluster.scheduling == "dynamic"
        queues = [deque[float]() for _ in range(1 if shared else len(cores))]
        idle = [deque[int]() for _ in queues]  # cores that wait for a task
        for task in tasks:
            queues[0 if shared else self._random.randrange(len(queues))].append(task)
        # (time, number, core, whether it has ended its task or a worker is replaced): a heap whose
        # events at the same time are in the order in which they were planned.
        events: list[tuple[float, int, int, bool]] = []
        failing = dict[int, float]()  # the tasks of the cores that fail before they end

        def start(core: int) -> None:
            """Takes the next task of a core, and plans its end or the failure of the worker."""
            number, worker = 0 if shared else core, cores[core]
            if not queues[number]:
                idle[number].append(core)
                return
            task = queues[number].popleft()
            self._replace_if_failed(worker)
            end = self.now + task * worker.slowness
            if end > worker.fails_at:
                failing[core] = task
                end = self.now + max(0.0, worker.fails_at - self.now)
            heapq.heappush(events, (end, next(numbers), core, True))

        for core in range(len(cores)):
            start(core)
        while left:
            self.now, _, core, is_end = heapq.heappop(events)
            if is_end and core in failing:
                number, worker = 0 if shared else core, cores[core]
                self.failures += 1
                queues[number].append(failing.pop(core))  # runs again, from its beginning
                if idle[number]:
                    start(idle[number].popleft())
                back = worker.fails_at + self.assumed.replace_seconds
                again = self.now + (back - self.now)
                heapq.heappush(events, (again, next(numbers), core, False))
                continue
            left -= is_end
            start(core)
        return self.now - began

    def _worker(self, slow: bool) -> Worker:
        factor = self.assumed.slow_factor if slow else 1.0
        speed = max(0.1, self._random.gauss(1, self.assumed.speed_spread))
        return Worker(factor / speed, self.now + self._until_failure())

    def _replace_if_failed(self, worker: Worker) -> None:
        while worker.fails_at + self.assumed.replace_seconds <= self.now:
            worker.fails_at += self.assumed.replace_seconds + self._until_failure()

    def _until_failure(self) -> float:
        hours = self.assumed.failure_hours
        return math.inf if math.isinf(hours) else self._random.expovariate(1 / (3600 * hours))

    def _shard_sizes(self, job: Job) -> list[float]:
        """Returns the number of images in each shard; keys are hashed, so it is binomial."""
        mean = job.images / job.shards
        spread = math.sqrt(mean * (1 - 1 / job.shards))
        return [max(0.0, self._random.gauss(mean, spread)) for _ in range(job.shards)]

    def _write_seconds(self, images: float) -> float:
        """Returns the seconds to write a shard, limited by the scarcest resource."""
        # A slow object delays its shard by all of its time: records are written in order.
        measured, assumed, cores = self.measured, self.assumed, self.cluster.cores
        computing = measured.write_cpu / assumed.engine_share
        carrying = 2 * measured.image_bytes * cores / assumed.network_bytes
        waiting = assumed.get_seconds * cores / assumed.max_gets
        slow = self._slow_gets(images * assumed.slow_gets) * assumed.slow_get_seconds
        own = measured.shard_cpu / assumed.engine_share + assumed.put_seconds
        return images * max(computing, carrying, waiting) + slow + own

    def _verify_seconds(self, images: float) -> float:
        measured, assumed, cores = self.measured, self.assumed, self.cluster.cores
        computing = measured.verify_cpu / assumed.engine_share
        carrying = measured.image_bytes * cores / assumed.network_bytes
        return images * max(computing, carrying)

    def _slow_gets(self, mean: float) -> int:
        """Returns a Poisson-distributed number of slow requests."""
        # Knuth, The Art of Computer Programming, volume 2, section 3.4.1: fine for small means.
        limit, product, count = math.exp(-mean), self._random.random(), 0
        while product > limit:
            product *= self._random.random()
            count += 1
        return count


@dataclass(frozen=True)
class Model:
    """The inputs of the simulation and the cost estimate.

    Attributes:
        measured: CPU times.
        assumed: properties of the service.
        prices: list prices.
    """

    measured: Measured = field(default_factory=Measured)
    assumed: Assumed = field(default_factory=Assumed)
    prices: Prices = field(default_factory=Prices)

    def job(self, images: int, shard_bytes: float = 128 * 2**20) -> Job:
        """Returns a job with the shards of `--num_shards auto`.

        Args:
            images: number of images.
            shard_bytes: bytes of a shard.
        """
        shards = math.ceil(images * self.measured.image_bytes / shard_bytes)
        return Job(images, min(max(1, shards), MAX_SHARDS), math.ceil(images / ROWS_PER_SPLIT))

    def seconds(self, job: Job, cluster: Cluster) -> Seconds:
        """Returns the simulated duration of a job by phase.

        Args:
            job: the conversion.
            cluster: its workers.
        """
        return Simulation(self.measured, self.assumed, cluster).run(job)

    def dollars(self, job: Job, cluster: Cluster, seconds: float) -> dict[str, float]:
        """Returns the cost of a job by item.

        Args:
            job: the conversion.
            cluster: its workers.
            seconds: its duration.
        """
        prices, hours = self.prices, seconds / 3600
        worker = (
            cluster.cores * prices.core_hour
            + cluster.memory_gib * prices.gib_hour
            + cluster.disk_gib * prices.disk_gib_hour
        )
        return {
            "workers": cluster.workers * hours * worker,
            "shuffle": job.images * self.measured.shuffled_bytes / GIB * prices.shuffled_gib,
            # Each image once; each split in both passes; each shard and its index to verify them.
            "reads": (job.images + 2 * job.splits + 2 * job.shards) * prices.read,
            "writes": 3 * job.shards * prices.written,  # a shard, its index, its checkpoint
        }
