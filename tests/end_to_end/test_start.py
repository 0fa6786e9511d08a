"""The start of commands: fast if nothing has to be imported, quiet if interrupted."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.command import ROOT, published
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

NAMES = {"ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX"}
LOADS = [sys.executable, "-X", "importtime", "-m", "recordmill"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--version", 0),
        ("--help", 0),
        ("convert --help", 0),
        ("convert --input rows.csv", 2),
        ("convrt", 2),
    ],
)
def test_commands_import_beam_and_tensorflow_only_if_needed(words: str, code: int) -> None:
    ended = subprocess.run([*LOADS, *words.split()], capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == code, ended.stderr[-500:]
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "recordmill.pipelines.command_line" in loaded
    assert not {"apache_beam", "tensorflow", "recordmill.pipelines.convert"} & loaded


@pytest.mark.parametrize("words", ["inspect .", "convert --input a.csv --output out --name n"])
def test_ctrl_c_during_imports_prints_one_line(words: str, tmp_path: Path) -> None:
    command = [*LOADS, *words.split()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as begun:
        assert begun.stderr is not None
        lines = iter(begun.stderr)
        assert any("apache_beam.utils" in line for line in lines)
        begun.send_signal(signal.SIGINT)
        said = [line for line in lines if not line.startswith("import time:")]
    assert (begun.returncode, said) == (130, ["recordmill: interrupted by SIGINT\n"])


RUNS = """
import os
from recordmill.pipelines.command_line import main
main([])
import pyarrow
print(pyarrow.default_memory_pool().backend_name, os.environ["MALLOC_ARENA_MAX"])
"""


@pytest.mark.parametrize(
    ("said", "has"),
    [
        ({}, "system 2"),
        ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc", "MALLOC_ARENA_MAX": "1"}, "mimalloc 1"),
    ],
    ids=["by default", "if set in the environment"],
)
def test_allocators_give_memory_back(said: dict[str, str], has: str) -> None:
    """Every command configures its allocators first."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | said
    command = [sys.executable, "-c", RUNS]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ended.stdout.splitlines()[-1] == has, ended.stderr[-500:]


def test_a_conversion_closes_its_tables(
    folder: Path, images: list[Photo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffixes = (".csv", ".csv.gz", ".jsonl.gz")
    tables = [
        write_table(folder / f"closed-{i}{suffix}", [{"image": photo.path, "label": photo.label}])
        for i, (suffix, photo) in enumerate(zip(suffixes, images[:3], strict=True))
    ]
    inputs = [word for table in tables[1:] for word in ("--input", table)]
    gc.collect()  # what other tests have left open
    # A warning cannot be raised where a file is collected: Python reports it.
    left_open = list[Any]()
    monkeypatch.setattr(sys, "unraisablehook", left_open.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        published(tables[0], tmp_path, *inputs)
        gc.collect()
    assert left_open == []
