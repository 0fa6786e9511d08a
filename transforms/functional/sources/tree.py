"""A folder with all that is below it, as the readers of folders see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO, NamedTuple, Protocol

from recordmill.schemas.records import SkippedInput
from recordmill.schemas.tables import SourceSplit, TableFile

SPLIT_FILES = 1000
"""Few enough for many workers to share one folder, enough to be worth a worker's while."""


class Unlisted(NamedTuple):
    """A folder or file that is there and cannot be named or listed.

    Attributes:
        name: as below the tree's root, fit to be read by people.
        why: what is wrong with it.
    """

    name: str
    why: str


class Tree(Protocol):
    """A folder, on this machine or in an object store."""

    @property
    def root(self) -> str:
        """The folder's path, without a slash at the end."""

    def walk(self) -> Iterator[str | Unlisted | SkippedInput]:
        """Yields the name below the root of every file at any depth, except for hidden ones."""

    def path(self, name: str) -> str:
        """Returns the path of a file below the root, or beside it where the name begins so."""

    def open(self, name: str) -> BinaryIO:
        """Returns a file's bytes."""

    def has(self, name: str) -> bool:
        """Returns whether there is a file or folder of this name below the root."""


def is_hidden(name: str) -> bool:
    """Returns whether a file or folder is none of the user's, as systems and tools make them."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")


def splits_of_names(file: TableFile, names: Iterable[str]) -> Iterator[SourceSplit]:
    """Yields splits of some thousand files each, as they are found."""
    found = iter(names)
    while names_of_split := tuple(islice(found, SPLIT_FILES)):
        yield SourceSplit(file, names=names_of_split)
