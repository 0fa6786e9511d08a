"""File operations for local files, object stores, HDFS and the web.

Local files do not go through Beam's local file system, which interprets `a[1].jpg` as a pattern and
takes about 100 µs per file. Object stores, HDFS and the web have modules of their own in `stores`.
Beam's file systems do everything else.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import gzip
import io
import os
import re
import shutil
import tempfile
import unicodedata
import uuid
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias, cast

from apache_beam.io.filesystem import CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems

from recordmill.schemas.layout import is_url, is_web
from recordmill.schemas.masking import masked, masked_url
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import TableFile
from recordmill.transforms.storage.local_files import (
    SHORTER,
    existing_form,
    open_regular,
    open_regular_range,
    read_regular,
)
from recordmill.transforms.storage.stores import beam, hdfs, objects, web
from recordmill.transforms.storage.stores.options import max_image_bytes
from recordmill.transforms.storage.stores.retries import TooLargeError

# Size above which a downloaded table moves from memory to a temporary file.
_SPOOLED_BYTES = 16 * 2**20

_WILDCARD = re.compile(r"[*?\[]")

# The version tag by file; None if the file has none, or changed while it was read.
VersionTags: TypeAlias = dict[str, str | None]

# Errors of the file system and the stores for a path without a file.
_MISSING = (FileNotFoundError, NotADirectoryError)


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine, not a URL."""
    return not is_url(path)


def open_binary(path: str) -> BinaryIO:
    """Opens a file for seekable reads, without decompression.

    Raises:
        OSError: if the file cannot be opened; NotRegularError for a FIFO, a socket or a device.
        ValueError: if the path is not valid, or the extra of its file system is not installed.
    """
    # All functions below test paths in the same order: local, web, HDFS, then object stores.
    if is_local(path):
        return open_regular(path)
    if is_web(path):
        size = ranged_size(path) or 0
        return open_range(path, 0, size) if size > _SPOOLED_BYTES else _downloaded(path)
    if hdfs.is_hdfs(path):
        return hdfs.open_file(path)
    if where := objects.parse(path):
        return objects.open_object(where)
    raw = beam.request(lambda: _open_by_beam(path))
    return cast("BinaryIO", io.BufferedReader(raw))


def load(path: str) -> bytes:
    """Returns the bytes of a file; an object takes one request.

    Raises:
        OSError: if it cannot be read.
    """
    if where := None if is_local(path) else objects.parse(path):
        return objects.get(where)
    with open_binary(path) as stream:
        return stream.read()


def open_table(file: TableFile) -> BinaryIO:
    """Opens a table for reading, decompressed and buffered, so that `peek` works."""
    stream = open_binary(file.path)
    if not file.gzipped:
        return stream
    unzipped = gzip.GzipFile(fileobj=stream, mode="rb")
    return cast("BinaryIO", io.BufferedReader(unzipped))


def open_range(path: str, start: int, stop: int) -> BinaryIO:
    """Opens a byte range of a file for reading as it is stored, seekable.

    Reads raise `EOFError` where the file has become shorter, and `OSError` where it cannot be read.

    Args:
        path: the file.
        start: the first byte.
        stop: the byte after the last.
    """
    if is_local(path):
        return open_regular_range(path, start, stop)

    def read(first: int, end: int) -> bytes:
        data = read_range(path, start + first, start + end)
        if len(data) < end - first:
            raise EOFError(SHORTER)
        return data

    return objects.open_ranges(stop - start, read)


def read_range(path: str, start: int, stop: int) -> bytes:
    """Returns a byte range of a file, with one request; fewer bytes where the file ends.

    Args:
        path: the file.
        start: the first byte.
        stop: the byte after the last.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if it does not exist.
    """
    size = stop - start
    if is_local(path):
        return read_regular(path, start, stop, size)[0]
    if is_web(path):
        return web.get(path, start, stop, size) if size else b""
    if hdfs.is_hdfs(path):
        return hdfs.get(path, start, stop)
    if where := objects.parse(path):
        return objects.get(where, start, stop) if size else b""
    return beam.request(lambda: _read_stream(_open_by_beam(path), start, stop, size))


