"""The command line as a user has it: in this process for speed, or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from recordmill.pipelines.command_line import main
from recordmill.transforms.verification.tensorflow_reader import tensorflow

ROOT = Path(__file__).parents[2]
"""The checkout: `python -m recordmill` is run from here."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def recordmill(*arguments: object) -> Ended:
    """Runs `recordmill ARGUMENTS` in this process."""
    tensorflow()  # once, or each run would have a process import it anew
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Ended(code, out.getvalue(), err.getvalue())


def recordmill_process(*arguments: object, cwd: Path = ROOT) -> Ended:
    """Runs `python -m recordmill ARGUMENTS` in a process of its own."""
    command = [sys.executable, "-m", "recordmill", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def convert(table: object, output: Path, *flags: object, name: str = "birds") -> Ended:
    """Runs `recordmill convert` on one table; without a report, unless `--report` is a flag."""
    target = ("--input", table, "--output", output, "--name", name)
    return recordmill("convert", *target, "--no_report", *flags)


def published(table: object, output: Path, *flags: object, name: str = "birds") -> Path:
    """Runs `recordmill convert`, which has to succeed; returns the dataset's folder."""
    ended = convert(table, output, *flags, name=name)
    assert ended.code == 0, ended.err
    return output / name / "1.0.0"
