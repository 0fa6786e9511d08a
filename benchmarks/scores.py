"""Lets baselines run in turns, and sums up their runs.

Turns, because a machine's speed drifts: whatever slows one round slows all baselines of it.
Start-up (imports, building a graph) is measured by a run on one row and taken off: what is left is
the rate that a large dataset sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.measure import Run, run_baseline


@dataclass(frozen=True)
class Entry:
    """A baseline and what it is to convert.

    Attributes:
        title: how it is called in the results.
        baseline: which one.
        table: what it converts.
        rows: how many rows that has.
        one_row: the same kind of table with one row.
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
        title: the entry's.
        rows: in its table.
        seconds: from start to end.
        startup_seconds: of the run on one row.
        cpu_seconds: start-up included.
        peak_bytes: of all its processes.
        bytes_shuffled: None if it has no GroupByKey.
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
        """Rows a second, net of start-up; None if start-up is all there is to see."""
        seconds = self.seconds - self.startup_seconds
        return (self.rows - 1) / seconds if seconds > 0 and self.rows > 1 else None


def race(
    entries: Sequence[Entry], repeats: int, work: Path, show: Callable[[str], None]
) -> list[Score]:
    """Returns the score of each entry after all have run in turns.

    Args:
        entries: who takes part.
        repeats: how many turns.
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
