"""Runs the command line: in this process, which is faster, or in a new one."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from recordmill.pipelines.command_line import main
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import ShardVerification
from recordmill.schemas.layout import is_url
from recordmill.schemas.plan import ResolvedSchema
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification import verifier_process
from recordmill.transforms.verification.verify_shard import verify_shard
from recordmill.transforms.workers.process import num_cores

ROOT = Path(__file__).parents[2]
"""The checkout: `python -m recordmill` is run from here."""


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    code: int
    out: str
    err: str


def recordmill(*arguments: object) -> Ended:
    """Runs `recordmill ARGUMENTS` in this process, with a separate verifier process."""
    start_verifier()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Ended(code, out.getvalue(), err.getvalue())


def start_verifier() -> None:
    """Starts the verifier process that all commands of this process share.

    A command does not start another one.
    """
    verifier_process._verifiers[os.getpid()] = _verifier(os.getpid())


class _Verifier(verifier_process.VerifierProcess):
    """A verifier process that does not depend on the working folder.

    Its working folder is the one it was started in, so shards get absolute paths. A process per
    folder would import TensorFlow for each test, until memory runs out.
    """

    def verify(
        self, shard: ShardFiles, resolved: ResolvedSchema, level: Verify
    ) -> ShardVerification:
        if is_url(shard.directory):  # only this process knows the options of stores
            return verify_shard(shard, resolved, level)
        shard = replace(shard, directory=os.path.abspath(shard.directory))
        return super().verify(shard, resolved, level)


@cache
def _verifier(process: int) -> _Verifier:
    """Returns the verifier of a process."""
    started = _Verifier(num_cores())
    atexit.register(started.end)
    return started


def recordmill_process(*arguments: object, cwd: Path = ROOT) -> Ended:
    """Runs `python -m recordmill ARGUMENTS` in a new process."""
    command = [sys.executable, "-m", "recordmill", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def convert(table: object, output: Path, *flags: object, name: str = "birds") -> Ended:
    """Runs `recordmill convert` on one table; without a report, unless `--report` is a flag."""
    target = ("--input", table, "--output", output, "--name", name)
    return recordmill("convert", *target, "--no_report", *flags)


def published(table: object, output: Path, *flags: object, name: str = "birds") -> Path:
    """Runs `recordmill convert`, which must succeed; returns the folder of the dataset."""
    ended = convert(table, output, *flags, name=name)
    assert ended.code == 0, ended.err
    return output / name / "1.0.0"
