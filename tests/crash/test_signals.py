"""Processes get signals at any moment, from their first imports on: none shows a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.crash.preforked_runner import ROOT, PreforkedRunner
from tests.crash.scenario import Scenario, Stage

BOOT_SECONDS = 0.4
"""Until then Python may still start, and the signal is Python's to handle."""

NOISE = ("Traceback", "Exception ignored", "resource_tracker", "Error")


def started(stage: Stage, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "recordmill", *stage.order().arguments, *flags]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def alive_in(session: int) -> list[str]:
    """Returns the commands of a session that are still running, except for zombies."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def faults(process: subprocess.Popen[str], number: int) -> list[str]:
    """Returns what is wrong with the result of a process that got a signal."""
    said, _ = process.communicate(timeout=120)
    found = [said] if any(word in said for word in NOISE) else []
    if process.returncode not in (0, -number if number == signal.SIGKILL else 128 + number):
        found.append(f"it ended {process.returncode}: {said}")
    deadline = time.monotonic() + 20
    while left := alive_in(process.pid):
        if time.monotonic() > deadline:
            return [*found, f"{left} outlived it"]
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("number", "to_all"),
    [(signal.SIGTERM, False), (signal.SIGINT, True), (signal.SIGKILL, False)],
)
def test_a_signal_at_any_moment_of_a_process(
    number: int, to_all: bool, scenario: Scenario, runners: list[PreforkedRunner]
) -> None:
    """A terminal sends Ctrl-C to all processes, including children that are starting."""
    wrong = {}
    for seconds in [BOOT_SECONDS + 0.5 * i for i in range(5)]:
        stage = scenario.stage(f"outside-{number}-{seconds:.1f}")
        process = started(stage)
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):  # a fast machine is done by now
            (os.killpg if to_all else os.kill)(process.pid, number)
        if found := faults(process, number) + stage.faults(runners[0]):
            wrong[seconds] = found
        stage.strike_down()
    assert wrong == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_worker_processes_end_with_the_run(
    number: int, scenario: Scenario, runners: list[PreforkedRunner]
) -> None:
    """Even if the signal arrives early and workers wait for a runner that has ended."""
    stage = scenario.stage(f"workers-{number}")
    flags = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    process = started(stage, *flags)
    deadline = time.monotonic() + 60
    while not any("sdk_worker_main" in command for command in alive_in(process.pid)):
        assert time.monotonic() < deadline, "no worker was started"
        time.sleep(0.01)
    os.kill(process.pid, number)
    assert faults(process, number) + stage.faults(runners[0]) == []


@pytest.mark.parametrize("command", ["convert", "inspect", "verify", "--help"])
@pytest.mark.parametrize("closed", ["0<&- 1>&- 2>&-", ">/dev/full", "| true"])
def test_output_that_nobody_reads(
    command: str, closed: str, scenario: Scenario, tmp_path: Path
) -> None:
    stage = scenario.stage(f"output-{command}-{len(closed)}")
    dataset = scenario.folder / "out" / "undisturbed" / "birds" / "1.0.0"
    arguments = stage.order().arguments if command == "convert" else (command, str(dataset))
    shell = f'("$@"; echo $? >"$CODE") {closed}'
    done = subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, "-m", "recordmill", *arguments],
        cwd=ROOT,
        env={**os.environ, "CODE": str(tmp_path / "code")},
        capture_output=True,
        text=True,
    )
    assert not any(word in done.stderr for word in NOISE), done.stderr
    lost = closed == ">/dev/full" and command in ("inspect", "verify")
    assert (tmp_path / "code").read_text() == f"{int(lost)}\n", done.stderr
    if command == "convert":
        assert (stage.dataset / "_SUCCESS").exists()
