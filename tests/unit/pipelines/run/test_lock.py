"""Locks: one holder at a time, and released when the process ends for any reason."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import pytest

from recordmill.pipelines.run.lock import abandoning, committing, lock
from recordmill.schemas.errors import DatasetExists, RecordmillError, UsageError
from tests.forks import forks


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / ".1.0.0.lock")


def test_a_second_holder_is_rejected_with_the_name_of_the_first(path):
    held = lock(path, "out/birds/1.0.0")
    with pytest.raises(DatasetExists, match=rf"another run .*process {os.getpid()} on") as raised:
        lock(path, "out/birds/1.0.0")
    assert raised.value.exit_code == 5
    held.release()
    assert not os.path.exists(path)
    lock(path, "out/birds/1.0.0").release()
    held.release()  # twice does no harm


def hold(path: str, held: Event) -> None:
    lock(path, "it")
    held.set()
    signal.pause()


def test_a_killed_process_releases_its_lock(path):
    held = forks.Event()
    holder = forks.Process(target=hold, args=(path, held))
    holder.start()
    assert held.wait(60)
    with pytest.raises(DatasetExists, match=f"process {holder.pid} on"):
        lock(path, "it")
    holder.kill()
    holder.join()
    assert os.path.exists(path)
    lock(path, "it").release()
    assert not os.path.exists(path)


def compete(path: str, start: Barrier) -> None:
    """Takes the lock repeatedly; fails if another process has it at the same time, or always."""
    start.wait(60)
    won = tried = 0
    while tried < 2000 or not won:  # on a busy machine, the others may be done by then
        tried += 1
        try:
            held = lock(path, "it")
        except DatasetExists:
            continue
        with open(path + ".inside", "x"):
            pass
        os.unlink(path + ".inside")
        held.release()
        won += 1


def test_only_one_of_many_concurrent_processes_gets_the_lock(path):
    start = forks.Barrier(3)
    runs = [forks.Process(target=compete, args=(path, start)) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(120)
    assert [run.exitcode for run in runs] == [0, 0, 0]  # two inside at once would fail


@pytest.mark.parametrize("kind", ["notes", "link", "dangling link", "FIFO", "folder"])
def test_a_path_that_is_not_a_lock_file_is_left_unchanged(kind, path, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    if kind == "notes":
        os.rename(notes, path)
        notes = Path(path)
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    else:
        os.symlink(notes if kind == "link" else tmp_path / "nowhere", path)
    with pytest.raises(UsageError, match=r"\.1\.0\.0\.lock"):
        lock(path, "it")
    assert notes.read_text() == "precious"
    assert os.path.lexists(path)
    assert not (tmp_path / "nowhere").exists()


def test_the_lock_file_of_a_killed_run_can_be_locked(path):
    Path(path).write_text("process 1 on another-machine\n")
    lock(path, "it").release()
    assert not os.path.exists(path)


def test_a_missing_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="Choose a writable folder"):
        lock(str(tmp_path / "nowhere" / "lock"), "it")


def test_an_abandoned_run_does_not_publish() -> None:
    with abandoning("gave up"):
        pass
    with pytest.raises(RecordmillError, match="was interrupted"), committing("gave up"):
        pytest.fail("it published")
    with committing("another"):
        pass


def test_abandoning_a_run_waits_for_its_publication() -> None:
    order = []

    def give_up() -> None:
        with abandoning("published"):
            order.append("gave up")

    thread = threading.Thread(target=give_up)
    with committing("published"):
        thread.start()
        thread.join(0.05)
        order.append("published")
    thread.join()
    assert order == ["published", "gave up"]
