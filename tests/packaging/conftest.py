"""Fixtures: the distributions, and environments with nothing but the wheel installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.deploy.runs.environments import ROOT, run
from tests.packaging.distributions import copy_source
from tests.packaging.interpreters import HERE, SUPPORTED, interpreters

UV = (sys.executable, "-m", "uv")

Environments = Callable[[str, str], Path]
"""Returns the folder of executables of an environment, by Python version and extras."""


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it."""
    source = copy_source(tmp_path_factory.mktemp("source"))
    folder = tmp_path_factory.mktemp("dist")
    run(*UV, "build", "--quiet", "--out-dir", folder, source)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="session")
def environments(
    distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Environments:
    """Creates environments with the wheel, and without the checkout; each once."""
    _, wheel = distributions

    @cache
    def create(version: str, extras: str) -> Path:
        folder = tmp_path_factory.mktemp(f"python{version}")
        run(*UV, "venv", "--quiet", "--python", interpreters()[version], folder / "env")
        install(folder / "env", f"recordmill{extras} @ {wheel.as_uri()}")
        return folder / "env" / "bin"

    return create


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests of one Python into one process, for its environment, and those of a file."""
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        others = HERE if "environments" in getattr(item, "fixturenames", ()) else item.path.name
        item.add_marker(pytest.mark.xdist_group(parameters.get("version", others)))


def install(environment: Path, *arguments: object) -> None:
    """Installs packages into an environment, in the tested versions.

    Args:
        environment: the folder of the environment.
        *arguments: of pip install.
    """
    python = environment / "bin" / "python"
    pip = (*UV, "pip", "install", "--quiet", "--python", python)
    run(*pip, "--constraints", ROOT / "constraints.txt", *arguments)


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of generated images: 66 rows, 6 of them faulty."""
    folder = tmp_path_factory.mktemp("generated") / "sample"
    run(sys.executable, ROOT / "examples" / "draw_sample.py", folder)
    return folder / "labels.csv"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the tested Python interpreters."""
    found = interpreters()
    terminalreporter.section("Pythons")
    for version in SUPPORTED:
        path: Path | str = found.get(version, "not installed: not tested")
        terminalreporter.write_line(f"{version}  {path}")


def convert(programs: Path, table: Path, output: Path, *flags: object) -> Sequence[str]:
    """Converts the sample; returns the lines of output."""
    printed = run(
        *(programs / "recordmill", "convert", "--input", table, "--output", output),
        *("--name", "shapes", "--max_rejects", "10", *flags),
        cwd=output.parent,
    )
    return printed.splitlines()
