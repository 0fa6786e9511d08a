"""The DAGs under a real Airflow, with `airflow dags test`."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.runs.airflow_home import DAG, settings, shards, write
from tests.deploy.runs.environments import ROOT, run

DAY = "2026-11-20"
IMAGES = 60
"""The valid rows of the sample; the faulty ones follow."""

# Fails once as a program does when its machine is in trouble, and then is itself.
FLAKY = """#!{python}
import os, pathlib, sys
failed = pathlib.Path({folder!r}) / "failed"
if failed.exists():
    os.execv({python!r}, [{python!r}, "-m", "recordmill", *sys.argv[1:]])
failed.touch()
sys.exit(1)
"""


class Scheduler:
    """An Airflow with its own database, and the tables of one day."""

    def __init__(self, airflow: Path, database: Path, folder: Path, sample: Path) -> None:
        self.airflow, self.folder = airflow, folder
        self.program = f"{sys.executable} -m recordmill"
        self.environment = {
            **os.environ,
            **settings(folder / "airflow"),
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
            "PYTHONPATH": str(ROOT),
        }
        (folder / "airflow").mkdir()
        shutil.copy(database, folder / "airflow")
        self.day = folder / "labels" / DAY
        shutil.copytree(sample, self.day)
        self.dataset = folder / "datasets" / "shapes" / "2026.11.20"

    def test(
        self, day: str = DAY, dag: str = "recordmill", **more: object
    ) -> subprocess.CompletedProcess[str]:
        """Runs `airflow dags test` for a day, with parameters besides those of all tests."""
        params = {
            "input": str(self.folder / "labels" / "DATE" / "labels.csv"),
            "output": str(self.folder / "datasets"),
            "name": "shapes",
            "flags": ["--max_rejects", "10"],
            **more,
        }
        command = [self.airflow, "dags", "test", "-f", DAG, "-c", json.dumps(params)]
        return subprocess.run(
            [*map(str, command), dag, day],
            capture_output=True,
            text=True,
            check=False,
            env={**self.environment, "RECORDMILL": self.program},
            timeout=300,
        )

    def states(self) -> dict[str, tuple[str, int]]:
        """Returns the state and the number of attempts of each task of the last run."""
        query = (
            "import json; from airflow.utils.session import create_session;"
            "from airflow.models.taskinstance import TaskInstance as T\n"
            "with create_session() as s:\n"
            "    run = s.query(T.run_id).order_by(T.queued_dttm, T.run_id.desc()).first()[0]\n"
            "    found = s.query(T.task_id, T.state, T.try_number).filter(T.run_id == run).all()\n"
            "print(json.dumps({t: [str(s), n] for t, s, n in found}))"
        )
        printed = run(self.airflow.with_name("python"), "-c", query, env=self.environment)
        return {k: tuple(v) for k, v in json.loads(printed.splitlines()[-1]).items()}


@pytest.fixture
def scheduler(airflow: Path, database: Path, tmp_path: Path, sample: Path) -> Scheduler:
    return Scheduler(airflow, database, tmp_path, sample)


def test_a_day_is_converted_and_verified_and_left_alone_the_second_time(
    scheduler: Scheduler,
) -> None:
    ended = scheduler.test()
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert f"verified: 60 records in {scheduler.dataset}" in ended.stdout + ended.stderr
    assert scheduler.states() == {"convert": ("success", 1), "verify": ("success", 1)}
    before = {path: path.stat().st_mtime_ns for path in scheduler.dataset.rglob("*")}

    again = scheduler.test()
    assert again.returncode == 0, again.stderr[-4000:]
    assert '"state": "skipped"' in again.stdout + again.stderr
    assert f"verified: 60 records in {scheduler.dataset}" in again.stdout + again.stderr
    assert {path: path.stat().st_mtime_ns for path in scheduler.dataset.rglob("*")} == before


def test_a_damaged_table_fails_without_retries(scheduler: Scheduler) -> None:
    with (scheduler.day / "labels.csv").open("w", newline="") as table:
        csv.writer(table).writerows([("image", "kind"), ("images/circle-00.jpg", "circle")])
    ended = scheduler.test()
    assert "exit code 2, bad usage, schema or input table" in ended.stdout + ended.stderr
    assert scheduler.states() == {"convert": ("failed", 1), "verify": ("upstream_failed", 0)}
    assert not (scheduler.dataset / "_SUCCESS").exists()


def test_an_unexpected_error_is_retried(scheduler: Scheduler, tmp_path: Path) -> None:
    flaky = tmp_path / "flaky"
    flaky.write_text(FLAKY.format(python=sys.executable, folder=str(tmp_path)))
    flaky.chmod(0o755)
    scheduler.program = str(flaky)
    ended = scheduler.test()
    assert ended.returncode == 0, ended.stderr[-4000:]
    states = {"convert": ("success", 2), "verify": ("success", 1)}
    assert scheduler.states() == states, ended.stdout[-4000:]
    assert (scheduler.dataset / "_SUCCESS").exists()


def test_a_damaged_dataset_fails_verification_without_retries(scheduler: Scheduler) -> None:
    assert scheduler.test().returncode == 0
    shard = next(scheduler.dataset.glob("*.tfrecord-*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    ended = scheduler.test()
    assert "recordmill verify: exit code 3, verification failed" in ended.stdout + ended.stderr
    assert scheduler.states()["verify"] == ("failed", 1)


def test_days_are_appended_and_a_day_that_failed_is_repaired(
    scheduler: Scheduler, sample: Path, tmp_path: Path
) -> None:
    with (sample / "labels.csv").open(newline="") as table:
        header, *rows = csv.reader(table)
    rows = rows[:IMAGES]  # without the faulty ones
    missing = [[f"images/missing-{i}.jpg", "circle"] for i in range(11)]
    days = ["2026-11-20", "2026-11-21", "2026-11-22"]
    tables = [scheduler.day.with_name(day) / "labels.csv" for day in days]
    for i, path in enumerate(tables):
        shutil.copytree(sample, path.parent, dirs_exist_ok=True)
        write(path, [header, *rows[i::3], *(missing if i == 1 else [])])
    options = ["--max_rejects", "10", "--num_shards", "4", "--columns", "label=label"]

    def run_day(day: str) -> subprocess.CompletedProcess[str]:
        more = {"first_day": days[0], "flags": options}
        return scheduler.test(day, "recordmill_append", **more)

    done = {"convert": ("success", 1), "verify": ("success", 1)}
    assert run_day(days[0]).returncode == 0
    assert "exit code 4, more rejects" in (ended := run_day(days[1])).stdout + ended.stderr
    assert scheduler.states() == {"convert": ("failed", 1), "verify": ("upstream_failed", 0)}
    write(tables[1], [header, *rows[1::3]])
    for day in days[1:]:
        ended = run_day(day)
        assert ended.returncode == 0, ended.stderr[-4000:]
        assert scheduler.states() == done
    assert '"state": "skipped"' in (ended := run_day(days[2])).stdout + ended.stderr

    write(sample / "all.csv", [header, *rows])
    flags = ["--input", sample / "all.csv", "--output", tmp_path / "whole", "--name", "shapes"]
    run(sys.executable, "-m", "recordmill", "convert", *flags, *options)
    whole = shards(tmp_path / "whole" / "shapes" / "1.0.0")
    assert len(whole) == 4
    assert shards(scheduler.dataset.with_name("2026.11.22")) == whole
