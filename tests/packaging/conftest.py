"""What these tests share: what is published, and environments that have just that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.deploy.runs.environments import ROOT, run
from tests.packaging.distributions import copy_source
from tests.packaging.interpreters import SUPPORTED, interpreters

UV = (sys.executable, "-m", "uv")

Environments = Callable[[str, str], Path]
"""Gives the program folder of an environment by its version of Python and what is asked for."""


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is made from it and not from the checkout."""
    source = copy_source(tmp_path_factory.mktemp("source"))
    folder = tmp_path_factory.mktemp("dist")
    run(*UV, "build", "--quiet", "--out-dir", folder, source)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="session")
def environments(
    distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Environments:
    """Makes environments that have the wheel, and nothing of the checkout; each once."""
    _, wheel = distributions

    @cache
    def made(version: str, extras: str) -> Path:
        folder = tmp_path_factory.mktemp(f"python{version}")
        run(*UV, "venv", "--quiet", "--python", interpreters()[version], folder / "env")
        install(folder / "env", f"recordmill{extras} @ {wheel.as_uri()}")
        return folder / "env" / "bin"

    return made


def install(environment: Path, *arguments: object) -> None:
    """Installs packages into an environment, in the versions that were tested."""
    python = environment / "bin" / "python"
    pip = (*UV, "pip", "install", "--quiet", "--python", python)
    run(*pip, "--constraints", ROOT / "constraints.txt", *arguments)


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of drawn images: 66 rows, 6 of them with a fault."""
    folder = tmp_path_factory.mktemp("drawn") / "sample"
    run(sys.executable, ROOT / "examples" / "draw_sample.py", folder)
    return folder / "labels.csv"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which Pythons were there."""
    found = interpreters()
    terminalreporter.section("Pythons")
    for version in SUPPORTED:
        where: Path | str = found.get(version, "not on this machine: not tested")
        terminalreporter.write_line(f"{version}  {where}")


def convert(programs: Path, table: Path, output: Path, *flags: object) -> Sequence[str]:
    """Returns what a conversion of the sample prints; it has to succeed."""
    told = run(
        *(programs / "recordmill", "convert", "--input", table, "--output", output),
        *("--name", "shapes", "--max_rejects", "10", *flags),
        cwd=output.parent,
    )
    return told.splitlines()
