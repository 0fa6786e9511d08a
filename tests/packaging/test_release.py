"""`python -m deploy.release`: what a person uploads, and the files around it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

from deploy import release
from tests.deploy.runs.environments import ROOT, run


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    release.build("HEAD", folder)
    return folder


def test_a_registry_would_accept_the_distributions(built: Path) -> None:
    files = [*built.glob("*.whl"), *built.glob("*.tar.gz")]
    assert len(files) == 4
    printed = run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files)
    assert printed.count("PASSED") == 4, printed


def test_the_statement_names_the_files_and_the_commit(built: Path) -> None:
    statement = json.loads((built / "provenance.json").read_text())
    digests = {found["name"]: found["digest"]["sha256"] for found in statement["subject"]}
    assert digests == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (*built.glob("*.whl"), *built.glob("*.tar.gz"))
    }
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    parameters = statement["predicate"]["buildDefinition"]["externalParameters"]
    assert parameters == {"commit": commit}
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=built)


def test_the_wheels_of_a_commit_are_the_same_to_the_byte(built: Path, tmp_path: Path) -> None:
    release.build("HEAD", tmp_path)
    for wheel in built.glob("*.whl"):
        assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_folder_with_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    command = [sys.executable, "-m", "deploy.release", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not empty; expected a new folder" in done.stderr


def test_all_files_name_the_same_version() -> None:
    projects = [ROOT / "pyproject.toml", ROOT / "reader" / "pyproject.toml"]
    versions = {tomllib.loads(path.read_text())["project"]["version"] for path in projects}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    versions.add(citation["version"])
    (version,) = versions
    assert (
        f"\n## [{version}] - {citation['date-released']}\n" in (ROOT / "CHANGELOG.md").read_text()
    )
