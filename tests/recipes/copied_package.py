"""A copy of the package, for tests that add to it, and a process that runs its commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Runs commands one by one, as importing Beam takes longer than most of them.
_SERVER = """
import contextlib, io, json, sys
from recordmill.pipelines.command_line import main
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            code = main(json.loads(line))
        except SystemExit as ended:  # of --help
            code = ended.code or 0
    print(json.dumps([code, printed.getvalue()]), flush=True)
"""


def copy_package(folder: Path) -> Path:
    """Copies the package into a folder, and returns the copy."""
    return Path(shutil.copytree(ROOT / "recordmill", folder / "recordmill"))  # follows the links


class Commands:
    """A process that imports the package in a folder."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *arguments: object, code: int = 0) -> str:
        """Runs `recordmill ARGUMENTS`, which must end with a code; returns what it prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([*map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        ended, printed = json.loads(self._process.stdout.readline())
        assert ended == code, printed
        return str(printed)


@contextmanager
def commands_of(folder: Path) -> Iterator[Commands]:
    """Starts the process."""
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        yield Commands(process)
