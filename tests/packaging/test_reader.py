"""`recordmill-reader`: the same package in an environment without Beam and TensorFlow."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

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
for use in (lambda: recordmill.convert, lambda: recordmill.Records("s3://birds/shapes/1.0.0")):
    try:
        use()
    except (ImportError, recordmill.UsageError) as error:
        print(error)
"""


def project(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        found: dict[str, Any] = tomllib.load(stream)["project"]
    return found


def test_the_reader_has_the_version_and_requirements_of_recordmill() -> None:
    whole, reader = project(ROOT / "pyproject.toml"), project(ROOT / "reader" / "pyproject.toml")
    assert set(reader["dependencies"]) < set(whole["dependencies"])
    for name in ("version", "requires-python", "license"):
        assert reader[name] == whole[name]


def test_the_reader_reads_without_beam_and_tensorflow(sample: Path, tmp_path: Path) -> None:
    source = copy_source(tmp_path / "source")
    run(*UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, source / "reader")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "recordmill/pipelines/dataset/records.py" in archive.namelist()
    run(*UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "env")
    install(tmp_path / "env", wheel)

    flags = ("--output", tmp_path / "out", "--name", "shapes", "--max_rejects", "10")
    run(sys.executable, "-m", "recordmill", "convert", "--input", sample, *flags)
    printed = run(tmp_path / "env" / "bin" / "python", "-c", READ, cwd=tmp_path)
    version = project(ROOT / "pyproject.toml")["version"]
    assert printed.splitlines() == [
        f"{version} 60 60",
        "recordmill.convert: needs apache_beam, which is not installed. Install recordmill in "
        "place of recordmill-reader.",
        "s3://birds/shapes/1.0.0/_SUCCESS: needs apache_beam, which is not installed. Install "
        "recordmill in place of recordmill-reader, or copy the dataset to this machine.",
    ]
