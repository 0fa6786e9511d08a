"""Reading files: local ones by their path exactly as given, all others through Beam.

Beam's own local matching takes `a[1].jpg` for a pattern, and adds some 100 µs a file.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import os
import shutil
from typing import BinaryIO, cast

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from schemas.layout import is_url
from schemas.rejects import Reason, RecordError
from schemas.tables import TableFile


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine."""
    return not is_url(path)


def open_binary(path: str) -> BinaryIO:
    """Returns a file's bytes, as they are stored.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if the path is none, or its file system's extra is not installed.
    """
    if is_local(path):
        return open(path, "rb")
    raw = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return cast("BinaryIO", io.BufferedReader(raw))


def open_table(file: TableFile) -> BinaryIO:
    """Returns a table's bytes, decompressed; buffered, so that its head can be peeked at."""
    stream = open_binary(file.path)
    if not file.gzipped:
        return stream
    unzipped = gzip.GzipFile(fileobj=stream, mode="rb")
    return cast("BinaryIO", io.BufferedReader(unzipped))


def read_bytes(uri: str, start: int | None = None, stop: int | None = None) -> bytes:
    """Returns a file's bytes, or the range of them from `start` to before `stop`.

    Raises:
        RecordError: read_error, if they cannot be had.
    """
    try:
        with open_binary(uri) as stream:
            if start is None or stop is None:
                return stream.read()
            stream.seek(start)
            return stream.read(stop - start)
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RecordError(Reason.READ_ERROR, f"{uri}: {what}") from error


def write_bytes(path: str, data: bytes) -> None:
    """Writes a whole file, replacing what is there; on this machine at once or not at all."""
    if not is_local(path):
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as stream:
            stream.write(data)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partial = f"{path}.partial"
    with open(partial, "wb") as stream:
        stream.write(data)
    os.replace(partial, path)


def delete(path: str) -> None:
    """Deletes a file, or a folder with all that is in it; what is not there is deleted already."""
    if not is_local(path):
        FileSystems.delete([path])
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def files_below(directory: str, pattern: str) -> list[str]:
    """Returns the files below a folder whose names match a pattern, sorted; names as below it.

    The folder's own name is no pattern, whatever it looks like.
    """
    root = directory.rstrip("/") + "/"
    if is_local(directory):
        found = glob.glob(glob.escape(root) + pattern, recursive=True)
        return sorted(path[len(root) :] for path in found if os.path.isfile(path))
    matched = FileSystems.match([root + pattern])[0].metadata_list
    return sorted(file.path[len(root) :] for file in matched)


def exists(path: str) -> bool:
    """Returns whether there is a file or folder at a path."""
    return os.path.exists(path) if is_local(path) else bool(FileSystems.exists(path))


def file_size(uri: str) -> int | None:
    """Returns a file's size in bytes, or None if it cannot be had."""
    try:
        if is_local(uri):
            return os.stat(uri).st_size
        return int(FileSystems.get_filesystem(uri).metadata(uri).size_in_bytes)
    except (OSError, ValueError):
        return None
