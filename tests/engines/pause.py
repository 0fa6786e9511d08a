"""Pauses a conversion while it writes: the first reader of an image waits for the test."""

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
        return  # another process was first
    while not os.path.exists({over!r}):
        time.sleep(0.05)

sys.addaudithook(wait)
"""
"""A sitecustomize module, which Python runs at the start of each process."""


class Pause:
    """An image whose first reader waits, in any process with `environment`."""

    def __init__(self, image: Path, folder: Path) -> None:
        """Writes the code that waits into a folder."""
        self._reader, self._over = folder / "reader", folder / "over"
        names = {"image": image, "reader": self._reader, "over": self._over}
        hook = _HOOK.format_map({name: str(path) for name, path in names.items()})
        (folder / "sitecustomize.py").write_text(hook)
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {"PYTHONPATH": os.pathsep.join(paths)}

    @contextmanager
    def until_it_is_read(self, conversion: Conversion) -> Iterator[None]:
        """Waits for the first reader, which is paused during the `with` block."""
        end = time.monotonic() + _SECONDS
        while not self._reader.exists():
            assert conversion.running(), conversion.wait().output
            assert time.monotonic() < end, "the image is never read"
            time.sleep(0.05)
        try:
            yield
        finally:
            self.end()

    def reader(self) -> psutil.Process:
        """Returns the paused process."""
        return psutil.Process(int(self._reader.read_text()))

    def end(self) -> None:
        """Ends the pause."""
        self._over.touch()
