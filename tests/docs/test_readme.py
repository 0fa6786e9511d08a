"""The quick start of the README runs as it stands, and prints what the README shows."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recordmill
from tests.docs.pages import DOCS, ROOT

_QUICK_START = (ROOT / "README.md").read_text("utf-8").partition("## Quick start")[2]
_COMMANDS, _PRINTED, _SNIPPET = re.findall(r"^```\w*\n(.*?)^```", _QUICK_START, re.M | re.S)[:3]
_SECONDS = re.compile(r"in [\d.]+ s")


def _lines(text: str) -> list[str]:
    return [_SECONDS.sub("in … s", line.rstrip()) for line in text.splitlines()]


def test_the_drawing_shows_rejects_and_the_verdict() -> None:
    text = html.unescape(re.sub("<[^>]+>", "", (DOCS / "terminal.svg").read_text("utf-8")))
    for shown in ("$", "recordmill convert", "truncated", "verified and published"):
        assert shown in text.replace("\xa0", " ")
    assert "http" not in text  # loads nothing


def test_the_quick_start_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = ["sh", "-e", "-c", _COMMANDS]
    done = subprocess.run(
        commands,
        cwd=tmp_path,
        env={**os.environ, "PATH": tools},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = _lines(done.stdout + done.stderr)
    shown = _lines(_PRINTED)
    first = printed.index(shown[0])
    assert printed[first : first + len(shown)] == shown
    assert (tmp_path / "sheet.png").stat().st_size > 1000

    monkeypatch.chdir(tmp_path)
    values: dict[str, object] = {}
    exec(_SNIPPET, values)  # noqa: S102 - the README's own
    assert isinstance(values["dataset"], recordmill.Dataset)
    (first_batch,) = values["train"].take(1)
    assert first_batch["image"].shape == (32, 224, 224, 3)
