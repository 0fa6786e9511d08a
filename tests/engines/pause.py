"""Stops a conversion in mid-write: one of its pictures is a pipe, fed when the test says so."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.engines.conversion import Conversion

_SECONDS = 300


class Pause:
    """A picture whose reader waits."""

    def __init__(self, picture: Path) -> None:
        """Puts a pipe in the place of a picture."""
        self._picture = picture
        self._data = picture.read_bytes()
        picture.unlink()
        os.mkfifo(picture)

    @contextmanager
    def until_it_is_read(self, conversion: Conversion) -> Iterator[None]:
        """Waits for a reader, which waits while the body runs; then it gets the picture."""
        end = time.monotonic() + _SECONDS
        while (pipe := self._open()) is None:
            assert conversion.running(), conversion.wait().told
            assert time.monotonic() < end, "the picture is never read"
            time.sleep(0.05)
        try:
            yield
        finally:
            self._give(pipe)

    def reader(self, processes: Sequence[psutil.Process]) -> psutil.Process:
        """Returns the one that has the picture open, which it has soon after it asked for it."""
        end = time.monotonic() + 30
        while not (found := [process for process in processes if self._is_open_in(process)]):
            assert time.monotonic() < end, "none of them reads the picture"
            time.sleep(0.05)
        return found[0]

    def _is_open_in(self, process: psutil.Process) -> bool:
        files = Path(f"/proc/{process.pid}/fd").iterdir()
        return any(file.readlink() == self._picture for file in files if file.is_symlink())

    @contextmanager
    def over(self) -> Iterator[None]:
        """Gives the picture to whoever reads it, while the body runs."""
        done = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(done,))
        feeder.start()
        try:
            yield
        finally:
            done.set()
            feeder.join()

    def end(self) -> None:
        """Puts the picture back."""
        self._picture.unlink()
        self._picture.write_bytes(self._data)

    def _feed(self, done: threading.Event) -> None:
        while not done.wait(0.05):
            pipe = self._open()
            if pipe is not None:
                self._give(pipe)

    def _give(self, pipe: int) -> None:
        try:
            os.write(pipe, self._data)
        except BrokenPipeError:
            return  # that reader is dead; there may be another
        finally:
            os.close(pipe)

    def _open(self) -> int | None:
        """Returns the end of the pipe to write to; None while nobody reads."""
        try:
            return os.open(self._picture, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return None
