"""Locks: one holder at a time, and released when the process ends for any reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from recordmill.pipelines.run.lock import abandoning, committing, lock
from recordmill.schemas.errors import DatasetExists, RecordmillError, UsageError

ROOT = Path(__file__).parents[4]


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


def test_a_killed_process_releases_its_lock(path):
    imports = "from recordmill.pipelines.run.lock import lock"
    code = f"{imports}; lock({path!r}, 'it'); print('held'); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(DatasetExists, match=f"process {holder.pid} on"):
        lock(path, "it")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert os.path.exists(path)
    lock(path, "it").release()
    assert not os.path.exists(path)


def test_only_one_of_many_concurrent_processes_gets_the_lock(path):
    code = (
        "import sys, time\n"
        "from recordmill.pipelines.run.lock import lock\n"
        "from recordmill.schemas.errors import DatasetExists\n"
        "won = tried = 0\n"
        "while tried < 2000 or not won:\n"  # on a busy machine, the others may be done by then
        "    tried += 1\n"
        "    try: held = lock(sys.argv[1], 'it')\n"
        "    except DatasetExists: continue\n"
        "    with open(sys.argv[2], 'x'): pass\n"
        "    import os; os.unlink(sys.argv[2])\n"
        "    held.release(); won += 1\n"
        "print(won)"
    )
    command = [sys.executable, "-c", code, path, path + ".inside"]
    runs = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    wins = [int(run.communicate(timeout=120)[0]) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]  # two inside at once would fail
    assert all(wins)


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
