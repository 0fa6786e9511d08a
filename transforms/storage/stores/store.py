"""The operations on the files of a store, by their paths.

`Store` uses Beam's file systems. Each other kind of store is a subclass, which overrides what it
does in another way, and a line in `store_of` of `recordmill.transforms.storage.files`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO, TypeAlias, cast

from apache_beam.io.filesystem import CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems

from recordmill.transforms.storage.stores.beam import request
from recordmill.transforms.storage.stores.range_files import open_ranges
from recordmill.transforms.storage.stores.retries import TooLargeError

# Maximum number of files in one call of Beam's file systems.
_BATCH = 100

# The bytes of a file, and its version tag, or None if its store has none.
TaggedBytes: TypeAlias = tuple[bytes, str | None]

_WILDCARD = re.compile(r"[*?\[]")


class Store:
    """A kind of store. Its operations raise OSError where the store does not do what is asked."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for seekable reads, without decompression."""
        raw = request(lambda: _open(path))
        return cast("BinaryIO", io.BufferedReader(raw))

    def load(self, path: str) -> bytes:
        """Returns the bytes of a file."""
        with self.open(path) as stream:
            return stream.read()

    def open_range(self, path: str, start: int, stop: int) -> BinaryIO:
        """Opens a byte range of a file; its reads raise `EOFError` if the file is shorter."""

        def read(first: int, end: int) -> bytes:
            return self.read(path, start + first, start + end, end - first)[0]

        return open_ranges(stop - start, read)

    def read(self, path: str, start: int | None, stop: int | None, limit: int) -> TaggedBytes:
        """Returns the bytes of a file, or a range of them, and its version tag.

        `start` is the first byte; None for the whole file. `limit` is the maximum number of bytes,
        above which it raises TooLargeError.
        """
        return request(lambda: _read(_open(path), start, stop, limit)), None

    def version_tag(self, path: str) -> str | None:
        """Returns the version tag of an existing file, or None if the store has none."""
        return None

    def write(self, path: str, data: bytes, with_folders: bool) -> None:
        """Writes a whole file, replacing an existing one.

        `with_folders`: whether to create missing folders, in stores that do not always do so.
        """

        def attempt() -> None:
            with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as stream:
                stream.write(data)

        request(attempt)

    def move(self, source: str, target: str) -> None:
        """Renames a file: object stores copy it."""
        copy([source], [target])
        self.delete(source)

    def delete(self, path: str) -> None:
        """Deletes a file, or a folder with everything in it, if it exists."""
        # Object stores have no folders: a path can be an object, a prefix of others, or both.
        below = [f"{path.rstrip('/')}/{name}" for name in self.all_files_below(path)]
        self.delete_files([*below, path] if self.is_file(path) else below, path)

    def delete_files(self, paths: Sequence[str], directory: str) -> None:
        """Deletes files in order, if they exist, then the folders that have become empty."""
        for start in range(0, len(paths), _BATCH):
            request(partial(FileSystems.delete, list(paths[start : start + _BATCH])))

    def make_folder(self, path: str) -> None:
        """Creates a folder in a folder that exists; does nothing in stores without folders."""

    def names_below(self, root: str) -> Iterator[str]:
        """Yields the names of all files below a folder, relative to it; `root` ends with /."""
        matched = request(lambda: FileSystems.match([root + "**"]))
        return (file.path[len(root) :] for file in matched[0].metadata_list)

    def all_files_below(self, directory: str) -> list[str]:
        """Returns the names of all files below a folder, sorted and relative to it."""
        return sorted(self.names_below(directory.rstrip("/") + "/"))

    def files_below(self, directory: str, pattern: str) -> list[str]:
        """Returns the names of files below a folder that match a pattern, sorted.

        `directory` is the folder, taken literally even if its name has wildcards. `pattern` is a
        glob pattern; `**` matches any depth.
        """
        matches = re.compile(FileSystem.translate_pattern(pattern)).match
        return list(filter(matches, self.all_files_below(directory)))

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Returns the names of the folders and of the files directly in a folder."""
        folders, files = dict[str, None](), list[str]()
        for name in self.names_below(folder.rstrip("/") + "/"):
            first, slash, _ = name.partition("/")
            if slash:
                folders[first] = None
            else:
                files.append(first)
        return list(folders), files

    def expand(self, pattern: str) -> list[str]:
        """Returns the files that a path or pattern matches, sorted."""
        if self.is_file(pattern):
            return [pattern]
        if not _WILDCARD.search(pattern):
            return []
        # Beam lists by the prefix before the first wildcard; obstore lists whole folders only.
        matched = request(lambda: FileSystems.match([pattern]))
        return sorted(file.path for file in matched[0].metadata_list)

    def exists(self, path: str) -> bool:
        """Returns whether a path is an existing file or folder."""
        return bool(request(lambda: FileSystems.exists(path)))

    def is_file(self, path: str) -> bool:
        """Returns whether a path is an existing file, not a folder."""
        return self.exists(path)

    def size(self, path: str) -> int | None:
        """Returns the size of a file in bytes, or None if it is not known."""
        return int(FileSystems.get_filesystem(path).metadata(path).size_in_bytes)

    def ranged_size(self, path: str) -> int | None:
        """Returns the size of a file in bytes, or None if no byte range of it can be read."""
        return self.size(path)


BEAM = Store()


def copy(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Copies files within a store, on the server side.

    Raises OSError if a file cannot be copied.
    """
    for start in range(0, len(sources), _BATCH):
        batch = slice(start, start + _BATCH)
        request(partial(_copy_batch, list(sources[batch]), list(targets[batch])))


def _copy_batch(sources: list[str], targets: list[str]) -> None:
    # The file systems of S3 and Azure return errors instead of raising them.
    for *_, error in FileSystems.copy(sources, targets) or ():
        if error is not None:
            raise error


def _open(path: str) -> BinaryIO:
    raw = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return cast("BinaryIO", raw)


def _read(stream: BinaryIO, start: int | None, stop: int | None, limit: int) -> bytes:
    with stream:
        stream.seek(start or 0)
        # One byte more than the limit, to distinguish a file at the limit from a larger one.
        most = limit + 1 if stop is None else min(limit + 1, stop - (start or 0))
        data = stream.read(most)
    if len(data) > limit:
        raise TooLargeError(limit)
    return data
