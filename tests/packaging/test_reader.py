"""`recordmill-reader`: the same package in an environment without Beam and TensorFlow."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tomllib

from tests.deploy.runs.environments import ROOT, run
from tests.packaging.conftest import UV, install
from tests.packaging.distributions import copy_source

READ = """
import importlib.util, sys
import recordmill

absent = ("apache_beam", "tensorflow", "tensorflow_metadata", "obstore")
assert not any(map(importlib.util.find_spec, absent))
records = recordmill.Records("out/shapes", "train")
(first, second) = records.__getitems__([0, 1])
assert first["image"].flags.writeable
assert len(recordmill.open("out/shapes").class_weights("train")) == 3
print(recordmill.__version__, len(records), len(records.sample_weights()))
for use in (
    lambda: recordmill.convert,
    recordmill.open("out/shapes").verify,
    lambda: recordmill.Records("s3://birds/shapes/1.0.0"),
):
    try:
        use()
    except (ImportError, recordmill.UsageError) as error:
        print(error)
"""


# What each of the two has in an environment with both, and after the other is uninstalled.
WHERE = """
import recordmill
print(recordmill.Records.__name__, recordmill.__version__, recordmill.__file__)
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the reader."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    run(*UV, "build", "--quiet", "--wheel", "--out-dir", folder, copy_source(source) / "reader")
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_both_can_be_installed_in_any_order_and_either_be_uninstalled(
    reader: Path, distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    wheels = {"recordmill": distributions[1], "recordmill-reader": reader}
    names = [set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels.values()]
    assert names[0].isdisjoint(names[1])
    environment = tmp_path / "env"
    run(*UV, "venv", "--quiet", "--python", sys.executable, environment)
    install(environment, reader)
    python, pip = environment / "bin" / "python", (*UV, "pip")
    (packages,) = environment.glob("lib/python3*/site-packages")
    folders = {"recordmill": packages, "recordmill-reader": packages / "recordmill_reader"}

    def uses(name: str) -> bool:
        found = run(python, "-c", WHERE, cwd=tmp_path).split()
        return found[0] == "Records" and Path(found[2]) == folders[name] / "recordmill/__init__.py"

    for order in (("recordmill-reader", "recordmill"), ("recordmill", "recordmill-reader")):
        for removed, kept in (order, order[::-1]):
            for name in wheels:
                run(*pip, "uninstall", "--quiet", "--python", python, name)
            for name in order:
                options = ("--quiet", "--no-deps", "--python", python)
                run(*pip, "install", *options, wheels[name])
            assert uses("recordmill")
            run(*pip, "uninstall", "--quiet", "--python", python, removed)
            assert uses(kept)


def project(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        found: dict[str, Any] = tomllib.load(stream)["project"]
    return found


def test_the_reader_has_the_version_and_requirements_of_recordmill() -> None:
    whole, reader = project(ROOT / "pyproject.toml"), project(ROOT / "reader" / "pyproject.toml")
    assert set(reader["dependencies"]) < set(whole["dependencies"])
    for name in ("version", "requires-python", "license"):
        assert reader[name] == whole[name]


def test_the_reader_reads_without_beam_and_tensorflow(
    reader: Path, sample: Path, tmp_path: Path
) -> None:
    run(*UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "env")
    install(tmp_path / "env", reader)
    flags = ("--output", tmp_path / "out", "--name", "shapes", "--max_rejects", "10")
    run(sys.executable, "-m", "recordmill", "convert", "--input", sample, *flags)
    printed = run(tmp_path / "env" / "bin" / "python", "-c", READ, cwd=tmp_path)
    version = project(ROOT / "pyproject.toml")["version"]
    assert printed.splitlines() == [
        f"{version} 60 60",
        "recordmill.convert: needs apache_beam, which is not installed. Install recordmill in "
        "place of recordmill-reader.",
        "Dataset.verify: needs apache_beam, which is not installed. Install recordmill in place of "
        "recordmill-reader.",
        "s3://birds/shapes/1.0.0/_SUCCESS: needs obstore, which is not installed. Install "
        "recordmill in place of recordmill-reader, or copy the dataset to this machine.",
    ]
