"""Lakehouse tables: their addresses in options, and the rows that one gained after a snapshot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.layout import is_url, join
from recordmill.schemas.plan import TableSnapshot
from recordmill.schemas.tables import Sources, TableFile
from recordmill.transforms.functional.sources import parquet
from recordmill.transforms.storage.files import exists, read_bytes
from recordmill.transforms.storage.stores.clients import iceberg_settings
from recordmill.transforms.storage.stores.objects import library_settings
from recordmill.transforms.storage.stores.options import current_options

_ADDRESS = re.compile(r"(delta|iceberg):(.*?)(?:@(\d+))?", re.DOTALL)

_COLORS = re.compile(r"\x1b\[[0-9;]*m")

DELTA, ICEBERG = "delta", "iceberg"

_FORMS = {
    DELTA: "delta:PATH or delta:PATH@VERSION",
    ICEBERG: "iceberg:CATALOG.NAMESPACE.TABLE or iceberg:CATALOG.NAMESPACE.TABLE@SNAPSHOT",
}


class TableAddress(NamedTuple):
    """The address of a lakehouse table."""

    kind: str  # `DELTA` or `ICEBERG`
    name: str  # the path of the table, or its name with that of its catalog
    snapshot: int | None  # the version or the id of the snapshot; None for the current one

    @classmethod
    def parse(cls, text: str) -> TableAddress | None:
        """Returns the address that a text is; None if it is a path.

        >>> TableAddress.parse("delta:tables/birds@7")
        TableAddress(kind='delta', name='tables/birds', snapshot=7)
        """
        match = _ADDRESS.fullmatch(text)
        return match and cls(match[1], match[2], int(match[3]) if match[3] else None)

    def __str__(self) -> str:
        at = "" if self.snapshot is None else f"@{self.snapshot}"
        return f"{self.kind}:{self.name}{at}"

    def error(self, message: str) -> UsageError:
        """Returns an error about the table."""
        return UsageError(f"{self}: {message}")

    def malformed(self) -> UsageError:
        """Returns the error of an address without the name of a table."""
        return self.error(f"is not the address of a table; expected {_FORMS[self.kind]}")

    def library(self, name: str) -> Any:
        """Imports a module of the library that reads the table.

        Raises UsageError if the library is not installed.
        """
        try:
            return import_module(name)
        except ImportError as error:
            needs = f"needs the extra [{self.kind}]: pip install 'recordmill[{self.kind}]'"
            raise self.error(f"{needs} ({error})") from error


def _plain_text(error: Exception) -> str:
    """Returns the text of a library's error on one line, without the colors of a terminal."""
    return " ".join(_COLORS.sub("", str(error)).split())


WHOLE_TABLE = "Convert the whole table without --append, which also removes deleted rows."


@dataclass(frozen=True)
class History:
    """The snapshots of a table from that of a base version on."""

    address: TableAddress
    snapshots: Sequence[int]  # their ids, from the oldest; the first is that of the base version
    files: Callable[[int], tuple[TableFile, ...]]
    # Returns whether a snapshot has the same rows as the one before it, in other files, as after a
    # compaction.
    is_rewrite: Callable[[int], bool]
    # Returns the operation of a snapshot, for messages; "" if it is unknown.
    operation: Callable[[int], str]
    noun: str = "snapshot"

    def files_by_rows(self, number: int) -> dict[tuple[str, bytes], TableFile]:
        """Returns the files of a snapshot by their path and their deleted rows.

        `number` is the position of the snapshot in `snapshots`.
        """
        files = self.files(self.snapshots[number])
        return {
            (f.path, f.options.deleted if isinstance(f.options, parquet.DataFile) else b""): f
            for f in files
        }


def _added_files(history: History) -> tuple[TableFile, ...]:
    """Returns the files with the rows that were added after the first snapshot, sorted by path.

    Rows that were compacted into one file with older ones are read from their files before that.
    """
    last, start = len(history.snapshots) - 1, 0
    before, current = history.files_by_rows(0), history.files_by_rows(last)
    found = dict[tuple[str, bytes], TableFile]()
    while not before.keys() <= current.keys():
        stop = _next_rewrite(history, start)
        after = history.files_by_rows(stop - 1)
        if stop > last or not before.keys() <= after.keys():
            raise history.address.error(_changed(history, start, stop))
        found |= {rows: after[rows] for rows in after.keys() - before.keys()}
        start, before = stop, history.files_by_rows(stop)
    for rows, file in found.items():
        if rows not in current and not exists(file.path):
            raise history.address.error(
                f"{file.path} is missing: its rows were added after {_first(history)}, and "
                f"compacted into another file since. {WHOLE_TABLE}"
            )
    found |= {rows: current[rows] for rows in current.keys() - before.keys()}
    return tuple(sorted(found.values(), key=lambda file: file.path))


