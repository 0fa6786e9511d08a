"""A model of the duration and the cost of a conversion: `python -m deploy.scaling`.

Prints the tables of docs/explanation/scaling.md. The inputs are measurements, assumptions and
prices, each in its own class with its source, so that they can be replaced.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.schemas.config import MAX_SHARDS

GIB = 2**30
ROWS_PER_PART = 100_000  # rows of a table file, or of a Parquet row group
JOBS = {10**6: (1, 4, 16), 10**8: (50, 200, 500), 10**9: (200, 500, 1000)}
"""Numbers of images, with the numbers of workers to estimate for each."""


@dataclass(frozen=True)
class Measured:
    """Measurements: CPU seconds of a run with 10,000 photographs, minus those of a run with one.

    Attributes:
        write_cpu: to assign, read, decode in full, hash and write an image.
        verify_cpu: to read the record of an image with TensorFlow and parse it.
        row_cpu: to read, bind and assign a row; an upper bound, because it was measured with a
            table without images and includes writing its records.
        start_cpu: for imports and building the graph, before the first row.
        shuffled_bytes: per row.
        image_bytes: mean size of the measured photographs.
    """

    write_cpu: float = 1.32e-3
    verify_cpu: float = 0.16e-3
    row_cpu: float = 68e-6
    start_cpu: float = 4.5
    shuffled_bytes: float = 280
    image_bytes: float = 110_537


@dataclass(frozen=True)
class Assumed:
    """Assumptions about the service and the object store, not measured.

    Attributes:
        start_seconds: until workers have fetched their container of about 3 GB.
        get_seconds: from the request to the last byte of an image.
        concurrent_gets: of one worker; recordmill's limit per process.
        network_bytes: bytes per second of one worker, in and out together.
        efficiency: share of a core's time that is not spent in the engine itself.
    """

    start_seconds: float = 180
    get_seconds: float = 0.05
    concurrent_gets: float = 96
    network_bytes: float = 500e6
    efficiency: float = 0.85


@dataclass(frozen=True)
class Prices:
    """List prices of Google Cloud in us-central1 in US dollars, for batch jobs without discount.

    Attributes:
        core_hour: a vCPU hour of a Dataflow worker.
        gib_hour: a GiB hour of memory of a Dataflow worker.
        disk_gib_hour: a GiB hour of standard disk of a Dataflow worker.
        shuffled_gib: a GiB in Dataflow Shuffle.
        read: a class B operation, such as reading an object.
        written: a class A operation, such as writing, copying or listing an object.
    """

    core_hour: float = 0.056
    gib_hour: float = 0.003557
    disk_gib_hour: float = 0.000054
    shuffled_gib: float = 0.011
    read: float = 0.4e-6
    written: float = 5e-6


@dataclass(frozen=True)
class Cluster:
    """A cluster of workers.

    Attributes:
        workers: number of workers.
        cores: per worker.
        memory_gib: per worker.
        disk_gib: per worker.
    """

    workers: int
    cores: int = 4
    memory_gib: float = 16
    disk_gib: float = 50


@dataclass(frozen=True)
class Job:
    """The size of a conversion.

    Attributes:
        images: number of images.
        shards: number of output shards.
        parts: number of table parts that can be read in parallel: files or Parquet row groups.
    """

    images: int
    shards: int
    parts: int


@dataclass(frozen=True)
class Seconds:
    """Duration of each phase in seconds; phases do not overlap."""

    start: float
    tables: float
    write: float
    verify: float

    @property
    def total(self) -> float:
        """Total duration in seconds."""
        return self.start + self.tables + self.write + self.verify


@dataclass(frozen=True)
class Model:
    """The model with its inputs."""

    measured: Measured = Measured()
    assumed: Assumed = Assumed()
    prices: Prices = Prices()

    def job(self, images: int, shard_bytes: float = 128 * 2**20) -> Job:
        """Returns a job with Parquet tables and the shards of `--num_shards auto`.

        Args:
            images: number of images.
            shard_bytes: size of a shard.
        """
        shards = math.ceil(images * self.measured.image_bytes / shard_bytes)
        return Job(images, min(max(1, shards), MAX_SHARDS), math.ceil(images / ROWS_PER_PART))

    def seconds(self, job: Job, cluster: Cluster) -> Seconds:
        """Returns the duration of a job by phase.

        Args:
            job: the conversion.
            cluster: its workers.
        """
        measured, assumed = self.measured, self.assumed
        rounds = math.ceil(job.parts / (cluster.workers * cluster.cores))
        request = assumed.get_seconds / assumed.concurrent_gets
        return Seconds(
            start=assumed.start_seconds + measured.start_cpu,
            tables=2 * rounds * job.images / job.parts * measured.row_cpu / assumed.efficiency,
            write=self._by_shard(job, cluster, measured.write_cpu, copies=2, request=request),
            verify=self._by_shard(job, cluster, measured.verify_cpu, copies=1, request=0),
        )

    def dollars(self, job: Job, cluster: Cluster) -> dict[str, float]:
        """Returns the cost of a job by item.

        Args:
            job: the conversion.
            cluster: its workers.
        """
        prices, hours = self.prices, self.seconds(job, cluster).total / 3600
        worker = (
            cluster.cores * prices.core_hour
            + cluster.memory_gib * prices.gib_hour
            + cluster.disk_gib * prices.disk_gib_hour
        )
        files = 3 * job.shards  # each shard has an index and a checkpoint
        return {
            "workers": cluster.workers * hours * worker,
            "shuffle": job.images * self.measured.shuffled_bytes / GIB * prices.shuffled_gib,
            "reads": (job.images + 2 * job.parts + files) * prices.read,
            "writes": files * prices.written,
        }

    def _by_shard(
        self, job: Job, cluster: Cluster, cpu: float, copies: int, request: float
    ) -> float:
        """Returns the seconds of a stage that processes whole shards.

        Args:
            job: the conversion.
            cluster: its workers.
            cpu: CPU seconds per image.
            copies: how often an image crosses the network of a worker.
            request: seconds per image to wait for the store, with concurrent requests.
        """
        computing = cpu / cluster.cores / self.assumed.efficiency
        transfer = copies * self.measured.image_bytes / self.assumed.network_bytes
        return images_of_last(job, cluster.workers) * max(computing, transfer, request)


def images_of_last(job: Job, workers: int) -> float:
    """Returns the number of images of the worker that finishes last.

    A shard is never split, so some workers process one shard more than others. With only one or two
    shards per worker, the largest shard dominates: the size of a shard is binomial, because keys
    are hashed, and the largest of n shards lies sqrt(2 ln n) standard deviations above the mean.

    Args:
        job: the conversion.
        workers: number of workers.

    >>> images_of_last(Job(images=1000, shards=100, parts=1), workers=40)
    30.0
    """
    mean = job.images / job.shards
    shards = math.ceil(job.shards / workers)
    if shards > 2:
        return shards * mean
    return shards * mean + math.sqrt(2 * math.log(max(job.shards, 2)) * mean)


def estimates(model: Model) -> Iterator[list[str]]:
    """Yields the rows of the table of jobs: sizes, workers, phases, price."""
    yield [
        *("images", "TB in", "shards", "workers", "hours", "images/s"),
        *("tables", "write", "verify", "US$", "US$ per million"),
    ]
    for images, clusters in JOBS.items():
        for workers in clusters:
            job, cluster = model.job(images), Cluster(workers)
            phases = model.seconds(job, cluster)
            price = sum(model.dollars(job, cluster).values())
            shares = (phases.tables, phases.write, phases.verify)
            yield [
                f"{images:,}",
                f"{images * model.measured.image_bytes / 1e12:.1f}",
                f"{job.shards:,}",
                f"{workers:,}",
                f"{phases.total / 3600:.1f}",
                f"{images / phases.total:,.0f}",
                *(f"{share / phases.total:.0%}" for share in shares),
                f"{price:,.2f}" if price < 100 else f"{price:,.0f}",
                f"{price / images * 1e6:.2f}",
            ]


def weak_scaling(model: Model, images_per_worker: int = 250_000) -> Iterator[list[str]]:
    """Yields the rows of the weak-scaling table.

    Args:
        model: of time and cost.
        images_per_worker: number of images per worker.
    """
    yield ["workers", "images", "minutes", "efficiency", "with 1 GiB shards"]
    times: dict[float, float] = {}
    for workers in (1, 2, 5, 10, 50, 100, 500, 1000):
        row = [f"{workers:,}", f"{workers * images_per_worker:,}"]
        for shard_bytes in (128 * 2**20, GIB):
            job = model.job(workers * images_per_worker, shard_bytes)
            total = model.seconds(job, Cluster(workers)).total
            alone = times.setdefault(shard_bytes, total)
            if len(row) == 2:
                row.append(f"{total / 60:.0f}")
            row.append(f"{alone / total:.0%}")
        yield row


def markdown(rows: Iterator[list[str]]) -> str:
    """Returns a Markdown table with right-aligned columns."""
    header, *lines = [f"| {' | '.join(row)} |" for row in rows]
    columns = header.count("|") - 1
    return "\n".join([header, "|" + " ---: |" * columns, *lines])


def main() -> int:
    """Prints the tables; returns the exit code."""
    model = Model()
    print(markdown(estimates(model)), markdown(weak_scaling(model)), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
