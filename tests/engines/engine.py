"""Starts and stops real engines for the tests, and reads their own metrics."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from apache_beam.coders import VarIntCoder

from recordmill.transforms.workers.progress import NAMESPACE

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "local" / "engine.sh"
_START_SECONDS = 900  # the first one downloads
_PORTS = 5
_COUNTER = "beam:metric:user:sum_int64:v1"


@dataclass(frozen=True)
class Engine:
    """An engine of `deploy/local/engine.sh`, with its own folder and ports.

    Attributes:
        name: of the engine in the script.
        folder: for its logs and process ids.
        port: where it answers.
        workers: port of the worker pool; None for workers in the command.
        memory: of a task manager, or an executor.
        retries: of a task that fails.
    """

    name: str
    folder: Path
    port: int
    workers: int | None
    memory: str = "1g"
    retries: int = 3

    def start(self) -> tuple[str, ...]:
        """Starts missing processes; returns the Beam options, the last line of output."""
        flags = ("--workers",) if self.workers else ()
        options = self._script("start", *flags).stdout.splitlines()[-1]
        return tuple(shlex.split(options))

    def stop(self) -> None:
        """Stops the engine and checks that no process is left."""
        before = self.processes()
        self._script("stop")
        _, alive = psutil.wait_procs(before, timeout=10)
        assert not alive, alive
        assert self._script("status", check=False).returncode == 1 or self.name == "prism"

    def processes(self) -> list[psutil.Process]:
        """Returns all processes of the engine: launched ones and their children."""
        found = [psutil.Process(pid) for pid in self.pids().values()]
        return [each for one in found for each in (one, *one.children(recursive=True))]

    def pids(self) -> dict[str, int]:
        """Returns the ids of the launched processes by name."""
        files = (self.folder / self.name).glob("*.pid")
        found = {file.stem: int(file.read_text().split()[0]) for file in files}
        return {name: pid for name, pid in found.items() if psutil.pid_exists(pid)}

    def lose(self, name: str) -> psutil.Process:
        """Forgets a process, so that the next start launches another; returns its id."""
        process = psutil.Process(self.pids()[name])
        (self.folder / self.name / f"{name}.pid").unlink()
        return process

    def child(self, name: str, text: str) -> psutil.Process:
        """Returns the youngest process below one that has a text in its command line."""
        below = psutil.Process(self.pids()[name]).children(recursive=True)
        return max(
            (process for process in below if text in _command_line(process)),
            key=lambda process: process.create_time(),
        )

    def _script(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHON": sys.executable,
            "RECORDMILL_RUN": str(self.folder),
            "ENGINE_PORT": str(self.port),
            "ENGINE_MEMORY": self.memory,
            "ENGINE_RETRIES": str(self.retries),
            "WORKER_PORT": str(self.workers or 0),
        }
        command = [str(SCRIPT), arguments[0], self.name, *arguments[1:]]
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_START_SECONDS
        )
        assert not check or ended.returncode == 0, ended.stderr
        return ended


def _command_line(process: psutil.Process) -> str:
    """Returns the command line of a process; empty if it has ended or is a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def free_ports(number: int = _PORTS) -> int:
    """Returns the first of consecutive free ports, from a different range in each test process.

    They are below 32,768, where Linux begins to give ports to connections of any other program.
    """
    for port in range(20_000 + os.getpid() % 120 * 100, 32_768, number):
        if all(_is_free(port + i) for i in range(number)):
            return port
    raise AssertionError("no free ports")


def engine_for(name: str, with_workers: bool, folder: Path, retries: int = 3) -> Engine:
    """Returns an engine with free ports."""
    port = free_ports()
    workers = port + 4 if with_workers else None
    return Engine(name, folder / "engine", port, workers, retries=retries)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return tried.connect_ex(("127.0.0.1", port)) != 0


def shuffled_on_flink(port: int) -> int:
    """Returns the bytes that the last finished job of a Flink cluster shuffled.

    Counts the bytes read by vertices with a keyed or rebalanced input.
    """
    job = _last_job(port)
    shuffling = {
        node["id"]
        for node in job["plan"]["nodes"]
        if any(
            edge["ship_strategy"] not in ("FORWARD", "Forward", "BROADCAST", "Broadcast")
            for edge in node.get("inputs", ())
        )
    }
    return sum(v["metrics"]["read-bytes"] for v in job["vertices"] if v["id"] in shuffling)


def counters_on_flink(port: int) -> dict[str, int]:
    """Returns our counters of the last finished job of a Flink cluster, summed over its vertices.

    Flink's page shows them as accumulators of each vertex.
    """
    job, total = _last_job(port), Counter[str]()
    for vertex in job["vertices"]:
        path = f"jobs/{job['jid']}/vertices/{vertex['id']}/accumulators"
        for found in _get(f"http://127.0.0.1:{port}/{path}")["user-accumulators"]:
            for metric in json.loads(found["value"])["metrics"].get("attempted", ()):
                labels = metric["labels"]
                if metric["urn"] == _COUNTER and labels["NAMESPACE"] == NAMESPACE:
                    count = VarIntCoder().decode(base64.b64decode(metric["payload"]))
                    total[labels["NAME"]] += count
    return dict(total)


def _last_job(port: int) -> Any:
    jobs = _get(f"http://127.0.0.1:{port}/jobs/overview")["jobs"]
    finished = [job for job in jobs if job["state"] == "FINISHED"]
    # A job can fail although its command succeeded: a busy machine misses Flink's heartbeats after
    # the dataset is published.
    assert finished, f"no job has finished: {[_failure(port, job) for job in jobs]}"
    last = max(finished, key=lambda job: job["end-time"])
    return _get(f"http://127.0.0.1:{port}/jobs/{last['jid']}")


def _failure(port: int, job: dict[str, Any]) -> str:
    """Returns the state of a job, and the first lines of the exceptions that ended it."""
    found = _get(f"http://127.0.0.1:{port}/jobs/{job['jid']}/exceptions")
    raised = [entry["stacktrace"].splitlines()[0] for entry in found["exceptionHistory"]["entries"]]
    return f"{job['state']} {raised}"


def shuffled_on_spark(event_log: Path) -> int:
    """Returns the bytes that the tasks in a Spark event log wrote for shuffles."""
    return sum(
        event["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
        for event in _events(event_log)
        if event["Event"] == "SparkListenerTaskEnd" and "Task Metrics" in event
    )


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own cluster
        return json.load(answer)


def running_on_flink(port: int) -> bool:
    """Returns whether a Flink cluster has a job that has not ended."""
    jobs = _get(f"http://127.0.0.1:{port}/jobs/overview")["jobs"]
    return any(job["state"] not in ("FINISHED", "FAILED", "CANCELED") for job in jobs)
