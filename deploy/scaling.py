"""Simulates conversions on 1 to 1,000 workers and their cost: `python -m deploy.scaling`.

Prints the tables of docs/explanation/scaling.md. The simulation (SimPy) schedules row groups and
shards on workers that differ in speed, wait for slow objects, and fail. Its inputs are measured,
assumed, or list prices; each has a class of its own, so that you can replace them with yours.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import simpy

from recordmill.schemas.config import MAX_SHARDS

GIB = 2**30
ROWS_PER_SPLIT = 100_000  # a row group of Parquet, or a byte range of a text table
JOBS = {10**6: (1, 16), 10**8: (50, 500), 10**9: (200, 1000)}
"""Number of images to the numbers of workers in the table of jobs."""

IMAGES_PER_WORKER = 250_000
WORKERS = (1, 2, 10, 100, 500, 1000)

Scheduling = Literal["dynamic", "static"]
"""How an engine distributes shards: dynamic (Dataflow, Spark) gives the next one to whichever core
is free; static (Flink) assigns each to a core by the hash of its key, before any is written."""


@dataclass(frozen=True)
class Measured:
    """CPU seconds, measured on one machine; docs/explanation/scaling.md has the commands.

    Attributes:
        write_cpu: to read, decode in full, hash and write one image.
        verify_cpu: to re-read one record and parse it with TensorFlow.
        row_cpu: to read and bind one row, in either of the two reads.
        shard_cpu: of one shard besides its records, written and verified.
        finish_cpu: of one shard in the last step, which is the only one on a single worker.
        start_cpu: of imports and graph construction.
        shuffled_bytes: of one row in the one shuffle.
        image_bytes: mean size of the photographs that were used.
    """

    write_cpu: float = 1.32e-3
    verify_cpu: float = 0.16e-3
    row_cpu: float = 34e-6
    shard_cpu: float = 3.4e-3
    finish_cpu: float = 0.3e-3
    start_cpu: float = 2.4
    shuffled_bytes: float = 280
    image_bytes: float = 110_537


@dataclass(frozen=True)
class Assumed:
    """Properties of the service, the network and the object store; none was measured.

    Attributes:
        start_seconds: until workers have fetched a container of 3 GB.
        get_seconds: median time to read one image.
        max_gets: concurrent requests of one worker process, which recordmill bounds.
        put_seconds: time to create the files of one shard.
        network_bytes: bytes per second and worker, in and out together.
        engine_share: share of each core that the engine leaves to the conversion.
        slow_gets: share of requests that take `slow_get_seconds`.
        slow_get_seconds: duration of a slow request; recordmill repeats it after a deadline.
        speed_spread: standard deviation of the workers' speed, relative to its mean.
        slow_workers: share of workers that take `slow_factor` times as long.
        slow_factor: slowdown of a slow worker.
        failure_hours: mean time between failures of one worker.
        replace_seconds: until a failed worker is replaced.
    """

    start_seconds: float = 180
    get_seconds: float = 0.05
    max_gets: float = 96
    put_seconds: float = 0.3
    network_bytes: float = 500e6
    engine_share: float = 0.85
    slow_gets: float = 1e-5
    slow_get_seconds: float = 5
    speed_spread: float = 0.03
    slow_workers: float = 0.01
    slow_factor: float = 2
    failure_hours: float = 500
    replace_seconds: float = 180


IDEAL = Assumed(
    start_seconds=0,
    get_seconds=0,
    put_seconds=0,
    network_bytes=math.inf,
    engine_share=1,
    slow_gets=0,
    speed_spread=0,
    slow_workers=0,
    failure_hours=math.inf,
)
"""Assumptions under which only the measured CPU time counts."""


@dataclass(frozen=True)
class Prices:
    """US dollars: list prices of Google Cloud in us-central1 for batch jobs, without discounts.

    Attributes:
        core_hour: of a Dataflow worker.
        gib_hour: of a Dataflow worker's memory.
        disk_gib_hour: of a Dataflow worker's standard disk.
        shuffled_gib: through Dataflow Shuffle.
        read: of one object (a class B operation).
        written: of one object (a class A operation).
    """

    core_hour: float = 0.056
    gib_hour: float = 0.003557
    disk_gib_hour: float = 0.000054
    shuffled_gib: float = 0.011
    read: float = 0.4e-6
    written: float = 5e-6


@dataclass(frozen=True)
class Cluster:
    """The workers of a job.

    Attributes:
        workers: number of workers.
        cores: cores of each.
        memory_gib: memory of each.
        disk_gib: disk of each.
        scheduling: how the engine distributes shards.
    """

    workers: int
    cores: int = 4
    memory_gib: float = 16
    disk_gib: float = 50
    scheduling: Scheduling = "dynamic"


@dataclass(frozen=True)
class Job:
    """A conversion.

    Attributes:
        images: number of images, each in a row of its own.
        shards: number of shards.
        splits: number of row groups or byte ranges that are read independently.
    """

    images: int
    shards: int
    splits: int


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
        env: simulated time.
        failures: how many workers failed while they had a task.
    """

    measured: Measured
    assumed: Assumed
    cluster: Cluster
    seed: int = 0
    env: simpy.Environment = field(default_factory=simpy.Environment)
    failures: int = 0

    def __post_init__(self) -> None:
        """Draws the speed and the first failure of each worker."""
        self._random = random.Random(self.seed)  # noqa: S311 - a simulation
        count, share = self.cluster.workers, self.assumed.slow_workers
        self.workers = [self._worker(number < round(count * share)) for number in range(count)]

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
        began, done = self.env.now, self.env.event()
        left = [len(tasks)]
        cores = [worker for worker in self.workers for _ in range(self.cluster.cores)]
        shared = self.cluster.scheduling == "dynamic"
        queues = [simpy.Store(self.env) for _ in range(1 if shared else len(cores))]
        for task in tasks:
            queues[0 if shared else self._random.randrange(len(queues))].put(task)
        for number, worker in enumerate(cores):
            self.env.process(self._core(worker, queues[0 if shared else number], left, done))
        self.env.run(until=done)
        return float(self.env.now - began)

    def _core(
        self, worker: Worker, queue: simpy.Store, left: list[int], done: simpy.Event
    ) -> Generator[simpy.Event, Any, None]:
        """Runs tasks of a queue on one core of a worker."""
        while True:
            task = yield queue.get()
            self._replace_if_failed(worker)
            seconds = task * worker.slowness
            if self.env.now + seconds > worker.fails_at:
                yield self.env.timeout(max(0.0, worker.fails_at - self.env.now))
                self.failures += 1
                queue.put(task)  # the engine runs it again, from its beginning
                back = worker.fails_at + self.assumed.replace_seconds
                yield self.env.timeout(back - self.env.now)
                continue
            yield self.env.timeout(seconds)
            left[0] -= 1
            if not left[0]:
                done.succeed()

    def _worker(self, slow: bool) -> Worker:
        factor = self.assumed.slow_factor if slow else 1.0
        speed = max(0.1, self._random.gauss(1, self.assumed.speed_spread))
        return Worker(factor / speed, self.env.now + self._until_failure())

    def _replace_if_failed(self, worker: Worker) -> None:
        while worker.fails_at + self.assumed.replace_seconds <= self.env.now:
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

    measured: Measured = Measured()
    assumed: Assumed = Assumed()
    prices: Prices = Prices()

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


