"""Resolves a version of a Delta table to its data files.

The library reads the log of the table and its deletion vectors; workers read the data files, and
need no library for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from recordmill.schemas.layout import is_url, join
from recordmill.schemas.plan import TableSnapshot
from recordmill.schemas.tables import Sources, TableFile
from recordmill.transforms.functional.sources import data_files
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.lakehouse.table import (
    WHOLE_TABLE,
    History,
    TableAddress,
    added_files,
    plain_text,
)
from recordmill.transforms.storage.stores.objects import library_settings

_PHYSICAL_NAME = b"delta.columnMapping.physicalName"
_COLUMN_ID = b"delta.columnMapping.id"

# https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Valid Feature Names in Table Features"
_READABLE = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)

# The actions of a commit that add and remove data files.
_FILES = ("add", "remove")

# A table of this version states its features.
_WITH_FEATURES = 3


def open_delta(address: TableAddress, since: Mapping[str, int]) -> Sources:
    """Returns a version of a Delta table, or the rows that were added since another one.

    Raises UsageError if there is no such table or version, or it cannot be read in parallel.
    """
    if not address.name:
        raise address.malformed()
    library = address.library("deltalake")
    root = address.name.rstrip("/") or "/"
    try:
        table = library.DeltaTable(root, None, library_settings(root))
        _check_snapshot(address, table)
        return _layout(address, table, root, since)
    except library.exceptions.TableNotFoundError as error:
        raise address.error("there is no Delta table. Check the path.") from error
    except (library.exceptions.DeltaError, OSError, ValueError) as error:
        raise address.error(f"cannot be read as a Delta table: {plain_text(error)}") from error


def _layout(address: TableAddress, table: Any, root: str, since: Mapping[str, int]) -> Sources:
    _load(address, table, address.snapshot, "Choose a later version.")
    _check_features(address, table)
    version, id_, schema = table.version(), str(table.metadata().id), _schema(table)
    pinned = str(address._replace(snapshot=version))
    entry = TableSnapshot(input=str(address), pinned=pinned, table=id_, id=version)

    partitions = table.metadata().partition_columns

    def files(version: int) -> tuple[TableFile, ...]:
        _load(address, table, version, WHOLE_TABLE)
        if table.metadata().partition_columns != partitions:
            raise address.error(
                f"has other partition columns than version {version}. {WHOLE_TABLE}"
            )
        return tuple(_files(address, root, table, schema))

    text, first = f"Delta table, version {version}", since.get(id_)
    if first is None:
        return Sources(files(version), text, entry)
    if first > version:
        raise address.error(f"is older than version {first}, which --base has. {WHOLE_TABLE}")
    log, versions = _Log(root), range(first, version + 1)
    history = History(address, versions, files, log.is_rewrite, log.operation, "version")
    return Sources(added_files(history), f"{text}: rows added since version {first}", entry)


def _check_snapshot(address: TableAddress, table: Any) -> None:
    if (address.snapshot or 0) > (newest := table.version()):
        raise address.error(f"the table has no such version; expected 0 to {newest}")


def _load(address: TableAddress, table: Any, version: int | None, remedy: str) -> None:
    """Loads a version of a table.

    `version` is the version; None for the one that is loaded. `remedy`: what to do if the log of
    the table begins after it.
    """
    if version in (None, table.version()):
        return
    try:
        table.load_as_version(version)
    except address.library("deltalake.exceptions").TableNotFoundError as error:
        raise address.error(
            f"its log does not reach back to version {version}. {remedy}"
        ) from error


class _Log:
    """The commits of a Delta table."""

    def __init__(self, root: str) -> None:
        self._root = root

    def is_rewrite(self, version: int) -> bool:
        """Returns whether a commit changes files, but no rows."""
        files = [a for action in self._actions(version) for n, a in action.items() if n in _FILES]
        return bool(files) and not any(file["dataChange"] for file in files)

    def operation(self, version: int) -> str:
        """Returns the operation of a commit; "" if it does not state it."""
        infos = [a["commitInfo"] for a in self._actions(version) if "commitInfo" in a]
        return str(infos[0].get("operation", "")) if infos else ""

    def _actions(self, version: int) -> list[dict[str, Any]]:
        data = read_bytes(join(self._root, f"_delta_log/{version:020}.json"))
        return [json.loads(line) for line in data.splitlines()]


def _check_features(address: TableAddress, table: Any) -> None:
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    unknown = sorted(features - _READABLE)
    if unknown or protocol.min_reader_version > _WITH_FEATURES:
        what = unknown[0] if unknown else f"reader version {protocol.min_reader_version}"
        raise address.error(
            f"the table uses {what}, which is not supported. Export it to a folder of Parquet with "
            "its engine, and convert that folder."
        )


def _schema(table: Any) -> pa.Schema:
    """Returns the columns of a table, each with how a data file names it."""
    partitions = set(table.metadata().partition_columns)
    by_id = table.metadata().configuration.get("delta.columnMapping.mode") == "id"

    def of(field: pa.Field) -> pa.Field:
        metadata = field.metadata or {}
        name = metadata.get(_PHYSICAL_NAME, field.name.encode()).decode()
        ids = (
            {data_files.FIELD_ID: metadata[_COLUMN_ID]} if by_id and _COLUMN_ID in metadata else {}
        )
        return data_files.with_names(field, [] if by_id else [name], ids)

    columns = [
        # The log states the value of a partition column, also where a file has such a column.
        data_files.with_names(field, [], {})
        if field.name in partitions
        else data_files.mapped(field, of)
        for field in pa.schema(table.schema().to_arrow())
    ]
    return pa.schema(columns)


def _deleted_rows(table: Any) -> dict[str, bytes]:
    """Returns the deleted rows of each data file that has any, by its address."""
    found = dict[str, bytes]()
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        masks = batch.column("selection_vector")
        for path, mask in zip(batch.column("filepath").to_pylist(), masks, strict=True):
            kept = mask.values.to_numpy(zero_copy_only=False)
            # The library has encoded what the log leaves as it is, such as umlauts.
            found[unquote(path)] = data_files.encoded_rows(np.flatnonzero(~kept))
    return found


def _files(address: TableAddress, root: str, table: Any, schema: pa.Schema) -> Iterator[TableFile]:
    """Yields the data files of the loaded version of a table in the order of their paths."""
    actions, deleted = pa.table(table.get_add_actions()).to_pylist(), _deleted_rows(table)
    for action in sorted(actions, key=lambda action: action["path"]):
        path = action["path"]  # percent-encoded, and relative unless it is in another table
        uri = path if is_url(path) else join(table.table_uri, path)
        rows = deleted.pop(unquote(uri), b"")
        template = data_files.encoded_template(schema, action.get("partition") or {})
        name = unquote(path).removeprefix("file://")
        found = name if is_url(name) or name.startswith("/") else join(root, name)
        yield TableFile(found, "parquet", options=data_files.DataFile(template, rows))
    if deleted:
        raise address.error(f"its log has deleted rows of {min(deleted)}, which is not in it")
