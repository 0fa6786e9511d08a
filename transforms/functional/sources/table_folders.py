"""Lists the tables in a folder: output of Spark, with partitions in the names of its folders.

Folders of Delta, Iceberg and Hudi are rejected: their files also contain deleted rows, and only the
log of the table lists the current ones; see `recordmill.transforms.storage.lakehouse`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Embedded, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import SPLIT, SPLIT_NAMES, Partition, Projection
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.sources.tree import Tree

# How Hive and Spark write a missing value in the name of a folder.
_NULL = "__HIVE_DEFAULT_PARTITION__"

# Suffixes of tables without images of their own, before an optional ".gz".
_TABLE = re.compile(r"\.(csv|tsv|tab|jsonl|ndjson|parquet|pq|arrow|feather)(\.gz)?$", re.IGNORECASE)
_SPARK_JSON = re.compile(r"(^|/)part-[^/]+\.json(\.gz)?$")

# Descriptions of a table: of Hugging Face Datasets, and of repositories.
_NOTES = re.compile(
    r"(^|/)(state\.json|dataset_info\.json|dataset_dict\.json|README(\.[a-z]+)?|LICENSE(\.[a-z]+)?"
    r"|[^/]+\.md|[^/]+\.crc)$",
    re.IGNORECASE,
)

_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_REMEDIES = {
    "Delta": "Read the table instead: --input delta:{0}.",
    "Hudi": "Export the table to a folder of Parquet with its engine, and convert that folder.",
    "Iceberg": "Read the table instead: --input iceberg:CATALOG.NAMESPACE.TABLE.",
}


# The name of a shard of Hugging Face Datasets.
_SHARD = re.compile(r"(\w+)-\d{5}-of-\d{5}\b")

# Files that Spark writes beside those of a table.
_MARKER = re.compile(
    r"(^|/)(_SUCCESS|_metadata|_common_metadata|_committed_[^/]*|_started_[^/]*|[^/]+\.crc)$"
)


def is_marker(path: str) -> bool:
    """Returns whether a file is one that Spark writes beside those of a table."""
    return bool(_MARKER.search(path))


def is_parquet(path: str) -> bool:
    """Returns whether a file is a Parquet table by its suffix."""
    return path.lower().endswith((".parquet", ".pq"))


def is_table(name: str) -> bool:
    """Returns whether a file is a table without images of its own, by its suffix."""
    return bool(_TABLE.search(name))


def is_spark_json(name: str) -> bool:
    """Returns whether a file is named as Spark names its JSON output, which is JSON Lines."""
    return bool(_SPARK_JSON.search(name))


def tables_below(tree: Tree) -> list[str]:
    """Returns the names of the tables in a folder, sorted; none if it has other files, too.

    Files and folders whose name begins with `_` or `.` are ignored, as Spark does. Raises
    UsageError if the folder is a table of Delta, Iceberg or Hudi.
    """
    check_no_log(tree)
    found = list[str]()
    for name in tree.walk():
        if not isinstance(name, str):
            continue  # hidden files, and folders that cannot be listed
        if any(part.startswith("_") for part in name.split("/")) or _NOTES.search(name):
            continue
        if not (is_table(name) or is_spark_json(name)):
            return []  # without listing the rest: it may be a million images
        found.append(name)
    return sorted(found)


def check_no_log(tree: Tree) -> None:
    """Checks that a folder is not a table whose files have a log.

    Raises UsageError if it is a table of Delta, Iceberg or Hudi.
    """
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
    >>> partition_of("data/test-00000-of-00001.parquet")
    (('split', 'test'),)
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


def root_of_partitions(path: str) -> str:
    """Returns the folder of the table of a file: without the folders of its partitions.

    >>> root_of_partitions("out/birds/split=train/part-0.parquet")
    'out/birds'
    """
    folder = posixpath.dirname(path)
    while "=" in posixpath.basename(folder):
        folder = posixpath.dirname(folder)
    return folder


def with_partition(
    rows: Iterable[RowBatch | Row | Embedded | Reject | SkippedInput],
    partition: Partition,
    projection: Projection,
) -> Iterator[RowBatch | Row | Embedded | Reject | SkippedInput]:
    """Yields rows with the columns of their partition, whose values are untyped text.

    `rows` are the rows of a file, and other elements, which are passed on.
    """
    names = projection.columns
    values = {column: value for column, value in partition if names is None or column in names}

    def extended(row: Row) -> Row:
        return RowBatch.of([row]).with_text(values)[0]

    for row in rows:
        if isinstance(row, RowBatch):
            yield row.with_text(values)
        elif isinstance(row, Row):
            yield extended(row)
        elif isinstance(row, Embedded):
            yield row._replace(row=extended(row.row))
        else:
            yield row
