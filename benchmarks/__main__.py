"""Runs all baselines of each workload in turn, and prints a table for each.

All tables: `python -m benchmarks --photos DIR`. Some: `--workload tabular --only NAME,…`.
Memory of recordmill by number of rows: `--workload photographs --scale 10000,100000`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.measure import BaselineFailedError
from benchmarks.rows import photographs
from benchmarks.scores import Entry, Score, race
from benchmarks.workloads import PHOTOGRAPHS, WORKLOADS, Workload


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the requested benchmark; returns the exit code."""
    flags = _parser().parse_args(argv)
    try:
        photos = _photos(flags)
        for workload in flags.workload:
            with _work_folder(flags.work) as work:
                run = _scale if flags.scale else _compare
                run(workload, photos, flags, work)
    except (BaselineFailedError, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--photos", type=Path, metavar="DIR", help="JPEG and PNG files, at any depth")
    add("--workload", type=_workloads, default=[*WORKLOADS.values()], metavar="NAME,…")
    add("--rows", type=_count, metavar="N", help="default: depends on the workload")
    add("--only", type=_names, metavar="NAME,…", help="baselines; default: all of the workload")
    add("--repeats", type=_count, default=1, metavar="N", help="number of turns; shows medians")
    add("--scale", type=_counts, metavar="N,…", help="recordmill alone, at these row counts")
    add("--work", type=Path, metavar="DIR", help="for outputs; default: a temporary folder")
    add("--markdown", action="store_true", help="print the results as Markdown")
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return count


def _counts(text: str) -> list[int]:
    return [_count(part) for part in text.split(",")]


def _names(text: str) -> list[str]:
    names = text.split(",")
    _check_known(names, {name for workload in WORKLOADS.values() for name in workload.baselines})
    return names


def _workloads(text: str) -> list[Workload]:
    names = text.split(",")
    _check_known(names, WORKLOADS)
    return [WORKLOADS[name] for name in names]


def _check_known(names: Sequence[str], known: Collection[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r}: expected some of {', '.join(sorted(known))}"
        )


@contextmanager
def _work_folder(given: Path | None) -> Iterator[Path]:
    """Yields a temporary folder, inside the given one if there is one."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=given) as folder:
        yield Path(folder).resolve()


def _compare(
    workload: Workload, photos: Sequence[Path], flags: argparse.Namespace, work: Path
) -> None:
    """Runs all baselines of a workload on one table."""
    rows = flags.rows or workload.rows
    one_row = workload.write(work / "one.csv", photos, 1)
    table = workload.write(work / "table.csv", photos, rows)
    names = [name for name in workload.baselines if not flags.only or name in flags.only]
    entries = [Entry(name, name, table, rows, one_row) for name in names]
    scores = race(entries, flags.repeats, work, _log)
    ratios = report.throughput_ratios(scores, workload.reference)
    header = report.columns(workload.unit, f"× {workload.reference.replace('-', ' ')}")
    _show(f"{workload.name}, {rows:,} {workload.unit}", header, scores, ratios, flags.markdown)


def _scale(
    workload: Workload, photos: Sequence[Path], flags: argparse.Namespace, work: Path
) -> None:
    """Runs recordmill on tables of different sizes."""
    baseline = next(name for name in workload.baselines if name.startswith("recordmill"))
    one_row = workload.write(work / "one.csv", photos, 1)
    entries = [
        Entry(
            title=f"{count:,} {workload.unit}",
            baseline=baseline,
            table=workload.write(work / f"table-{count}.csv", photos, count),
            rows=count,
            one_row=one_row,
        )
        for count in flags.scale
    ]
    scores = race(entries, flags.repeats, work, _log)
    header = report.columns(workload.unit, "peak × first")
    _show(baseline, header, scores, report.memory_ratios(scores), flags.markdown)


def _photos(flags: argparse.Namespace) -> list[Path]:
    if flags.photos is not None:
        return photographs(flags.photos)
    if PHOTOGRAPHS in flags.workload:
        raise ValueError("--photos DIR is required: a folder of JPEG or PNG files")
    return []


def _log(message: str) -> None:
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)


def _show(
    title: str,
    header: Sequence[str],
    scores: Sequence[Score],
    ratios: Sequence[float | None],
    markdown: bool,
) -> None:
    lines = [report.line(score, ratio) for score, ratio in zip(scores, ratios, strict=True)]
    report.show(title, header, lines, markdown)


if __name__ == "__main__":
    sys.exit(main())
