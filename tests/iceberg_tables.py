"""A catalog of Iceberg, and changes of tables that other engines write: delete files, rewrites."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.typedef import Record
from pyiceberg.utils.config import Config

_FIELD_ID = "PARQUET:field_id"


@contextmanager
def local_catalog(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pyiceberg.catalog.Catalog]:
    """Opens the catalog `local`, with an empty namespace `db`, for this process and its children.

    Args:
        folder: for the database and new tables.
        monkeypatch: sets the variables that state the catalog.
    """
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__WAREHOUSE", f"file://{folder}")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    catalog = pyiceberg.catalog.load_catalog("local")
    catalog.create_namespace("db")
    yield catalog
    catalog.close()


class _Rewrite(_OverwriteFiles):
    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        found = super()._summary(snapshot_properties or {})
        return Summary(Operation.REPLACE, **found.additional_properties)


def compact(table: Any) -> None:
    """Writes all rows of a table into one file, as `rewrite_data_files` of Spark does.

    Args:
        table: the table, which has no partitions.
    """
    rows, tasks = table.scan().to_arrow(), list(table.scan().plan_files())
    with table.transaction() as transaction:
        rewrite = _Rewrite(Operation.OVERWRITE, transaction, table.io)
        for file in _dataframe_to_data_files(table.metadata, rows, table.io):
            rewrite.append_data_file(file)
        for task in tasks:
            rewrite.delete_data_file(task.file)
        rewrite.commit()


class _DeleteWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _DeleteFiles(_FastAppendFiles):
    """A snapshot with a delete file more."""

    delete_file: DataFile

    def _manifests(self) -> list[ManifestFile]:
        writer = _DeleteWriter(
            self.spec(0), self.schema(), self.new_manifest_output(), self._snapshot_id, "null"
        )
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self._snapshot_id,
            sequence_number=None,
            file_sequence_number=None,
            data_file=self.delete_file,
        )
        with writer:
            writer.add(entry)
        return [*super()._manifests(), writer.to_manifest_file()]


def delete_positions(table: Any, rows: dict[str, list[int]]) -> None:
    """Deletes rows by a file of positions, as Spark does with merge-on-read.

    Args:
        table: the table, which has no partitions.
        rows: the numbers of the deleted rows by data file.
    """
    pairs = sorted((path, row) for path, numbers in rows.items() for row in numbers)
    columns = {"file_path": pa.string(), "pos": pa.int64()}
    ids = {"file_path": "2147483546", "pos": "2147483545"}
    _commit(table, [dict(zip(columns, pair, strict=True)) for pair in pairs], columns, ids)


def delete_equal(table: Any, column: str, values: list[str]) -> None:
    """Deletes rows by the values of a column, as Flink does in streaming upserts.

    Args:
        table: the table, which has no partitions.
        column: a column of text.
        values: the values of the deleted rows.
    """
    id_ = table.schema().find_field(column).field_id
    rows = [{column: value} for value in values]
    _commit(table, rows, {column: pa.string()}, {column: str(id_)}, equality_ids=[id_])


def _commit(
    table: Any,
    rows: list[dict[str, Any]],
    columns: dict[str, pa.DataType],
    ids: dict[str, str],
    equality_ids: list[int] | None = None,
) -> None:
    """Adds a snapshot with a delete file."""
    fields = [pa.field(n, t, False, {_FIELD_ID: ids[n]}) for n, t in columns.items()]
    path = table.location_provider().new_data_location(f"deletes-{len(table.snapshots())}.parquet")
    output = table.io.new_output(path)
    with output.create() as stream:
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), stream)
    content = DataFileContent.EQUALITY_DELETES if equality_ids else DataFileContent.POSITION_DELETES
    with table.transaction() as transaction:
        update = _DeleteFiles(Operation.DELETE, transaction, table.io)
        update.delete_file = DataFile.from_args(
            content=content,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(rows),
            file_size_in_bytes=len(output.to_input_file()),
            equality_ids=equality_ids,
            _table_format_version=2,
        )
        update.commit()
