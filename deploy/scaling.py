"""How long a conversion takes and what it costs, by a model: `python -m deploy.scaling`.

It prints the tables of docs/explanation/scaling.md. Inputs are measured, assumed or prices; each
stands in a class of its own with where it comes from, so that a reader can put in his own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.schemas.config import MAX_SHARDS

GIB = 2**30
ROWS_PER_PART = 100_000  # of a table file, or a row group of Parquet
JOBS = {10**6: (1, 4, 16), 10**8: (50, 200, 500), 10**9: (200, 500, 1000)}
"""Images, and how many workers to try with them."""


@dataclass(frozen=True)
class Measured:
    """CPU seconds of a run with 10,000 photographs less those of a run with one; see the page.

    Attributes:
        write_cpu: to place, read, decode in full, hash and write an image.
        verify_cpu: to re-read an image's record with TensorFlow and parse it.
        row_cpu: to read, bind and place a row; measured together with writing one of a table
            without images, so it is rather too high.
        start_cpu: of imports and of building the graph, before the first row.
        shuffled_bytes: of a row, on the one shuffle.
        image_bytes: the mean of the photographs that all this was measured on.
    """

    write_cpu: float = 1.32e-3
    verify_cpu: float = 0.16e-3
    row_cpu: float = 68e-6
    start_cpu: float = 4.5
    shuffled_bytes: float = 280
    image_bytes: float = 110_537


@dataclass(frozen=True)
class Assumed:
    """Of the service and the object store; none of it was measured.

    Attributes:
        start_seconds: until workers have fetched their container of some 3 GB.
        get_seconds: from the request to the last byte of an image.
        gets_at_once: of one worker: recordmill's own bound, a process.
        network_bytes: a second, of one worker, in and out together.
        rename_seconds: to copy and delete one object within a bucket.
        renames_at_once: threads of the one step that gives all files their names.
        evenness: the share of a core's time that the engine itself leaves.
    """

    start_seconds: float = 180
    get_seconds: float = 0.05
    gets_at_once: float = 96
    network_bytes: float = 500e6
    rename_seconds: float = 0.2
    renames_at_once: float = 64
    evenness: float = 0.85


@dataclass(frozen=True)
class Prices:
    """In US dollars: list prices of Google Cloud in us-central1, batch, without discount.

    Attributes:
        core_hour: of a Dataflow worker.
        gib_hour: of a Dataflow worker's memory.
        disk_gib_hour: of a Dataflow worker's standard disk.
        shuffled_gib: through Dataflow Shuffle.
        read: of one object (a class B operation).
        written: of one object, copied or listed (a class A operation).
    """

    core_hour: float = 0.056
    gib_hour: float = 0.003557
    disk_gib_hour: float = 0.000054
    shuffled_gib: float = 0.011
    read: float = 0.4e-6
    written: float = 5e-6


@dataclass(frozen=True)
class Cluster:
    """The workers.

    Attributes:
        workers: how many.
        cores: of each.
        memory_gib: of each.
        disk_gib: of each.
    """

    workers: int
    cores: int = 4
    memory_gib: float = 16
    disk_gib: float = 50


@dataclass(frozen=True)
class Job:
    """What is to be converted.

    Attributes:
        images: how many.
        shards: of the output.
        parts: of the tables that can be read apart: files, or row groups of Parquet.
    """

    images: int
    shards: int
    parts: int


@dataclass(frozen=True)
class Seconds:
    """Of each phase; they follow one another."""

    start: float
    tables: float
    write: float
    rename: float
    verify: float

    @property
    def total(self) -> float:
        """All phases."""
        return self.start + self.tables + self.write + self.rename + self.verify


@dataclass(frozen=True)
class Model:
    """The model with all that goes in."""

    measured: Measured = Measured()
    assumed: Assumed = Assumed()
    prices: Prices = Prices()

    def job(self, images: int, shard_bytes: float = 128 * 2**20) -> Job:
        """Returns a job with the shards of `--num_shards auto`, and Parquet tables.

        Args:
            images: number of images.
            shard_bytes: bytes of a shard.
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
        files = 2 * job.shards  # each shard has its index beside it
        asking = assumed.get_seconds / assumed.gets_at_once
        return Seconds(
            start=assumed.start_seconds + measured.start_cpu,
            tables=2 * rounds * job.images / job.parts * measured.row_cpu / assumed.evenness,
            write=self._by_shard(job, cluster, measured.write_cpu, copies=2, asking=asking),
            rename=files * assumed.rename_seconds / min(files, assumed.renames_at_once),
            verify=self._by_shard(job, cluster, measured.verify_cpu, copies=1, asking=0),
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
        files = 2 * job.shards
        return {
            "workers": cluster.workers * hours * worker,
            "shuffle": job.images * self.measured.shuffled_bytes / GIB * prices.shuffled_gib,
            "reads": (job.images + 2 * job.parts + files) * prices.read,
            "writes": 2 * files * prices.written,  # under a temporary name, and the final one
        }

    def _by_shard(
        self, job: Job, cluster: Cluster, cpu: float, copies: int, asking: float
    ) -> float:
        """Returns the seconds of a stage that works shard by shard, till its last one is done.

        Args:
            job: the shards.
            cluster: who works on them.
            cpu: seconds that an image takes of one core.
            copies: how often an image crosses the worker's network.
            asking: seconds an image that the worker waits for the store, all requests at once.
        """
        computing = cpu / cluster.cores / self.assumed.evenness
        carrying = copies * self.measured.image_bytes / self.assumed.network_bytes
        return images_of_last(job, cluster.workers) * max(computing, carrying, asking)


def images_of_last(job: Job, workers: int) -> float:
    """Returns the number of images of the worker that ends last.

    A shard is never split, so some workers have one more than others. Where each has but one or
    two, that of the largest counts: a shard's size is binomial, as its keys are hashed, and the
    largest of n lies sqrt(2 ln n) standard deviations above the mean.

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
    """Yields the table of jobs: sizes, workers, phases, price."""
    yield [
        *("images", "TB in", "shards", "workers", "hours", "images/s"),
        *("tables", "write", "rename", "verify", "US$", "US$ per million"),
    ]
    for images, clusters in JOBS.items():
        for workers in clusters:
            job, cluster = model.job(images), Cluster(workers)
            phases = model.seconds(job, cluster)
            price = sum(model.dollars(job, cluster).values())
            shares = (phases.tables, phases.write, phases.rename, phases.verify)
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
    """Yields the table of clusters that grow with their job.

    Args:
        model: of time and cost.
        images_per_worker: the same for every cluster.
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
    """Returns a table as Markdown, numbers to the right."""
    header, *lines = [f"| {' | '.join(row)} |" for row in rows]
    columns = header.count("|") - 1
    return "\n".join([header, "|" + " ---: |" * columns, *lines])


def main() -> int:
    """Prints the tables."""
    model = Model()
    print(markdown(estimates(model)), markdown(weak_scaling(model)), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
