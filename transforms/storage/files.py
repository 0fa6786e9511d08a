"""Files wherever they are: on this machine, in an object store, or on the web.

Local ones are opened by their path exactly as given: Beam's own local matching takes `a[1].jpg` for
a pattern, and adds some 100 µs a file. Object stores are read by `stores.objects`, the web by
`stores.web`. All else, and whatever is written, goes through Beam's file systems.
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
import uuid
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias, cast

from apache_beam.io.filesystem import CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems

from recordmill.schemas.layout import is_url, is_web
from recordmill.schemas.masking import masked, masked_url
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import TableFile
from recordmill.transforms.storage.stores import beam, hdfs, objects, web
from recordmill.transforms.storage.stores.local import open_regular, read_regular
from recordmill.transforms.storage.stores.options import max_image_bytes
from recordmill.transforms.storage.stores.retries import TooLargeError

_SPOOLED_BYTES = 16 * 2**20
_PATTERN = re.compile(r"[*?\[]")


VersionTags: TypeAlias = dict[str, str | None]
"""File to what changes when its content does; None where it did while it was read."""

ABSENT = "absent"
"""The version tag of a file that is not there."""


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine."""
    return not is_url(path)


def open_binary(path: str) -> BinaryIO:
    """Returns a file's bytes, as they are stored; they can be sought in.

    Raises:
        OSError: if it cannot be opened; NotRegularError for a FIFO, a socket or a device.
        ValueError: if the path is none, or its file system's extra is not installed.
    """
    if is_local(path):
        return open_regular(path)
    if is_web(path):
        return _downloaded(path)
    if hdfs.is_hdfs(path):
        return hdfs.open_file(path)
    if where := objects.parse(path):
        return objects.open_object(where)
    raw = beam.request(lambda: _open_by_beam(path))
    return cast("BinaryIO", io.BufferedReader(raw))


def open_table(file: TableFile) -> BinaryIO:
    """Returns a table's bytes, decompressed; buffered, so that its head can be peeked at."""
    stream = open_binary(file.path)
    if not file.gzipped:
        return stream
    unzipped = gzip.GzipFile(fileobj=stream, mode="rb")
    return cast("BinaryIO", io.BufferedReader(unzipped))


def read_bytes(
    uri: str, start: int | None = None, stop: int | None = None, seen: VersionTags | None = None
) -> bytes:
    """Returns a file's bytes, or the range of them from `start` to before `stop`: in one request.

    Args:
        uri: the file.
        start: the first byte, or None for the whole file.
        stop: the byte after the last.
        seen: takes the version tag that comes with the bytes: of an object, and of a file on
            this machine if it has one there already, which may have changed since.

    Raises:
        RecordError: read_error, if they cannot be had, or are more than `--max_image_bytes`.
    """
    try:
        limit = max_image_bytes()
        if is_local(uri):
            data, tag = read_regular(uri, start, stop, limit)
            if seen is not None and uri in seen:  # others are not compared: they are staged
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
        raise RecordError(Reason.READ_ERROR, f"{masked_url(uri)}: {what}") from error


