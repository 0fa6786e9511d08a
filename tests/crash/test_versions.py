"""Increments and removals are killed at random steps on disk, and run again.

The next run publishes the same bytes as an undisturbed one, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crash.preforked_runner import Ended, Order, PreforkedRunner, on_all
from tests.crash.scenario import content
from tests.images import jpeg

MOMENTS = 20
LAYOUT = ("--splits", "train=0.7,test=0.3", "--num_shards", "train=4,test=2", "--no_report")
REMOVED = ("2.jpg", "7.jpg", "9.jpg")


@dataclass(frozen=True)
class Command:
    """A command that makes a version from a base version.

    Attributes:
        folder: of the images, the tables and out/birds/1.0.0.
        name: "append" or "forget".
    """

    folder: Path
    name: str

    @property
    def versions(self) -> set[str]:
        """The folders that it leaves."""
        return {"append": {"1.0.0", "1.1.0"}, "forget": {"1.0.1"}}[self.name]

    def arguments(self, birds: Path) -> tuple[str, ...]:
        """Returns its arguments for a copy of out/birds."""
        if self.name == "forget":
            flags = ("--keys", f"{self.folder}/keys.txt", "--allow_missing", "--purge")
            return ("forget", str(birds), *flags)
        target = ("--output", str(birds.parent), "--name", "birds", "--version", "1.1.0")
        flags = ("--base", f"{birds}/1.0.0", "--append", *LAYOUT, "--if_exists", "skip")
        return ("convert", "--input", f"{self.folder}/1.csv", *target, *flags)

    def run(self, runner: PreforkedRunner, birds: Path, step: int = 0) -> Ended:
        """Runs it, and kills it before a step."""
        report = birds.parent.with_suffix(".report")
        return runner.run(Order(self.arguments(birds), str(birds), str(report), step))

    def stage(self, name: str) -> Path:
        """Returns a new copy of out/birds."""
        return shutil.copytree(self.folder / "out", self.folder / f"{self.name}-{name}") / "birds"

    def outcome(self, birds: Path) -> dict[str, Any]:
        """Returns what must be the same: all content but the time of removal and the paths."""
        found = {}
        for version in birds.iterdir():
            files = content(version)
            manifest = json.loads(files.pop("manifest.json"))
            del files["_SUCCESS"], manifest["config"], manifest["fingerprint"]  # they state paths
            if removal := files.pop("removal.json", b""):
                del manifest["sidecars"]["removal.json"]
                files["removal.json"] = {**json.loads(removal), "removed_at": ""}
            found[version.name] = {**files, "manifest.json": manifest}
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, runners: list[PreforkedRunner]) -> Path:
    """The images of two days, and the dataset of the first one."""
    folder = tmp_path_factory.mktemp("versions")
    for i in range(18):
        (folder / f"{i}.jpg").write_bytes(jpeg(16 + i, 12 + i, seed=i))
    for day, ids in enumerate((range(12), range(12, 18))):
        rows = "".join(f"{i}.jpg,{'ab'[i % 2]}\n" for i in ids)
        (folder / f"{day}.csv").write_text(f"image,label\n{rows}")
    (folder / "keys.txt").write_text("\n".join(REMOVED))
    command = ("convert", "--input", f"{folder}/0.csv", "--output", f"{folder}/out")
    order = Order((*command, "--name", "birds", *LAYOUT), f"{folder}/out", f"{folder}/report")
    assert (ended := runners[0].run(order)).code == 0, ended.text
    return folder


@pytest.mark.parametrize("name", ["append", "forget"])
def test_a_killed_command_is_run_again(
    name: str, folder: Path, runners: list[PreforkedRunner], every_step: bool
) -> None:
    command = Command(folder, name)
    birds = command.stage("undisturbed")
    undisturbed = command.run(runners[0], birds)
    assert undisturbed.code == 0, undisturbed.text
    expected, last = command.outcome(birds), len(undisturbed.steps)
    assert expected.keys() == command.versions

    def play(step: int, runner: PreforkedRunner) -> tuple[str, list[str]]:
        birds, faults = command.stage(f"step-{step}"), []
        struck = command.run(runner, birds, step)
        if (again := command.run(runner, birds)).code != 0:
            faults.append(f"the next run ended {again.code}: {again.text}")
        # The lock file of a killed deletion may stay: it is not locked, and names only a process.
        (birds / ".1.0.0.lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # as may its folder, if nothing is in it any more
            (birds / "1.0.0").rmdir()
        if (left := {path.name for path in birds.iterdir()}) != command.versions:
            faults.append(f"the next run left {sorted(left)}: {again.text}")
        elif command.outcome(birds) != expected:
            faults.append(f"the next run made other bytes: {again.text}")
        return f"step {step}, {struck.steps[-1]}", faults

    steps = range(1, last + 1)
    moments = steps if every_step else sorted(random.Random(name).sample(steps, MOMENTS))
    assert on_all(runners, moments, play) == {}
