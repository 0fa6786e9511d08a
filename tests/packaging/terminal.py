"""A shell on a pseudo-terminal: types keys and reads the output."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_SECONDS = 20
_CHUNK = 65_536


class Terminal:
    """A program on a pseudo-terminal; it is killed at the end of the block."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """Starts the program in a folder that is also its home, without the user's settings."""
        self._shown = ""
        environment = {**os.environ, "HOME": str(folder), "TERM": "dumb", "PS1": "$ "}
        self._pid, self._handle = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)  # noqa: S606 - a shell

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._handle)

    def type(self, keys: str, until: str) -> str:
        """Types keys, waits for a text, and returns the output since the last call."""
        os.write(self._handle, keys.encode())
        end = time.monotonic() + _SECONDS
        while until not in self._shown:
            if not select.select([self._handle], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"expected {until!r} within {_SECONDS} s, got {self._shown!r}")
            self._shown += os.read(self._handle, _CHUNK).decode(errors="replace")
        shown, self._shown = self._shown, ""
        return shown
