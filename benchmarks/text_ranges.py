"""`python -m benchmarks.text_ranges`: one large CSV file, read in byte ranges.

Writes a CSV file of about 200 bytes per row: 1 % of the rows have quoted line breaks, and one in
10,000 is damaged. Compares the rows and rejects of 1, 2 and 64 ranges. Measures in turns how long 1
and 2 processes take to scan and read the ranges, as recordmill does however many workers there are,
and how long one process takes to read the file as a whole, without a scan:
`python -m benchmarks.text_ranges --rows 10000000`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import multiprocessing
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources.text_ranges import RANGE_BYTES, RangeScan, align
from recordmill.transforms.inputs.formats import FORMATS, cut_text, scan_text

_SEED = 20_240_229
_WORDS = ("amber", "basalt", "cobalt", "dune", "ember", "fjord", "granite", "harbour")
_HASH_BYTES = 16


class Found(NamedTuple):
    """What a read finds.

    Attributes:
        counts: the number of rows and of rejects, by the name of their type.
        digest: the sum of the hashes of all rows and rejects, whose order does not matter.
    """

    counts: Counter[str]
    digest: int


class Times(NamedTuple):
    """What scanning or reading takes.

    Attributes:
        wall: seconds from start to end.
        cpu: CPU seconds of all processes.
    """

    wall: float
    cpu: float


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns 1 if two numbers of ranges differ in rows or rejects."""
    flags = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(dir=flags.work) as work:
        path = write_csv(Path(work) / "table.csv", flags.rows)
        file = TableFile(str(path), "csv", size=path.stat().st_size)
        print(f"{flags.rows:,} rows, {path.stat().st_size / 2**20:,.0f} MiB")
        with _workers(max(flags.processes)) as executor:
            found = {count: _digest(executor, file, count) for count in flags.ranges}
        for count, (counts, digest) in found.items():
            rows, rejects = counts["Row"], counts["Reject"]
            print(f"{count} ranges: {rows:,} rows, {rejects:,} rejects, digest {digest:032x}")
        turns = [_turn(file, flags.processes) for _ in range(flags.repeats)]
        _print_times({name: [turn[name] for turn in turns] for name in turns[0]})
    return int(len({digest for _, digest in found.values()}) > 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.text_ranges",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", type=int, default=200_000, metavar="N", help="default: 200000")
    add("--ranges", type=_counts, default=[1, 2, 64], metavar="N,…", help="default: 1,2,64")
    add("--processes", type=_counts, default=[1, 2], metavar="N,…", help="default: 1,2")
    add("--repeats", type=int, default=5, metavar="N", help="number of turns; shows medians")
    add("--work", type=Path, metavar="DIR", help="for the file; default: a temporary folder")
    return parser


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def write_csv(path: Path, rows: int) -> Path:
    """Writes the table, by a fixed seed; returns its path.

    Args:
        path: the file.
        rows: the number of rows without damage.
    """
    chance = random.Random(_SEED)  # noqa: S311 - nothing to keep secret
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "label", "caption"])
        for number in range(rows):
            words = " ".join(chance.choices(_WORDS, k=27))
            caption = f'{words},\n"two" lines' if number % 100 == 50 else words
            writer.writerow([f"photos/{number:09d}.jpg", number % 1000, caption])
            if number % 10_000 == 5_000:
                stream.write(f'photos/{number:09d}-damaged.jpg,"label" 7,"{words}\r\n')
    return path


@contextmanager
def _workers(count: int) -> Iterator[Executor]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(count, mp_context=context) as executor:
        list(executor.map(time.sleep, [0.5] * count))  # until all have started
        yield executor


def _splits(executor: Executor, file: TableFile, range_bytes: int) -> tuple[list[Part], float]:
    """Returns the parts of a file, and the CPU seconds of its scan."""
    if range_bytes >= (file.size or 0):
        return [Part(file)], 0.0
    ranges = cut_text(file, range_bytes)
    scanned = list(executor.map(_scan, ranges))
    parts = align((part, found) for part, (found, _) in zip(ranges, scanned, strict=True))
    return parts, sum(cpu for _, cpu in scanned)


def _scan(part: Part) -> tuple[RangeScan | None, float]:
    began = time.process_time()
    return scan_text(part), time.process_time() - began


def _digest(executor: Executor, file: TableFile, count: int) -> Found:
    parts, _ = _splits(executor, file, -(-(file.size or 0) // count))
    counts, total = Counter[str](), 0
    for found in executor.map(_digest_of, parts):
        counts.update(found.counts)
        total += found.digest
    return Found(counts, total % 2 ** (8 * _HASH_BYTES))


def _digest_of(part: Part) -> Found:
    counts, total = Counter[str](), 0
    for row in one_by_one(FORMATS["csv"].read(part, Projection())):
        counts[type(row).__name__] += 1
        data = repr(row).replace(part.file.path, "").encode("utf-8", "surrogatepass")
        total += int.from_bytes(hashlib.blake2b(data, digest_size=_HASH_BYTES).digest(), "big")
    return Found(counts, total)


def _turn(file: TableFile, processes: Sequence[int]) -> dict[str, tuple[Times, Times]]:
    """Returns the times of each number of processes, and of one that reads the file as a whole."""
    size = file.size or 0
    # At least two ranges per process, however small the file is.
    range_bytes = min(RANGE_BYTES, -(-size // (2 * max(processes))))
    ranged = {f"{count}, in ranges": _times(file, count, range_bytes) for count in processes}
    return {**ranged, "1, as a whole": _times(file, 1, size)}


def _times(file: TableFile, processes: int, range_bytes: int) -> tuple[Times, Times]:
    """Returns the times of the scan and of the reading."""
    with _workers(processes) as executor:
        began = time.perf_counter()
        parts, scan_cpu = _splits(executor, file, range_bytes)
        scanned = time.perf_counter()
        read_cpu = sum(executor.map(_read, parts))
        ended = time.perf_counter()
    return Times(scanned - began, scan_cpu), Times(ended - scanned, read_cpu)


def _read(part: Part) -> float:
    began = time.process_time()
    for _ in FORMATS["csv"].read(part, Projection()):
        pass
    return time.process_time() - began


def _print_times(turns: dict[str, list[tuple[Times, Times]]]) -> None:
    """Prints medians; speed-ups are ratios within a turn, because the speed of a host varies."""
    names = ("processes", "scan s", "scan CPU s", "read s", "read CPU s", "speed-up")
    table = Table(*names, box=None)
    single = next(iter(turns.values()))
    for name, times in turns.items():
        figures = [(scan.wall, scan.cpu, read.wall, read.cpu) for scan, read in times]
        ratios = [_wall(one) / _wall(other) for one, other in zip(single, times, strict=True)]
        medians = map(statistics.median, (*zip(*figures, strict=True), ratios))
        table.add_row(name, *(f"{median:,.2f}" for median in medians))
    Console().print(table)


def _wall(times: tuple[Times, Times]) -> float:
    return sum(part.wall for part in times)


if __name__ == "__main__":
    raise SystemExit(main())
