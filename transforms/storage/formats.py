"""The formats of input: what reads which. A new one is one module of functions and one line here.

A module reads streams of bytes, or trees of files; `look` tells what a source's head holds, `parts`
what of it can be read apart, `read` yields the rows of one part. None of them knows of Beam.
A tree is a folder with all that is below it, on this machine or in a store.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias

from recordmill.schemas.layout import join
from recordmill.schemas.records import Embedded, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Head, TableFile, TablePart, Wanted
from recordmill.transforms.functional.sources import (
    arrow,
    class_folder,
    coco,
    delimited,
    json_lines,
    parquet,
    tfrecord,
    voc,
    webdataset,
    yolo,
)
from recordmill.transforms.functional.sources.arrow import FEATHER_1_SIGNATURE, FILE_SIGNATURE
from recordmill.transforms.functional.sources.tree import Tree, Unlisted, is_hidden
from recordmill.transforms.storage.files import (
    exists,
    is_local,
    names_below,
    open_binary,
    open_table,
)
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

    def walk(self) -> Iterator[str | Unlisted | SkippedInput]:
        """Yields the name below the root of every file at any depth, except for hidden ones."""
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


def _walk_here(root: str) -> Iterator[str | Unlisted | SkippedInput]:
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
                yield SkippedInput(LOOPS)
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


def _found(entry: os.DirEntry[str], name: str) -> str | Unlisted | SkippedInput | None:
    """Returns what an entry is; None for a folder."""
    if is_hidden(entry.name):
        return SkippedInput(HIDDEN)
    if readable(entry.name) != entry.name:
        return Unlisted(readable(name), "the name is not text in UTF-8: rename it")
    if entry.is_file():
        return name
    if entry.is_dir():
        return None
    return SkippedInput(SPECIAL) if is_special(entry.path) else name  # a broken link is a reject


def _walk_store(root: str) -> Iterator[str | SkippedInput]:
    for name in names_below(root + "/"):
        if any(is_hidden(part) for part in name.split("/")):
            yield SkippedInput(HIDDEN)
        elif name and not name.endswith("/"):  # some tools mark folders by empty objects
            yield name


def readable(name: str) -> str:
    """Returns a name as text, with the bytes that are no UTF-8 written out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


Read: TypeAlias = Row | Embedded | Reject | SkippedInput
"""What comes of reading a source."""


class Format(Protocol):
    """How the sources of one format are read."""

    @property
    def is_folder(self) -> bool:
        """Whether its sources are folders."""

    def look(self, file: TableFile) -> Head:
        """Returns what the head of a source tells."""

    def parts(self, file: TableFile) -> Iterator[TablePart | Reject | SkippedInput]:
        """Yields what of a source can be read apart, and what can be told before."""

    def read(self, part: TablePart, wanted: Wanted) -> Iterator[Read]:
        """Yields the rows of one part."""


class _StreamReader(Protocol):
    """A module that reads files of bytes."""

    def look(self, stream: BinaryIO, file: TableFile) -> Head: ...

    def read(self, stream: BinaryIO, part: TablePart, wanted: Wanted) -> Iterator[Read]: ...


class _PartedReader(_StreamReader, Protocol):
    """A module that can read one file in parts."""

    def parts(self, stream: BinaryIO, file: TableFile) -> Iterator[TablePart]: ...


class _TreeReader(Protocol):
    """A module that reads folders."""

    def look(self, tree: Tree, file: TableFile) -> Head: ...

    def parts(self, tree: Tree, file: TableFile) -> Iterator[TablePart | Reject | SkippedInput]: ...

    def read(self, tree: Tree, part: TablePart, wanted: Wanted) -> Iterator[Read]: ...


@dataclass(frozen=True)
class _OfFiles:
    """A format of files that are read whole, from one end to the other."""

    reader: _StreamReader
    is_folder: bool = False

    def look(self, file: TableFile) -> Head:
        with open_table(file) as stream:
            return self.reader.look(stream, file)

    def parts(self, file: TableFile) -> Iterator[TablePart | Reject | SkippedInput]:
        yield TablePart(file)

    def read(self, part: TablePart, wanted: Wanted) -> Iterator[Read]:
        with open_table(part.file) as stream:
            yield from self.reader.read(stream, part, wanted)


@dataclass(frozen=True)
class _OfPartedFiles(_OfFiles):
    """A format of files whose parts can be read by different workers."""

    reader: _PartedReader

    def parts(self, file: TableFile) -> Iterator[TablePart | Reject | SkippedInput]:
        with open_table(file) as stream:
            yield from self.reader.parts(stream, file)


@dataclass(frozen=True)
class _OfFolders:
    """A format of folders, some files of which make a part."""

    reader: _TreeReader
    is_folder: bool = True

    def look(self, file: TableFile) -> Head:
        return self.reader.look(FileTree(file.path), file)

    def parts(self, file: TableFile) -> Iterator[TablePart | Reject | SkippedInput]:
        return self.reader.parts(FileTree(file.path), file)

    def read(self, part: TablePart, wanted: Wanted) -> Iterator[Read]:
        return self.reader.read(FileTree(part.file.path), part, wanted)


FORMATS: dict[str, Format] = {
    "csv": _OfFiles(delimited),
    "tsv": _OfFiles(delimited),
    "jsonl": _OfFiles(json_lines),
    "parquet": _OfPartedFiles(parquet),
    "arrow": _OfFiles(arrow),
    "folder": _OfFolders(class_folder),
    "tar": _OfFiles(webdataset),
    "tfrecord": _OfFiles(tfrecord),
    "coco": _OfFiles(coco),
    "voc": _OfFolders(voc),
    "yolo": _OfFolders(yolo),
}


_SUFFIXES = {
    "csv": "csv",
    "tsv": "tsv",
    "tab": "tsv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "pq": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
    "tar": "tar",
    "tgz": "tar",
    "tfrecord": "tfrecord",
    "tfrecords": "tfrecord",
    "tfrec": "tfrecord",
    "json": "coco",
}
_SHARD = re.compile(r"-\d+-of-\d+$")
_SIGNATURES = {
    b"PAR1": "parquet",
    FILE_SIGNATURE: "arrow",
    FEATHER_1_SIGNATURE: "arrow",
}


def format_of(path: str, head: bytes) -> str | None:
    """Returns the format that a file's first bytes tell, or else its name."""
    for signature, found in _SIGNATURES.items():
        if head.startswith(signature):
            return found
    stem = _SHARD.sub("", path.lower().removesuffix(".gz"))
    return _SUFFIXES.get(stem.rpartition(".")[2])
