"""The wheel and the source distribution: their files, and that they work without the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.runs.environments import run
from tests.packaging.conftest import Environments, convert, install
from tests.packaging.distributions import LINKS, packaged, repository_files
from tests.packaging.interpreters import HERE, SUPPORTED, interpreters

FULL = "[aws,gcp,azure,hadoop,tfds]"
OF_EXTRAS = ("boto3", "google.cloud.storage", "azure.storage.blob", "hdfs", "tensorflow_datasets")

IMPORT_ALL = """
import importlib, pkgutil
for package in map(importlib.import_module, ("recordmill",)):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(package.__file__)
"""

USER = """
import apache_beam as beam
import recordmill

dataset = recordmill.open("datasets/birds/1.0.0")
reveal_type(dataset)
reveal_type(dataset.splits["train"].records)
reveal_type(dataset.classes)
reveal_type(dataset.records["a.jpg"])
reveal_type(recordmill.convert("labels.csv", output="datasets", name="birds", splits={"train": 1}))
reveal_type(recordmill.verify(dataset.directory))
reveal_type(recordmill.Records(dataset.directory, "train")[1:])
reveal_type(recordmill.UsageError("what").exit_code)
reveal_type(recordmill.__version__)
build = recordmill.BuildExamples("tf_slim", classes=["cat"], columns={"image": "file"})
write = recordmill.WriteDataset("datasets", "birds", schema="tf_slim")
recordmill.load("datasets/birds/1.0.0", "train", batch_size="32")
recordmill.convert("labels.csv", output="datasets", name="birds", split={"train": 1})
recordmill.convert("labels.csv", output="datasets", name="birds", decode="ful")
recordmill.nothing
"""

MYPY_OUTPUT = """\
user.py:6: note: Revealed type is "recordmill.pipelines.dataset.dataset.Dataset"
user.py:7: note: Revealed type is "int"
user.py:8: note: Revealed type is "dict[str, tuple[str, ...]]"
user.py:9: note: Revealed type is "Any"
user.py:10: note: Revealed type is "recordmill.pipelines.dataset.dataset.Dataset"
user.py:11: note: Revealed type is "recordmill.pipelines.verification.Verification"
user.py:12: note: Revealed type is "recordmill.pipelines.dataset.records.Records"
user.py:13: note: Revealed type is "int"
user.py:14: note: Revealed type is "str"
user.py:17: error: Argument "batch_size" to "load" has incompatible type "str"; expected "int | None"  [arg-type]
user.py:18: error: Unexpected keyword argument "split" for "convert"; did you mean "splits"?  [call-arg]
user.py:18: note: "convert" defined in "recordmill.pipelines.api"
user.py:19: error: Argument "decode" to "convert" has incompatible type "Literal['ful']"; expected "Literal['full', 'header']"  [arg-type]
user.py:20: error: Module has no attribute "nothing"  [attr-defined]
Found 4 errors in 1 file (checked 1 source file)
"""  # noqa: E501 - as mypy has them

OWN_PACKAGES = """
import sys
import recordmill
for name in ("schemas", "transforms", "pipelines"):
    assert name not in sys.modules
    assert __import__(name).__file__.startswith(sys.argv[1])
dataset = recordmill.convert("labels.csv", output="out", name="own", report=False)
print(dataset.splits["train"].records)
"""


def test_the_wheel_contains_exactly_the_package(
    distributions: tuple[Path, Path],
) -> None:
    ours = {name for name in map(packaged, repository_files()) if name.startswith("recordmill/")}
    with zipfile.ZipFile(distributions[1]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == ours - LINKS
    assert "recordmill/py.typed" in held
    assert {"recordmill/schemas/example.proto", "recordmill/schemas/presets/tf_slim.yaml"} <= held


def test_the_source_distribution_contains_tests_and_tools(
    distributions: tuple[Path, Path],
) -> None:
    with tarfile.open(distributions[0]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    left_out = (".github/", ".git", ".editorconfig", ".pre-commit", "benchmarks/")
    ours = {packaged(name) for name in repository_files() if not name.startswith(left_out)}
    assert sorted(ours - LINKS - held) == []


def test_the_classifiers_match_the_required_versions() -> None:
    lowest, above = SUPPORTED[0], int(SUPPORTED[-1].partition(".")[2]) + 1
    required = metadata.metadata("recordmill")["Requires-Python"]
    assert set(required.split(",")) == {f">={lowest}", f"<3.{above}"}
    assert [f"3.{minor}" for minor in range(10, above)] == list(SUPPORTED)


@pytest.fixture(scope="session")
def expected(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The splits that the checkout writes, on the Python of the tests."""
    return splits_of(Path(sys.executable).parent, sample, tmp_path_factory.mktemp("here"))


