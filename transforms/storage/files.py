"""Files on this machine, in object stores, in HDFS and on the web: one API for all paths.

    read(path)                   the bytes of a file
    read(path, (start, stop))    a range of them
    open_binary(path)            a seekable stream
    write_bytes(path, data)      write_checked(path, data), which reads it back
    exists, file_size, expand, entries, files_below, copy, move, delete

Each is an operation of the store of its path, see `store_of`. A store that needs a library is
imported when it is first used: local files need neither Beam nor obstore.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import BinaryIO, TypeAlias
from urllib.parse import unquote

from recordmill.schemas.errors import UsageError, not_in_reader
from recordmill.schemas.layout import is_url, is_web, join
from recordmill.schemas.masking import masked, masked_url
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.records.framing import decompressed
from recordmill.transforms.storage.local_files import LOCAL, NotRegularError
from recordmill.transforms.storage.stores.options import current_options
from recordmill.transforms.storage.stores.store import Span, Store, TransientError, Version, persist

# The version tag by file; None if the file has none, or changed while it was read.
VersionTags: TypeAlias = dict[str, str | None]

# Paths in exports of Label Studio.
_OF_SERVER = re.compile(r"/data/(upload/|local-files/\?d=)")
_MAX_LISTED = 10_000  # files of a folder that are searched for the name of a missing one

# The version tag of a missing file.
ABSENT = "absent"

# Errors of the file system and the stores for a path without a file.
_MISSING = (FileNotFoundError, NotADirectoryError)

OTHER_BYTES = "the store returns other bytes than were written"

# Errors of `read` for a path without a regular file.
NOT_A_FILE = (*_MISSING, IsADirectoryError, NotRegularError)


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine, not a URL."""
    return not is_url(path)


def store_of(path: str) -> Store:
    """Returns the store of a path.

    Raises UsageError if a library that it needs is not installed, as in `recordmill-reader`.
    """
    if is_local(path):  # first: the most frequent case, and the cheapest test
        return LOCAL
    try:
        return _remote_store_of(path)
    except ModuleNotFoundError as error:
        message = not_in_reader(path, error)
        raise UsageError(f"{message}, or copy the dataset to this machine.") from error


def _remote_store_of(path: str) -> Store:
    if is_web(path):
        from recordmill.transforms.storage.stores.web import WEB

        return WEB
    from recordmill.transforms.storage.stores.objects import OBJECTS, parse

    if parse(path):
        return OBJECTS
    from recordmill.transforms.storage.stores.beam import BEAM, HDFS

    return HDFS if path.startswith("hdfs://") else BEAM


def open_binary(path: str) -> BinaryIO:
    """Opens a file for seekable reads, without decompression.

    Raises OSError if it cannot be opened (NotRegularError for a FIFO, a socket or a device), and
    ValueError if the path is not valid, or the extra of its file system is not installed.
    """
    return store_of(path).open(path)


def read(path: str, span: Span | None = None) -> bytes:
    """Returns the bytes of a file, or of a range of it, with one request.

    Of a range, fewer where the file ends. Raises OSError if it cannot be read; FileNotFoundError if
    it does not exist.
    """
    if span and span[0] >= span[1]:  # stores reject an empty range
        return b""
    return store_of(path).read(path, span)[0]


def open_table(file: TableFile) -> BinaryIO:
    """Opens a table for reading, decompressed and buffered, so that `peek` works."""
    stream = open_binary(file.path)
    return decompressed(stream) if file.gzipped else stream


def open_range(path: str, start: int, stop: int) -> BinaryIO:
    """Opens a byte range of a file for reading as it is stored, seekable.

    Reads raise `EOFError` where the file has become shorter, and `OSError` where it cannot be read.
    """
    return store_of(path).open_range(path, start, stop)


def read_bytes(
    uri: str,
    start: int | None = None,
    stop: int | None = None,
    seen: VersionTags | None = None,
    is_regular: bool = False,
) -> bytes:
    """Returns the bytes of a file, or a range of them, with one request.

    `seen` receives the version tag of the bytes read; None if another one is known already.
    `is_regular`: whether it is known to be a regular local file. Raises RecordError: missing_file,
    or read_error if it cannot be read, or exceeds `--max_image_bytes`.
    """
    tag: str | None = None
    try:
        span = None if start is None or stop is None else (start, stop)
        read = LOCAL.read_regular if is_regular else store_of(uri).read
        data, tag = read(uri, span, current_options().max_image_bytes)
        return data
    except MemoryError as error:
        raise RecordError(Reason.READ_ERROR, f"{masked_url(uri)}: no memory for it") from error
    except (OSError, ValueError) as error:
        what = (
            error.strerror if isinstance(error, OSError) and error.strerror else masked(str(error))
        )
        reason = Reason.MISSING_FILE if isinstance(error, _MISSING) else Reason.READ_ERROR
        if reason is Reason.MISSING_FILE:
            tag = ABSENT if is_local(uri) else tag
            what += _hint_at_name(uri)
        raise RecordError(reason, f"{masked_url(uri)}: {what}") from error
    finally:
        if seen is not None:
            note_tag(seen, uri, tag)


def note_tag(seen: VersionTags, uri: str, tag: str | None) -> None:
    """Notes the version tag of a file that was read: None if another one was noted before."""
    if seen.setdefault(uri, tag) != tag:  # in one step: threads read the same archive
        seen[uri] = None


