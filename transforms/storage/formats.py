"""The formats of input: what reads which. A new one is one module of functions and one line here.

A module reads streams of bytes, or trees of files; `look` tells what a source's head holds, `parts`
what of it can be read apart, `read` yields the rows of one part. None of them knows of Beam.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias

from recordmill.schemas.records import Aside, Embedded, Row
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
from recordmill.transforms.functional.sources.tree import Tree
from recordmill.transforms.storage.file_tree import FileTree
from recordmill.transforms.storage.files import open_table

Read: TypeAlias = Row | Embedded | Reject | Aside
"""What comes of reading a source."""


class Format(Protocol):
    """How the sources of one format are read."""

    @property
    def is_folder(self) -> bool:
        """Whether its sources are folders."""

    def look(self, file: TableFile) -> Head:
        """Returns what the head of a source tells."""

    def parts(self, file: TableFile) -> Iterator[TablePart | Reject | Aside]:
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

    def parts(self, tree: Tree, file: TableFile) -> Iterator[TablePart | Reject | Aside]: ...

    def read(self, tree: Tree, part: TablePart, wanted: Wanted) -> Iterator[Read]: ...


@dataclass(frozen=True)
class _OfFiles:
    """A format of files that are read whole, from one end to the other."""

    reader: _StreamReader
    is_folder: bool = False

    def look(self, file: TableFile) -> Head:
        with open_table(file) as stream:
            return self.reader.look(stream, file)

    def parts(self, file: TableFile) -> Iterator[TablePart | Reject | Aside]:
        yield TablePart(file)

    def read(self, part: TablePart, wanted: Wanted) -> Iterator[Read]:
        with open_table(part.file) as stream:
            yield from self.reader.read(stream, part, wanted)


@dataclass(frozen=True)
class _OfPartedFiles(_OfFiles):
    """A format of files whose parts can be read by different workers."""

    reader: _PartedReader

    def parts(self, file: TableFile) -> Iterator[TablePart | Reject | Aside]:
        with open_table(file) as stream:
            yield from self.reader.parts(stream, file)


@dataclass(frozen=True)
class _OfFolders:
    """A format of folders, some files of which make a part."""

    reader: _TreeReader
    is_folder: bool = True

    def look(self, file: TableFile) -> Head:
        return self.reader.look(FileTree(file.path), file)

    def parts(self, file: TableFile) -> Iterator[TablePart | Reject | Aside]:
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
