"""Runs all baselines on the same photographs.

All baselines, on 10,000 rows: `python -m benchmarks --photos DIR`. Memory of recordmill by number
of rows: add `--scale 10000,100000`. Without images: `python -m benchmarks --tabular 1000000`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.measure import BASELINES, BaselineFailedError
from benchmarks.rows import photographs, write_table, write_tabular
from benchmarks.scores import Entry, Score, race


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the requested benchmark; returns the exit code."""
    flags = _parser().parse_args(argv)
    try:
        with _work_folder(flags.work) as work:
            if flags.tabular:
                _tabular(flags, work)
            elif flags.scale:
                _scale(flags, work)
            else:
                _compare(flags, work)
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
    add("--rows", type=_count, default=10_000, metavar="N", help="default: 10000")
    add("--only", type=_names, default=BASELINES, metavar="NAME,…", help=", ".join(BASELINES))
    add("--repeats", type=_count, default=1, metavar="N", help="number of turns; shows medians")
    add("--scale", type=_counts, metavar="N,…", help="recordmill alone, at these row counts")
    add("--tabular", type=_count, metavar="N", help="recordmill alone, N rows without images")
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
    """Returns the named baselines in the order of BASELINES."""
    names = text.split(",")
    if unknown := [name for name in names if name not in BASELINES]:
        known = ", ".join(BASELINES)
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected some of {known}")
    return [name for name in BASELINES if name in names]


@contextmanager
def _work_folder(given: Path | None) -> Iterator[Path]:
    """Yields a temporary folder, inside the given one if there is one."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=given) as folder:
        yield Path(folder).resolve()


def _compare(flags: argparse.Namespace, work: Path) -> None:
    """Runs all baselines on one table."""
    photos = _photos(flags)
    one_row = write_table(work / "one.csv", photos, 1)
    table = write_table(work / "table.csv", photos, flags.rows)
    entries = [Entry(name, name, table, flags.rows, one_row) for name in flags.only]
    scores = race(entries, flags.repeats, work, _log)
    ratios = report.throughput_ratios(scores, baseline="bare-decode")
    _show(report.columns("images", "× bare decode"), scores, ratios, flags.markdown)


def _scale(flags: argparse.Namespace, work: Path) -> None:
    """Runs recordmill on tables of different sizes."""
    photos = _photos(flags)
    one_row = write_table(work / "one.csv", photos, 1)
    entries = [
        Entry(
            title=f"{count:,} rows",
            baseline="recordmill",
            table=write_table(work / f"table-{count}.csv", photos, count),
            rows=count,
            one_row=one_row,
        )
        for count in flags.scale
    ]
    scores = race(entries, flags.repeats, work, _log)
    header = report.columns("images", "peak × first")
    _show(header, scores, report.memory_ratios(scores), flags.markdown)


def _tabular(flags: argparse.Namespace, work: Path) -> None:
    """Runs recordmill on a table without images."""
    one_row = write_tabular(work / "one.csv", 1)
    table = write_tabular(work / "table.csv", flags.tabular)
    title = f"{flags.tabular:,} rows"
    entry = Entry(title, "recordmill-tabular", table, flags.tabular, one_row)
    scores = race([entry], flags.repeats, work, _log)
    header = report.columns("rows", "peak × first")
    _show(header, scores, report.memory_ratios(scores), flags.markdown)


def _photos(flags: argparse.Namespace) -> list[Path]:
    if flags.photos is None:
        raise ValueError("--photos DIR is needed: a folder of JPEG or PNG files")
    return photographs(flags.photos)


def _log(message: str) -> None:
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)


def _show(
    header: Sequence[str],
    scores: Sequence[Score],
    ratios: Sequence[float | None],
    markdown: bool,
) -> None:
    lines = [report.line(score, ratio) for score, ratio in zip(scores, ratios, strict=True)]
    report.show(header, lines, markdown)


if __name__ == "__main__":
    sys.exit(main())
