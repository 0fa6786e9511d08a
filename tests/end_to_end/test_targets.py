"""What may already be at the target: datasets, leftovers of failed runs, and foreign files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import ROOT, convert, published, recordmill
from tests.end_to_end.tables import write_table

TABULAR = ("--schema", "tabular", "--key_column", "id")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.csv", [{"id": i, "x": f"old {i}"} for i in range(20)])


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    return write_table(tmp_path / "changed.csv", [{"id": i, "x": f"new {i}"} for i in range(9)])


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A table with a reject: its run fails."""
    table = tmp_path / "broken.csv"
    table.write_text("id,x\n1,a\n2,b\n3,c,d\n")
    return table


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


def test_a_published_dataset_is_kept_by_fail_and_skip_and_beside_another_version(
    table: Path, changed: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    published(table, output, *TABULAR)
    before = everything(output)
    ended = convert(changed, output, *TABULAR)
    assert ended.code == 5
    assert "--if_exists" in ended.err
    assert "--version" in ended.err
    assert "Traceback" not in ended.err
    ended = convert(changed, output, *TABULAR, "--if_exists", "skip")
    assert (ended.code, ended.err) == (0, "")
    assert everything(output) == before
    ended = convert(changed, output, *TABULAR, "--version", "1.1.0")
    assert ended.code == 0, ended.err
    assert values(output / "birds" / "1.1.0") == {b"new %d" % i for i in range(9)}
    assert {name: everything(output)[name] for name in before} == before


def test_replace_puts_the_new_dataset_in_place_of_the_old(
    table: Path, changed: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    dataset = published(table, output, *TABULAR, "--num_shards", "3")
    assert values(dataset) == {b"old %d" % i for i in range(20)}
    flags = (*TABULAR, "--if_exists", "replace", "--num_shards", "2")
    assert published(changed, output, *flags) == dataset
    assert values(dataset) == {b"new %d" % i for i in range(9)}
    fresh = published(changed, tmp_path / "fresh", *flags)
    assert readers.content(dataset).keys() == readers.content(fresh).keys()
    assert readers.shard_bytes(dataset) == readers.shard_bytes(fresh)
    assert [path.name for path in (output / "birds").iterdir()] == ["1.0.0"]
    assert recordmill("verify", dataset).code == 0


def test_a_replacement_that_fails_leaves_the_old_dataset_as_it_was(
    table: Path, broken: Path, changed: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    dataset = published(table, output, *TABULAR)
    before = everything(dataset)
    ended = convert(broken, output, *TABULAR, "--if_exists", "replace")
    assert ended.code == 4
    assert everything(dataset) == before
    assert recordmill("verify", dataset).code == 0
    published(changed, output, *TABULAR, "--if_exists", "replace")
    assert values(dataset) == {b"new %d" % i for i in range(9)}
    assert [path.name for path in (output / "birds").iterdir()] == ["1.0.0"]


def test_the_next_run_cleans_what_a_failed_one_left(
    table: Path, broken: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    ended = convert(broken, output, *TABULAR, "--num_shards", "5")
    assert ended.code == 4
    left = {path.name for path in (output / "birds" / "1.0.0").glob("*.tfrecord-*")}
    assert left == {f"birds-train.tfrecord-{i:05d}-of-00005" for i in range(5)}
    dataset = published(table, output, *TABULAR, "--num_shards", "2")
    fresh = published(table, tmp_path / "fresh", *TABULAR, "--num_shards", "2")
    assert readers.content(dataset) == readers.content(fresh)


def test_a_killed_run_leaves_no_dataset_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    rows = [{"id": i, "x": "x" * 50} for i in range(15_000)]
    table, output = write_table(tmp_path / "large.csv", rows), tmp_path / "out"
    target = ("--input", table, "--output", output, "--name", "birds", *TABULAR)
    command = [sys.executable, "-m", "pipelines", "convert", "--no_report", *map(str, target)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    dataset = output / "birds" / "1.0.0"
    deadline = time.monotonic() + 120
    run = output / "birds" / ".1.0.0.run"
    while not any(run.glob("staging/shards-train/*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not dataset.exists()
    small = write_table(tmp_path / "small.csv", rows[:10])
    published(small, output, *TABULAR)
    fresh = published(small, tmp_path / "fresh", *TABULAR)
    assert readers.content(dataset) == readers.content(fresh)
    assert {path.name for path in dataset.iterdir()} == {path.name for path in fresh.iterdir()}
    assert [path.name for path in (output / "birds").iterdir()] == ["1.0.0"]


@pytest.mark.parametrize("foreign", ["thesis.txt", "notes/day1.md", "other-train.tfrecord-0-of-1"])
def test_a_folder_with_foreign_files_is_refused_and_left_alone(
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


def test_nothing_outside_the_target_is_touched(
    table: Path, broken: Path, changed: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    beside = {
        "readme.md": "mine",
        "birds/2.0.0/birds-train.tfrecord-00000-of-00001": "another version",
        "birds/notes.txt": "mine, too",
        "birds2/1.0.0/_SUCCESS": "another dataset",
    }
    for name, text in beside.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text)
    assert convert(broken, output, *TABULAR).code == 4
    published(table, output, *TABULAR)
    published(changed, output, *TABULAR, "--if_exists", "replace")
    assert {name: (output / name).read_text() for name in beside} == beside
    assert {str(path.relative_to(output)) for path in output.glob("*/*")} == {
        "birds/1.0.0",
        "birds/2.0.0",
        "birds/notes.txt",
        "birds2/1.0.0",
    }


def test_a_target_that_cannot_be_written_is_told(table: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ended = convert(table, tmp_path / "file", *TABULAR)
    assert ended.code == 2
    assert str(tmp_path / "file") in ended.err
    assert "Traceback" not in ended.err


def test_run_json_tells_how_the_run_ended(table: Path, tmp_path: Path) -> None:
    dataset = published(table, tmp_path / "out", *TABULAR)
    run = json.loads((dataset / "run.json").read_bytes())
    counts = (run["rows"], run["records"], run["rejected"])
    assert (run["state"], run["exit_code"], counts) == ("published", 0, (20, 20, 0))
    assert {"python", "apache-beam", "tensorflow", "Pillow"} <= run["versions"].keys()
