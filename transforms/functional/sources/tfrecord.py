"""Reads TFRecord files of `tf.train.Example`: features are columns, images are byte ranges."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from recordmill.schemas.errors import UsageError
from recordmill.schemas.example_pb2 import Example
from recordmill.schemas.records import Embedded, Items, Location, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import IMAGES, Probe, Projection, SourceSplit, TableFile
from recordmill.transforms.functional.images.sniffing import is_image, sniff
from recordmill.transforms.functional.records.framing import (
    FRAME_BYTES,
    HEADER_BYTES,
    Frame,
    FrameError,
    read_frames_or_errors,
)

_HEAD_RECORDS = 100
_SPLIT = re.compile(r"-([A-Za-z]\w*)\.tfrecords?-\d+-of-\d+(?:\.gz)?")
_MAX_PATH_BYTES = 4096


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the features of the first records as columns.

    Args:
        stream: the decompressed file.
        file: the path and format of the file.

    Raises:
        UsageError: if none of these records is a `tf.train.Example`.
    """
    columns, images, rows = dict[str, None](), set[str](), False
    fault: ValueError | None = None
    # A damaged record does not hide the columns of the others.
    for found in islice(_records(stream), _HEAD_RECORDS):
        try:
            values = _values(found)
        except ValueError as error:
            fault = fault or error  # `read` reports it as a reject
            continue
        rows = True
        columns |= dict.fromkeys(values)
        images |= {name for name, value in values.items() if _is_image(_first(value))}
    if not rows and fault is not None:
        raise UsageError(f"{file.path}: is not a TFRecord file of Examples: {fault}") from fault
    if not rows:
        return Probe((), has_rows=False)
    columns |= dict.fromkeys(_split_of(file.path))
    decoded_images = dict.fromkeys(sorted(images), IMAGES)
    return Probe(tuple(columns), rows, unsupported=decoded_images, embedded=frozenset(images))


def read(
    stream: BinaryIO, split: SourceSplit, projection: Projection
) -> Iterator[Row | Embedded | Reject]:
    """Yields the row of each record, or a reject with the byte offset of the record.

    Records after damage that hides where the next record begins are lost.

    Args:
        stream: the decompressed file.
        split: the source split, which is the whole file.
        projection: the columns to keep, and how to read images.
    """
    path = split.file.path
    for found in _records(stream):
        try:
            yield _row(found, split.file, projection)
        except ValueError as error:
            detail = f"the record at byte {found.offset}: {error}"
            # If the checksum of a record's length is wrong, the next record cannot be located.
            if isinstance(found, FrameError) and found.ends:
                detail = f"{detail}; the records after it are lost"
                yield Reject.of_lost_rows(path, found.record + 1, detail)
            else:
                yield Reject.of_malformed_row(path, found.record + 1, detail)


def _records(stream: BinaryIO) -> Iterator[Frame | FrameError]:
    """Yields each record or its error; an error of gzip is the last element."""
    record = offset = 0
    try:
        for found in read_frames_or_errors(stream):
            yield found
            if isinstance(found, Frame):
                record, offset = found.record + 1, found.offset + FRAME_BYTES + len(found.data)
    except (EOFError, OSError, zlib.error) as error:
        yield FrameError(record, offset, f"the rest of the file cannot be read: {error}")


def _row(found: Frame | FrameError, file: TableFile, projection: Projection) -> Row | Embedded:
    values = {**_split_of(file.path), **_values(found)}
    image = _first(values.get(projection.image)) if projection.image else None
    line = found.record + 1
    if not isinstance(image, bytes) or not isinstance(found, Frame):
        return Row(projection.apply(_as_text(values)), file.path, line)
    del values[projection.image]
    # The image is referenced where its bytes first occur in the record, even if that is part of
    # another feature: the bytes are the same.
    start = found.offset + HEADER_BYTES + found.data.find(image)
    location = Location(file.path, start, start + len(image))
    row = Row(projection.apply(_as_text(values)), file.path, line, image=location)
    return Embedded(row, image) if file.gzipped and projection.pixels else row


def _values(found: Frame | FrameError) -> dict[str, Any]:
    """Returns the values of each feature: a list, or `Items` for fewer than two values.

    Bytes are not decoded, since they may be images.

    Raises:
        ValueError: if the record is damaged, or is not an Example.
    """
    if isinstance(found, FrameError):
        raise ValueError(str(found))
    example = Example()
    try:
        example.ParseFromString(found.data)
    except DecodeError as error:
        raise ValueError(f"is not a tf.train.Example: {error}") from error
    # Protobuf also parses other messages, with their fields as unknown fields.
    if len(UnknownFieldSet(example)):
        raise ValueError(
            "expected a tf.train.Example, got another message, possibly a SequenceExample"
        )
    values = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        items = list(getattr(feature, kind).value) if kind else []
        values[name] = items if len(items) > 1 else Items(items)
    return values


def _as_text(values: dict[str, Any]) -> dict[str, Any]:
    """Decodes the values that are valid UTF-8; the encoder converts them back."""
    return {name: type(items)(map(_decoded, items)) for name, items in values.items()}


def _decoded(item: Any) -> Any:
    if not isinstance(item, bytes):
        return item
    try:
        return item.decode("utf-8")
    except UnicodeDecodeError:
        return item


def _first(items: Any) -> bytes | None:
    """Returns the first value of a feature with one bytes value that is not a path; else None."""
    if not isinstance(items, Items) or not items or not isinstance(items[0], bytes):
        return None
    return None if _is_path(items[0]) else items[0]


def _is_path(data: bytes) -> bool:
    """Returns whether bytes are a file path: text without an image signature."""
    if not data or len(data) > _MAX_PATH_BYTES or b"\0" in data or sniff(data):
        return False
    return isinstance(_decoded(data), str)


def _is_image(data: bytes | None) -> bool:
    return data is not None and is_image(data[:64])


def _split_of(path: str) -> dict[str, Items]:
    """Returns the column `split` if the file is named as by TFDS; else no column.

    >>> _split_of("birds/1.0.0/birds-train.tfrecord-00000-of-00002")
    {'split': ['train']}
    """
    match = _SPLIT.search(path)
    return {"split": Items([match[1]])} if match else {}
