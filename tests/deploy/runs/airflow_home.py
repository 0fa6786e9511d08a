"""The settings of an Airflow, its tables, and what its DAGs have made."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.deploy.runs.environments import ROOT

DAG = ROOT / "deploy" / "airflow" / "recordmill_dag.py"
CONSTRAINTS = DAG.with_name("constraints.txt")

PACKAGES = ["apache-airflow", "apache-airflow-providers-openlineage"]
"""What a scheduler has installed; the second one for lineage."""


def settings(home: Path) -> dict[str, str]:
    """Returns the environment variables of an Airflow in a folder."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAG.parent),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }


def write(table: Path, rows: list[list[str]]) -> None:
    """Writes the rows of a CSV table."""
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)


def shards(dataset: Path) -> dict[str, bytes]:
    """Returns the shards of a dataset: name to content."""
    return {path.name: path.read_bytes() for path in dataset.glob("*.tfrecord-*")}