def _next_rewrite(history: History, start: int) -> int:
    """Returns the position of the first rewrite after a snapshot; that after the last if none."""
    later = range(start + 1, len(history.snapshots))
    found = (number for number in later if history.is_rewrite(history.snapshots[number]))
    return next(found, len(history.snapshots))


def _changed(history: History, start: int, stop: int) -> str:
    """Returns the message on the first snapshot that lacks rows of an earlier one."""
    before, snapshots = history.files_by_rows(start).keys(), history.snapshots
    changed = (n for n in range(start + 1, stop) if not before <= history.files_by_rows(n).keys())
    found = snapshots[next(changed)]
    operation = history.operation(found)
    return (
        f"{history.noun} {found}{operation and f' ({operation})'} changes or deletes older rows; "
        f"expected only rows that were added after {_first(history)}. {WHOLE_TABLE}"
    )


def _first(history: History) -> str:
    return f"{history.noun} {history.snapshots[0]}, which --base has"


_PHYSICAL_NAME = b"delta.columnMapping.physicalName"
_COLUMN_ID = b"delta.columnMapping.id"

# https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Valid Feature Names in Table Features"
_READABLE = frozenset(
    ("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview")
) | {"v2Checkpoint", "vacuumProtocolCheck"}

# The actions of a commit that add and remove data files.
_FILES = ("add", "remove")

# A table of this version states its features.
_WITH_FEATURES = 3


def open_delta(address: TableAddress, since: Mapping[str, int]) -> Sources:
    """Returns a version of a Delta table, or the rows that were added since another one."""
    if not address.name:
        raise address.malformed()
    library = address.library("deltalake")
    root = address.name.rstrip("/") or "/"
    try:
        table = library.DeltaTable(root, None, library_settings(root))
        _check_snapshot(address, table)
        return _delta_sources(address, table, root, since)
    except library.exceptions.TableNotFoundError as error:
        raise address.error("there is no Delta table. Check the path.") from error
    except (library.exceptions.DeltaError, OSError, ValueError) as error:
        raise address.error(f"cannot be read as a Delta table: {_plain_text(error)}") from error


def _delta_sources(
    address: TableAddress, table: Any, root: str, since: Mapping[str, int]
) -> Sources:
    _load(address, table, address.snapshot, "Choose a later version.")
    _check_features(address, table)
    version, id_, schema = table.version(), str(table.metadata().id), _delta_columns(table)
    pinned = str(address._replace(snapshot=version))
    entry = TableSnapshot(input=str(address), pinned=pinned, table=id_, id=version)

    partitions = table.metadata().partition_columns

    def files(version: int) -> tuple[TableFile, ...]:
        _load(address, table, version, WHOLE_TABLE)
        if table.metadata().partition_columns != partitions:
            raise address.error(
                f"has other partition columns than version {version}. {WHOLE_TABLE}"
            )
        return tuple(_delta_files(address, root, table, schema))

    text, first = f"Delta table, version {version}", since.get(id_)
    if first is None:
        return Sources(files(version), text, entry)
    if first > version:
        raise address.error(f"is older than version {first}, which --base has. {WHOLE_TABLE}")
    log, versions = _Log(root), range(first, version + 1)
    history = History(address, versions, files, log.is_rewrite, log.operation, "version")
    return Sources(_added_files(history), f"{text}: rows added since version {first}", entry)


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
    unknown = sorted(set(protocol.reader_features or ()) - _READABLE)
    if unknown or protocol.min_reader_version > _WITH_FEATURES:
        what = unknown[0] if unknown else f"reader version {protocol.min_reader_version}"
        raise address.error(
            f"the table uses {what}, which is not supported. Export it to a folder of Parquet with "
            "its engine, and convert that folder."
        )


