"""`python -m benchmarks.weak_scaling --photos DIR`: twice the rows on twice the slots.

With one slot and N rows, then with two and 2 N, on Beam's own runner in processes and on engines
that run already: `--engine 'flink=--runner=FlinkRunner --flink_master=…'`, the options that
`deploy/local/engine.sh start ENGINE --workers` prints. Of each time that of a table of one row is
taken off: what starts up is not what scales. Where one slot takes as long as two, they scale.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import photographs, write_table

SLOTS = (1, 2)
_DIRECT = "--direct_running_mode=multi_processing"


class Engine(NamedTuple):
    """Where to convert, and how it is told the number of its slots.

    Attributes:
        name: to be shown.
        flags: Beam's options.
        slots: the option that takes the number.
    """

    name: str
    flags: tuple[str, ...]
    slots: str


class Line(NamedTuple):
    """What was measured with a number of slots, in seconds.

    Attributes:
        slots: how many.
        rows: of the table.
        start: with a table of one row.
        whole: with the whole one.
    """

    slots: int
    rows: int
    start: float
    whole: float

    @property
    def net(self) -> float:
        """Seconds for the rows alone."""
        return self.whole - self.start


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints a table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weak_scaling", description=__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="JPEG and PNG files")
    parser.add_argument("--rows", type=int, default=20_000, help="for each slot; default: 20000")
    parser.add_argument("--engine", action="append", default=[], metavar="NAME=FLAGS", type=_engine)
    flags = parser.parse_args(argv)
    engines = [Engine("DirectRunner", (_DIRECT,), "--direct_num_workers"), *flags.engine]
    photos = photographs(flags.photos)
    print("| engine | slots | rows | seconds | of them to start | efficiency |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for engine in engines:
        measure(engine, 1, photos, 1)  # whatever is slow but once
        lines = [measure(engine, slots, photos, flags.rows) for slots in SLOTS]
        for line in lines:
            share = lines[0].net / line.net
            cells = f"{line.slots} | {line.rows:,} | {line.whole:.1f} | {line.start:.1f}"
            print(f"| {engine.name} | {cells} | {share:.0%} |", flush=True)
    return 0


def measure(engine: Engine, slots: int, photos: Sequence[Path], rows: int) -> Line:
    """Converts a table of one row, and one of some for each slot."""
    start, whole = (_seconds(engine, slots, photos, count) for count in (1, rows * slots))
    return Line(slots, rows * slots, start, whole)


def _engine(text: str) -> Engine:
    name, _, flags = text.partition("=")
    return Engine(name, tuple(shlex.split(flags)), "--parallelism")


def _seconds(engine: Engine, slots: int, photos: Sequence[Path], rows: int) -> float:
    with tempfile.TemporaryDirectory(prefix="recordmill-scaling-") as folder:
        table = write_table(Path(folder, "rows.csv"), photos, rows)
        command = [sys.executable, "-m", "pipelines", "convert", "--no_report"]
        command += ["--input", str(table), "--output", folder, "--name", "scaled"]
        command += ["--key_column", "id", "--num_shards", str(4 * slots)]
        command += [*engine.flags, f"{engine.slots}={slots}"]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
