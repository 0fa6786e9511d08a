"""Prints scores as a table, on the terminal or as Markdown, and describes the machine."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.scores import Score

_PACKAGES = (
    "recordmill",
    "apache-beam",
    "tensorflow",
    "tensorflow-datasets",
    "Pillow",
    "protobuf",
    "pyarrow",
)
_CPUINFO = Path("/proc/cpuinfo")
_NONE = "-"


def columns(unit: str, ratio: str) -> tuple[str, ...]:
    """Returns the header of the table.

    Args:
        unit: name of a row, "images" or "rows".
        ratio: title of the last column.
    """
    times = ("wall s", "start-up s", f"{unit}/s net", "CPU s")
    return ("baseline", *times, "peak MB", "shuffled B/row", ratio)


def line(score: Score, ratio: float | None) -> tuple[str, ...]:
    """Returns the cells of a score.

    Args:
        score: of a baseline.
        ratio: value of the last column; None if unknown.
    """
    shuffled = score.bytes_shuffled
    return (
        score.title,
        f"{score.seconds:.1f}",
        f"{score.startup_seconds:.1f}",
        _NONE if score.rate is None else f"{score.rate:,.0f}",
        f"{score.cpu_seconds:.1f}",
        f"{score.peak_bytes / 1e6:,.0f}",
        _NONE if shuffled is None else f"{shuffled / score.rows:,.0f}",
        _NONE if ratio is None else f"{ratio:.2f}",
    )


def throughput_ratios(scores: Sequence[Score], baseline: str) -> list[float | None]:
    """Returns the ratio of each rate to that of one baseline; None where either is unknown.

    Args:
        scores: of all baselines.
        baseline: title of the score to compare with.
    """
    rates = {score.title: score.rate for score in scores}
    base = rates.get(baseline)
    return [rate / base if rate and base else None for rate in rates.values()]


def memory_ratios(scores: Sequence[Score]) -> list[float | None]:
    """Returns the ratio of each peak memory to the first one."""
    return [score.peak_bytes / scores[0].peak_bytes for score in scores]


def show(title: str, header: Sequence[str], lines: Sequence[Sequence[str]], markdown: bool) -> None:
    """Prints a table and, below it, the machine.

    Args:
        title: of the table.
        header: titles of the columns.
        lines: cells of each line.
        markdown: whether to print Markdown instead of a terminal table.
    """
    if markdown:
        print(f"### {title}\n", _markdown(header, lines), f"\n{machine()}\n", sep="\n", flush=True)
        return
    console = Console()
    console.print(title, _table(header, lines), sep="\n", highlight=False)
    console.print(machine(), highlight=False)


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """Returns a narrow table: headers break at every space, figures never."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, name in enumerate(header):
        words = name.replace(" ", "\n")
        table.add_column(words, justify="right" if number else "left", no_wrap=True)
    for cells in lines:
        table.add_row(*cells)
    return table


def _markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def machine() -> str:
    """Returns a description of the machine: cores, CPU, memory, Python and packages."""
    memory = psutil.virtual_memory().total / 2**30
    cores = f"{os.cpu_count()} cores ({_cpu_model()}), {memory:.0f} GiB memory"
    versions = ", ".join(f"{name} {version}" for name, version in _versions())
    return f"{cores}, {platform.system()}, Python {platform.python_version()}, {versions}"


def _cpu_model() -> str:
    """Returns the model of the CPU, which Python's platform module does not know on Linux."""
    if not _CPUINFO.exists():
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", _CPUINFO.read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _versions() -> list[tuple[str, str]]:
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return found
