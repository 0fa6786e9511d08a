"""Reads TFRecord files of `tf.train.Example`: features are columns, images are byte ranges."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.example_pb2 import Example
from recordmill.schemas.records import Items, Location, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.tables import IMAGES, SPLIT, SPLIT_NAMES, Part, Probe, Projection, TableFile
from recordmill.transforms.functional.images import sniffing
from recordmill.transforms.functional.records import framing
from recordmill.transforms.functional.rendering.infer_features import raw_shape
from recordmill.transforms.functional.sources.record_columns import (
    RecordColumns,
    Seen,
    conventional_columns,
    first,
    preset_of,
)
from recordmill.transforms.functional.values.boxes import BOX_COLUMNS

# What to do about damage.
_REMEDY = "Write the intact records to new files with recordmill verify --salvage DIR"

_HEAD_RECORDS = 100
_SPLIT = re.compile(r"-([A-Za-z]\w*)\.tfrecords?-\d+-of-\d+")

# The names that scripts give: train.record, pets_val.record-00000-of-00010, train-00000-of-01024.
_SPLIT_OF_SCRIPT = re.compile(
    rf"(?:^|[-_./])({'|'.join(sorted(SPLIT_NAMES))})(?:\.\w+)?(?:[-_]\d+-of-\d+)?(?:\.\w+)*$"
)
_MAX_PATH_BYTES = 4096

# The most values of a record: as Python objects, they take 32 bytes each.
_MAX_VALUES = 2**24


class RecordMetadata(ABC):
    """What lies beside TFRecord files and describes their records: the options of a source."""

    @property
    @abstractmethod
    def columns(self) -> RecordColumns:
        """The columns of the records."""

    @abstractmethod
    def keys_of(self, path: str) -> Sequence[str] | None:
        """Returns the keys of the records of a file; None if they have none.

        Raises VerificationFailed if they cannot be read.
        """


def recognize(head: bytes) -> bool:
    """Returns whether a file begins with a record."""
    return framing.is_tfrecord(head)


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the features of the first records as columns, and what they are read as."""
    records = list[dict[str, Any]]()
    fault: ValueError | None = None
    # A damaged record does not hide the columns of the others.
    for found in islice(_records(stream), _HEAD_RECORDS):
        try:
            records.append(_values(found))
        except ValueError as error:
            fault = fault or error  # `read` reports it as a reject
    if not records and fault is not None:
        what: object = fault
        with suppress(OSError):  # not all compressed streams can be read again
            stream.seek(0)
            what = sniffing.not_a_table(stream.read(sniffing.HEAD_BYTES)) or fault
        raise UsageError(f"{file.path}: is not a TFRecord file of Examples: {what}") from fault
    return _probed(records, file, _columns_of(file))


def _columns_of(file: TableFile) -> RecordColumns:
    options = file.options
    return options.columns if isinstance(options, RecordMetadata) else conventional_columns()


def _probed(records: list[dict[str, Any]], file: TableFile, columns: RecordColumns) -> Probe:
    # Sorted, because the order of a map in a message is not that in which it was written.
    features = dict.fromkeys(sorted({name for values in records for name in values}))
    images = {
        n for row in records for n, v in row.items() if sniffing.is_image((_first(v) or b"")[:64])
    }
    embedded = images | ({columns.image} if first(columns.images, images) else set())
    embedded |= {name for name, keys in columns.columns.items() if images.intersection(keys)}
    reads = columns.reads(features)
    names = dict.fromkeys((*features, *reads)) if records else {}
    split = _split_of(file.path)
    return Probe(
        (*names, *(name for name in split if name not in names)) if records else (),
        bool(records),
        unsupported=dict.fromkeys(sorted(images), IMAGES),
        embedded=frozenset(embedded),
        reads=reads,
        classes=columns.declared(records),
        splits=tuple(split[SPLIT]) if records and split and SPLIT not in names else (),
        preset="" if columns.schema else _preset_of(features, names),
        schema=columns.schema,
        raw=_raw_pixels(records, columns),
    )


def _preset_of(features: Collection[str], names: Collection[str]) -> str:
    # TFDS has boxes under the keys of each dataset.
    has_boxes = BOX_COLUMNS[-1] in names and "labels" in names
    return "object_detection" if has_boxes else preset_of(features)


def _raw_pixels(records: list[dict[str, Any]], columns: RecordColumns) -> dict[str, str]:
    """Returns the shape of images that are stored as uint8 pixels, without encoding."""
    if columns.schema and columns.schema.image.format == "raw":
        return {columns.image: f"{columns.schema.image_feature} has bytes of the format raw"}
    for values in records[:1]:
        name = first(columns.images, values)
        pixels = _first(values.get(name))
        if pixels and not sniffing.is_image(pixels[:64]) and (shape := raw_shape(values, name)):
            sizes = f"{shape.height} x {shape.width} x {shape.channels}"
            return {columns.image: f"{name} has {sizes} bytes"}
    return {}


