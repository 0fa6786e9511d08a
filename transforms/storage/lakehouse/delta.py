"""Resolves a version of a Delta table to its data files.

The library reads the log of the table and its deletion vectors; workers read the data files, and
need no library for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from recordmill.schemas.layout import is_url, join
from recordmill.schemas.plan import TableSnapshot
from recordmill.schemas.tables import DataFile, TableFile
from recordmill.transforms.functional.sources.data_files import (
    FIELD_ID,
    encoded_rows,
    encoded_template,
    mapped,
    with_names,
)
from recordmill.transforms.functional.sources.folder_layouts import Layout
from recordmill.transforms.storage.lakehouse.address import TableAddress, plain_text
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

# A table of this version states its features.
_WITH_FEATURES = 3


def open_delta(address: TableAddress) -> Layout:
    """Returns a version of a Delta table.

    Args:
        address: the path of the table, and possibly a version.

    Raises:
        UsageError: if there is no such table or version, or it cannot be read in parallel.
    """
    if not address.name:
        raise address.malformed()
    library = address.library("deltalake")
    root = address.name.rstrip("/") or "/"
    try:
        table = library.DeltaTable(root, None, library_settings(root))
        _load(table, address)
        actions = pa.table(table.get_add_actions())
        deleted = _deleted_rows(table)
    except library.exceptions.TableNotFoundError as error:
        raise address.error("there is no Delta table. Check the path.") from error
    except (library.exceptions.DeltaError, OSError, ValueError) as error:
        raise address.error(f"cannot be read as a Delta table: {plain_text(error)}") from error
    _check_features(address, table)
    schema = _schema(table)
    files = tuple(_files(root, table.table_uri, schema, actions, deleted))
    if deleted:
        raise address.error(f"its log has deleted rows of {min(deleted)}, which is not in it")
    pinned = address._replace(snapshot=table.version())
    entry = TableSnapshot(
        input=str(address), pinned=str(pinned), table=str(table.metadata().id), id=table.version()
    )
    return Layout(files, f"Delta table, version {entry.id}", entry)


def _load(table: Any, address: TableAddress) -> None:
    """Loads the version of a table that its address states."""
    if address.snapshot is None:
        return
    if address.snapshot > (newest := table.version()):
        raise address.error(f"the table has no such version; expected 0 to {newest}")
    table.load_as_version(address.snapshot)


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
        ids = {FIELD_ID: metadata[_COLUMN_ID]} if by_id and _COLUMN_ID in metadata else {}
        return with_names(field, [] if by_id else [name], ids)

    columns = [
        # The log states the value of a partition column, also where a file has such a column.
        with_names(field, [], {}) if field.name in partitions else mapped(field, of)
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
            found[unquote(path)] = encoded_rows(np.flatnonzero(~kept))
    return found


def _files(
    root: str, uri: str, schema: pa.Schema, actions: pa.Table, deleted: dict[str, bytes]
) -> Iterator[TableFile]:
    """Yields the data files of a table in the order of their paths.

    Args:
        root: the path of the table.
        uri: the address of the table, by which the library names its files.
        schema: its columns.
        actions: its files and their partitions.
        deleted: the deleted rows by file; those of the yielded files are removed.
    """
    for action in sorted(actions.to_pylist(), key=lambda action: action["path"]):
        path = action["path"]  # percent-encoded, and relative unless it is in another table
        rows = deleted.pop(unquote(path if is_url(path) else join(uri, path)), b"")
        template = encoded_template(schema, action.get("partition") or {})
        name = unquote(path).removeprefix("file://")
        found = name if is_url(name) or name.startswith("/") else join(root, name)
        yield TableFile(found, "parquet", data_file=DataFile(template, rows))
