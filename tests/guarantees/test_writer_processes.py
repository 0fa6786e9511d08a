"""Writer processes write the shards that this process would write itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from recordmill.transforms import elements
from recordmill.transforms.elements import ShardId
from recordmill.transforms.shards import writer_processes
from recordmill.transforms.shards.build_examples import ImageBuilder, ToRead
from recordmill.transforms.shards.shard_task import ShardTask
from recordmill.transforms.shards.writer_processes import WriterProcesses
from tests.end_to_end.command import convert, published
from tests.images import image_bytes, jpeg, png

# Files that differ from run to run.
OF_A_RUN = {"run.json", "report.html"}


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has processes started for few rows, which pass through spill files."""
    monkeypatch.setattr(elements, "_GATHERED_BYTES", 1_000)
    monkeypatch.setattr(writer_processes, "MANY_ROWS", 10)
    monkeypatch.setattr(writer_processes, "MANY_IMAGES", 10)
    ready = property(lambda self: self._are_ready.wait())
    monkeypatch.setattr(WriterProcesses, "are_ready", ready)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ShardId]:
    """The shards that writer processes were asked for."""
    run, found = WriterProcesses.run, list[ShardId]()

    def recorded(self: WriterProcesses, task: ShardTask, shard: ShardId, rows: Any) -> Any:
        found.append(shard)
        return run(self, task, shard, rows)

    monkeypatch.setattr(WriterProcesses, "run", recorded)
    return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of references whose records writer processes were asked for, without a shard."""
    build, found = WriterProcesses._build, list[int]()

    def recorded(self: WriterProcesses, images: ImageBuilder, refs: Sequence[ToRead]) -> Any:
        found.append(len(refs))
        return build(self, images, refs)

    monkeypatch.setattr(WriterProcesses, "_build", recorded)
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The process ids of the writer processes of each run."""
    found: list[list[int]] = []

    class Recorded(WriterProcesses):
        def end(self) -> None:
            of_parent = psutil.Process(self._service.pid).children()
            found.append([child.pid for child in of_parent])
            super().end()

    monkeypatch.setattr(writer_processes, "WriterProcesses", Recorded)
    return found


def files(dataset: Path) -> dict[str, bytes]:
    """Returns the content of all files that are the same in each run."""
    paths = (path for path in dataset.rglob("*") if path.is_file() and path.name not in OF_A_RUN)
    return {path.relative_to(dataset).as_posix(): path.read_bytes() for path in paths}


def table_of_numbers(folder: Path, rows: int = 300) -> Path:
    lines = [f"row-{i},{i % 7},{i * 0.37},word {i}" for i in range(rows)]
    lines[17] = lines[16]  # a duplicate key
    lines[40] = "row-40,many,1.0,word"
    (folder / "t.csv").write_text("\n".join(["id,n,x,text", *lines, ""]))
    return folder / "t.csv"