def read_bytes(
    uri: str, start: int | None = None, stop: int | None = None, seen: VersionTags | None = None
) -> bytes:
    """Returns the bytes of a file, or a range of them, with one request.

    Args:
        uri: the file.
        start: the first byte; None for the whole file.
        stop: the byte after the last.
        seen: receives the version tag of an object, which its response includes. The tag of a
            local file is compared with the one recorded before the read; if they differ, it
            becomes None.

    Raises:
        RecordError: missing_file if there is no such file; read_error if it cannot be read, or
            exceeds `--max_image_bytes`.
    """
    try:
        limit = max_image_bytes()
        # Local files first: they are the most frequent case, and is_local is the cheapest test.
        if is_local(uri):
            data, tag = read_regular(existing_form(uri), start, stop, limit)
            if seen is not None and uri in seen:  # staging files of the run have no recorded tag
                _note(seen, uri, tag)
            return data
        if is_web(uri):
            return web.get(uri, start, stop)
        if hdfs.is_hdfs(uri):
            return hdfs.get(uri, start, stop, limit)
        if where := objects.parse(uri):
            data, tag = objects.get_with_version_tag(where, start, stop, limit)
            _note(seen, uri, tag)
            return data
        return beam.request(lambda: _read_stream(_open_by_beam(uri), start, stop, limit))
    except MemoryError as error:
        raise RecordError(Reason.READ_ERROR, f"{masked_url(uri)}: no memory for it") from error
    except (OSError, ValueError) as error:
        what = (
            error.strerror if isinstance(error, OSError) and error.strerror else masked(str(error))
        )
        reason = Reason.MISSING_FILE if isinstance(error, _MISSING) else Reason.READ_ERROR
        if reason is Reason.MISSING_FILE and (form := _form_that_exists(uri)):
            what += f"; a file exists with this name in the Unicode form {form}, so use one form"
        if reason is Reason.MISSING_FILE and "\\" in uri:
            what += "; expected / between folders, got \\"
        raise RecordError(reason, f"{masked_url(uri)}: {what}") from error


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


def write_bytes(path: str, data: bytes, with_folders: bool = True) -> None:
    """Writes a whole file, replacing an existing one; atomic on this machine.

    Args:
        path: the file.
        data: the content of the file.
        with_folders: whether to create missing folders on this machine.

    Raises:
        OSError: if the file cannot be written, or the path is a device, a pipe or a folder.
    """
    if not is_local(path):
        if where := objects.parse(path):
            objects.put(where, data)
        else:
            put = hdfs.put if hdfs.is_hdfs(path) else beam.write
            put(path, data)
        return
    if os.path.lexists(path) and not os.path.isfile(path):  # a root user could replace /dev/full
        raise OSError(errno.EINVAL, "is not a regular file", path)
    if with_folders:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    # Unique, because two attempts at the same bundle may write concurrently.
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    try:
        with open(partial, "wb") as stream:
            stream.write(data)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def copy(sources: list[str], targets: list[str]) -> None:
    """Copies files within an object store.

    Args:
        sources: the files.
        targets: the path of each copy.

    Raises:
        OSError: if a file cannot be copied.
    """
    beam.copy(sources, targets)


def delete(path: str) -> None:
    """Deletes a file, or a folder with everything in it; a missing path is not an error.

    Raises:
        OSError: if the path cannot be deleted.
    """
    if hdfs.is_hdfs(path):
        hdfs.delete(path)
    elif not is_local(path):
        # Object stores have no folders: a path can be an object, a prefix of others, or both.
        below = [f"{path.rstrip('/')}/{name}" for name in files_below(path, "**")]
        _delete_objects([*below, path] if _exists_itself(path) else below)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def files_below(directory: str, pattern: str) -> list[str]:
    """Returns the names of files below a folder that match a pattern, sorted and relative to it.

    Args:
        directory: the folder, taken literally even if its name has wildcards.
        pattern: a glob pattern; `**` matches any depth.

    Raises:
        OSError: if the files cannot be listed.
    """
    root = directory.rstrip("/") + "/"
    if is_local(directory):
        found = glob.glob(glob.escape(root) + pattern, recursive=True)
        return sorted(path[len(root) :] for path in found if os.path.isfile(path))
    matches = re.compile(FileSystem.translate_pattern(pattern)).match
    return sorted(name for name in names_below(root) if matches(name))


def all_files_below(directory: str) -> list[str]:
    """Returns the names of all files below a folder, sorted and relative to it.

    Includes hidden files, links and special files; links are not followed.

    Raises:
        OSError: if the files cannot be listed.
    """
    if not is_local(directory):
        return sorted(names_below(directory.rstrip("/") + "/"))
    found = []
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(FileNotFoundError), os.scandir(f"{directory}/{folder}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{folder}{entry.name}/")
                else:
                    found.append(f"{folder}{entry.name}")
    return sorted(found)


def delete_files(directory: str, names: list[str]) -> None:
    """Deletes files below a folder in order, then the folders that have become empty.

    Args:
        directory: the folder.
        names: the files, relative to it.

    Raises:
        OSError: if a file cannot be deleted.
    """
    paths = [f"{directory.rstrip('/')}/{name}" for name in names]
    if not is_local(directory) and not hdfs.is_hdfs(directory):
        _delete_objects(paths)
        return
    for path in paths:
        delete(path)
    if hdfs.is_hdfs(directory):
        if not any(hdfs.names_below(directory)):
            hdfs.delete(directory)
        return
    for folder, *_ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):  # the folder is not empty
            os.rmdir(folder)


def _delete_objects(paths: list[str]) -> None:
    found = [objects.parse(path) for path in paths]
    if found and None not in found:
        objects.delete(cast("list[objects.ObjectPath]", found))
    else:
        beam.delete(paths)


