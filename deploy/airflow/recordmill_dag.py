"""Airflow DAGs that convert the label tables of a day and then verify the dataset again.

Copy this file into the DAG folder. Each day is a version of the dataset: 20 November 2026 becomes
OUTPUT/NAME/2026.11.20, and DATE in the input pattern is replaced by 2026-11-20. A day that is
already published is left alone, so runs can be repeated, cleared and backfilled.

With the DAG `recordmill`, a version has the rows of its day. With `recordmill_append`, it has those
of all days since `first_day`: the day's rows are appended to the version of the day before. A day
waits until the one before it has succeeded.

With the package apache-airflow-providers-openlineage, the OpenLineage events of recordmill name the
task as the parent run.

recordmill needs its own environment. The environment variable RECORDMILL names its program; by
default it is searched on the PATH of the worker.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, BaseOperator, CronDataIntervalTimetable, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

Arguments = Callable[[Mapping[str, Any], date], list[str]]

NO_RETRY = {
    2: "bad usage, schema or input table",
    3: "verification failed, or the row counts do not match",
    4: "more rejects than --max_rejects allows",
    5: "the dataset exists",
}
"""Exit codes that a retry cannot change, and their meaning. 1 is an unexpected error."""


def convert_arguments(params: Mapping[str, Any], day: date) -> list[str]:
    """Returns the arguments that convert the tables of one day.

    Args:
        params: of the DAG run.
        day: the date of its data.
    """
    base: list[str] = []
    if (first := params.get("first_day")) and day > date.fromisoformat(first):
        base = ["--base", dataset(params, day - timedelta(days=1)), "--append"]
    return [
        *("convert", "--input", params["input"].replace("DATE", day.isoformat())),
        *("--output", params["output"], "--name", params["name"], "--version", version(day)),
        *(*base, "--if_exists", "skip", "--json", *params["flags"]),
    ]


def verify_arguments(params: Mapping[str, Any], day: date) -> list[str]:
    """Returns the arguments that verify the dataset of one day.

    Args:
        params: of the DAG run.
        day: the date of its data.
    """
    return ["verify", dataset(params, day)]


def dataset(params: Mapping[str, Any], day: date) -> str:
    """Returns the path of the dataset of one day.

    Args:
        params: of the DAG run.
        day: the date of its data.
    """
    return "/".join([params["output"].rstrip("/"), params["name"], version(day)])


def version(day: date) -> str:
    """Returns the dataset version of one day, without leading zeros, which TFDS rejects."""
    return f"{day.year}.{day.month}.{day.day}"


def lineage_variables(context: Context) -> dict[str, str]:
    """Returns the variables that name the task and the DAG run as the parents of recordmill's run.

    They are empty without the package apache-airflow-providers-openlineage.

    Args:
        context: of the task.
    """
    try:
        from airflow.providers.openlineage.plugins import macros
    except ImportError:
        return {}
    task = context["ti"]
    return {
        "OPENLINEAGE_PARENT_ID": macros.lineage_parent_id(task),
        "OPENLINEAGE_ROOT_PARENT_ID": macros.lineage_root_parent_id(task),
    }


class RecordmillOperator(BaseOperator):
    """Runs recordmill for the day of the run; fails without retries if retries cannot help."""

    def __init__(self, *, arguments: Arguments, **options: Any) -> None:
        super().__init__(**options)
        self.arguments = arguments

    def execute(self, context: Context) -> None:
        """Runs the command; its output goes into the task's log.

        Raises:
            AirflowFailException: for an exit code in NO_RETRY; Airflow does not retry the task.
            AirflowException: for any other failure.
        """
        moment = context.get("logical_date") or context["dag_run"].run_after
        arguments = self.arguments(context["params"], moment.date())
        self.process = SubprocessHook()
        program = shlex.split(os.environ.get("RECORDMILL", "recordmill"))
        environment = {**os.environ, **lineage_variables(context)}
        code = self.process.run_command([*program, *arguments], environment).exit_code
        if code in NO_RETRY:
            raise AirflowFailException(
                f"recordmill {arguments[0]}: exit code {code}, {NO_RETRY[code]}"
            )
        if code:
            raise AirflowException(f"recordmill {arguments[0]}: exit code {code}")

    def on_kill(self) -> None:
        """Stops the command when the task is stopped."""
        self.process.send_sigterm()


def make_dag(
    dag_id: str, description: str, params: Mapping[str, Param], depends_on_past: bool
) -> DAG:
    """Returns a DAG that runs at two o'clock for the day before.

    Args:
        dag_id: the name of the DAG.
        description: a line about it.
        params: parameters besides those of every DAG of this file.
        depends_on_past: whether a day waits until the one before it has succeeded.
    """
    with DAG(
        dag_id=dag_id,
        description=description,
        schedule=CronDataIntervalTimetable("0 2 * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=timedelta(hours=12),
        default_args={
            "retries": 2,
            "retry_exponential_backoff": True,
            "depends_on_past": depends_on_past,
        },
        params={
            "input": Param("/data/labels/DATE/*.parquet", type="string", description="DATE: day"),
            "output": Param("/data/datasets", type="string"),
            "name": Param("photos", type="string", pattern=r"^[A-Za-z]\w*$"),
            "flags": Param([], type="array", items={"type": "string"}, description="more flags"),
            **params,
        },
        tags=["recordmill"],
    ) as dag:
        convert = RecordmillOperator(task_id="convert", arguments=convert_arguments)
        verify = RecordmillOperator(task_id="verify", arguments=verify_arguments)
        convert >> verify
    return dag


recordmill = make_dag(
    "recordmill",
    "Convert the label tables of a day to a verified TFRecord dataset",
    params={},
    depends_on_past=False,
)
recordmill_append = make_dag(
    "recordmill_append",
    "Append the label tables of a day to a verified TFRecord dataset",
    params={"first_day": Param("2026-01-01", type="string", format="date")},
    depends_on_past=True,
)
