"""Fuzz targets: each parses untrusted bytes, and may only raise documented exceptions.

The `probe` of a reader may reject a source, which `inputs.input_tables` reports; `read` must
return rows and rejects for any source that `probe` accepted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row, SkippedInput
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.schemas.yaml_files import parse_schema
from recordmill.transforms.functional.images.codecs import examine
from recordmill.transforms.functional.images.sniffing import (
    HEAD_BYTES,
    has_image_suffix,
    is_image,
    sniff,
)
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import (
    delimited,
    yolo,
)
from recordmill.transforms.functional.sources.parquet import (
    DataFile,
    encoded_rows,
    encoded_template,
    with_names,
)
from recordmill.transforms.functional.sources.text_ranges import align, cut, scan
from recordmill.transforms.functional.sources.tree import Entries, parts_of
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import UNREADABLE_SOURCE
from tests.shots import annotation_of, forms, shots

REJECTED = (UsageError, *UNREADABLE_SOURCE)
"""Errors that `probe` may raise."""

MAX_ROWS = 20_000
_PROJECTIONS = (Projection(), Projection(columns=("image", "label"), image="image", pixels=True))


def _stream(data: bytes) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(io.BytesIO(data)))  # type: ignore[arg-type]


def _consume(found: Iterable[Any]) -> bool:
    """Reads rows; returns whether there was one."""
    rows = list(islice(one_by_one(found), MAX_ROWS))
    assert all(isinstance(row, Row | Reject | SkippedInput) for row in rows)
    return any(isinstance(row, Row) for row in rows)


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
            parts = list(reader.parts(_stream(data), file)) if hasattr(reader, "parts") else []
        except REJECTED:
            return
        for part in parts[:10] or [Part(file)]:
            for projection in _PROJECTIONS:
                _consume(reader.read(_stream(data), part, projection))

    return fuzz


def csv_ranges(data: bytes) -> None:
    """A CSV table that is read in ranges, whose size is its first byte."""
    size, data = max(1, data[0] if data else 1), data[1:]
    file = TableFile("t.csv", "csv", size=len(data))
    if len(data) <= size:
        return
    ranges = list(cut(_stream(data), file, size))
    parts = align((part, scan(_stream(data), part, block_bytes=16)) for part in ranges)
    found = [
        row
        for part in parts
        for row in one_by_one(
            delimited.read(_stream(data[part.start : part.stop]), part, Projection())
        )
    ]
    assert found == list(one_by_one(delimited.read(_stream(data), Part(file), Projection())))


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


class _Files:
    """A `Tree` of files in memory."""

    root = "t"

    def __init__(self, content: dict[str, bytes]) -> None:
        self._content = content

    def walk(self, folder: str = "") -> Iterator[str]:
        return (name for name in self._content if name.startswith(folder))

    def entries(self, name: str = "") -> Entries:
        below = [n.removeprefix(f"{name}/") for n in self._content if not name or f"{name}/" in n]
        folders = {path.partition("/")[0] for path in below if "/" in path}
        return Entries(tuple(sorted(folders)), tuple(sorted(n for n in below if "/" not in n)))

    def path(self, name: str) -> str:
        return f"t/{name}"

    def open(self, name: str) -> BinaryIO:
        return _stream(self._content[name])

    def has(self, name: str) -> bool:
        return name in self._content

    def is_empty(self, name: str) -> bool:
        return False


# A folder of images, which has an annotation beside them, or one that describes it.
_IMAGES = {"1.jpg": b"", "images/1.jpg": b"", "classes.txt": b"cat\ndog\n"}


@cache
def _written(name: str) -> dict[str, bytes]:
    """Returns a folder of a format, without pixels; one with a text beside images for the rest."""
    form = forms().get(name)
    files = form.files(shots(3)[2:]) if form else {**_IMAGES, "1.txt": b"0 0.5 0.5 0.2 0.2"}
    return {name: b"" if has_image_suffix(name) else data for name, data in files.items()}


def read_folder(name: str, data: bytes) -> bool:
    """Reads folders with an annotation of a content; returns whether there was a row.

    It is where the tool writes it, beside the images, or describes the folder, as that of CVAT.
    """
    known, files = FORMATS[name], _written(name)
    annotation = annotation_of(files)
    suffixes = {annotation.rpartition(".")[2], *known.declared.described_by}
    beside = ({**_IMAGES, f"1.{suffix}": data} for suffix in sorted(suffixes))
    reader, has_row = known.reader, False
    for content in ({**files, annotation: data}, *beside):
        tree = _Files(content)
        try:
            (file,) = reader.sources_in(tree).files
            reader.probe(tree, file)
        except REJECTED:
            continue
        for part in getattr(reader, "parts", parts_of)(tree, file):
            if isinstance(part, Part):
                has_row |= _consume(reader.read(tree, part, Projection()))
    return has_row


def _folder(known: Any, name: str) -> Callable[[bytes], None]:
    """Returns the fuzz target of a format of folders: the content of an annotation file."""
    assert known.reader  # is imported here, where Atheris instruments it

    def fuzz(data: bytes) -> None:
        read_folder(name, data)

    return fuzz


def yolo_yaml(data: bytes) -> None:
    """A data.yaml."""
    try:
        yolo._parse_yaml(data, "data.yaml")
    except UsageError as error:
        _check_message(str(error))


TARGETS: dict[str, Callable[[bytes], None]] = {
    **{n: (_folder if f.declared.is_folder else _table)(f, n) for n, f in FORMATS.items()},
    "csv_ranges": csv_ranges,
    "data_file": _table(FORMATS["parquet"], "parquet", _data_file()),
    "schema": schema,
    "sniffing": sniffing,
    "yolo_yaml": yolo_yaml,
}
