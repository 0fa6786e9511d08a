"""A folder with all that is below it: on this machine, or in a store."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from recordmill.schemas.layout import join
from recordmill.schemas.records import Aside
from recordmill.transforms.functional.sources.tree import Unlisted, is_hidden
from recordmill.transforms.storage.files import exists, is_local, names_below, open_binary
from recordmill.transforms.storage.stores.local import is_special

HIDDEN = "hidden files and folders"
LOOPS = "links to a folder that they are in"
SPECIAL = "FIFOs, sockets and devices"

MAX_PATHS = 64
"""How many paths, through links, a folder is read by."""

_TOO_MANY_PATHS = f"links make over {MAX_PATHS} paths to this folder: remove some of them"
_UPWARDS = re.compile(r"/[^/]+/\.\./")
_Folder = tuple[int, int]
"""A device, and a folder's number on it."""


@dataclass(frozen=True)
class FileTree:
    """A folder; see `recordmill.transforms.functional.sources.tree.Tree`.

    Attributes:
        root: its path, without a slash at the end.
    """

    root: str

    def walk(self) -> Iterator[str | Unlisted | Aside]:
        """Yields the name below the root of every file at any depth, but for hidden ones."""
        return _walk_here(self.root) if is_local(self.root) else _walk_store(self.root)

    def path(self, name: str) -> str:
        """Returns the path of a file below the root, or beside it where the name begins so."""
        path = join(self.root, name) if name else self.root
        return _UPWARDS.sub("/", path)

    def open(self, name: str) -> BinaryIO:
        """Returns a file's bytes."""
        return open_binary(self.path(name))

    def has(self, name: str) -> bool:
        """Returns whether there is a file or folder of this name below the root."""
        return exists(self.path(name))


def _walk_here(root: str) -> Iterator[str | Unlisted | Aside]:
    """Yields what is below a folder; links are followed, but never in a circle.

    A folder that several links lead to is read for each of them, up to a limit: 16 levels of two
    links each would make 65,536 paths of one file.
    """
    waiting: list[tuple[str, tuple[_Folder, ...]]] = [("", ())]
    paths = Counter[_Folder]()
    while waiting:
        folder, above = waiting.pop()
        path = join(root, folder) if folder else root
        try:
            state = os.stat(path)
            here = (state.st_dev, state.st_ino)
            if here in above:
                yield Aside(LOOPS)
                continue
            paths[here] += 1
            if paths[here] > MAX_PATHS:
                yield Unlisted(readable(folder), _TOO_MANY_PATHS)
                continue
            below: list[str] = []
            with os.scandir(path) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    found = _found(entry, name)
                    if found is not None:
                        yield found
                    else:
                        below.append(name)
            # Sorted, so that every run reads the same paths of a folder that has too many.
            waiting.extend((name, (*above, here)) for name in sorted(below, reverse=True))
        except OSError as error:
            why = f"the folder cannot be listed: {error.strerror or error}"
            yield Unlisted(readable(folder), why)


def _found(entry: os.DirEntry[str], name: str) -> str | Unlisted | Aside | None:
    """Returns what an entry is; None for a folder."""
    if is_hidden(entry.name):
        return Aside(HIDDEN)
    if readable(entry.name) != entry.name:
        return Unlisted(readable(name), "the name is not text in UTF-8: rename it")
    if entry.is_file():
        return name
    if entry.is_dir():
        return None
    return Aside(SPECIAL) if is_special(entry.path) else name  # a broken link is a reject


def _walk_store(root: str) -> Iterator[str | Aside]:
    for name in names_below(root + "/"):
        if any(is_hidden(part) for part in name.split("/")):
            yield Aside(HIDDEN)
        elif name and not name.endswith("/"):  # some tools mark folders by empty objects
            yield name


def readable(name: str) -> str:
    """Returns a name as text, with the bytes that are no UTF-8 written out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