def expand(pattern: str) -> list[str]:
    """Returns the files that match a path or pattern, sorted; an existing path is not a pattern.

    Raises:
        OSError: if the files cannot be listed.
    """
    if is_local(pattern):
        return [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    if is_web(pattern) or _exists_itself(pattern):
        return [pattern]
    if not _WILDCARD.search(pattern):
        return []
    # Beam lists by the prefix before the first wildcard; obstore lists whole folders only.
    matched = beam.request(lambda: FileSystems.match([pattern]))
    return sorted(file.path for file in matched[0].metadata_list)


def names_below(root: str) -> Iterator[str]:
    """Yields the names of all files below a remote folder, relative to it.

    Raises:
        OSError: if the files cannot be listed.
    """
    if hdfs.is_hdfs(root):
        return hdfs.names_below(root)
    if where := objects.parse(root):
        prefix = where.key.rstrip("/") + "/" if where.key else ""
        return (key[len(prefix) :] for key in objects.keys_below(where))
    matched = beam.request(lambda: FileSystems.match([root + "**"]))
    return (file.path[len(root) :] for file in matched[0].metadata_list)


def entries(folder: str) -> tuple[list[str], list[str]]:
    """Returns the names of the folders and of the files directly in a folder, in any order.

    Both are empty if the folder does not exist.

    Raises:
        OSError: if the folder cannot be listed.
    """
    if is_local(folder):
        if not os.path.isdir(folder):
            return [], []
        with os.scandir(folder) as found:
            kinds = [(entry.name, entry.is_dir()) for entry in found]
        return [n for n, is_dir in kinds if is_dir], [n for n, is_dir in kinds if not is_dir]
    if hdfs.is_hdfs(folder):
        return hdfs.entries(folder)
    if where := objects.parse(folder):
        return objects.entries(where)
    folders, files = dict[str, None](), list[str]()
    for name in names_below(folder.rstrip("/") + "/"):
        first, slash, _ = name.partition("/")
        if slash:
            folders[first] = None
        else:
            files.append(first)
    return list(folders), files


def exists(path: str) -> bool:
    """Returns whether a path is an existing file or folder.

    Raises:
        OSError: if the store does not answer.
    """
    if is_local(path):
        return os.path.exists(path)
    if is_web(path):
        return web.exists(path)
    if hdfs.is_hdfs(path):
        return hdfs.state(path) is not None
    if where := objects.parse(path):
        return objects.exists(where)
    return bool(beam.request(lambda: FileSystems.exists(path)))


def file_size(uri: str) -> int | None:
    """Returns a file's size in bytes, or None if it is unknown."""
    try:
        if is_local(uri):
            return os.stat(uri).st_size
        if is_web(uri):
            return web.size(uri)
        if hdfs.is_hdfs(uri):
            state = hdfs.state(uri)
            return int(state["length"]) if state else None
        if where := objects.parse(uri):
            return objects.size(where)
        return int(FileSystems.get_filesystem(uri).metadata(uri).size_in_bytes)
    except (OSError, ValueError):
        return None


def ranged_size(path: str) -> int | None:
    """Returns a file's size in bytes; None if it is not known, or no byte range can be read."""
    if not is_web(path):
        return file_size(path)
    try:
        return web.ranged_size(path)
    except OSError:
        return None


def move(source: str, target: str) -> None:
    """Renames a file within a file system or store.

    Args:
        source: the path of the file.
        target: the new path; on this machine, its folder exists.
    """
    if is_local(source):
        os.replace(source, target)
    elif hdfs.is_hdfs(source):
        hdfs.move(source, target)
    else:  # object stores cannot rename
        copy([source], [target])
        delete(source)


def make_folders(directory: str, *names: str) -> None:
    """Creates a folder and some folders in it; does nothing in object stores.

    Args:
        directory: the folder. On this machine, its parent exists: an attempt that is later than the
            end of its run must not create the run's folder again.
        names: the folders in it.

    Raises:
        FileNotFoundError: if the parent does not exist.
    """
    for path in (directory, *(f"{directory.rstrip('/')}/{name}" for name in names)):
        if is_local(path):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
        elif hdfs.is_hdfs(path):
            hdfs.make_folder(path)


def _note(seen: VersionTags | None, uri: str, tag: str) -> None:
    if seen is not None:
        seen[uri] = tag if seen.get(uri, tag) == tag else None


def _open_by_beam(path: str) -> BinaryIO:
    raw = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return cast("BinaryIO", raw)


def _read_stream(stream: BinaryIO, start: int | None, stop: int | None, limit: int) -> bytes:
    with stream:
        stream.seek(start or 0)
        # One byte more than the limit, to distinguish a file at the limit from a larger one.
        most = limit + 1 if stop is None else min(limit + 1, stop - (start or 0))
        data = stream.read(most)
    if len(data) > limit:
        raise TooLargeError(limit)
    return data


def _downloaded(url: str) -> BinaryIO:
    spooled = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, prefix="recordmill-")  # noqa: SIM115 - the caller closes it
    web.download(url, cast("BinaryIO", spooled))
    spooled.seek(0)
    return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", spooled)))


def _exists_itself(path: str) -> bool:
    """Returns whether a remote path is a file, not a folder."""
    if hdfs.is_hdfs(path):
        state = hdfs.state(path)
        return state is not None and state["type"] == "FILE"
    if where := objects.parse(path):
        return objects.is_object(where)
    return bool(beam.request(lambda: FileSystems.exists(path)))