def table_of_images(folder: Path) -> Path:
    """Returns a table of PNGs, JPEGs, images to transcode, and images that are rejected."""
    rows = []
    for i in range(60):
        kinds = (png(seed=i), jpeg(seed=i), image_bytes("GIF", seed=i))
        data = kinds[i % 3]
        name = f"{i}.img"
        (folder / name).write_bytes(data[: len(data) // 2] if i % 20 == 6 else data)
        rows.append(f"{name},class {i % 4}")
    (folder / "t.csv").write_text("\n".join(["image,label", *rows, "gone.png,class 1", ""]))
    return folder / "t.csv"


TABLES = {
    "numbers": (table_of_numbers, ("--schema", "tabular", "--key_column", "id")),
    "images": (table_of_images, ("--splits", "train=0.7,test=0.3", "--compression", "gzip")),
}


@pytest.mark.parametrize(("case", "shards"), [("numbers", 3), ("images", 3), ("images", 1)])
def test_they_write_the_same_bytes_and_rejects(
    case: str,
    shards: int,
    tmp_path: Path,
    started: list[list[int]],
    asked: list[ShardId],
    sent: list[int],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    make, flags = TABLES[case]
    table = make(tmp_path)
    flags = ("--num_shards", str(shards), "--max_rejects", "9", *flags)
    monkeypatch.setattr("recordmill.transforms.shards.writer_processes.num_cores", lambda: 3)
    alone = published(table, tmp_path / "alone", *flags)
    assert started == []
    assert asked == []
    request.getfixturevalue("low_limits")
    shared = published(table, tmp_path / "shared", *flags)
    (pids,) = started
    assert len(pids) > 1
    assert not any(map(psutil.pid_exists, pids))
    assert files(shared) == files(alone)
    if shards == 1:  # of each of two splits, for three processes
        assert asked == []
        assert sum(sent) == 61
    else:
        assert sent == []
        assert len(asked) == len(set(asked)) == len(list(shared.glob("*.tfrecord*")))
    rejects = (shared / "rejects/rejects-00000-of-00001.jsonl").read_text().splitlines()
    assert len(rejects) == (1 if case == "numbers" else 4)


OWNED = """
import sys
from recordmill.pipelines.command_line import main
from recordmill.transforms.shards import writer_processes

writer_processes.MANY_ROWS = 200
writer_processes.WriterProcesses.are_ready = property(lambda self: self._are_ready.wait())
start = writer_processes.service_process.ServiceProcess.__init__

def shown(self, service, *arguments):
    start(self, service, *arguments)
    print("started:", service if isinstance(service, str) else "fork", self.pid)

writer_processes.service_process.ServiceProcess.__init__ = shown
sys.exit(main(sys.argv[1:], owned=True))
"""


def test_a_command_forks_them_from_itself(tmp_path: Path) -> None:
    table = table_of_numbers(tmp_path)
    flags = ("--num_shards", "3", *TABLES["numbers"][1], "--max_rejects", "9")
    alone = published(table, tmp_path / "alone", *flags)
    where = ("--input", table, "--output", tmp_path / "forked", "--name", "birds")
    command = [sys.executable, "-c", OWNED, "convert", *where, *flags]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    started = [line.split()[1:] for line in ended.stdout.splitlines() if "started" in line]
    assert [kind for kind, _ in started if "writer" in kind or kind == "fork"] == ["fork"]
    assert not any(psutil.pid_exists(int(pid)) for _, pid in started)
    assert files(tmp_path / "forked/birds/1.0.0") == files(alone)


def test_a_process_forked_in_vain_ends_by_itself() -> None:
    with writer_processes.forked_ahead():
        (service,) = writer_processes._forked.values()
    assert service._process.poll() == 0  # killing it takes another second


@pytest.mark.usefixtures("low_limits")
def test_shards_that_need_the_verifier_are_written_by_this_process(
    tmp_path: Path, started: list[list[int]]
) -> None:
    flags = ("--num_shards", "3", "--verify", "decode", "--max_rejects", "9")
    published(table_of_images(tmp_path), tmp_path / "out", *flags)
    assert started == []


@pytest.mark.usefixtures("low_limits")
def test_a_run_whose_writer_was_killed_fails_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of_numbers(tmp_path)
    flags = ("--num_shards", "40", *TABLES["numbers"][1], "--max_rejects", "9")
    alone = published(table, tmp_path / "alone", *flags)
    run, asked = WriterProcesses.run, list[ShardId]()

    def killed_later(self: WriterProcesses, task: ShardTask, shard: ShardId, rows: Any) -> Any:
        asked.append(shard)
        if len(asked) == 20:
            psutil.Process(self._service.pid).children()[0].kill()
        return run(self, task, shard, rows)

    with monkeypatch.context() as patched:
        patched.setattr(WriterProcesses, "run", killed_later)
        ended = convert(table, tmp_path / "out", *flags)
    assert ended.code == 1
    assert "the process that writes shard" in ended.err
    assert "has died: Killed" in ended.err
    again = convert(table, tmp_path / "out", *flags)
    assert (again.code, "resumed" in again.out + again.err) == (0, True)
    assert files(tmp_path / "out/birds/1.0.0") == files(alone)
