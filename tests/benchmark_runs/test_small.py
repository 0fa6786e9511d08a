"""Each benchmark runs on a small input, and ends with its table: no figure is asserted."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks.scores import Entry, race
from benchmarks.workloads import WORKLOADS
from tests.images import jpeg

ROOT = Path(benchmarks.__path__[0]).parent
ROWS = 12

# The arguments of each benchmark, and a part of what it prints. PHOTOS and FOLDER are replaced.
SMALL = {
    "near_duplicates": (["--photos", "PHOTOS", "--edited", "2"], "recordmill: issues of"),
    "scaling": ([], "| workers |"),
    "shards": (["--rows", "30", "--shards", "3"], "| 30 | 3 |"),
    "splits": (["--rows", "200", "--methods", "exact", "--kinds", "single"], "single exact"),
    "structure": ([], "| lines of code |"),
    "text_ranges": (["--rows", "500", "--processes", "1", "--repeats", "1"], "64"),
    "verifying": (["--records", "20"], "of reading through CRC"),
    "weak_scaling": (["--photos", "PHOTOS", "--rows", "8"], "| DirectRunner | 2 |"),
}

# Benchmarks that have a test of their own, or take minutes whatever their input: the soak test
# compares tenths of a run, and `__main__` installs the packages of all baselines.
OTHERS = {"reading", "slow_files", "soak", "__main__"}


def _programs() -> set[str]:
    """Returns the modules that can be run."""
    found = set()
    for module in pkgutil.iter_modules(benchmarks.__path__):
        path = Path(benchmarks.__path__[0], module.name)
        program = path / "__main__.py" if module.ispkg else path.with_suffix(".py")
        if program.exists() and 'if __name__ == "__main__"' in program.read_text("utf-8"):
            found.add(module.name)
    return found


def test_every_benchmark_runs_small() -> None:
    assert _programs() == {*SMALL, *OTHERS}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(4):
        (folder / f"{seed}.jpg").write_bytes(jpeg(seed=seed))
    return folder


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_prints_its_table(name: str, photos: Path) -> None:
    arguments, expected = SMALL[name]
    given = [str(photos) if argument == "PHOTOS" else argument for argument in arguments]
    command = [sys.executable, "-m", f"benchmarks.{name}", *given]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr
    assert expected in ended.stdout


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_recordmill_converts_the_table_of_a_workload(
    workload: benchmarks.workloads.Workload,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In this environment: the other baselines need packages of their own."""
    monkeypatch.setattr("benchmarks.measure.python_of", lambda _: sys.executable)
    images = sorted(photos.iterdir())
    one = workload.write(tmp_path / "one.csv", images, 1)
    table = workload.write(tmp_path / "table.csv", images, ROWS)
    names = [name for name in workload.baselines if name.startswith("recordmill")]
    entries = [Entry(name, name, table, ROWS, one) for name in names]
    scores = race(entries, 1, tmp_path, print)
    assert [score.title for score in scores] == names


@pytest.mark.parametrize("name", sorted(OTHERS - {"__main__"}))
def test_the_others_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").main
