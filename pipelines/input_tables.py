"""Finds the input tables and looks at their heads: what is no table ends here, not in a worker."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from schemas.config import ConvertConfig
from schemas.errors import UsageError
from schemas.records import Row
from schemas.tables import TableFile
from transforms.files import is_local, open_binary, open_table
from transforms.functional import delimited, json_lines, parquet
from transforms.read_rows import DELIMITERS

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HEAD_BYTES = 4096
_HEAD_ROWS = 1000
_THREADS = 16


@dataclass(frozen=True)
class InputTables:
    """The tables of a run.

    Attributes:
        files: in the order of the inputs, those of one pattern sorted.
        columns: the names that all of them have; for JSONL, those of the first rows.
        has_rows: whether any row was seen; a table may well have none.
        unsupported: column to its type, where that makes no feature.
    """

    files: tuple[TableFile, ...]
    columns: tuple[str, ...]
    has_rows: bool
    unsupported: Mapping[str, str]


def look_at_tables(config: ConvertConfig) -> InputTables:
    """Returns the input tables, each looked at.

    Raises:
        UsageError: if there are none, or one is no table.
    """
    paths = [path for pattern in config.inputs for path in _expand(pattern)]
    if repeated := {path for path in paths if paths.count(path) > 1}:
        raise UsageError(f"--input names {min(repeated)} twice; each row would be read twice")
    with ThreadPoolExecutor(_THREADS) as executor:
        heads = list(executor.map(lambda path: _look_at(path, config.input_format), paths))
    return InputTables(
        files=tuple(head.file for head in heads),
        columns=_common_columns([head.columns for head in heads]),
        has_rows=any(head.has_rows for head in heads),
        unsupported={name: type_ for head in heads for name, type_ in head.unsupported.items()},
    )


@dataclass(frozen=True)
class _Head:
    file: TableFile
    columns: tuple[str, ...]
    has_rows: bool
    unsupported: Mapping[str, str] = field(default_factory=dict)


def _expand(pattern: str) -> list[str]:
    """Returns the files of an input: itself if it is a file, what the pattern matches otherwise."""
    if is_local(pattern):
        if os.path.isdir(pattern):
            raise UsageError(f"--input {pattern}: is a folder; expected a table, or a pattern")
        found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    else:
        found = sorted(m.path for m in FileSystems.match([pattern])[0].metadata_list)
    if not found:
        raise UsageError(f"--input {pattern}: no such file; check the path and its permissions")
    return found


def _look_at(path: str, input_format: str) -> _Head:
    try:
        with open_binary(path) as stream:
            head = stream.read(_HEAD_BYTES)
        file = TableFile(path, _format_of(path, head, input_format), head.startswith(_GZIP))
        return _read_head(file)
    except (OSError, EOFError, ValueError, pa.ArrowException) as error:
        raise UsageError(f"--input {path}: cannot be read as a table: {error}") from error


def _format_of(path: str, head: bytes, input_format: str) -> str:
    if not head:
        raise UsageError(f"--input {path}: the file is empty; expected a table")
    stem = path.lower().removesuffix(".gz")
    by_name = _FORMATS.get(os.path.splitext(stem)[1])
    if head.startswith(_PARQUET):
        by_name = "parquet"
    found = by_name if input_format == "auto" else input_format
    if found is None:
        raise UsageError(f"--input {path}: the name tells no format; say --input_format csv, …")
    return found


def _read_head(file: TableFile) -> _Head:
    if file.format == "parquet":
        with open_table(file) as stream:
            table = pq.ParquetFile(stream)
            unsupported = parquet.unsupported_columns(table.schema_arrow)
            columns = _parquet_columns(table, file)
            return _Head(file, columns, table.metadata.num_rows > 0, unsupported)
    with open_table(file) as stream:
        _refuse_binary(stream.peek(_HEAD_BYTES)[:_HEAD_BYTES], file)  # type: ignore[attr-defined]
        if file.format in DELIMITERS:
            header = delimited.read_header(stream, DELIMITERS[file.format])
            return _Head(file, _delimited_columns(header, file), bool(_first_row(file)))
        rows = _first_rows(json_lines.read_rows(stream, file.path, None))
    if not rows:
        raise UsageError(f"--input {file.path}: none of the first lines is a JSON object")
    return _Head(file, tuple(sorted({name for row in rows for name in row.values})), True)


def _refuse_binary(head: bytes, file: TableFile) -> None:
    if b"\0" in head and not head.startswith(_UTF16):
        raise UsageError(
            f"--input {file.path}: holds binary data, and is no {file.format} table; "
            "expected text in UTF-8"
        )


def _delimited_columns(header: Sequence[str], file: TableFile) -> tuple[str, ...]:
    if not any(name.strip() for name in header):
        raise UsageError(f"--input {file.path}: has no header; expected column names in row 1")
    if repeated := [name for name in header if name and header.count(name) > 1]:
        raise UsageError(
            f"--input {file.path}:1: the header has {repeated[0]!r} twice; "
            "which one is meant cannot be known: rename one"
        )
    return tuple(header)


def _parquet_columns(table: pq.ParquetFile, file: TableFile) -> tuple[str, ...]:
    names = table.schema_arrow.names
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--input {file.path}: has two columns {repeated[0]!r}: rename one")
    return tuple(names)


def _first_row(file: TableFile) -> Sequence[object]:
    with open_table(file) as stream:
        rows = delimited.read_rows(stream, DELIMITERS[file.format], file.path, ())
        return [row for row in [next(rows, None)] if row is not None]


def _first_rows(rows: Iterator[object]) -> list[Row]:
    heads = (row for _, row in zip(range(_HEAD_ROWS), rows, strict=False))
    return [row for row in heads if isinstance(row, Row)]


def _common_columns(tables: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the columns that all tables have, in the first one's order."""
    shared = set(tables[0]).intersection(*tables)
    return tuple(name for name in tables[0] if name in shared)
