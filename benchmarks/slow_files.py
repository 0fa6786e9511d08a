"""Measures conversions of images whose file system is slow, as NFS, EBS and gcsfuse are.

    python -m benchmarks.slow_files TABLE --image_root FOLDER [--turns N] [--cases OPEN,STAT …]

A library that is preloaded into all processes, compiled with `cc`, makes `open` and `stat` below
FOLDER wait. Cases alternate, and all are compared with the first: a case `20,5` waits 20 ms in each
`open`, and 5 ms in each `stat`. TABLE has the columns `image` and `label`. Linux only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static void wait_for(const char *call, const char *path) {
    const char *root = getenv("SLOW_ROOT"), *ms = getenv(call);
    if (!root || !ms || !path || strncmp(path, root, strlen(root))) return;
    long us = atof(ms) * 1000;
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

#define OPEN(NAME)                                                        \
    int NAME(const char *path, int flags, ...) {                          \
        static int (*next)(const char *, int, ...);                       \
        va_list rest;                                                     \
        va_start(rest, flags);                                            \
        mode_t mode = va_arg(rest, mode_t);                               \
        va_end(rest);                                                     \
        if (!next) next = dlsym(RTLD_NEXT, #NAME);                        \
        wait_for("SLOW_OPEN", path);                                      \
        return next(path, flags, mode);                                   \
    }
#define STAT(NAME, STATE)                                                 \
    int NAME(const char *path, struct STATE *state) {                     \
        static int (*next)(const char *, struct STATE *);                 \
        if (!next) next = dlsym(RTLD_NEXT, #NAME);                        \
        wait_for("SLOW_STAT", path);                                      \
        return next(path, state);                                         \
    }
OPEN(open)
OPEN(open64)
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)
"""


def compile_delays(folder: Path) -> Path:
    """Compiles the library whose `open` and `stat` wait."""
    source, library = folder / "delays.c", folder / "delays.so"
    source.write_text(_SOURCE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def seconds_of(table: Path, root: Path, case: str, library: Path, output: Path) -> float:
    """Returns the seconds that a conversion takes with the delays of a case, `OPEN,STAT` in ms."""
    slow_open, slow_stat = case.split(",")
    environment = {
        "LD_PRELOAD": str(library),
        "SLOW_ROOT": f"{root.resolve()}/",
        "SLOW_OPEN": slow_open,
        "SLOW_STAT": slow_stat,
    }
    command = [sys.executable, "-m", "recordmill", "convert", "--input", table]
    command += ["--image_root", root.resolve(), "--output", output, "--name", "slow", "--no_report"]
    start = perf_counter()
    subprocess.run(
        [*command, "--num_shards", "4"],
        check=True,
        capture_output=True,
        env={**os.environ, **environment},
    )
    seconds = perf_counter() - start
    shutil.rmtree(output)
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints a row for each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--image_root", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=["0,0", "20,0", "5,5"])
    flags = parser.parse_args(arguments)
    seconds: dict[str, list[float]] = {case: [] for case in flags.cases}
    with tempfile.TemporaryDirectory() as name:
        library, output = compile_delays(Path(name)), Path(name) / "out"
        for _ in range(flags.turns):
            for case in flags.cases:
                taken = seconds_of(flags.table, flags.image_root, case, library, output)
                seconds[case].append(taken)
    print("open ms  stat ms  median s  ratio")
    first = median(seconds[flags.cases[0]])
    for case, taken in seconds.items():
        slow_open, slow_stat = case.split(",")
        print(f"{slow_open:>7}  {slow_stat:>7}  {median(taken):8.1f}  {median(taken) / first:5.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
