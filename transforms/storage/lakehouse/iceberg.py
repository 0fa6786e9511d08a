"""Resolves a snapshot of an Iceberg table to its data files.

The library reads the manifests of the table and its delete files; workers read the data files, and
need neither the library nor the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.plan import TableSnapshot
from recordmill.schemas.tables import Sources, TableFile
from recordmill.transforms.functional.sources import data_files
from recordmill.transforms.storage.lakehouse.table import (
    WHOLE_TABLE,
    History,
    TableAddress,
    added_files,
    plain_text,
)
from recordmill.transforms.storage.stores.clients import iceberg_settings
from recordmill.transforms.storage.stores.options import current_options

# Hadoop's names of local files and of S3.
_LOCAL = re.compile(r"file:(//)?(?=/)")
_S3 = re.compile(r"s3[an]://")

_EQUALITY_DELETES = (
    "has files of equality deletes, as Flink writes them, which pyiceberg cannot apply; expected "
    "position deletes or deletion vectors. Rewrite the table with its engine, as docs/how-to/"
    "from-lakehouse.md shows"
)


def open_iceberg(address: TableAddress, since: Mapping[str, int]) -> Sources:
    """Returns a snapshot of an Iceberg table, or the rows that were added since another one.

    `since` is the snapshots whose rows a base version has, by the id of the table. Raises
    UsageError if there is no such table or snapshot, or it cannot be read in parallel.
    """
    catalog, _, name = address.name.partition(".")
    if not catalog or not all(name.split(".")) or "." not in name:
        raise address.malformed()
    library = address.library("pyiceberg.catalog")
    address.library("pyiceberg.io.pyarrow")
    try:
        settings = iceberg_settings(current_options())
        table = library.load_catalog(catalog, **settings).load_table(name)
        return _layout(address, table, since)
    # Each catalog of the library raises the errors of its own client; none has a common class.
    except Exception as error:
        if isinstance(error, UsageError):
            raise
        if "equality deletes" in str(error):
            remedy = ", and convert it without --append." if since else "."
            raise address.error(f"{_EQUALITY_DELETES}{remedy}") from error
        why = f"{type(error).__name__}: {plain_text(error)}"
        raise address.error(f"cannot be read as an Iceberg table: {why}") from error


def _layout(address: TableAddress, table: Any, since: Mapping[str, int]) -> Sources:
    snapshot = table.current_snapshot()
    if address.snapshot is not None:
        snapshot = table.snapshot_by_id(address.snapshot)
    if snapshot is None and address.snapshot is None:
        return Sources((), "Iceberg table without a snapshot")
    if snapshot is None:
        raise address.error(_no_snapshot(table))
    id_, uuid = int(snapshot.snapshot_id), str(table.metadata.table_uuid)
    pinned = str(address._replace(snapshot=id_))
    entry = TableSnapshot(input=str(address), pinned=pinned, table=uuid, id=id_)
    schema = table.scan(snapshot_id=address.snapshot).projection()

    def files(id_: int) -> tuple[TableFile, ...]:
        return tuple(_files(address, table, id_, schema))

    text, first = f"Iceberg table, snapshot {id_}", since.get(uuid)
    if first is None:
        return Sources(files(id_), text, entry)
    operations = _operations(address, table, snapshot, first)

    def is_rewrite(id_: int) -> bool:
        return operations[id_] == "replace"

    history = History(address, list(operations), files, is_rewrite, operations.__getitem__)
    return Sources(added_files(history), f"{text}: rows added since snapshot {first}", entry)


def _operations(address: TableAddress, table: Any, snapshot: Any, first: int) -> dict[int, str]:
    """Returns the operations of a snapshot and those before it, from the oldest.

    Raises UsageError if the snapshot was not made from the oldest one, or those between are
    missing.
    """
    found = dict[int, str]()
    while snapshot is not None:
        id_, summary = int(snapshot.snapshot_id), snapshot.summary
        found[id_] = summary.operation.value if summary else ""
        if id_ == first:
            return dict(reversed(found.items()))
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    raise address.error(
        f"is not a later snapshot than {first}, which --base has, or the snapshots between them "
        f"have expired. {WHOLE_TABLE}"
    )


def _no_snapshot(table: Any) -> str:
    known = ", ".join(str(snapshot.snapshot_id) for snapshot in table.snapshots()[-3:])
    return f"the table has no such snapshot; the last ones are {known or 'none'}"


def _files(address: TableAddress, table: Any, snapshot: int, schema: Any) -> Iterator[TableFile]:
    """Yields the data files of a snapshot in the order of their paths.

    `schema` is the columns to read, which may be those of another snapshot.
    """
    from pyiceberg.io.pyarrow import _read_all_delete_files

    scan = table.scan(snapshot_id=snapshot)
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    # There is no public function for the deleted rows; `to_arrow` calls this one.
    deleted = _read_all_delete_files(table.io, tasks)
    columns = _columns(schema, table.name_mapping())
    for task in tasks:
        path, format_ = task.file.file_path, task.file.file_format
        if format_.name != "PARQUET":
            raise address.error(
                f"{path} is in the format {format_.name}; expected Parquet. Rewrite the table's "
                "files with its engine."
            )
        rows = [chunk.to_numpy() for chunk in deleted.get(path, ())]
        template = data_files.encoded_template(columns, _defaults(schema, task.file, table.specs()))
        data_file = data_files.DataFile(
            template, data_files.encoded_rows(np.concatenate(rows)) if rows else b""
        )
        found = _S3.sub("s3://", _LOCAL.sub("", path, count=1), count=1)
        yield TableFile(found, "parquet", options=data_file)


def _columns(schema: Any, mapping: Any) -> pa.Schema:
    """Returns the columns of a table, each with its id, and its names in files without ids."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    names = dict(_names(mapping or ()))

    def of(field: pa.Field) -> pa.Field:
        id_ = (field.metadata or {}).get(data_files.FIELD_ID)
        return data_files.with_names(
            field, names.get(int(id_ or 0), ()), {data_files.FIELD_ID: id_} if id_ else {}
        )

    return pa.schema(
        [data_files.mapped(f, of) for f in schema_to_pyarrow(schema, include_field_ids=True)]
    )


def _names(fields: Any) -> Iterator[tuple[int, list[str]]]:
    for field in fields:
        if field.field_id is not None:
            yield field.field_id, list(field.names)
        yield from _names(field.fields)


def _defaults(schema: Any, file: Any, specs: Mapping[int, Any]) -> dict[str, Any]:
    """Returns the values of the columns that a data file may lack.

    https://iceberg.apache.org/spec/#column-projection: the value of its partition, if that is the
    value of the column itself, or else the default of the column.
    """
    from pyiceberg.transforms import IdentityTransform

    found = {field.name: field.initial_default for field in schema.fields}
    for at, field in enumerate(specs[file.spec_id].fields):
        if isinstance(field.transform, IdentityTransform):
            found[schema.find_column_name(field.source_id)] = file.partition[at]
    return {name: value for name, value in found.items() if value is not None}
