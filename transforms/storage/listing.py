"""Lists the files of an input: those that match a pattern, and the tables in folders.

A folder of images stays one path. Nothing is read but names.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import NamedTuple

from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.layout import SUCCESS, is_web, join
from recordmill.schemas.tables import Partition
from recordmill.transforms.functional.sources.table_folders import (
    check_no_log,
    is_marker,
    is_parquet,
    partition_of,
    root_of_partitions,
    tables_below,
)
from recordmill.transforms.storage.files import exists, expand, is_local
from recordmill.transforms.storage.formats import FORMATS, FileTree
from recordmill.transforms.storage.lakehouse.address import TableAddress
from recordmill.transforms.storage.record_folders import record_files

_STORE = re.compile(r"(s3|gs|azfs|hdfs|https?):/?(?=[^/])")


class ListedPath(NamedTuple):
    """A file or folder of an input."""

    path: str
    # Columns and values in the names of the folders that the pattern leaves open.
    partition: Partition = ()
    folder: str = ""


def list_paths(pattern: str, input_format: str) -> list[ListedPath]:
    """Returns the files that a pattern matches, and the tables in the folders that it matches.

    Folders of images, or in the format of a folder, are returned as they are. `pattern` is a path,
    or a pattern of paths. `input_format` is the format of the input, or "auto". Raises UsageError
    if nothing matches, or a folder is a table with a log.
    """
    if TableAddress.parse(pattern):
        return [ListedPath(pattern)]
    # A store has no folders: the commit marker shows that a path without a slash is one.
    is_remote = not is_local(pattern) and not is_web(pattern)
    if is_folder(pattern) or (is_remote and exists(join(pattern, SUCCESS))):
        return _tables_or_folder(pattern, pattern, input_format)
    found = [path for path in _matched(pattern) if not is_marker(path)]
    base = pattern[: pattern.rfind("/", 0, _wildcard(pattern)) + 1]
    listed = list[ListedPath]()
    for path in found:
        if len(found) > 1 and is_folder(path):
            listed += _tables_or_folder(path, base, input_format)
        else:
            name = path.removeprefix(base) if not is_web(path) else ""
            listed.append(ListedPath(path, partition_of(name)))
    if not all(map(is_web, found)):
        for root in sorted({root_of_partitions(path) for path in found if is_parquet(path)}):
            # Of a Parquet file, the folder above it may have the log as well.
            for folder in (root, posixpath.dirname(root)):
                check_no_log(FileTree(folder or "."))
    return listed


def is_folder(path: str) -> bool:
    """Returns whether a path is a folder; in an object store, whether it ends with a slash."""
    return os.path.isdir(path) if is_local(path) else path.endswith("/")


def similar_path(path: str) -> str:
    """Returns a suggestion of a path that is similar to a missing one, for a message; or ""."""
    if store := _STORE.match(path):
        return f" (did you mean {store[1]}://{path[store.end() :]}?)"
    folder = os.path.dirname(path)
    if not is_local(path) or not os.path.isdir(folder or "."):
        return ""
    return did_you_mean(path, [os.path.join(folder, other) for other in os.listdir(folder or ".")])


def _tables_or_folder(path: str, base: str, input_format: str) -> list[ListedPath]:
    """Returns the tables in a folder, or the folder itself if it has other files.

    `input_format` is the format of the input, or "auto".
    """
    root = path.rstrip("/") or "/"
    if input_format != "auto" and FORMATS[input_format].is_folder:
        return [ListedPath(path)]
    if input_format in ("auto", "tfrecord") and (records := record_files(root)):
        return [ListedPath(file) for file in records]
    files = [join(root, name) for name in tables_below(FileTree(root))]
    if not files:
        return [ListedPath(path)]
    base = base.rstrip("/") + "/"
    return [ListedPath(file, partition_of(file.removeprefix(base)), path) for file in files]


def _matched(pattern: str) -> list[str]:
    try:
        found = expand(pattern)
    except (OSError, ValueError) as error:
        raise UsageError(f"{pattern}: cannot be listed: {error}") from error
    if not found:
        raise UsageError(
            f"{pattern}: no such file{similar_path(pattern)}. Check the path and its permissions."
        )
    return found


def _wildcard(pattern: str) -> int:
    """Returns the position of the first wildcard of a pattern; its length if it has none."""
    return min((at for at in map(pattern.find, "*?[") if at >= 0), default=len(pattern))