def write_bytes(path: str, data: bytes) -> None:
    """Writes a whole file, replacing one that is there; on this machine at once or not at all.

    Raises:
        OSError: if it cannot be written, or if a device, a pipe or a folder is there.
    """
    if not is_local(path):
        put = hdfs.put if hdfs.is_hdfs(path) else beam.write
        put(path, data)
        return
    if os.path.lexists(path) and not os.path.isfile(path):  # root could replace even /dev/full
        raise OSError(errno.EINVAL, "is not a regular file", path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    partial = f"{path}.{uuid.uuid4().hex}.partial"  # an attempt that ends late may write it, too
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

    Raises:
        OSError: if one cannot be copied.
    """
    beam.copy(sources, targets)


def delete(path: str) -> None:
    """Deletes a file, or a folder with all that is in it; what is not there is deleted already.

    Raises:
        OSError: if it cannot be deleted.
    """
    if hdfs.is_hdfs(path):
        hdfs.delete(path)
    elif not is_local(path):
        below = [f"{path.rstrip('/')}/{name}" for name in files_below(path, "**")]
        beam.delete([*below, path] if _exists_itself(path) else below)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def files_below(directory: str, pattern: str) -> list[str]:
    """Returns the files below a folder whose names match a pattern, sorted; names as below it.

    The folder's own name is no pattern, whatever it looks like.

    Raises:
        OSError: if they cannot be listed.
    """
    root = directory.rstrip("/") + "/"
    if is_local(directory):
        found = glob.glob(glob.escape(root) + pattern, recursive=True)
        return sorted(path[len(root) :] for path in found if os.path.isfile(path))
    matches = re.compile(FileSystem.translate_pattern(pattern)).match
    return sorted(name for name in names_below(root) if matches(name))


def all_files_below(directory: str) -> list[str]:
    """Returns all that is below a folder and no folder itself, sorted; names as below it.

    Hidden files, links and special files included; links are not followed.

    Raises:
        OSError: if they cannot be listed.
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
    """Deletes some files below a folder, one after the other, and folders that get empty by it.

    Raises:
        OSError: if one cannot be deleted.
    """
    paths = [f"{directory.rstrip('/')}/{name}" for name in names]
    if not is_local(directory) and not hdfs.is_hdfs(directory):
        beam.delete(paths)
        return
    for path in paths:
        delete(path)
    if hdfs.is_hdfs(directory):
        if not any(hdfs.names_below(directory)):
            hdfs.delete(directory)
        return
    for folder, *_ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(folder)


def expand(pattern: str) -> list[str]:
    """Returns the files that a path or a pattern names, sorted; a file's own name is no pattern.

    Raises:
        OSError: if they cannot be listed.
    """
    if is_local(pattern):
        return [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    if is_web(pattern) or _exists_itself(pattern):
        return [pattern]
    if not _PATTERN.search(pattern):
        return []
    # Beam lists by whatever stands before the first wildcard, obstore by whole folders.
    matched = beam.request(lambda: FileSystems.match([pattern]))
    return sorted(file.path for file in matched[0].metadata_list)


def names_below(root: str) -> Iterator[str]:
    """Yields the names of all files below a folder off this machine, as they are below it.

    Raises:
        OSError: if they cannot be listed.
    """
    if hdfs.is_hdfs(root):
        return hdfs.names_below(root)
    if where := objects.parse(root):
        prefix = where.key.rstrip("/") + "/" if where.key else ""
        return (key[len(prefix) :] for key in objects.keys_below(where))
    matched = beam.request(lambda: FileSystems.match([root + "**"]))
    return (file.path[len(root) :] for file in matched[0].metadata_list)


def exists(path: str) -> bool:
    """Returns whether there is a file or folder at a path.

    Raises:
        OSError: if that cannot be found out.
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
    """Returns a file's size in bytes, or None if it cannot be had."""
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


def move(source: str, target: str) -> None:
    """Gives a file another name on the same file system or store."""
    if is_local(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(source, target)
    elif hdfs.is_hdfs(source):
        hdfs.move(source, target)
    else:
        copy([source], [target])
        delete(source)


def make_folder(path: str) -> None:
    """Makes a folder and those above it; object stores need none."""
    if is_local(path):
        os.makedirs(path, exist_ok=True)
    elif hdfs.is_hdfs(path):
        hdfs.make_folder(path)


def remote_version_tag(uri: str) -> str | None:
    """Returns the version tag of a file in an object store, by one request; None if it has none."""
    where = objects.parse(uri)
    if where is None or hdfs.is_hdfs(uri):
        return None
    try:
        return objects.version_tag(where)
    except FileNotFoundError:
        return ABSENT
    except OSError:
        return None


def _note(seen: VersionTags | None, uri: str, tag: str) -> None:
    if seen is not None:
        seen[uri] = tag if seen.get(uri, tag) == tag else None


def _open_by_beam(path: str) -> BinaryIO:
    raw = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return cast("BinaryIO", raw)


def _read_stream(stream: BinaryIO, start: int | None, stop: int | None, limit: int) -> bytes:
    with stream:
        stream.seek(start or 0)
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
    """Returns whether a path off this machine is that of a file, and not of a folder."""
    if hdfs.is_hdfs(path):
        state = hdfs.state(path)
        return state is not None and state["type"] == "FILE"
    if where := objects.parse(path):
        return objects.is_object(where)
    return bool(beam.request(lambda: FileSystems.exists(path)))
