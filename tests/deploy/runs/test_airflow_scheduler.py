"""A backfill under a real scheduler: API server, DAG processor, and tasks in processes."""

from __future__ import annotations

import csv
import json
import os
import secrets
import shutil
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from tests.deploy.runs.airflow_home import settings, shards, write
from tests.deploy.runs.environments import ROOT, run
from tests.openlineage_schema import validate

DAYS = ["2026-01-10", "2026-01-11", "2026-01-12"]
VERSIONS = ["2026.1.10", "2026.1.11", "2026.1.12"]
FLAGS = ["--max_rejects", "10", "--num_shards", "4", "--columns", "label=label"]
ROWS = 60
"""The valid rows of the sample; the faulty ones follow."""

_DEADLINE = 240
SERVICES = ("api-server", "scheduler", "dag-processor")


class Task(NamedTuple):
    """A task of the backfill, with the state of its run.

    Attributes:
        run: the state of the run of its day.
        state: its own state; None while it waits.
        attempts: how often it was started.
    """

    run: str
    state: str | None
    attempts: int


Tasks = dict[tuple[str, str], Task]

DONE = Task("success", "success", 1)


class Airflow:
    """An Airflow in a folder.

    Attributes:
        program: the airflow program.
        folder: its home, the tables, and the datasets.
        port: the port of its API server.
        database: its database.
        events: the file with the OpenLineage events of Airflow and of recordmill.
        environment: the environment variables of all of its processes.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.events = folder / "events.jsonl"
        transport = {"type": "file", "log_file_path": str(self.events), "append": True}
        self.database = folder / "airflow" / "airflow.db"
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("OPENLINEAGE")},
            **settings(folder / "airflow"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "AIRFLOW__CORE__PARALLELISM": "2",
            # All of its processes write; by default, each waits for the others for 5 s.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.database}?timeout=60",
            # The first request of a task waits for imports of the API server; by default, for 5 s.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "PYTHONPATH": str(ROOT),
            "RECORDMILL": f"{sys.executable} -m recordmill",
        }

    @contextmanager
    def services(self, *names: str) -> Iterator[None]:
        """Runs some of its services, and ends them with all of their processes."""
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self._service(name))
                if name == "api-server":  # tasks that cannot reach it fail
                    self.wait(lambda _: self._is_listening())
            yield

    def _is_listening(self) -> bool:
        with closing(socket.socket()) as asking:
            return asking.connect_ex(("127.0.0.1", self.port)) == 0

    @contextmanager
    def _service(self, name: str) -> Iterator[None]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = psutil.Popen(
                [self.program, name], env=self.environment, stdout=log, stderr=log
            )
            try:
                yield
            finally:
                everyone = [process, *process.children(recursive=True)]  # tasks, for the scheduler
                process.terminate()
                for left in psutil.wait_procs(everyone, timeout=10)[1]:
                    left.kill()
                process.wait()

    def run(self, *arguments: str) -> None:
        """Runs a command of Airflow."""
        run(self.program, *arguments, env=self.environment)

    def backfill(self) -> None:
        """Creates a backfill of all days.

        Not while other processes write: SQLite fails if one writes between a query and an insert
        of a transaction, and waits for none.
        """
        params = {
            "input": str(self.folder / "labels" / "DATE" / "labels.csv"),
            "output": str(self.folder / "datasets"),
            "name": "shapes",
            "first_day": DAYS[0],
            "flags": FLAGS,
        }
        self.run(
            *("backfill", "create", "--dag-id", "recordmill_append"),
            *("--from-date", DAYS[0], "--to-date", f"{DAYS[-1]}T02:00"),
            *("--reprocess-behavior", "failed", "--dag-run-conf", json.dumps(params)),
        )

    def tasks(self) -> Tasks:
        """Returns the tasks of the backfill by (day, task)."""
        query = (
            "SELECT date(r.logical_date), t.task_id, r.state, t.state, t.try_number FROM dag_run r "
            "JOIN task_instance t USING (dag_id, run_id) WHERE r.run_type = 'backfill'"
        )
        return {(day, task): Task(*state) for day, task, *state in self.query(query)}

    def query(self, query: str) -> list[tuple[Any, ...]]:
        """Returns rows of its database."""
        with closing(sqlite3.connect(self.database, timeout=60)) as found:
            return found.execute(query).fetchall()

    def wait(self, is_reached: Callable[[Tasks], bool]) -> Tasks:
        """Waits until the tasks have reached a state; returns them.

        Raises:
            TimeoutError: with what was printed last.
        """
        end = time.monotonic() + _DEADLINE
        while not is_reached(tasks := self.tasks()):
            if time.monotonic() > end:
                logs = [path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log"))]
                raise TimeoutError("\n".join([str(tasks), *logs]))
            time.sleep(1)
        return tasks

    def log(self, day: str, task: str) -> str:
        """Returns the logs of a task of the backfill."""
        logs = self.folder / "airflow" / "logs"
        next_day = f"{day[:-2]}{int(day[-2:]) + 1}"  # runs are named by the end of their day
        found = logs.glob(f"dag_id=*/run_id=backfill__{next_day}*/task_id={task}/*")
        return "".join(path.read_text() for path in sorted(found))


@pytest.fixture
def prepared(airflow: Path, database: Path, tmp_path: Path, sample: Path) -> Airflow:
    """An Airflow with the tables of three days, the second of which has too many faulty rows."""
    (tmp_path / "airflow").mkdir()
    shutil.copy(database, tmp_path / "airflow")
    header, *rows = read(sample / "labels.csv")
    missing = [[f"images/missing-{i}.jpg", "circle"] for i in range(11)]
    for i, day in enumerate(DAYS):
        shutil.copytree(sample, tmp_path / "labels" / day)
        more = missing if i == 1 else []
        write(tmp_path / "labels" / day / "labels.csv", [header, *rows[i:ROWS:3], *more])
    made = Airflow(airflow, tmp_path)
    with made.services("dag-processor"):
        made.wait(lambda _: ("recordmill_append",) in made.query("SELECT dag_id FROM dag"))
    made.run("dags", "unpause", "recordmill_append", "--yes")
    return made


def read(table: Path) -> list[list[str]]:
    """Returns the rows of a CSV table."""
    with table.open(newline="") as stream:
        return list(csv.reader(stream))


def test_a_backfill_waits_for_a_failed_day_and_follows_its_repair(
    prepared: Airflow, sample: Path, tmp_path: Path
) -> None:
    first, second, third = DAYS
    expected = {(day, task): DONE for day in DAYS for task in ("convert", "verify")}
    prepared.backfill()
    with prepared.services(*SERVICES):
        tasks = prepared.wait(lambda now: ended_runs(now) == {first, second})
        assert tasks == {
            (first, "convert"): DONE,
            (first, "verify"): DONE,
            (second, "convert"): Task("failed", "failed", 1),
            (second, "verify"): Task("failed", "upstream_failed", 0),
            (third, "convert"): Task("running", None, 0),  # it waits for the day before
            (third, "verify"): Task("running", None, 0),
        }
        assert "exit code 4, more rejects than --max_rejects" in prepared.log(second, "convert")
        table = tmp_path / "labels" / second / "labels.csv"
        write(table, [row for row in read(table) if "missing" not in row[0]])
        prepared.run("tasks", "clear", "recordmill_append", "-s", second, "-e", third, "-f", "-y")
        tasks = prepared.wait(all_done)
    expected[second, "convert"] = Task("success", "success", 2)
    assert tasks == expected
    versions = tmp_path / "datasets" / "shapes"
    assert {path.name for path in versions.iterdir()} == set(VERSIONS)
    assert shards(versions / VERSIONS[-1]) == whole_dataset(sample, tmp_path / "whole")
    assert_parents(prepared.events)


def ended_runs(tasks: Tasks) -> set[str]:
    """Returns the days whose runs have ended."""
    return {day for (day, _), task in tasks.items() if task.run in ("success", "failed")}


def all_done(tasks: Tasks) -> bool:
    """Returns whether all runs of the backfill have succeeded."""
    return {task.run for task in tasks.values()} == {"success"}


def whole_dataset(sample: Path, output: Path) -> dict[str, bytes]:
    """Returns the shards of one conversion of all days."""
    rows = read(sample / "labels.csv")[: 1 + ROWS]
    write(sample / "all.csv", rows)
    flags = ["--input", sample / "all.csv", "--output", output, "--name", "shapes"]
    run(sys.executable, "-m", "recordmill", "convert", *flags, *FLAGS)
    found = shards(output / "shapes" / "1.0.0")
    assert len(found) == 4
    return found


def assert_parents(path: Path) -> None:
    """Asserts that the runs of recordmill name the tasks of Airflow as their parents."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    ours = [event for event in events if event["job"]["name"] == "convert.shapes"]
    assert [event["eventType"] for event in ours] == ["START", "COMPLETE", "START", "FAIL"] + 2 * [
        "START",
        "COMPLETE",
    ]
    validate(ours)
    tasks = {
        event["run"]["runId"]: event["job"]["name"]
        for event in events
        if event["eventType"] == "START"
    }
    for event in ours:
        parent: Any = event["run"]["facets"]["parent"]
        assert parent["job"]["name"] == "recordmill_append.convert"
        assert tasks[parent["run"]["runId"]] == "recordmill_append.convert"
        assert parent["root"]["job"]["name"] == "recordmill_append"
        assert tasks[parent["root"]["run"]["runId"]] == "recordmill_append"
    assert len({event["run"]["facets"]["parent"]["run"]["runId"] for event in ours}) == 4