def job_table(model: Model) -> Iterator[list[str]]:
    """Yields the table of jobs: sizes, workers, phases, price."""
    yield [
        *("images", "TB in", "shards", "workers", "hours", "images/s"),
        *("read", "write", "verify", "finish", "US$", "US$ per million"),
    ]
    for images, clusters in JOBS.items():
        for workers in clusters:
            job, cluster = model.job(images), Cluster(workers)
            phases = model.seconds(job, cluster)
            price = sum(model.dollars(job, cluster, phases.total).values())
            shares = (phases.read, phases.write, phases.verify, phases.finish)
            yield [
                f"{images:,}",
                f"{images * model.measured.image_bytes / 1e12:.1f}",
                f"{job.shards:,}",
                f"{workers:,}",
                f"{phases.total / 3600:.2f}",
                f"{images / phases.total:,.0f}",
                *(f"{share / phases.total:.0%}" for share in shares),
                f"{price:,.2f}" if price < 100 else f"{price:,.0f}",
                f"{price / images * 1e6:.2f}",
            ]


def weak_scaling_table(model: Model) -> Iterator[list[str]]:
    """Yields the table of clusters that grow with their job."""
    yield ["workers", "images", "minutes", "efficiency", "with static scheduling"]
    alone: dict[Scheduling, float] = {}
    for workers in WORKERS:
        job = model.job(workers * IMAGES_PER_WORKER)
        cells = [f"{workers:,}", f"{job.images:,}"]
        kinds: tuple[Scheduling, ...] = ("dynamic", "static")
        for scheduling in kinds:
            total = model.seconds(job, Cluster(workers, scheduling=scheduling)).total
            efficiency = alone.setdefault(scheduling, total) / total
            cells += [f"{total / 60:.1f}"] * (scheduling == "dynamic") + [f"{efficiency:.0%}"]
        yield cells


def disturbance_table(model: Model, workers: int = 100) -> Iterator[list[str]]:
    """Yields the table of stragglers, slow objects and failures, each alone.

    Args:
        model: the inputs.
        workers: number of workers.
    """
    calm = replace(
        model.assumed, slow_gets=0, speed_spread=0, slow_workers=0, failure_hours=math.inf
    )
    cases = {
        "none": calm,
        "one worker at half its speed": replace(calm, slow_workers=1 / workers),
        "one worker at a tenth of its speed": replace(
            calm, slow_workers=1 / workers, slow_factor=10
        ),
        "one request in 10,000 takes 5 s": replace(calm, slow_gets=1e-4),
        "each worker fails every 20 hours": replace(calm, failure_hours=20),
    }
    job, least = model.job(workers * IMAGES_PER_WORKER), 0.0
    yield ["disturbance", "minutes", "longer"]
    for name, assumed in cases.items():
        total = replace(model, assumed=assumed).seconds(job, Cluster(workers)).total
        least = least or total
        yield [name, f"{total / 60:.1f}", f"{total / least - 1:.1%}"]


def markdown(rows: Iterator[list[str]]) -> str:
    """Returns a table as Markdown, with numbers aligned to the right."""
    header, *lines = [f"| {' | '.join(row)} |" for row in rows]
    columns = header.count("|") - 1
    return "\n".join([header, "|" + " ---: |" * columns, *lines])


TABLES = {"jobs": job_table, "weak": weak_scaling_table, "disturbances": disturbance_table}
"""Marker in docs/explanation/scaling.md to the function that makes the table there."""


def main() -> int:
    """Prints the tables."""
    print(*(markdown(table(Model())) for table in TABLES.values()), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
