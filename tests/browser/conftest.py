"""A real browser and the reports to open. A missing browser fails the tests instead of skipping."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.end_to_end.command import recordmill
from tests.end_to_end.tables import write_table
from tests.faulty_dataset import draw

NAMES = ("faults", "rejected", "plain", "numbers")


@dataclass(frozen=True)
class Report:
    """A dataset with its report, and the exit code of its run."""

    dataset: Path
    code: int

    @property
    def url(self) -> str:
        """The URL of the report."""
        return (self.dataset / "report.html").as_uri()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, or the one at $CHROMIUM."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "no Chromium found. Install it (apt-get install chromium), or set CHROMIUM=PATH."
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Reports of a faulty table, a failed run, a small image table and a tabular dataset."""
    folder = tmp_path_factory.mktemp("reports")
    faults = draw(folder / "faults")
    plain = ("--input", str(folder / "sample" / "labels.csv"))
    _write_plain(folder / "sample")
    rows = [{"id": f"r{i}", "x": i * 0.37 - 9, "n": i % 7, "name": "ab"[i % 2]} for i in range(300)]
    table = str(write_table(folder / "numbers.csv", rows))
    numbers = ("--input", table, "--schema", "tabular", "--key_column", "id")
    flags = {
        "faults": faults,
        "rejected": (*faults[:-2], "--max_rejects", "3"),
        "plain": plain,
        "numbers": (*numbers, "--splits", "train=0.8,test=0.2"),
    }
    return {name: _report(name, folder / "out", of_run) for name, of_run in flags.items()}


def _write_plain(folder: Path) -> None:
    """Writes a small table of images without faults."""
    from tests.images import jpeg

    folder.mkdir()
    rows = [{"image": f"{i}.jpg", "label": "ab"[i % 2]} for i in range(8)]
    for i, row in enumerate(rows):
        (folder / row["image"]).write_bytes(jpeg(160, 120, i))
    write_table(folder / "labels.csv", rows)


def _report(name: str, output: Path, flags: tuple[str, ...]) -> Report:
    ended = recordmill("convert", *flags, "--output", output, "--name", name)
    assert ended.code == (4 if name == "rejected" else 0), ended.err
    return Report(output / name / "1.0.0", ended.code)
