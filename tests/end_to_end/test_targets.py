"""Existing files at the target: datasets, leftovers of failed runs, and foreign files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import ROOT, convert, published, recordmill
from tests.end_to_end.tables import write_table

TABULAR = ("--schema", "tabular", "--key_column", "id")
SHARDS = ("--num_shards", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def table(folder: Path) -> Path:
    return write_table(folder / "table.csv", [{"id": i, "x": f"old {i}"} for i in range(20)])


@pytest.fixture(scope="module")
def changed(folder: Path) -> Path:
    return write_table(folder / "changed.csv", [{"id": i, "x": f"new {i}"} for i in range(9)])


@pytest.fixture(scope="module")
def broken(folder: Path) -> Path:
    """A table with a reject, whose run fails."""
    table = folder / "broken.csv"
    table.write_text("id,x\n1,a\n2,b\n3,c,d\n")
    return table


@pytest.fixture(scope="module")
def old(table: Path, folder: Path) -> Path:
    """The dataset of a first run of the table."""
    return published(table, folder / "old", *TABULAR, *SHARDS)


@pytest.fixture(scope="module")
def new(changed: Path, folder: Path) -> Path:
    """The dataset of a first run of the changed table."""
    return published(changed, folder / "new", *TABULAR, *SHARDS)


def everything(folder: Path) -> dict[str, bytes]:
    """Returns every file below a folder, hidden ones included."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def values(dataset: Path) -> set[bytes]:
    """Returns the values of column x."""
    return {example["x"][0] for example in readers.examples(dataset, "train")}


BESIDE = {
    "readme.md": "mine",
    "birds/2.0.0/birds-train.tfrecord-00000-of-00001": "another version",
    "birds/notes.txt": "mine, too",
    "birds2/1.0.0/_SUCCESS": "another dataset",
}


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    """A folder with foreign files beside the target, which must be all that stays."""
    output = tmp_path / "out"
    for name, text in BESIDE.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text)
    yield output
    assert {name: (output / name).read_text() for name in BESIDE} == BESIDE
    assert {str(path.relative_to(output)) for path in output.glob("*/*")} == {
        "birds/1.0.0",
        "birds/2.0.0",
        "birds/notes.txt",
        "birds2/1.0.0",
    }


def test_a_published_dataset_is_kept_by_fail_and_skip_and_beside_another_version(
    table: Path, old: Path, changed: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    shutil.copytree(old.parents[1], output)
    before = everything(output)
    ended = convert(changed, output, *TABULAR)
    assert ended.code == 5
    assert "--if_exists" in ended.err
    assert "--version" in ended.err
    assert "Traceback" not in ended.err
    ended = convert(changed, output, *TABULAR, "--if_exists", "skip", "--json")
    warning = (
        f"{output}/birds/1.0.0: was published with other options (--input, --num_shards), not "
        "those of this command. Choose another --version, or --if_exists replace."
    )
    assert (ended.code, ended.err) == (0, f"recordmill: warning: {warning}\n")
    assert json.loads(ended.out)["warnings"] == [warning]
    same = (*TABULAR, *SHARDS, "--no_report", "--direct_num_workers=2", "--if_exists", "skip")
    ended = convert(os.path.relpath(table), output, *same)
    assert (ended.code, ended.err) == (0, "")
    assert everything(output) == before
    ended = convert(changed, output, *TABULAR, "--version", "1.1.0")
    assert ended.code == 0, ended.err
    assert values(output / "birds" / "1.1.0") == {b"new %d" % i for i in range(9)}
    assert {name: everything(output)[name] for name in before} == before


def test_a_replacement_that_fails_leaves_the_old_dataset_and_one_that_succeeds_takes_its_place(
    old: Path, broken: Path, changed: Path, new: Path, output: Path
) -> None:
    dataset = Path(shutil.copytree(old, output / "birds" / "1.0.0"))
    before = everything(dataset)
    assert values(dataset) == {b"old %d" % i for i in range(20)}
    ended = convert(broken, output, *TABULAR, "--if_exists", "replace")
    assert ended.code == 4
    assert everything(dataset) == before
    assert recordmill("verify", dataset).code == 0
    assert published(changed, output, *TABULAR, *SHARDS, "--if_exists", "replace") == dataset
    assert values(dataset) == {b"new %d" % i for i in range(9)}
    readers.assert_the_same(dataset, new)


def test_the_next_run_cleans_up_after_a_failed_one(
    table: Path, old: Path, broken: Path, output: Path
) -> None:
    ended = convert(broken, output, *TABULAR, "--num_shards", "5")
    assert ended.code == 4
    assert not list((output / "birds" / "1.0.0").glob("*.tfrecord-*"))
    run = output / "birds" / ".1.0.0.run" / "dataset"
    left = {path.name for path in run.glob("*.tfrecord-*")}
    assert left == {f"birds-train.tfrecord-{i:05d}-of-00005" for i in range(5)}
    dataset = published(table, output, *TABULAR, *SHARDS)
    readers.assert_the_same(dataset, old)


KILLED = """
import os, signal, sys
from recordmill.pipelines.command_line import main

opened = []

def strike(event, arguments):
    if event == "open" and "/.staging/" in str(arguments[0]):
        opened.append(arguments[0])
        if len(opened) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(strike)
main(sys.argv[1:])
"""


def test_a_killed_run_leaves_no_dataset_and_the_next_run_cleans_up(
    table: Path, old: Path, tmp_path: Path
) -> None:
    target = ("--input", table, "--output", tmp_path, "--name", "birds", *TABULAR)
    flags = ("--num_shards", "5", "--no_report")
    command = [sys.executable, "-c", KILLED, "convert", *map(str, (*target, *flags))]
    assert subprocess.run(command, cwd=ROOT).returncode == -signal.SIGKILL
    dataset, run = tmp_path / "birds" / "1.0.0", tmp_path / "birds" / ".1.0.0.run"
    assert any(run.glob("dataset/.staging/*.partial"))
    assert not dataset.exists()
    published(table, tmp_path, *TABULAR, *SHARDS)
    readers.assert_the_same(dataset, old)
    assert {path.name for path in dataset.iterdir()} == {path.name for path in old.iterdir()}
    assert [path.name for path in (tmp_path / "birds").iterdir()] == ["1.0.0"]


@pytest.mark.parametrize("foreign", ["thesis.txt", "notes/day1.md", "other-train.tfrecord-0-of-1"])
def test_a_folder_with_foreign_files_is_rejected_and_left_alone(
    foreign: str, table: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    path = output / "birds" / "1.0.0" / foreign
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    before = everything(tmp_path)
    ended = convert(table, output, *TABULAR)
    assert ended.code == 2
    assert foreign.partition("/")[0] in ended.err
    assert "Traceback" not in ended.err
    assert everything(tmp_path) == before


def test_a_target_that_cannot_be_written_is_reported(table: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ended = convert(table, tmp_path / "file", *TABULAR)
    assert ended.code == 2
    assert str(tmp_path / "file") in ended.err
    assert "Traceback" not in ended.err


def test_run_json_states_how_the_run_ended(old: Path) -> None:
    run = json.loads((old / "run.json").read_bytes())
    counts = (run["rows"], run["records"], run["rejected"])
    assert (run["state"], run["exit_code"], counts) == ("published", 0, (20, 20, 0))
    assert {"python", "apache-beam", "tensorflow", "Pillow"} <= run["versions"].keys()