def _hint_at_name(path: str) -> str:
    if form := _form_that_exists(path):
        return f"; a file exists with this name in the Unicode form {form}, so use one form"
    if "\\" in path:
        return "; expected / between folders, got \\"
    if _OF_SERVER.search(path):
        return "; only Label Studio's server has this path: keep what follows its last /"
    folder, name = posixpath.split(path)
    found = _names_without_form(folder).get(_without_form(name), "") if is_local(path) else ""
    return f"; the folder has {found}" if found else ""


def _without_form(name: str) -> str:
    return posixpath.splitext(unquote(name).strip().lower())[0].lstrip("0")


@lru_cache(maxsize=16)
def _names_without_form(folder: str) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError), os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, _MAX_LISTED))
        return {_without_form(name): name for name in names if name.isprintable()}
    return {}


def _form_that_exists(path: str) -> str:
    """Returns the Unicode form in which an object exists, "NFC" or "NFD"; "" if in neither.

    Objects in another form are not read, as local files are: the address may be outside of the
    image root then, and its version tag would take a request more.
    """
    if path.isascii() or is_web(path) or is_local(path):
        return ""
    forms = ((form, unicodedata.normalize(form, path)) for form in ("NFC", "NFD"))
    with contextlib.suppress(OSError, ValueError):
        return next((form for form, other in forms if other != path and exists(other)), "")
    return ""


def create(path: str) -> BinaryIO:
    """Opens a new file for writing; in object stores, it exists once it is closed."""
    return store_of(path).create(path)


def write_bytes(path: str, data: bytes, with_folders: bool = True) -> None:
    """Writes a whole file, replacing an existing one; atomic on this machine."""
    store_of(path).write(path, data, with_folders)


def write_checked(path: str, data: bytes) -> None:
    """Writes a whole file, and has a store return it: some keep other bytes than they were sent."""

    def attempt() -> None:
        write_bytes(path, data)
        # Missing where a late DELETE of an older file has deleted it.
        with contextlib.suppress(FileNotFoundError):
            if is_local(path) or read(path) == data:
                return
        raise TransientError(f"{path}: {OTHER_BYTES}")

    persist(attempt)


def sizes(directory: str, names: Iterable[str]) -> dict[str, int | None]:
    """Returns the size of each file in a folder, by name; None for those that do not exist."""

    def size(name: str) -> int | None:
        path = join(directory, name)
        with contextlib.suppress(FileNotFoundError):
            return store_of(path).size(path)
        return None

    ordered = list(names)
    return dict(zip(ordered, map_in_threads(size, ordered), strict=True))


def delete(path: str) -> None:
    """Deletes a file, or a folder with everything in it; a missing path is not an error."""
    store_of(path).delete(path)


def files_below(directory: str, pattern: str) -> list[str]:
    """Returns the names of files below a folder that match a pattern, sorted and relative to it."""
    return store_of(directory).files_below(directory, pattern)


def all_files_below(directory: str) -> list[str]:
    """Returns the names of all files below a folder, sorted and relative to it.

    Includes hidden files, links and special files; links are not followed.
    """
    return store_of(directory).all_files_below(directory)


def delete_files(directory: str, names: list[str]) -> None:
    """Deletes files below a folder in order, then the folders that have become empty."""
    store_of(directory).delete_files([join(directory, name) for name in names], directory)


def expand(pattern: str) -> list[str]:
    """Returns the files that match a path or pattern, sorted; an existing path is not a pattern."""
    return store_of(pattern).expand(pattern)


def names_below(root: str) -> Iterator[str]:
    """Yields the names of all files below a remote folder, relative to it."""
    return store_of(root).names_below(root)


def entries(folder: str) -> tuple[list[str], list[str]]:
    """Returns the names of the folders and files in a folder; none if it does not exist."""
    return store_of(folder).entries(folder)


def exists(path: str) -> bool:
    """Returns whether a path is an existing file or folder."""
    return store_of(path).exists(path)


def file_size(uri: str) -> int | None:
    """Returns a file's size in bytes, or None if it is unknown."""
    with contextlib.suppress(OSError, ValueError):
        return store_of(uri).size(uri)
    return None


def ranged_size(path: str) -> int | None:
    """Returns a file's size in bytes; None if it is not known, or no byte range can be read."""
    with contextlib.suppress(OSError, ValueError):
        return store_of(path).ranged_size(path)
    return None


def copy(files: Mapping[str, str], by_reading: bool = False) -> None:
    """Copies files within a store, which makes the copies if it can, unless `by_reading`."""

    def copy_one(paths: tuple[str, str]) -> None:
        source, target = paths
        if by_reading or not link(source, target):
            store_of(source).copy(source, target)

    list(map_in_threads(copy_one, files.items()))


def link(source: str, target: str) -> bool:
    """Gives a file another name without reading it; returns whether its store can do so.

    That is a hard link, or a copy that an object store makes.
    """
    return store_of(target).link(source, target)


def version(path: str) -> Version:
    """Returns the version of an existing file; an empty one if its store has none."""
    return store_of(path).version(path)


def move(source: str, target: str) -> None:
    """Renames a file within a store; on this machine, the folder of `target` exists."""
    store_of(source).move(source, target)


def make_folders(directory: str, *names: str) -> None:
    """Creates a folder and some folders in it; does nothing in object stores.

    On this machine, its parent exists, or FileNotFoundError is raised: an attempt that is later
    than the end of its run must not create the run's folder again.
    """
    store = store_of(directory)
    for path in (directory, *(join(directory, name) for name in names)):
        store.make_folder(path)
