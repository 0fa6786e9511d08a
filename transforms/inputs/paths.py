"""Lists the files that the pattern of an input matches, and the tables in its folders.

A folder is that of a dataset, a folder of tables, such as the output of Spark with partitions in
the names of its folders, or one that is read as a whole. Folders of Delta, Iceberg and Hudi are
rejected: their files also contain deleted rows, and only the log of the table lists the current
ones; see `recordmill.transforms.storage.lakehouse`.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.input_formats import INPUT_FORMATS
from recordmill.schemas.layout import LOST, SUCCESS, is_web, join
from recordmill.schemas.tables import SPLIT, SPLIT_NAMES, Exclusion, Partition
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.sources.tree import Tree
from recordmill.transforms.inputs.file_tree import FileTree, pattern_of
from recordmill.transforms.inputs.formats import has_records, is_spark_json
from recordmill.transforms.inputs.record_folders import FEATURES, is_record_file, record_files
from recordmill.transforms.storage.files import exists, expand, is_local
from recordmill.transforms.storage.lakehouse import TableAddress

# Files of unknown kinds that are opened to see what a folder contains.
_TRIED = 8

_STORE = re.compile(r"(s3|gs|azfs|hdfs|https?):/?(?=[^/])")

# How Hive and Spark write a missing value in the name of a folder.
_NULL = "__HIVE_DEFAULT_PARTITION__"

# Suffixes of tables without images of their own, before an optional ".gz".
_TABLE = re.compile(r"\.(csv|tsv|tab|jsonl|ndjson|parquet|pq|arrow|feather)(\.gz)?$", re.IGNORECASE)

# Descriptions of a table: of Hugging Face Datasets, and of repositories.
_NOTES = re.compile(
    r"(^|/)(state\.json|dataset_info\.json|dataset_dict\.json|README(\.[a-z]+)?|LICENSE(\.[a-z]+)?"
    rf"|[^/]+\.md|[^/]+\.crc|{re.escape(LOST)})$",
    re.IGNORECASE,
)

_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_REMEDIES = {
    "Delta": "Read the table instead: --input delta:{0}.",
    "Hudi": "Export the table to a folder of Parquet with its engine, and convert that folder.",
    "Iceberg": "Read the table instead: --input iceberg:CATALOG.NAMESPACE.TABLE.",
}


# The name of a shard of Hugging Face Datasets, or of WebDataset.
_SHARD = re.compile(r"(\w+)-(?:\d{5}-of-\d{5}\b|\d+\.tar)")

# Files that Spark writes beside those of a table.
_MARKER = re.compile(
    r"(^|/)(_SUCCESS|_metadata|_common_metadata|_committed_[^/]*|_started_[^/]*|[^/]+\.crc)$"
)


class ListedPath(NamedTuple):
    """A file or folder of an input."""

    path: str
    # Columns and values in the names of the folders that the pattern leaves open.
    partition: Partition = ()
    folder: str = ""


def list_paths(pattern: str, input_format: str, exclude: tuple[str, ...] = ()) -> list[ListedPath]:
    """Returns the files that a pattern matches, and the tables in the folders that it matches.

    Folders of images, or in the format of a folder, are returned as they are.
    """
    if TableAddress.parse(pattern):
        return [ListedPath(pattern)]
    # A store has no folders: the commit marker shows that a path without a slash is one.
    is_remote = not is_local(pattern) and not is_web(pattern)
    if is_folder(pattern) or (is_remote and exists(join(pattern, SUCCESS))):
        return _tables_or_folder(pattern, pattern, input_format, exclude)
    found = [path for path in _matched(pattern) if not _MARKER.search(path)]
    wildcard = min((at for at in map(pattern.find, "*?[") if at >= 0), default=len(pattern))
    base = pattern[: pattern.rfind("/", 0, wildcard) + 1]
    listed = list[ListedPath]()
    for path in found:
        if len(found) > 1 and is_folder(path):
            listed += _tables_or_folder(path, base, input_format, exclude)
        else:
            name = path.removeprefix(base) if not is_web(path) else ""
            listed.append(ListedPath(path, partition_of(name)))
    if not all(map(is_web, found)):
        tables = (path for path in found if path.lower().endswith((".parquet", ".pq")))
        for root in sorted(set(map(_root_of_partitions, tables))):
            # Of a Parquet file, the folder above it may have the log as well.
            for folder in (root, posixpath.dirname(root)):
                _check_no_log(FileTree(folder or "."))
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


def _tables_or_folder(
    path: str, base: str, input_format: str, exclude: tuple[str, ...]
) -> list[ListedPath]:
    """Returns the tables in a folder, or the folder itself if it has other files."""
    root = path.rstrip("/") or "/"
    if input_format != "auto" and INPUT_FORMATS[input_format].is_folder:
        return [ListedPath(path)]
    tree, base = FileTree(root, Exclusion(root, exclude)), base.rstrip("/") + "/"
    if input_format in ("auto", "tfrecord"):
        if records := record_files(root):
            return [ListedPath(file) for file in _not_excluded(records, tree.exclusion)]
        # Also of records that are all left out, beside which tables are none of the dataset.
        if names := _records_below(tree) or (exclude and _records_below(FileTree(root))):
            records = _not_excluded([join(root, name) for name in names], tree.exclusion)
            return [ListedPath(file, partition_of(file.removeprefix(base))) for file in records]
    _check_no_log(FileTree(root))  # which no pattern hides
    files = [join(root, name) for name in _tables_below(tree)]
    if not files:
        return [ListedPath(path)]
    return [ListedPath(file, partition_of(file.removeprefix(base)), path) for file in files]


def _not_excluded(records: Sequence[str], exclusion: Exclusion) -> list[str]:
    """Returns the files that no pattern leaves out; raises UsageError if there are none."""
    kept = [file for file in records if not pattern_of(exclusion, file)]
    if not kept:
        raise UsageError(
            f"{exclusion.root}: --exclude leaves out all its TFRecord files. Remove a pattern."
        )
    return kept


def _records_below(tree: Tree) -> list[str]:
    """Returns the TFRecord files at any depth of a folder of nothing else, sorted; [] for others.

    The content of the first files whose names do not show what they are decides on such files.
    """
    named, others = list[str](), list[str]()
    for name in tree.walk():
        if isinstance(name, str) and (base := posixpath.basename(name)) != LOST:
            if has_image_suffix(name) or is_table(name) or base in (SUCCESS, FEATURES):
                return []
            (named if is_record_file(name) else others).append(name)
    if any(has_records(tree.path(name)) for name in others[:_TRIED]):
        named += [name for name in others if has_records(tree.path(name))]
    return sorted(named)


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


def is_table(name: str) -> bool:
    """Returns whether a file is a table without images of its own, by its suffix."""
    return bool(_TABLE.search(name))


def _tables_below(tree: Tree) -> list[str]:
    """Returns the tables, or the tars, in a folder, sorted; none if it has other files, too.

    Files and folders whose name begins with `_` or `.` are ignored, as Spark does.
    """
    found, kinds = list[str](), set[bool]()
    for name in tree.walk():
        if not isinstance(name, str):
            continue  # hidden files, and folders that cannot be listed
        if any(part.startswith("_") for part in name.split("/")) or _NOTES.search(name):
            continue
        is_tar = name.lower().endswith(".tar")
        kinds.add(is_tar)
        if len(kinds) > 1 or not (is_tar or is_table(name) or is_spark_json(name)):
            return []  # without listing the rest: it may be a million images
        found.append(name)
    return sorted(found)


def _check_no_log(tree: Tree) -> None:
    """Raises UsageError for a folder that is a table whose files have a log."""
    kinds = [kind for name, kind in _LOGS.items() if tree.has(name)]
    if tree.has("metadata") and tree.has("data") and any(_is_iceberg(tree)):
        kinds.append("Iceberg")
    if kinds:
        raise UsageError(
            f"{tree.root}: is a table of {kinds[0]}; its Parquet files also contain deleted rows, "
            f"and only its log lists the current ones. {_REMEDIES[kinds[0]].format(tree.root)}"
        )


def _is_iceberg(tree: Tree) -> Iterator[bool]:
    for name in tree.walk():
        if isinstance(name, str) and name.endswith(".metadata.json"):
            yield posixpath.basename(posixpath.dirname(name)) == "metadata"


def partition_of(name: str) -> Partition:
    """Returns the columns and values in the folders of a file, as Hive and Spark name them.

    Hugging Face Datasets names a split by a folder, or by the name of the file.

    >>> partition_of("split=train/day=2024-03-01/site=A%2FB/part-0.parquet")
    (('split', 'train'), ('day', '2024-03-01'), ('site', 'A/B'))
    >>> partition_of("data/test-00000-of-00001.parquet"), partition_of("val-0001.tar")
    ((('split', 'test'),), (('split', 'val'),))
    """
    *folders, base = name.split("/")
    pairs = [part.partition("=") for part in folders]
    found = tuple(
        (unquote(column), None if value == _NULL else unquote(value))
        for column, equals, value in pairs
        if column and equals
    )
    shard = _SHARD.match(base)
    named = [part for part in (*folders, shard[1] if shard else "") if part in SPLIT_NAMES]
    return found or tuple((SPLIT, split) for split in named[-1:])


def _root_of_partitions(path: str) -> str:
    """Returns the folder of the table of a file: without the folders of its partitions.

    >>> _root_of_partitions("out/birds/split=train/part-0.parquet")
    'out/birds'
    """
    folder = posixpath.dirname(path)
    while "=" in posixpath.basename(folder):
        folder = posixpath.dirname(folder)
    return folder
