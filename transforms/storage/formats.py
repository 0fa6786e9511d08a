"""Registry of the input formats: a new format is one module of functions and one line here.

A module reads byte streams or file trees with three functions: `probe` returns the metadata of a
source, `split` yields its splits, and `read` yields the rows of one split. `recognize` finds its
sources: by the first bytes of a file, or the names in a folder. None depends on Beam. A file tree
is a folder with everything below it, on this machine or in an object store.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias

from recordmill.schemas.layout import join
from recordmill.schemas.records import Embedded, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Probe, Projection, SourceSplit, TableFile
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.sources import (
    arrow,
    class_folder,
    coco,
    delimited,
    json_lines,
    parquet,
    text_ranges,
    voc,
    webdataset,
    yolo,
)
from recordmill.transforms.functional.sources.table_folders import is_spark_json, with_partition
from recordmill.transforms.functional.sources.tree import Entries, Tree, Unlisted, is_hidden
from recordmill.transforms.storage import record_folders
from recordmill.transforms.storage.compression import is_tfrecord
from recordmill.transforms.storage.files import (
    entries,
    exists,
    is_local,
    names_below,
    open_binary,
    open_range,
    open_table,
)
from recordmill.transforms.storage.local_files import is_special

HIDDEN = "hidden files and folders, and those of systems and tools"
LOOPS = "links to a folder that they are in"
SPECIAL = "FIFOs, sockets and devices"

# The maximum number of paths, through links, by which one folder is read.
MAX_PATHS = 64

_TOO_MANY_PATHS = f"links make over {MAX_PATHS} paths to this folder. Remove some of them."
_UPWARDS = re.compile(r"/[^/]+/\.\./")

# (device, inode).
_FolderId = tuple[int, int]


@dataclass(frozen=True)
class FileTree:
    """A folder; implements `recordmill.transforms.functional.sources.tree.Tree`."""

    root: str  # the path of the folder, without a trailing slash

    def walk(self, folder: str = "") -> Iterator[str | Unlisted | SkippedInput]:
        """Yields the path below the root of every file, and skipped inputs for hidden ones."""
        walk = _walk_here if is_local(self.root) else _walk_store
        return walk(self.root, folder)

    def entries(self, name: str = "") -> Entries:
        """Returns the files and folders directly in a folder; none if it does not exist."""
        folders, files = entries(self.path(name))
        shown = [sorted(n for n in names if not is_hidden(n)) for names in (folders, files)]
        return Entries(*map(tuple, shown))

    def path(self, name: str) -> str:
        """Returns the full path of a file; its name may begin with `../`."""
        path = join(self.root, name) if name else self.root
        return _UPWARDS.sub("/", path)

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading."""
        return open_binary(self.path(name))

    def has(self, name: str) -> bool:
        """Returns whether a file or folder of this name exists below the root."""
        return exists(self.path(name))

    def is_empty(self, name: str) -> bool:
        """Returns whether a folder has no files, other than hidden ones; stores have no such."""
        return is_local(self.root) and all(isinstance(f, SkippedInput) for f in self.walk(name))


def _walk_here(root: str, top: str) -> Iterator[str | Unlisted | SkippedInput]:
    """Yields the files below a folder of a local root. Links are followed, but not in a cycle.

    A folder is read once for each link to it, up to `MAX_PATHS`: 16 levels with two links each
    would give 65,536 paths to one file.
    """
    # A stack instead of recursion: (folder below the root, ids of the folders above it).
    waiting: list[tuple[str, tuple[_FolderId, ...]]] = [(top, ())]
    paths = Counter[_FolderId]()
    while waiting:
        folder, above = waiting.pop()
        path = join(root, folder) if folder else root
        try:
            state = os.stat(path)
            here = (state.st_dev, state.st_ino)
            if here in above:  # a link to one of its own parents
                yield SkippedInput.named(LOOPS, [_readable(folder)])
                continue
            # Links to siblings are legal, but their number of paths can grow exponentially.
            paths[here] += 1
            if paths[here] > MAX_PATHS:
                yield Unlisted(_readable(folder), _TOO_MANY_PATHS)
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
            yield Unlisted(_readable(folder), why)


