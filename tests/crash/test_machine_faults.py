"""Faults of the machine other than stopping, with the same checks afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.preforked_runner import ROOT, PreforkedRunner
from tests.crash.scenario import Scenario, Stage, content

as_root = pytest.mark.skipif(os.getuid() != 0, reason="mounts and changes of user need root")


@pytest.fixture
def stage(scenario: Scenario, request: pytest.FixtureRequest) -> Stage:
    return scenario.stage(request.node.name)


@pytest.fixture
def mount(stage: Stage) -> Iterator[Path]:
    """The output folder on a separate disk of 96 KiB."""
    target = stage.output / "birds"
    target.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(target)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file systems can be mounted here: {mounted.stderr}")
    yield target
    subprocess.run(["umount", str(target)], check=True)


def sizes(target: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(target)], check=True)


@as_root
def test_a_full_disk(stage: Stage, mount: Path, runners: list[PreforkedRunner]) -> None:
    """The disk is full at any moment, from the lock file to the commit marker."""
    faults = {}
    for kib in range(4, 100, 8):
        sizes(mount, f"{kib}k")
        ended = stage.run(runners[0])
        if ended.code == 0:
            break
        assert ended.code in (1, 2, 3), ended.text
        assert "No space left" in ended.text, ended.text
        sizes(mount, "4m")
        if found := stage.faults(runners[0]):
            faults[kib] = found
        for path in mount.iterdir():
            shutil.rmtree(path)
    assert faults == {}
    assert kib > 20, "the disk was never full"


@as_root
def test_a_disk_becomes_read_only(
    stage: Stage, mount: Path, runners: list[PreforkedRunner]
) -> None:
    sizes(mount, "4m")

    over = threading.Event()

    def make_read_only() -> None:
        while not any(mount.glob(".1.0.0.run/checkpoints/birds-train.*.json")):
            if over.wait(0.001):
                return
        while subprocess.run(
            ["mount", "-o", "remount,ro", str(mount)], capture_output=True
        ).returncode:
            time.sleep(0.001)  # a file was open for writing

    thread = threading.Thread(target=make_read_only)
    thread.start()
    ended = stage.run(runners[0])
    over.set()
    thread.join()
    if ended.code:
        assert "Read-only file system" in ended.text
    ended = stage.run(runners[0], "--if_exists", "replace")
    assert (ended.code, "Read-only file system" in ended.text) == (2, True)
    assert "Traceback" not in ended.text
    subprocess.run(["mount", "-o", "remount,rw", str(mount)], check=True)
    assert stage.faults(runners[0]) == []


def test_a_permission_is_lost_during_a_run(stage: Stage, runners: list[PreforkedRunner]) -> None:
    run = stage.output / "birds" / ".1.0.0.run"
    over = threading.Event()

    def take_it() -> None:
        while not any(run.glob("checkpoints/*.json")):
            if over.wait(0.001):
                return
        for folder in (run / "dataset", run / "dataset" / ".staging"):
            folder.chmod(0o555)

    thread = threading.Thread(target=take_it)
    thread.start()
    ended = stage.run(runners[0], plain=True)
    over.set()
    thread.join()
    assert ended.code == 1, ended.text
    assert "Permission denied" in ended.text
    for folder in (run / "dataset", run / "dataset" / ".staging"):
        folder.chmod(0o755)
    assert stage.faults(runners[0]) == []


def test_an_input_changes_while_it_is_read(
    scenario: Scenario, stage: Stage, runners: list[PreforkedRunner]
) -> None:
    """A row is added after the analyze pass: nothing is published; the next run publishes it."""
    table = scenario.folder / "growing.csv"
    text = (scenario.folder / "labels.csv").read_text()
    table.write_text(text)
    stop = threading.Event()

    def grow() -> None:
        while not any(stage.output.glob("birds/.1.0.0.run")):
            if stop.wait(0.0005):
                return
        for i in range(3000):
            with table.open("a") as stream:
                stream.write(f"more {i}.jpg,a\n")
            if stop.wait(0.0005):
                return

    thread = threading.Thread(target=grow)
    thread.start()
    order = stage.order(table="growing.csv")
    ended = runners[0].run(order)
    stop.set()
    thread.join()
    assert ended.code in (3, 4), ended.text
    assert not (stage.dataset / "_SUCCESS").exists()
    table.write_text(text)
    ended = runners[0].run(order)
    assert ended.code == 0, ended.text
    shards = {name: data for name, data in scenario.expected.items() if "tfrecord" in name}
    assert {n: d for n, d in content(stage.dataset).items() if "tfrecord" in n} == shards


def test_memory_runs_out(stage: Stage, runners: list[PreforkedRunner]) -> None:
    """The kernel kills the process with the most memory: here the decoder process, each time."""
    process = subprocess.Popen(
        [sys.executable, "-m", "recordmill", *stage.order().arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    killed = set[int]()
    while process.poll() is None:
        for child in set(_children_of(process.pid)) - killed:
            with contextlib.suppress(OSError):  # it has ended by itself
                if b"sandbox import serve" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGKILL)
                    killed.add(child)
        time.sleep(0.01)
    _, said = process.communicate()
    assert killed
    assert "Traceback" not in said
    if process.returncode != 0:
        assert process.returncode == 4, said
        assert "1 decoder_crash, 1 truncated" in said
    assert stage.faults(runners[0]) == []


def test_concurrent_runs(scenario: Scenario, stage: Stage, runners: list[PreforkedRunner]) -> None:
    ends = []
    threads = [
        threading.Thread(target=lambda z=runner, n=n: ends.append(z.run(n)))
        for runner, n in zip(
            runners,
            [stage.order("--if_exists", "fail"), _elsewhere(stage)],
            strict=True,
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended.code for ended in ends) == [0, 5]
    (loser,) = [ended for ended in ends if ended.code == 5]
    assert "another run is writing it (" in loser.text or "is there" in loser.text
    assert content(stage.dataset) == scenario.expected
    assert stage.leftovers() == []


def _elsewhere(stage: Stage):
    """Returns the same order with another report file."""
    from dataclasses import replace

    return replace(stage.order("--if_exists", "fail"), report=f"{stage.output}.other")


def test_children_do_not_outlive_a_run(scenario: Scenario, stage: Stage, tmp_path: Path) -> None:
    """After SIGTERM and SIGKILL, decoder processes end with the run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        arguments = [*stage.order("--if_exists", "replace").arguments, "--image", "max_side=8"]
        process = subprocess.Popen(
            [sys.executable, "-m", "recordmill", *arguments],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        children = _children(process.pid)
        os.kill(process.pid, number)
        _, said = process.communicate(timeout=60)
        deadline = time.monotonic() + 20
        while alive := [child for child in children if _is_alive(child)]:
            assert time.monotonic() < deadline, alive
            time.sleep(0.05)
        if number == signal.SIGTERM:
            assert process.returncode == 143
            assert "interrupted by SIGTERM" in said
            assert "Run the command again" in said
            assert "Traceback" not in said
            run = json.loads((stage.dataset / "run.json").read_bytes())
            assert (run["state"], run["exit_code"]) == ("interrupted", 143)


def _children(pid: int) -> list[int]:
    """Waits until a child of a process decodes images, and returns all its children."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        children = _children_of(pid)
        if any(map(_decodes, children)):
            return children
        time.sleep(0.01)
    raise AssertionError("none of its children ever decoded images")


def _decodes(pid: int) -> bool:
    try:
        return b"sandbox import serve" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def _children_of(pid: int) -> list[int]:
    """Returns the children of all threads of a process."""
    found = list[int]()
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found += map(int, listing.read_text().split())
    return found


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
