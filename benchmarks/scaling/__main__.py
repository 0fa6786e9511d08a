"""Prints the tables of docs/explanation/scaling.md."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.scaling.inputs import Cluster, Scheduling
from benchmarks.scaling.shard_bytes import unevenness
from benchmarks.scaling.simulation import Model

JOBS = {10**6: (1, 16), 10**8: (50, 500), 10**9: (200, 1000)}
"""Number of images to the numbers of workers in the table of jobs."""

IMAGES_PER_WORKER = 250_000
WORKERS = (1, 2, 10, 100, 500, 1000)
RECORDS = (10, 100, 1_000, 10_000)


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


def shard_bytes_table(_: Model) -> Iterator[list[str]]:
    """Yields the table of shards with few to many records, whose images differ in size."""
    by_hash = ("standard deviation of bytes", "largest of 1,000 shards")
    yield ["records per shard", *by_hash, "largest, with `--records_per_shard`"]
    for records in RECORDS:
        ranges, exact = (unevenness(records, exact) for exact in (False, True))
        figures = (ranges.deviation, ranges.largest, exact.largest)
        yield [f"{records:,}", f"{figures[0]:.0%}", *(f"+{figure:.0%}" for figure in figures[1:])]


def markdown(rows: Iterator[list[str]]) -> str:
    """Returns a table as Markdown, with numbers aligned to the right."""
    header, *lines = [f"| {' | '.join(row)} |" for row in rows]
    columns = header.count("|") - 1
    return "\n".join([header, "|" + " ---: |" * columns, *lines])


TABLES = {
    "jobs": job_table,
    "weak": weak_scaling_table,
    "disturbances": disturbance_table,
    "bytes": shard_bytes_table,
}
"""Marker in docs/explanation/scaling.md to the function that makes the table there."""


def main() -> int:
    """Prints the tables."""
    print(*(markdown(table(Model())) for table in TABLES.values()), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
