"""Stops a conversion in mid-write: whoever opens one of its images first waits for the test."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.engines.conversion import Conversion

_SECONDS = 300

_HOOK = """
import os, sys, time

def wait(event, arguments):
    if event != "open" or arguments[0] != {image!r} or os.path.exists({reader!r}):
        return
    mine = {reader!r} + str(os.getpid())
    with open(mine, "w") as stream:
        stream.write(str(os.getpid()))
    try:
        os.link(mine, {reader!r})
    except FileExistsError:
        return  # another was first
    while not os.path.exists({over!r}):
        time.sleep(0.05)

sys.addaudithook(wait)
"""
"""Python runs it at the start of each process: the program knows nothing of it."""


class Pause:
    """An image whose first reader waits, in whichever process with `environment` it is."""

    def __init__(self, image: Path, folder: Path) -> None:
        """Writes what makes it wait into a folder."""
        self._reader, self._over = folder / "reader", folder / "over"
        names = {"picture": image, "reader": self._reader, "over": self._over}
        hook = _HOOK.format_map({name: str(path) for name, path in names.items()})
        (folder / "sitecustomize.py").write_text(hook)
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {"PYTHONPATH": os.pathsep.join(paths)}

    @contextmanager
    def until_it_is_read(self, conversion: Conversion) -> Iterator[None]:
        """Waits for a reader, which waits while the body runs; whoever comes later does not."""
        end = time.monotonic() + _SECONDS
        while not self._reader.exists():
            assert conversion.running(), conversion.wait().told
            assert time.monotonic() < end, "the picture is never read"
            time.sleep(0.05)
        try:
            yield
        finally:
            self.end()

    def reader(self) -> psutil.Process:
        """Returns the process that waits."""
        return psutil.Process(int(self._reader.read_text()))

    def end(self) -> None:
        """Lets all read it."""
        self._over.touch()
