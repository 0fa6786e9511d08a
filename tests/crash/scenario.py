"""A scenario: a conversion, and the checks after one of its runs was interrupted."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from tests.crash.preforked_runner import Ended, Order, PreforkedRunner

_VOLATILE = {"run.json", "report.html"}
_FLAGS = (
    "--max_rejects",
    "1",
    "--no_report",
    "--splits",
    "train=0.7,test=0.3",
    "--num_shards",
    "train=3,test=2",
)


@dataclass(frozen=True)
class Scenario:
    """A table with images, and the dataset that an undisturbed run writes.

    Attributes:
        folder: of table and images.
        expected: the files of the dataset that are the same in each run.
        steps: of the undisturbed run.
    """

    folder: Path
    expected: dict[str, bytes]
    steps: list[str]

    @classmethod
    def played(cls, folder: Path, runner: PreforkedRunner) -> Scenario:
        """Runs the scenario without a disturbance."""
        scenario = cls(folder, {}, [])
        stage = scenario.stage("undisturbed")
        ended = stage.run(runner)
        assert ended.code == 0, ended.text
        assert "verified" in stage.verify(runner).text
        assert stage.leftovers() == []
        return replace(scenario, expected=content(stage.dataset), steps=ended.steps)

    def stage(self, name: str) -> Stage:
        """Returns a new stage."""
        output = self.folder / "out" / name
        output.mkdir(parents=True)
        return Stage(self, output)


@dataclass(frozen=True)
class Stage:
    """An output folder for one case.

    Attributes:
        scenario: the conversion to run.
        output: the output folder.
    """

    scenario: Scenario
    output: Path

    @property
    def dataset(self) -> Path:
        """Where the dataset is published."""
        return self.output / "birds" / "1.0.0"

    @property
    def checkpoints(self) -> int:
        """The number of finished shards kept for the next run."""
        return len(list((self.output / "birds" / ".1.0.0.run").glob("checkpoints/*.json")))

    def order(self, *flags: str, table: str = "labels.csv", **strike: float) -> Order:
        """Returns the order to convert, with its disturbance."""
        target = ("--input", str(self.scenario.folder / table), "--output", str(self.output))
        flags = flags or ("--if_exists", "skip")
        arguments = ("convert", *target, "--name", "birds", *_FLAGS, *flags)
        report = self.output.with_suffix(".report")
        return Order(arguments, str(self.output / "birds"), str(report), **strike)  # type: ignore[arg-type]

    def run(self, runner: PreforkedRunner, *flags: str, **strike: float) -> Ended:
        """Converts."""
        return runner.run(self.order(*flags, **strike))

    def verify(self, runner: PreforkedRunner) -> Ended:
        """Verifies."""
        report = self.output.with_suffix(".report")
        return runner.run(Order(("verify", str(self.dataset)), str(self.output), str(report)))

    def leftovers(self) -> list[str]:
        """Returns the files beside the dataset that should not exist."""
        beside = [p.name for p in (self.output / "birds").iterdir() if p.name != "1.0.0"]
        names = {str(p.relative_to(self.dataset)) for p in self.dataset.rglob("*") if p.is_file()}
        expected = self.scenario.expected.keys() | _VOLATILE
        return sorted([*beside, *(names - expected if self.scenario.expected else [])])

    def faults(self, runner: PreforkedRunner) -> list[str]:
        """Returns what is wrong after an interrupted run: there must be a verified dataset or none.

        Runs again, and returns what is wrong with that as well.
        """
        found = []
        if (self.dataset / "_SUCCESS").exists():
            if (ended := self.verify(runner)).code != 0:
                found.append(f"committed, but not verified: {ended.text}")
        elif (self.dataset / "dataset_info.json").exists():
            found.append("no mark, but dataset_info.json is there")
        waiting = self.checkpoints
        ended = self.run(runner)
        if ended.code != 0:
            return [*found, f"the next run ended {ended.code}: {ended.text}"]
        if content(self.dataset) != self.scenario.expected:
            found.append(f"the next run made other bytes: {ended.text}")
        if self.leftovers():
            found.append(f"the next run left {self.leftovers()}")
        run = json.loads((self.dataset / "run.json").read_bytes())
        if "verified and published" in ended.text and run["shards_reused"] < waiting:
            found.append(f"of {waiting} finished shards it reused {run['shards_reused']}")
        return found

    def strike_down(self) -> None:
        """Deletes the output folder."""
        shutil.rmtree(self.output)


def content(dataset: Path) -> dict[str, bytes]:
    """Returns the files of a dataset that must be the same in each run; rejects are sorted."""
    files = [path for path in dataset.rglob("*") if path.is_file() and path.name not in _VOLATILE]
    return {
        str(path.relative_to(dataset)): b"\n".join(sorted(path.read_bytes().splitlines()))
        if path.parent.name == "rejects"
        else path.read_bytes()
        for path in files
    }
