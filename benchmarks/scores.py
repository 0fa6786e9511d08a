"""Runs baselines in turns and summarizes their runs.

Baselines take turns because the speed of a machine drifts: whatever slows one turn slows all
baselines. Start-up (imports, building the graph) is measured by a run on one row and subtracted,
which leaves the rate of a large dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.measure import Run, run_baseline


@dataclass(frozen=True)
class Entry:
    """A baseline and its tables.

    Attributes:
        title: name in the results.
        baseline: name of the baseline.
        table: path of the table to convert.
        rows: number of rows of the table.
        one_row: path of a table with one row of the same kind.
    """

    title: str
    baseline: str
    table: Path
    rows: int
    one_row: Path


@dataclass(frozen=True)
class Score:
    """The medians of an entry's runs.

    Attributes:
        title: of the entry.
        rows: number of rows of the table.
        seconds: wall time, including start-up.
        startup_seconds: wall time of the run on one row.
        cpu_seconds: CPU time, including start-up.
        peak_bytes: memory of all its processes.
        bytes_shuffled: bytes that crossed its GroupByKeys; None if it has none.
    """

    title: str
    rows: int
    seconds: float
    startup_seconds: float
    cpu_seconds: float
    peak_bytes: float
    bytes_shuffled: float | None

    @property
    def rate(self) -> float | None:
        """Rows per second without start-up; None if the run is too short to measure."""
        seconds = self.seconds - self.startup_seconds
        return (self.rows - 1) / seconds if seconds > 0 and self.rows > 1 else None


def race(
    entries: Sequence[Entry], repeats: int, work: Path, show: Callable[[str], None]
) -> list[Score]:
    """Runs all entries in turns and returns their scores.

    Args:
        entries: baselines and their tables.
        repeats: number of turns.
        work: a folder for outputs.
        show: called with a line about each run.
    """
    runs: dict[Entry, list[tuple[Run, Run]]] = {entry: [] for entry in entries}
    for turn in range(repeats):
        for entry in entries:
            first = run_baseline(entry.baseline, entry.one_row, 1, work)
            whole = run_baseline(entry.baseline, entry.table, entry.rows, work)
            runs[entry].append((first, whole))
            show(f"turn {turn + 1}: {entry.title}: {_brief(whole)}; one row: {_brief(first)}")
    return [_score(entry, pairs) for entry, pairs in runs.items()]


def _brief(run: Run) -> str:
    return f"{run.seconds:.1f} s, CPU {run.cpu_seconds:.1f} s, {run.peak_bytes / 1e6:,.0f} MB"


def _score(entry: Entry, pairs: Sequence[tuple[Run, Run]]) -> Score:
    runs = [whole for _, whole in pairs]
    shuffled = [run.bytes_shuffled for run in runs if run.bytes_shuffled is not None]
    return Score(
        title=entry.title,
        rows=entry.rows,
        seconds=median(run.seconds for run in runs),
        startup_seconds=median(first.seconds for first, _ in pairs),
        cpu_seconds=median(run.cpu_seconds for run in runs),
        peak_bytes=median(run.peak_bytes for run in runs),
        bytes_shuffled=median(shuffled) if shuffled else None,
    )