def _found(entry: os.DirEntry[str], name: str) -> str | Unlisted | SkippedInput | None:
    """Returns the name of a file or the reason to skip an entry; None for a folder."""
    if is_hidden(entry.name):
        return SkippedInput.named(HIDDEN, [_readable(name)])
    if _readable(entry.name) != entry.name:
        return Unlisted(_readable(name), "the name is not valid UTF-8. Rename it.")
    if entry.is_file():
        return name
    if entry.is_dir():
        return None
    # A broken link is neither: it is rejected when it is read, with the name of its row.
    return SkippedInput.named(SPECIAL, [name]) if is_special(entry.path) else name


def _walk_store(root: str, top: str) -> Iterator[str | SkippedInput]:
    above = f"{top}/" if top else ""
    for found in names_below(f"{root}/{above}"):
        name = above + found
        if any(is_hidden(part) for part in name.split("/")):
            yield SkippedInput.named(HIDDEN, [name])
        elif name != above and not name.endswith(
            "/"
        ):  # some tools create an empty object per folder
            yield name


def _readable(name: str) -> str:
    """Returns a name as printable text, with invalid UTF-8 escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


# The elements that a reader yields.
Read: TypeAlias = RowBatch | Row | Embedded | Reject | SkippedInput


class Format(Protocol):
    """How the sources of one format are read."""

    @property
    def is_folder(self) -> bool:
        """Whether its sources are folders."""

    def probe(self, file: TableFile) -> Probe:
        """Returns the columns and other metadata of a source."""

    def split(self, file: TableFile) -> Iterator[SourceSplit | Reject | SkippedInput]:
        """Yields the splits of a source, and rejects and skipped inputs known before reading."""

    def read(self, split: SourceSplit, projection: Projection) -> Iterator[Read]:
        """Yields the rows of one split.

        `split` is a split that `split` yielded.
        """


class _StreamReader(Protocol):
    """A module that reads files."""

    def probe(self, stream: BinaryIO, file: TableFile) -> Probe: ...

    def read(
        self, stream: BinaryIO, split: SourceSplit, projection: Projection
    ) -> Iterator[Read]: ...


class _SplittableReader(_StreamReader, Protocol):
    """A module that reads the splits of one file separately."""

    def split(self, stream: BinaryIO, file: TableFile) -> Iterator[SourceSplit]: ...


class _TreeReader(Protocol):
    """A module that reads folders."""

    def recognize(self, tree: Tree) -> tuple[TableFile, str] | None:
        """Returns a folder with the layout of the format, and a description; None for others."""

    def source_of(self, tree: Tree) -> TableFile:
        """Returns a folder as a source, with its options, whatever its layout."""

    def probe(self, tree: Tree, file: TableFile) -> Probe: ...

    def split(
        self, tree: Tree, file: TableFile
    ) -> Iterator[SourceSplit | Reject | SkippedInput]: ...

    def read(self, tree: Tree, split: SourceSplit, projection: Projection) -> Iterator[Read]: ...


def _has_no_signature(head: bytes) -> bool:
    return False


@dataclass(frozen=True)
class _FileFormat:
    """A format of files, each read from start to end by one worker."""

    reader: _StreamReader
    suffixes: tuple[str, ...]  # those of its files, in lower case, without a dot
    # Returns whether a file has the format, by its first bytes.
    recognize: Callable[[bytes], bool] = _has_no_signature
    is_folder: bool = False

    def probe(self, file: TableFile) -> Probe:
        with open_table(file) as stream:
            return self.reader.probe(stream, file)

    def split(self, file: TableFile) -> Iterator[SourceSplit | Reject | SkippedInput]:
        yield SourceSplit(file)

    def read(self, split: SourceSplit, projection: Projection) -> Iterator[Read]:
        with _opened(split) as stream:
            if fault := _fault_before(split, stream):
                yield Reject.of_lost_rows(split.file.path, split.first, fault)
            else:
                rows = self.reader.read(stream, split, projection)
                partition = split.file.partition
                yield from with_partition(rows, partition, projection) if partition else rows


@dataclass(frozen=True)
class _SplittableFileFormat(_FileFormat):
    """A format of files whose splits can be read by different workers."""

    reader: _SplittableReader

    def split(self, file: TableFile) -> Iterator[SourceSplit | Reject | SkippedInput]:
        with open_table(file) as stream:
            yield from self.reader.split(stream, file)


def _opened(split: SourceSplit) -> BinaryIO:
    if split.stop is None:
        return open_table(split.file)
    # From the byte before it, which shows whether the range still begins with a line.
    return open_range(split.file.path, max(0, split.start - 1), split.stop)


def _fault_before(split: SourceSplit, stream: BinaryIO) -> str:
    """Returns why the byte before a range is not the end of a line; "" if it is."""
    try:
        is_line = not split.start or stream.read(1) in (b"\n", b"\r")
    except (EOFError, OSError) as error:
        return f"the rest of the table cannot be read: {error}"
    return "" if is_line else "the table has changed since it was listed. Convert it again."


def cut_text(file: TableFile, range_bytes: int) -> list[SourceSplit]:
    """Returns the byte ranges of a large text table, cut anywhere.

    `file` is a file for which `text_ranges.is_large`.
    """
    with open_range(file.path, 0, file.size or 0) as stream:
        return list(text_ranges.cut(stream, file, range_bytes))


def scan_text(split: SourceSplit) -> text_ranges.RangeScan | None:
    """Returns the scan of a byte range that `cut_text` gives; None if it cannot be scanned."""
    with open_range(split.file.path, 0, split.file.size or 0) as stream:
        return text_ranges.scan(stream, split)


@dataclass(frozen=True)
class _FolderFormat:
    """A format of folders; a split is some of the files of a folder."""

    reader: _TreeReader
    is_folder: bool = True

    def probe(self, file: TableFile) -> Probe:
        return self.reader.probe(FileTree(file.path), file)

    def split(self, file: TableFile) -> Iterator[SourceSplit | Reject | SkippedInput]:
        return self.reader.split(FileTree(file.path), file)

    def read(self, split: SourceSplit, projection: Projection) -> Iterator[Read]:
        return self.reader.read(FileTree(split.file.path), split, projection)


FORMATS: dict[str, Format] = {
    "csv": _FileFormat(delimited, ("csv",)),
    "tsv": _FileFormat(delimited, ("tsv", "tab")),
    "jsonl": _FileFormat(json_lines, ("jsonl", "ndjson")),
    "parquet": _SplittableFileFormat(parquet, ("parquet", "pq"), parquet.recognize),
    "arrow": _FileFormat(arrow, ("arrow", "feather"), arrow.recognize),
    "folder": _FolderFormat(class_folder),
    "tar": _FileFormat(webdataset, ("tar", "tgz")),
    "tfrecord": _FileFormat(
        record_folders, ("tfrecord", "tfrecords", "tfrec", "record", "records"), is_tfrecord
    ),
    "coco": _FileFormat(coco, ("json",)),
    "voc": _FolderFormat(voc),
    "yolo": _FolderFormat(yolo),
}

_SHARD = re.compile(r"-\d+-of-\d+$")


def recognized_folder(tree: Tree) -> tuple[TableFile, str] | None:
    """Returns a folder as a source of the first format that recognizes it, and a description."""
    readers = (known.reader for known in FORMATS.values() if isinstance(known, _FolderFormat))
    return next(filter(None, (reader.recognize(tree) for reader in readers)), None)


def folder_source(tree: Tree, input_format: str) -> TableFile | None:
    """Returns a folder as a source of a format; None if its sources are files."""
    known = FORMATS[input_format]
    return known.reader.source_of(tree) if isinstance(known, _FolderFormat) else None


def format_of(path: str, head: bytes) -> str | None:
    """Returns the format of a file by its signature, or else by its suffix.

    Returns a name in `FORMATS`; None if neither is known. `head` is the first bytes of the file.
    """
    files = {name: known for name, known in FORMATS.items() if isinstance(known, _FileFormat)}
    # Signatures take precedence over suffixes, which can be wrong or missing.
    for name, known in files.items():
        if known.recognize(head):
            return name
    if is_spark_json(path):
        return "jsonl"
    # "x.tfrecord-00000-of-00010" has its suffix before the shard number.
    suffix = _SHARD.sub("", path.lower().removesuffix(".gz")).rpartition(".")[2]
    return next((name for name, known in files.items() if suffix in known.suffixes), None)
