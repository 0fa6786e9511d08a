"""Measures weak scaling: `python -m benchmarks.weak_scaling --photos DIR`.

Converts N rows on one core, then 2 N rows on two cores, with the DirectRunner and, with
`--engine flink-1.20`, on an engine that is started for it. CPU affinity limits the cores, because a
worker uses all cores that it may. Start-up, measured with a table of one row, is subtracted. The
efficiency is the time on one core divided by the time on two.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import photographs, write_table

CORES = (1, 2)
_SCRIPT = Path(__file__).parents[1] / "deploy" / "local" / "engine.sh"


class Line(NamedTuple):
    """A measurement, in seconds.

    Attributes:
        cores: number of cores.
        rows: number of rows of the table.
        start: time for a table of one row.
        whole: time for the whole table.
    """

    cores: int
    rows: int
    start: float
    whole: float

    @property
    def net(self) -> float:
        """Seconds without start-up."""
        return self.whole - self.start


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints a table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weak_scaling", description=__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="JPEG and PNG files")
    parser.add_argument("--rows", type=int, default=20_000, help="rows per core; default: 20000")
    parser.add_argument(
        "--engine",
        action="append",
        default=[],
        help="an engine of deploy/local/engine.sh; repeatable",
    )
    flags = parser.parse_args(argv)
    photos = photographs(flags.photos)
    print("| engine | cores | rows | seconds | start-up | efficiency |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for engine in (None, *flags.engine):
        lines = [measure(engine, cores, photos, flags.rows) for cores in CORES]
        for line in lines:
            share = lines[0].net / line.net
            cells = f"{line.cores} | {line.rows:,} | {line.whole:.1f} | {line.start:.1f}"
            print(f"| {engine or 'DirectRunner'} | {cells} | {share:.0%} |", flush=True)
    return 0


def measure(engine: str | None, cores: int, photos: Sequence[Path], rows: int) -> Line:
    """Measures a table of one row and one of `rows` per core, after a warm-up run.

    Args:
        engine: an engine of deploy/local/engine.sh; None for the DirectRunner.
        cores: number of cores.
        photos: photographs to list in the table.
        rows: number of rows per core.
    """
    with only(cores), options(engine, cores) as flags:
        _, start, whole = (_seconds(flags, cores, photos, n) for n in (1, 1, rows * cores))
    return Line(cores, rows * cores, start, whole)


@contextmanager
def only(cores: int) -> Iterator[None]:
    """Restricts this process and its children to a number of cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def options(engine: str | None, slots: int) -> Iterator[list[str]]:
    """Starts an engine with worker processes, and yields the Beam options to use it.

    Args:
        engine: an engine of deploy/local/engine.sh; None for the DirectRunner.
        slots: number of task slots.
    """
    if engine is None:
        yield ["--direct_running_mode=multi_processing", f"--direct_num_workers={slots}"]
        return
    environment = {**os.environ, "SLOTS": str(slots), "PYTHON": sys.executable}
    start = [str(_SCRIPT), "start", engine, "--workers"]
    started = subprocess.run(start, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    try:
        yield shlex.split(started.stdout.splitlines()[-1])
    finally:
        subprocess.run([str(_SCRIPT), "stop", engine], env=environment, check=True)


def _seconds(flags: Sequence[str], cores: int, photos: Sequence[Path], rows: int) -> float:
    with tempfile.TemporaryDirectory(prefix="recordmill-scaling-") as folder:
        table = write_table(Path(folder, "rows.csv"), photos, rows)
        command = [sys.executable, "-m", "recordmill", "convert", "--no_report"]
        command += ["--input", str(table), "--output", folder, "--name", "scaled"]
        command += ["--key_column", "id", "--num_shards", str(4 * cores), *flags]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
