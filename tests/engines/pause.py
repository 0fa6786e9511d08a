"""Stops a conversion in mid-write: one of its pictures is a pipe, fed when the test says so."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.engines.conversion import Conversion

_SECONDS = 300


class Pause:
    """A picture whose first reader waits."""

    def __init__(self, picture: Path) -> None:
        """Puts a pipe in the place of a picture."""
        self._picture = picture
        self._put_away = picture.with_name(picture.name + ".away")
        self._pipe = picture.with_name(picture.name + ".pipe")
        picture.rename(self._put_away)
        os.mkfifo(self._pipe)
        os.link(self._pipe, picture)

    @contextmanager
    def until_it_is_read(self, conversion: Conversion) -> Iterator[None]:
        """Waits for a reader, which waits while the body runs; then it gets the picture.

        Whoever comes later reads the file: two at one pipe would have half of the picture each.
        """
        end = time.monotonic() + _SECONDS
        while (pipe := self._open()) is None:
            assert conversion.running(), conversion.wait().told
            assert time.monotonic() < end, "the picture is never read"
            time.sleep(0.05)
        self.end()
        try:
            yield
        finally:
            self._feed(pipe)

    def reader(self, processes: Sequence[psutil.Process]) -> psutil.Process:
        """Returns the one that has the picture open, which it has soon after it asked for it."""
        end = time.monotonic() + 30
        while not (found := [process for process in processes if self._is_open_in(process)]):
            assert time.monotonic() < end, "none of them reads the picture"
            time.sleep(0.05)
        return found[0]

    def end(self) -> None:
        """Puts the picture back, once."""
        if self._put_away.exists():
            self._put_away.replace(self._picture)
            self._pipe.unlink()

    def _feed(self, pipe: int) -> None:
        """Gives the picture to whoever waits at the pipe."""
        with os.fdopen(pipe, "wb") as stream, suppress(BrokenPipeError):  # that reader is dead
            stream.write(self._picture.read_bytes())

    def _is_open_in(self, process: psutil.Process) -> bool:
        files = Path(f"/proc/{process.pid}/fd").iterdir()
        opened = [str(file.readlink()) for file in files if file.is_symlink()]
        return f"{self._picture} (deleted)" in opened

    def _open(self) -> int | None:
        """Returns the end of the pipe to write to; None while nobody reads."""
        try:
            return os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return None
