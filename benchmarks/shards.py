"""`python -m benchmarks.shards`: what a shard costs besides its records.

Converts one table without images to 2 shards and to many, verification included. The difference in
CPU seconds of all processes, divided by that of the numbers of shards, is the cost of a shard.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.rows import write_tabular

FEW = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Measures in turns, and prints a table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards", description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="of the table; default: 20000")
    parser.add_argument("--shards", type=int, default=2_000, help="default: 2000")
    parser.add_argument("--repeats", type=int, default=1, help="turns; medians are shown")
    flags, rest = parser.parse_known_args(argv)  # other flags are those of `recordmill convert`
    seconds: dict[int, list[float]] = {FEW: [], flags.shards: []}
    with tempfile.TemporaryDirectory(prefix="recordmill-shards-") as folder:
        table = write_tabular(Path(folder, "rows.csv"), flags.rows)
        for turn in range(flags.repeats):
            for shards, measured in seconds.items():
                measured.append(cpu_seconds(table, shards, f"{shards}_{turn}", rest))
    few, many = map(median, seconds.values())
    cost = (many - few) / (flags.shards - FEW)
    print("| rows | shards | CPU seconds |\n| ---: | ---: | ---: |")
    for shards, measured in seconds.items():
        print(f"| {flags.rows:,} | {shards:,} | {median(measured):.1f} |")
    print(f"\nCPU per shard: {1000 * cost:.1f} ms")
    return 0


def cpu_seconds(table: Path, shards: int, name: str, options: Sequence[str]) -> float:
    """Converts a table beside it, and returns the CPU seconds of all processes of the run.

    Args:
        table: of rows without images.
        shards: how many to write.
        name: the dataset's name.
        options: further flags of `recordmill convert`.
    """
    command = [sys.executable, "-m", "recordmill", "convert", "--schema", "tabular"]
    command += ["--input", str(table), "--output", str(table.parent), "--key_column", "id"]
    command += ["--name", f"n{name}", "--num_shards", str(shards), "--no_report", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)  # with the usage of the processes it waited for
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
