"""Completion with the tab key in real shells, on a pseudo-terminal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.command import recordmill
from tests.packaging.terminal import Terminal

SHELLS = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config", "-i"),
}
SETUP = {
    "bash": "recordmill() { echo GOT: $* :END; }; source ./script; echo rea''dy\n",
    "zsh": "recordmill() { echo GOT: $* :END; }; mv script _recordmill; fpath=($PWD $fpath); "
    "autoload -U compinit; compinit -u -D; echo rea''dy\n",
    "fish": "function recordmill; echo GOT: $argv :END; end; source ./script; echo rea''dy\n",
}
TYPED = {
    "a command": ("conv\t", "convert"),
    "a flag": ("convert --if_e\t", "convert --if_exists"),
    "its choices": ("convert --if_exists rep\t", "convert --if_exists replace"),
    "a format": ("convert --input_format parq\t", "convert --input_format parquet"),
    "a preset": ("convert --schema tf_sl\t", "convert --schema tf_slim"),
    "a schema file": ("convert --schema mine\t", "convert --schema mine.yaml"),
    "a table": ("convert --input lab\t", "convert --input labels.csv"),
    "a folder": ("convert --output data\t", "convert --output datasets"),
    "a preset to show": ("schema landm\t", "schema landmark"),
    "a dataset to show": ("schema data\t", "schema datasets"),
    "the versions of a dataset": ("versions data\t", "versions datasets"),
    "a dataset": ("verify data\t", "verify datasets"),
    "a flag of inspect": ("inspect --she\t", "inspect --sheet"),
    "a shell": ("completion zs\t", "completion zsh"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table, a schema and datasets."""
    (tmp_path / "labels.csv").touch()
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "datasets").mkdir()
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS)
def test_the_tab_key_completes(shell: str, folder: Path) -> None:
    if shell != "bash" and shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")  # run_local.sh packaging installs it where it can
    script = recordmill("completion", shell)
    assert (script.code, script.err) == (0, "")
    (folder / "script").write_text(script.out)
    completed = {}
    with Terminal(SHELLS[shell], folder) as terminal:
        terminal.type(SETUP[shell], "ready")
        for what, (typed, expected) in TYPED.items():
            terminal.type(f"recordmill {typed}", expected)
            shown = terminal.type("\n", ":END")
            completed[what] = shown.partition("GOT: ")[2].partition(" :END")[0].rstrip("/")
    assert completed == {what: expected for what, (_, expected) in TYPED.items()}


def test_for_an_unknown_shell_the_supported_ones_are_listed() -> None:
    ended = recordmill("completion", "tcsh")
    assert ended.code == 2
    for shell in SHELLS:
        assert shell in ended.err
