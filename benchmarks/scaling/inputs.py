"""The inputs of the simulation: what was measured, is assumed, or is a list price; and its jobs.

Each of them has a class of its own, so that you can replace them with yours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

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
    finish_cpu: float = 0.21e-3
    start_cpu: float = 2.4
    shuffled_bytes: float = 314
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
