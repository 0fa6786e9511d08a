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

# Hadoop's names of local files and of S3.
_LOCAL = re.compile(r"file:(//)?(?=/)")
_S3 = re.compile(r"s3[an]://")


def open_iceberg(address: TableAddress) -> Layout:
    """Returns a snapshot of an Iceberg table.

    Args:
        address: the catalog and the table, and possibly the id of a snapshot.

    Raises:
        UsageError: if there is no such table or snapshot, or it cannot be read in parallel.
    """
    catalog, _, name = address.name.partition(".")
    if not catalog or not all(name.split(".")) or "." not in name:
        raise address.malformed()
    library = address.library("pyiceberg.catalog")
    address.library("pyiceberg.io.pyarrow")
    try:
        table = library.load_catalog(catalog).load_table(name)
        snapshot = table.current_snapshot()
        if address.snapshot is not None:
            snapshot = table.snapshot_by_id(address.snapshot)
        if snapshot is None:
            raise address.error(_no_snapshot(table, address))
        files = tuple(_files(address, table))
    # Each catalog of the library raises the errors of its own client; none has a common class.
    except Exception as error:
        if isinstance(error, UsageError):
            raise
        why = f"{type(error).__name__}: {plain_text(error)}"
        raise address.error(f"cannot be read as an Iceberg table: {why}") from error
    id_ = int(snapshot.snapshot_id)
    entry = TableSnapshot(
        input=str(address),
        pinned=str(address._replace(snapshot=id_)),
        table=str(table.metadata.table_uuid),
        id=id_,
    )
    return Layout(files, f"Iceberg table, snapshot {id_}", entry)


def _no_snapshot(table: Any, address: TableAddress) -> str:
    if address.snapshot is None:
        return "has no rows. Add some."
    known = ", ".join(str(snapshot.snapshot_id) for snapshot in table.snapshots()[-3:])
    return f"the table has no such snapshot; the last ones are {known or 'none'}"


def _files(address: TableAddress, table: Any) -> Iterator[TableFile]:
    """Yields the data files of a snapshot in the order of their paths."""
    from pyiceberg.io.pyarrow import _read_all_delete_files

    scan = table.scan(snapshot_id=address.snapshot)
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    # There is no public function for the deleted rows; `to_arrow` calls this one.
    deleted = _read_all_delete_files(table.io, tasks)
    schema = scan.projection()
    columns = _columns(schema, table.name_mapping())
    for task in tasks:
        path, format_ = task.file.file_path, task.file.file_format
        if format_.name != "PARQUET":
            raise address.error(
                f"{path} is in the format {format_.name}; expected Parquet. Rewrite the table's "
                "files with its engine."
            )
        rows = [chunk.to_numpy() for chunk in deleted.get(path, ())]
        template = encoded_template(columns, _defaults(schema, task.file, table.specs()))
        data_file = DataFile(template, encoded_rows(np.concatenate(rows)) if rows else b"")
        found = _S3.sub("s3://", _LOCAL.sub("", path, count=1), count=1)
        yield TableFile(found, "parquet", data_file=data_file)


def _columns(schema: Any, mapping: Any) -> pa.Schema:
    """Returns the columns of a table, each with its id, and its names in files without ids."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    names = dict(_names(mapping or ()))

    def of(field: pa.Field) -> pa.Field:
        id_ = (field.metadata or {}).get(FIELD_ID)
        return with_names(field, names.get(int(id_ or 0), ()), {FIELD_ID: id_} if id_ else {})

    return pa.schema([mapped(f, of) for f in schema_to_pyarrow(schema, include_field_ids=True)])


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
