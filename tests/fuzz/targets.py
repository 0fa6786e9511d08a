"""Fuzz targets: each parses untrusted bytes, and may only raise documented exceptions.

The `probe` of a reader may reject a source, which `pipelines.input_tables` reports; `read` must
return rows and rejects for any source that `probe` accepted.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Embedded, Row, SkippedInput
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.schemas.tables import Projection, SourceSplit, TableFile
from recordmill.schemas.yaml_files import parse_schema
from recordmill.transforms.functional.images.codecs import examine
from recordmill.transforms.functional.images.sniffing import HEAD_BYTES, is_image, sniff
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import (
    delimited,
    voc,
    yolo,
)
from recordmill.transforms.functional.sources.data_files import (
    DataFile,
    encoded_rows,
    encoded_template,
    with_names,
)
from recordmill.transforms.functional.sources.text_ranges import align, cut, is_large, scan
from recordmill.transforms.storage.formats import FORMATS

REJECTED = (UsageError, OSError, EOFError, ValueError, MemoryError, zlib.error, pa.ArrowException)
"""Errors that `probe` may raise: see `recordmill.pipelines.input_tables._reading`."""

MAX_ROWS = 20_000
_PROJECTIONS = (Projection(), Projection(columns=("image", "label"), image="image", pixels=True))


def _stream(data: bytes) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(io.BytesIO(data)))  # type: ignore[arg-type]


def _consume(found: Iterable[Any]) -> None:
    for row in islice(one_by_one(found), MAX_ROWS):
        assert isinstance(row, Row | Embedded | Reject | SkippedInput)


def _data_file() -> DataFile:
    """Returns how a lakehouse table reads a file: with other columns, and without some rows."""
    columns = {"image": pa.large_binary(), "label": pa.int64(), "added": pa.string()}
    fields = [with_names(pa.field(*column), [column[0]], {}) for column in columns.items()]
    deleted = encoded_rows(np.array([0, 3]))
    return DataFile(encoded_template(pa.schema(fields), {"added": "x"}), deleted)


def _table(known: Any, format_: str, data_file: DataFile | None = None) -> Callable[[bytes], None]:
    """Returns the fuzz target of a format of files, whose readers are modules."""
    reader = known.reader
    file = TableFile(f"t.{format_}", format_, options=data_file)

    def fuzz(data: bytes) -> None:
        try:
            reader.probe(_stream(data), file)
            splits = list(reader.split(_stream(data), file)) if hasattr(reader, "split") else []
        except REJECTED:
            return
        for split in splits[:10] or [SourceSplit(file)]:
            for projection in _PROJECTIONS:
                _consume(reader.read(_stream(data), split, projection))

    return fuzz


def csv_ranges(data: bytes) -> None:
    """A CSV table that is read in ranges, whose size is its first byte."""
    size, data = max(1, data[0] if data else 1), data[1:]
    file = TableFile("t.csv", "csv", size=len(data))
    if not is_large(file, size):
        return
    ranges = list(cut(_stream(data), file, size))
    splits = align((split, scan(_stream(data), split, block_bytes=16)) for split in ranges)
    found = [
        row
        for split in splits
        for row in one_by_one(
            delimited.read(_stream(data[split.start : split.stop]), split, Projection())
        )
    ]
    assert found == list(one_by_one(delimited.read(_stream(data), SourceSplit(file), Projection())))


def _check_message(message: str) -> None:
    assert 0 < len(message) < 100_000


def schema(data: bytes) -> None:
    """A schema file; messages are checked."""
    try:
        parse_schema(data.decode("utf-8", "replace"), "s.yaml")
    except UsageError as error:
        _check_message(str(error))


def sniffing(data: bytes) -> None:
    """An image's format and header."""
    sniff(data[:HEAD_BYTES])
    is_image(data[:HEAD_BYTES])
    try:
        examine(data)
    except RecordError as error:
        _check_message(error.detail)


def voc_annotation(data: bytes) -> None:
    """One XML file."""
    try:
        voc.parse(data)
    except RecordError as error:
        _check_message(error.detail)


def yolo_labels(data: bytes) -> None:
    """One text of labels, and one data.yaml."""
    try:
        yolo.parse(data.decode("utf-8-sig", "replace"), yolo.Classes({0: "cat", 1: "dog"}))
    except RecordError as error:
        _check_message(error.detail)
    try:
        yolo.parse_yaml(data, "data.yaml")
    except UsageError as error:
        _check_message(str(error))


TARGETS: dict[str, Callable[[bytes], None]] = {
    **{name: _table(known, name) for name, known in FORMATS.items() if not known.is_folder},
    "csv_ranges": csv_ranges,
    "data_file": _table(FORMATS["parquet"], "parquet", _data_file()),
    "schema": schema,
    "sniffing": sniffing,
    "voc": voc_annotation,
    "yolo": yolo_labels,
}
