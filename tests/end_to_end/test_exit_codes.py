"""A run that starts records its outcome in run.json; one rejected earlier writes nothing."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines import convert as conversion
from tests.end_to_end.command import ROOT, Ended, convert, published
from tests.end_to_end.tables import write_table

FLAGS = ("--schema", "tabular", "--key_column", "n", "--no_report")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four rows, two of which have the same key."""
    rows = [{"n": i, "x": "y"} for i in (1, 2, 3, 3)]
    return write_table(tmp_path / "t.csv", rows)


def outcome(ended: Ended, output: Path) -> tuple[int, str, int]:
    """Returns the exit code, and the state and exit code in run.json; checks for tracebacks."""
    assert "Traceback" not in ended.err
    run: dict[str, Any] = json.loads((output / "birds/1.0.0/run.json").read_bytes())
    assert run["message"] == ("" if run["state"] == "published" else run["message"])
    assert run["state"] == "published" or run["message"] in ended.err
    return ended.code, run["state"], run["exit_code"]


@pytest.mark.parametrize("budget", ["24%", "duplicate_key=0,truncated=9"])
def test_more_rejects_than_allowed(table: Path, tmp_path: Path, budget: str) -> None:
    ended = convert(table, tmp_path / "out", *FLAGS, "--max_rejects", budget)
    assert outcome(ended, tmp_path / "out") == (4, "failed", 4)
    over = ", exceeded by duplicate_key" if "=" in budget else ""
    assert f"(1 duplicate_key), --max_rejects allows {budget}{over}:\n  " in ended.err


@pytest.mark.parametrize("budget", ["25%", "1,duplicate_key=1"])
def test_as_many_rejects_as_allowed(table: Path, tmp_path: Path, budget: str) -> None:
    ended = convert(table, tmp_path / "out", *FLAGS, "--max_rejects", budget)
    assert outcome(ended, tmp_path / "out") == (0, "published", 0)


def test_a_failure_of_the_engine(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(conversion, "build", fail)
    assert outcome(convert(table, tmp_path / "out", *FLAGS), tmp_path / "out") == (1, "failed", 1)


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Limits file sizes like `ulimit -f`, in this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("mode", ["in_memory", "multi_threading"])
def test_a_failed_write_is_reported_once(mode: str, tmp_path: Path) -> None:
    assert_a_failed_write_is_reported_once(mode, tmp_path)


def assert_a_failed_write_is_reported_once(mode: str, tmp_path: Path) -> None:
    """Asserts that a conversion in one of Beam's running modes has a message and a remedy."""
    table = write_table(tmp_path / "t.csv", [{"n": 1, "x": "y" * 20_000}])
    with no_file_above(8192):
        ended = convert(table, tmp_path / "out", *FLAGS, f"--direct_running_mode={mode}")
    assert ended.code == 1, ended.err
    # On a slow machine, there are lines of progress: "10 s: starting, …".
    lines = [line for line in ended.err.splitlines() if not re.match(r"\d+ s: ", line)]
    assert len(lines) == 2, ended.err
    first, remedy = lines
    assert re.fullmatch(r"recordmill: the engine failed: .*: \[Errno 27\] File too large.*", first)
    assert remedy.startswith("  Allow larger files where --output is (see ulimit -f), then run")
    assert not (tmp_path / "out/birds/1.0.0/_SUCCESS").exists()


def test_a_signal(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "build", lambda *_: signal.raise_signal(signal.SIGTERM))
    ended = convert(table, tmp_path / "out", *FLAGS)
    assert ended.code == 143
    assert outcome(ended, tmp_path / "out") == (143, "interrupted", 143)


def test_a_run_that_is_rejected_before_it_starts_writes_nothing(
    table: Path, tmp_path: Path
) -> None:
    for flags, code in ((("--schema", "nothing"), 2), (("--split_column", "z"), 2)):
        ended = convert(table, tmp_path / "out", *flags)
        assert (ended.code, "Traceback" in ended.err) == (code, False)
    assert not (tmp_path / "out").exists()


def test_an_existing_dataset_keeps_its_run_json(table: Path, tmp_path: Path) -> None:
    dataset = published(table, tmp_path / "out", *FLAGS, "--max_rejects", "1")
    before = (dataset / "run.json").read_bytes()
    assert convert(table, tmp_path / "out", *FLAGS).code == 5
    assert convert(table, tmp_path / "out", *FLAGS, "--if_exists", "skip").code == 0
    assert (dataset / "run.json").read_bytes() == before


ABORTS_AT_EXIT = """
import ctypes, sys
from recordmill.__main__ import main

libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.abort, None, None)
sys.argv = ["recordmill", *{arguments!r}]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["schema", "image_classification"], 0, "image_classification"),
        (["verify", "nowhere"], 3, "nowhere"),
    ],
)
def test_errors_of_libraries_at_exit_change_neither_exit_code_nor_output(
    arguments: list[str], code: int, said: str
) -> None:
    """Simulates a thread of TensorFlow that occasionally fails at exit."""
    program = ABORTS_AT_EXIT.format(arguments=arguments)
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert ended.returncode == code, ended.stderr
    assert said in ended.stdout + ended.stderr