@pytest.mark.parametrize("version", interpreters())
def test_the_wheel_works_on_every_python_and_writes_the_same_shards(
    version: str,
    expected: dict[str, Any],
    environments: Environments,
    sample: Path,
    tmp_path: Path,
) -> None:
    programs = environments(version, "")
    release = f"recordmill {metadata.version('recordmill')}"
    assert run(programs / "recordmill", "--version", cwd=tmp_path).strip() == release
    assert (
        run(programs / "python", "-m", "recordmill", "--version", cwd=tmp_path).strip() == release
    )
    where = run(programs / "python", "-c", IMPORT_ALL, cwd=tmp_path).strip()
    assert Path(where).is_relative_to(programs.parent)
    assert splits_of(programs, sample, tmp_path) == expected


def splits_of(programs: Path, sample: Path, folder: Path) -> dict[str, Any]:
    """Returns the splits of the sample that is converted, with the checksums of their shards."""
    (line,) = convert(programs, sample, folder / "out", "--json")
    assert json.loads(line)["records"] == 60
    splits: dict[str, Any] = json.loads((folder / "out/shapes/1.0.0/manifest.json").read_bytes())[
        "splits"
    ]
    return splits


def test_type_checkers_see_the_types_of_the_public_api(
    environments: Environments, tmp_path: Path
) -> None:
    (tmp_path / "user.py").write_text(USER)
    python = environments(HERE, "") / "python"
    output = mypy(tmp_path, python)
    assert output == MYPY_OUTPUT.splitlines()


def test_users_packages_may_have_the_names_of_its_folders(
    environments: Environments, sample: Path, tmp_path: Path
) -> None:
    for name in ("schemas", "transforms", "pipelines"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    image = next(sample.parent.glob("**/circle-00.jpg"))
    (tmp_path / "labels.csv").write_text(f"image,label\n{image},cat\n")
    python = environments(HERE, "") / "python"
    assert run(python, "-c", OWN_PACKAGES, tmp_path, cwd=tmp_path).strip() == "1"


def test_the_source_distribution_installs_the_same_files_as_the_wheel(
    distributions: tuple[Path, Path], environments: Environments, sample: Path, tmp_path: Path
) -> None:
    sdist, _ = distributions
    programs = environments(HERE, "")
    packages = Path(
        run(
            programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
        ).strip()
    )
    from_wheel = installed(packages)
    install(programs.parent, "--no-deps", "--reinstall-package", "recordmill", sdist)
    assert installed(packages) == from_wheel
    assert len(from_wheel) > 150
    assert "60" in " ".join(convert(programs, sample, tmp_path / "out"))


def test_all_extras_can_be_installed_together(
    environments: Environments, sample: Path, tmp_path: Path
) -> None:
    minimal, full = environments(HERE, ""), environments(HERE, FULL)
    for module in OF_EXTRAS:
        program = f"import {module}"
        run(full / "python", "-c", program, cwd=tmp_path)
        with pytest.raises(RuntimeError, match="ModuleNotFoundError"):
            run(minimal / "python", "-c", program, cwd=tmp_path)
    convert(full, sample, tmp_path / "out")
    program = (
        "import tensorflow_datasets as tfds; "
        "builder = tfds.builder_from_directory('out/shapes/1.0.0'); "
        "print(len(list(builder.as_dataset(split='train'))))"
    )
    assert run(full / "python", "-c", program, cwd=tmp_path).strip() == "60"


def mypy(folder: Path, python: Path) -> list[str]:
    """Returns the output of mypy on a user's program."""
    command = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "user.py")
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr  # for the one error that is meant
    return ended.stdout.splitlines()


def installed(packages: Path) -> dict[str, bytes]:
    """Returns the files of recordmill in an environment: name to content."""
    return {
        str(path.relative_to(packages)): path.read_bytes()
        for path in sorted((packages / "recordmill").rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
