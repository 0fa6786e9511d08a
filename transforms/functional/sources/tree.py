"""The interface of folders to their readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO, NamedTuple, Protocol

from recordmill.schemas.records import SkippedInput
from recordmill.schemas.tables import SourceSplit, TableFile

SPLIT_FILES = 1000
"""Small enough to spread one folder over many workers, large enough to amortize a split."""


class Unlisted(NamedTuple):
    """A file or folder that cannot be listed.

    Attributes:
        name: the path below the root, printable.
        why: the error.
    """

    name: str
    why: str


class Tree(Protocol):
    """A folder with everything below it, on this machine or in an object store."""

    @property
    def root(self) -> str:
        """The path of the folder, without a trailing slash."""

    def walk(self) -> Iterator[str | Unlisted | SkippedInput]:
        """Yields the path below the root of every file, and skipped inputs for hidden ones."""

    def path(self, name: str) -> str:
        """Returns the full path of a file; its name may begin with `../`."""

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading."""

    def has(self, name: str) -> bool:
        """Returns whether a file or folder of this name exists below the root."""


def is_hidden(name: str) -> bool:
    """Returns whether a name is that of a hidden file, or of one that an operating system adds."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")


def splits_of_names(file: TableFile, names: Iterable[str]) -> Iterator[SourceSplit]:
    """Yields splits of up to `SPLIT_FILES` files each.

    Args:
        file: the folder as a source.
        names: paths of files below it.
    """
    found = iter(names)
    while names_of_split := tuple(islice(found, SPLIT_FILES)):
        yield SourceSplit(file, names=names_of_split)