def read(stream: BinaryIO, part: Part, projection: Projection) -> Iterator[Row | Reject]:
    """Yields rows, or rejects with byte offsets; records that damage hides are lost."""
    path, options, seen = part.file.path, part.file.options, dict[Any, Any]()
    columns = _columns_of(part.file)
    try:
        keys = options.keys_of(path) if isinstance(options, RecordMetadata) else None
    except VerificationFailed as error:
        yield Reject.of_lost_rows(path, 1, str(error))
        return
    for found in _records(stream):
        try:
            row = _row(found, part.file, projection, columns, seen)
            if keys is None:
                yield row
            elif found.record < len(keys):
                yield row._replace(key=keys[found.record])
            else:
                raise ValueError("the index of the dataset has no such record")
        except ValueError as error:
            # The number is from 0, as in `recordmill verify`, and the line of the reject from 1.
            detail = f"record {found.record} at byte {found.offset}: {error}"
            # If the checksum of a record's length is wrong, the next record cannot be located.
            if isinstance(found, framing.FrameError) and found.ends:
                detail += f"; the records after it are lost. {_REMEDY}; convert it with the others."
                yield Reject.of_lost_rows(path, found.record + 1, detail)
            else:
                remedy = _REMEDY if isinstance(found, framing.FrameError) else "Fix the record"
                detail = f"{detail}. {remedy}, or allow it with --max_rejects malformed_row=N."
                yield Reject.of_malformed_row(path, found.record + 1, detail)


def _records(stream: BinaryIO) -> Iterator[framing.Frame | framing.FrameError]:
    """Yields each record or its error; an error of decompression is the last element."""
    record = offset = 0
    try:
        for found in framing.read_frames_or_errors(stream):
            yield found
            if isinstance(found, framing.Frame):
                record, offset = found.record + 1, found.stop
    except (OSError, *DAMAGED_STREAM) as error:
        yield framing.FrameError(record, offset, f"the rest of the file cannot be read: {error}")


def _row(
    found: framing.Frame | framing.FrameError,
    file: TableFile,
    projection: Projection,
    columns: RecordColumns,
    seen: Seen,
) -> Row:
    values = {**_split_of(file.path), **_values(found)}
    name = projection.image
    feature = first(columns.images, values) if name == columns.image else name
    image = _first(values.get(feature)) if name else None
    others = columns.values(values, projection.columns or (), projection.labels, seen)
    if image is not None and name == columns.image:
        path = next(filter(None, (_first_text(values.get(key)) for key in columns.paths)), None)
        others |= {projection.image: path} if path else {}  # beside the location of the image
    line = found.record + 1
    if not isinstance(image, bytes) or not isinstance(found, framing.Frame):
        kept = projection.apply(_as_text({**values, **others}))
        return Row(kept, file.path, line, key="")
    del values[feature]
    # The image is referenced where its bytes first occur in the record, even if that is part of
    # another feature: the bytes are the same.
    start = found.start + found.data.find(image)
    location = Location(file.path, start, start + len(image))
    kept = projection.apply(_as_text({**values, **others}))
    is_read = file.gzipped and projection.pixels
    return Row(kept, file.path, line, image=image if is_read else location, key="")


def _values(found: framing.Frame | framing.FrameError) -> dict[str, Any]:
    """Returns the values of each feature: a list, or `Items` for fewer than two values.

    Bytes are not decoded, since they may be images. Raises ValueError if the record is damaged, or
    is not an Example.
    """
    if isinstance(found, framing.FrameError):
        raise ValueError(str(found))
    example = Example()
    try:
        example.ParseFromString(found.data)
    except DecodeError as error:
        raise ValueError(f"is not a tf.train.Example: {error}") from error
    # Protobuf also parses other messages, with their fields as unknown fields.
    if len(UnknownFieldSet(example)):
        raise ValueError(
            "expected a tf.train.Example, got another message, possibly a SequenceExample. Parse "
            "those in a Beam pipeline with recordmill.WriteDataset"
        )
    values, left = {}, _MAX_VALUES
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        left -= len(found_values := getattr(feature, kind).value if kind else [])
        if left < 0:
            raise ValueError(f"expected at most {_MAX_VALUES:,} values in a record, got more")
        items = list(found_values)
        values[name] = items if len(items) > 1 else Items(items)
    return values


def _as_text(values: dict[str, Any]) -> dict[str, Any]:
    """Decodes the values that are valid UTF-8; the encoder converts them back."""
    return {
        name: type(items)(map(_decoded, items)) if isinstance(items, list) else items
        for name, items in values.items()
    }


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


def _first_text(items: Any) -> str:
    """Returns the only value of a feature if it is a path; else ""."""
    data = items[0] if isinstance(items, Items) and items else None
    return data.decode() if isinstance(data, bytes) and _is_path(data) else ""


def _is_path(data: bytes) -> bool:
    """Returns whether bytes are a file path: text without an image signature."""
    if not data or len(data) > _MAX_PATH_BYTES or b"\0" in data or sniffing.sniff(data):
        return False
    return isinstance(_decoded(data), str)


def _split_of(path: str) -> dict[str, Items]:
    """Returns the column `split` if the name of the file states it.

    >>> _split_of("birds/1.0.0/birds-train.tfrecord-00000-of-00002"), _split_of("pets_val.record")
    ({'split': ['train']}, {'split': ['val']})
    """
    match = _SPLIT.search(path) or _SPLIT_OF_SCRIPT.search(path.rpartition("/")[2])
    return {SPLIT: Items([match[1]])} if match else {}