def _delta_columns(table: Any) -> pa.Schema:
    """Returns the columns of a table, each with how a data file names it."""
    partitions = set(table.metadata().partition_columns)
    by_id = table.metadata().configuration.get("delta.columnMapping.mode") == "id"

    def of(field: pa.Field) -> pa.Field:
        metadata = field.metadata or {}
        name = metadata.get(_PHYSICAL_NAME, field.name.encode()).decode()
        ids = {parquet.FIELD_ID: metadata[_COLUMN_ID]} if by_id and _COLUMN_ID in metadata else {}
        return parquet.with_names(field, [] if by_id else [name], ids)

    columns = [
        # The log states the value of a partition column, also where a file has such a column.
        parquet.with_names(field, [], {}) if field.name in partitions else parquet.mapped(field, of)
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
            found[unquote(path)] = parquet.encoded_rows(np.flatnonzero(~kept))
    return found


def _delta_files(
    address: TableAddress, root: str, table: Any, schema: pa.Schema
) -> Iterator[TableFile]:
    """Yields the data files of the loaded version of a table in the order of their paths."""
    actions, deleted = pa.table(table.get_add_actions()).to_pylist(), _deleted_rows(table)
    for action in sorted(actions, key=lambda action: action["path"]):
        path = action["path"]  # percent-encoded, and relative unless it is in another table
        uri = path if is_url(path) else join(table.table_uri, path)
        rows = deleted.pop(unquote(uri), b"")
        template = parquet.encoded_template(schema, action.get("partition") or {})
        name = unquote(path).removeprefix("file://")
        found = name if is_url(name) or name.startswith("/") else join(root, name)
        yield TableFile(found, "parquet", options=parquet.DataFile(template, rows))
    if deleted:
        raise address.error(f"its log has deleted rows of {min(deleted)}, which is not in it")


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

    `since` is the snapshots whose rows a base version has, by the id of the table.
    """
    catalog, _, name = address.name.partition(".")
    if not catalog or not all(name.split(".")) or "." not in name:
        raise address.malformed()
    library = address.library("pyiceberg.catalog")
    address.library("pyiceberg.io.pyarrow")
    try:
        settings = iceberg_settings(current_options())
        table = library.load_catalog(catalog, **settings).load_table(name)
        return _iceberg_sources(address, table, since)
    # Each catalog of the library raises the errors of its own client; none has a common class.
    except Exception as error:
        if isinstance(error, UsageError):
            raise
        if "equality deletes" in str(error):
            remedy = ", and convert it without --append." if since else "."
            raise address.error(f"{_EQUALITY_DELETES}{remedy}") from error
        why = f"{type(error).__name__}: {_plain_text(error)}"
        raise address.error(f"cannot be read as an Iceberg table: {why}") from error


def _iceberg_sources(address: TableAddress, table: Any, since: Mapping[str, int]) -> Sources:
    snapshot = table.current_snapshot()
    if address.snapshot is not None:
        snapshot = table.snapshot_by_id(address.snapshot)
    if snapshot is None and address.snapshot is None:
        return Sources((), "Iceberg table without a snapshot")
    if snapshot is None:
        known = ", ".join(str(one.snapshot_id) for one in table.snapshots()[-3:]) or "none"
        raise address.error(f"the table has no such snapshot; the last ones are {known}")
    id_, uuid = int(snapshot.snapshot_id), str(table.metadata.table_uuid)
    pinned = str(address._replace(snapshot=id_))
    entry = TableSnapshot(input=str(address), pinned=pinned, table=uuid, id=id_)
    schema = table.scan(snapshot_id=address.snapshot).projection()

    def files(id_: int) -> tuple[TableFile, ...]:
        return tuple(_iceberg_files(address, table, id_, schema))

    text, first = f"Iceberg table, snapshot {id_}", since.get(uuid)
    if first is None:
        return Sources(files(id_), text, entry)
    operations = _operations(address, table, snapshot, first)

    def is_rewrite(id_: int) -> bool:
        return operations[id_] == "replace"

    history = History(address, list(operations), files, is_rewrite, operations.__getitem__)
    return Sources(_added_files(history), f"{text}: rows added since snapshot {first}", entry)


def _operations(address: TableAddress, table: Any, snapshot: Any, first: int) -> dict[int, str]:
    """Returns the operations of a snapshot and those before it, from the oldest."""
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


def _iceberg_files(
    address: TableAddress, table: Any, snapshot: int, schema: Any
) -> Iterator[TableFile]:
    """Yields the data files of a snapshot by path; `schema` may be that of another snapshot."""
    from pyiceberg.io.pyarrow import _read_all_delete_files

    scan = table.scan(snapshot_id=snapshot)
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    # There is no public function for the deleted rows; `to_arrow` calls this one.
    deleted = _read_all_delete_files(table.io, tasks)
    columns = _iceberg_columns(schema, table.name_mapping())
    for task in tasks:
        path, format_ = task.file.file_path, task.file.file_format
        if format_.name != "PARQUET":
            raise address.error(
                f"{path} is in the format {format_.name}; expected Parquet. Rewrite the table's "
                "files with its engine."
            )
        rows = [chunk.to_numpy() for chunk in deleted.get(path, ())]
        template = parquet.encoded_template(columns, _defaults(schema, task.file, table.specs()))
        data_file = parquet.DataFile(
            template, parquet.encoded_rows(np.concatenate(rows)) if rows else b""
        )
        found = _S3.sub("s3://", _LOCAL.sub("", path, count=1), count=1)
        yield TableFile(found, "parquet", options=data_file)


def _iceberg_columns(schema: Any, mapping: Any) -> pa.Schema:
    """Returns the columns of a table, each with its id, and its names in files without ids."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    names = dict(_names(mapping or ()))

    def of(field: pa.Field) -> pa.Field:
        id_ = (field.metadata or {}).get(parquet.FIELD_ID)
        return parquet.with_names(
            field, names.get(int(id_ or 0), ()), {parquet.FIELD_ID: id_} if id_ else {}
        )

    return pa.schema(
        [parquet.mapped(f, of) for f in schema_to_pyarrow(schema, include_field_ids=True)]
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
