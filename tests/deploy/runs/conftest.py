"""Fixtures: the wheel, the environments with the wheel installed, and images."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.deploy.runs.airflow_home import CONSTRAINTS, PACKAGES, settings
from tests.deploy.runs.environments import ROOT, environment, install, run
from tests.packaging.distributions import copy_source


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the files of the repository only."""
    source = copy_source(tmp_path_factory.mktemp("source"))
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, source)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Path:
    """An environment with the wheel and the extra [gcp], without the checkout."""
    folder = environment(
        "gcp",
        ["apache-beam[gcp]", *dependencies()],
        ROOT / "constraints.txt",
    )
    install(folder, "--no-deps", "--force-reinstall", wheel)
    run(folder / "bin" / "python", "-m", "pip", "check")
    return folder


@pytest.fixture(scope="session")
def airflow() -> Path:
    """The airflow program, in a separate environment."""
    return environment("airflow", PACKAGES, CONSTRAINTS) / "bin" / "airflow"


@pytest.fixture(scope="session")
def database(airflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty Airflow database, which takes 15 s to create."""
    home = tmp_path_factory.mktemp("airflow")
    run(airflow, "db", "migrate", env={**os.environ, **settings(home)})
    return home / "airflow.db"


def dependencies() -> list[str]:
    """Returns the dependencies of recordmill in pyproject.toml."""
    return [line for line in metadata.requires("recordmill") or () if "extra ==" not in line]


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of drawn images with labels.csv: 66 rows, 6 of them with a fault."""
    folder = tmp_path_factory.mktemp("drawn") / "sample"
    run(sys.executable, ROOT / "examples" / "draw_sample.py", folder)
    return folder
