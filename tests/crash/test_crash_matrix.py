"""Runs are interrupted at their steps on disk: they leave a verified dataset or none.

The next run writes the same bytes as an undisturbed one, rewrites only unfinished shards, and
leaves nothing behind.
"""

from __future__ import annotations

import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.preforked_runner import Ended, PreforkedRunner, on_all
from tests.crash.scenario import Scenario, Stage, content

_ENDED_BY = {signal.SIGKILL: {-signal.SIGKILL}, signal.SIGTERM: {128 + signal.SIGTERM}}


def struck(stage: Stage, ended: Ended, number: int) -> list[str]:
    """Returns what is wrong with the result of a run that got a signal."""
    if ended.code in _ENDED_BY[signal.Signals(number)]:
        return []
    if ended.code == 0:  # it came when all was done
        return [] if (stage.dataset / "_SUCCESS").exists() else ["it ended well, without a dataset"]
    return [f"it ended {ended.code}: {ended.text}"]


TIMES = 7


def chosen(number: int, last: int) -> list[int]:
    """Returns the steps at which to send a signal: some, and for SIGKILL all of publishing."""
    if number == signal.SIGKILL:
        return [*range(1, last - 40, 6), *range(last - 40, last + 1)]
    return [*range(1, last - 25, 8), *range(last - 25, last + 1, 2)]


def test_a_hundred_moments_are_chosen(scenario: Scenario) -> None:
    last = len(scenario.steps)
    steps = [step for number in _ENDED_BY for step in chosen(number, last)]
    assert len(steps) + TIMES * len(_ENDED_BY) >= 100


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_at_chosen_steps(
    number: int, scenario: Scenario, runners: list[PreforkedRunner], every_step: bool
) -> None:
    def play(step: int, runner: PreforkedRunner) -> tuple[str, list[str]]:
        stage = scenario.stage(f"step-{number}-{step}")
        ended = stage.run(runner, step=step, number=number)
        faults = struck(stage, ended, number) + stage.faults(runner)
        if ended.code != 0 and not ended.met_verifier:
            faults.append("the verifier was not alive")
        stage.strike_down()
        return f"step {step}, {ended.steps[-1]}", faults

    last = len(scenario.steps)
    steps = list(range(1, last + 1)) if every_step else chosen(number, last)
    assert on_all(runners, steps, play) == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_at_any_time(
    number: int, scenario: Scenario, runners: list[PreforkedRunner]
) -> None:
    def play(seconds: float, runner: PreforkedRunner) -> tuple[str, list[str]]:
        stage = scenario.stage(f"time-{number}-{seconds}")
        ended = stage.run(runner, seconds=seconds, number=number)
        late = ended.code == 0
        faults = ([] if late else struck(stage, ended, number)) + stage.faults(runner)
        stage.strike_down()
        return f"{seconds} s", faults

    chance = random.Random(number)
    times = [round(chance.uniform(0.05, 3.0), 3) for _ in range(TIMES)]
    assert on_all(runners, times, play) == {}


def test_a_resumed_run_is_interrupted_repeatedly(
    scenario: Scenario, runners: list[PreforkedRunner]
) -> None:
    stage = scenario.stage("again")
    for step in range(12, 150, 12):
        stage.run(runners[0], step=step)
    assert stage.faults(runners[0]) == []


def test_readers_find_a_dataset_at_every_step_of_a_replacement(
    scenario: Scenario, runners: list[PreforkedRunner], every_step: bool, tmp_path: Path
) -> None:
    """At each step readers find the complete old or new dataset."""
    flags = ("--if_exists", "replace", "--seed", "1")

    first = scenario.stage("replace")
    assert first.run(runners[0], *flags[2:]).code == 0
    old = content(first.dataset)
    kept = shutil.copytree(first.output, tmp_path / "old")

    def staged(name: str) -> Stage:
        stage = scenario.stage(name)
        shutil.copytree(kept, stage.output, dirs_exist_ok=True)
        return stage

    ended = first.run(runners[0], "--if_exists", "replace")
    assert ended.code == 0, ended.text
    assert content(first.dataset) == scenario.expected != old
    last = len(ended.steps)

    def play(step: int, runner: PreforkedRunner) -> tuple[str, list[str]]:
        stage = staged(f"replace-{step}")
        struck = stage.run(runner, "--if_exists", "replace", step=step)
        found = content(stage.dataset)
        faults = [] if found in (old, scenario.expected) else ["neither the old one nor the new"]
        if (verified := stage.verify(runner)).code != 0:
            faults.append(f"not verified: {verified.text}")
        again = stage.run(runner, "--if_exists", "replace")
        if again.code != 0 or content(stage.dataset) != scenario.expected or stage.leftovers():
            faults.append(f"ended {again.code}, left {stage.leftovers()}: {again.text}")
        stage.strike_down()
        return f"step {step}, {struck.steps[-1]}", faults

    some = [*range(1, last - 30, 40), *range(last - 30, last + 1, 3)]
    assert on_all(runners, range(1, last + 1) if every_step else some, play) == {}


def test_a_clock_jump_changes_nothing(scenario: Scenario, runners: list[PreforkedRunner]) -> None:
    def play(seconds: float, runner: PreforkedRunner) -> tuple[str, list[str]]:
        stage = scenario.stage(f"clock{seconds}")
        found = faults(stage, stage.run(runner, step=40, clock=seconds))
        struck = replace(stage.order(), step=60)
        stage.strike_down()
        stage = scenario.stage(f"clock{seconds}")
        runner.run(struck)
        return f"{seconds} s", found + faults(stage, stage.run(runner, step=20, clock=seconds))

    def faults(stage: Stage, ended: Ended) -> list[str]:
        if ended.code != 0:
            return [f"it ended {ended.code}: {ended.text}"]
        same = content(stage.dataset) == scenario.expected
        return stage.leftovers() + ([] if same else ["it made other bytes"])

    assert on_all(runners, (-86_400.0 * 400, 86_400.0 * 400), play) == {}
