"""Spill files, in which elements wait between two steps of the in-process runner.

That runner keeps all elements between two steps in memory, several times over.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from recordmill.schemas import layout
from recordmill.transforms.storage.files import make_folders


class Spilled(NamedTuple):
    """The place of an element in a spill file."""

    path: str
    start: int
    stop: int

    def read(self) -> bytes:
        """Returns the element."""
        with open(self.path, "rb") as stream:
            stream.seek(self.start)
            return stream.read(self.stop - self.start)


# The folder of the run, on this machine; "" if elements stay in memory.
_folder = ""


@contextmanager
def spilling_to(folder: str) -> Iterator[None]:
    """Has elements wait in staging files while the body runs.

    `folder` is the folder of the run, on this machine; "" to keep elements in memory.
    """
    global _folder
    _folder = folder
    try:
        yield
    finally:
        _folder = ""


def spill(elements: Iterable[bytes]) -> list[Spilled]:
    """Writes elements to a new file.

    Returns the place of each; none, and no element is made, if they stay in memory.
    """
    if not _folder:
        return []
    make_folders(_folder, layout.STAGING)
    path, stop, places = layout.join(_folder, layout.STAGING, uuid.uuid4().hex), 0, list[Spilled]()
    with open(path, "wb") as stream:
        for element in elements:
            start, stop = stop, stop + stream.write(element)
            places.append(Spilled(path, start, stop))
    return places
