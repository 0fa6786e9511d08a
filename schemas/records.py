"""What travels through the pipeline: a row, a reference to an image, an example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

FeatureValue: TypeAlias = int | float | bytes | list[int] | list[float] | list[bytes] | None
"""The value of one feature: None where an image has yet to give it, or for an empty list."""


_NUMBER_BYTES, _FIELD_BYTES = 10, 24
"""What a number takes in a message, and what a value takes beside its content: at most."""


class Location(NamedTuple):
    """Where the bytes of an image are.

    Attributes:
        uri: the file.
        start: first byte of the image within the file, or None for the whole file.
        stop: the byte after its last.
        staged: hash of the image's bytes, if the run itself has put them into the file; b"" if not.
    """

    uri: str
    start: int | None = None
    stop: int | None = None
    staged: bytes = b""


class Items(list[Any]):
    """A value that stood in any number of places: one of them is a value, and a list of one.

    So it is with the features of an Example, and with the rows of a joined table.
    """


@dataclass(frozen=True)
class Row:
    """One row of a table, as it was read.

    Attributes:
        values: table column to value; a column that the row lacks is absent or None.
        file: the table's file; of sources without tables, the image's or its annotation's.
        line: where the row begins, counted from 1: a line, or in Parquet a row; 0 for all the file;
            below 0 for a row without a file, which is not shown and only distinguishes rows.
        is_text: whether values are untyped text, as in CSV; or the columns of which they are.
        image: where the row's own image is, if the source knows; None if a column states it.
    """

    values: Mapping[str, Any]
    file: str
    line: int
    is_text: bool | frozenset[str] = False
    image: Location | None = None

    def untyped(self, column: str) -> bool:
        """Returns whether the values of a column are untyped text."""
        return self.is_text if isinstance(self.is_text, bool) else column in self.is_text

    @property
    def source(self) -> str:
        """File and line, as messages write them."""
        return source_of(self.file, self.line)

    @property
    def own_uri(self) -> str:
        """Where people find the row's own image; "" if it has none, or the run has staged it."""
        return self.image.uri if self.image and not self.image.staged else ""


class Embedded(NamedTuple):
    """A row whose image has no address yet; readers give it, and it never leaves its worker.

    Attributes:
        row: the row, without an image.
        data: the image's bytes.
    """

    row: Row
    data: bytes


class SkippedInput(NamedTuple):
    """Something that a source holds and that makes no row, counted for the row counts.

    Attributes:
        what: in words, as the row counts call it.
        number: how many; below 0 to take back what was counted before.
    """

    what: str
    number: int = 1


def source_of(file: str, line: int) -> str:
    """Returns a row's place as messages write it.

    >>> source_of("labels.csv", 17), source_of("cats/1.jpg", 0)
    ('labels.csv:17', 'cats/1.jpg')
    """
    return f"{file}:{line}" if line > 0 else file


class RowBoxes(NamedTuple):
    """The boxes of a row, as they were annotated.

    Attributes:
        units: "pixel", or "normalized": fractions of width and height.
        corners: xmin, ymin, xmax and ymax of each box in turn.
    """

    units: str
    corners: list[float]

    @property
    def boxes(self) -> Iterator[tuple[float, float, float, float]]:
        """Each box as two corners."""
        sides = iter(self.corners)
        return zip(sides, sides, sides, sides, strict=True)


class FrameLocation(NamedTuple):
    """Of which sequence a row is a frame, and where in it.

    Attributes:
        sequence: the sequence's key.
        order: the frame's place, as its column has it.
        reason: why the row cannot be bound, so that its sequence is broken; "" if it is whole.
        detail: the same in words.
    """

    sequence: str
    order: str
    reason: str = ""
    detail: str = ""


class ImageRef(NamedTuple):
    """A row that is ready to become an example, except for its image: this is what is shuffled.

    A tuple, because a shard's references are all in memory together. They sort by key and source.

    Attributes:
        key: the row's stable identity.
        file: the table of the row.
        line: and its line there.
        uri: where the image is; "" if the schema needs none.
        start: first byte of the image within the file, or None for the whole file.
        stop: the byte after its last.
        values: one value for each feature of the schema, in order; None for what takes the image.
        split: the row's own split, or "".
        group: the value that keeps rows together in one split, or "" for the key.
        boxes: the fields of `RowBoxes`, or None for schemas without boxes.
        mask_uri: where the image of its pixels' classes is, or "".
        segments: what such an image is to be drawn from: (class id, outline) of each object in
            the order of drawing; or None.
        frame: the fields of `FrameLocation`, or None where a row makes a record by itself.
        staged: as in `Location`.
    """

    key: str
    file: str
    line: int
    uri: str
    start: int | None
    stop: int | None
    values: tuple[FeatureValue, ...]
    split: str = ""
    group: str = ""
    boxes: tuple[str, list[float]] | None = None
    mask_uri: str = ""
    segments: list[tuple[int, Any]] | None = None
    frame: tuple[str, str, str, str] | None = None
    staged: bytes = b""

    @property
    def record_key(self) -> str:
        """The key of the record that the row goes to: its sequence's, or its own."""
        return self.key if self.frame is None else self.frame[0]

    @property
    def source(self) -> str:
        """File and line, as messages write them."""
        return source_of(self.file, self.line)

    @property
    def shown_uri(self) -> str:
        """Where people find the image: in the table, if its bytes are only staged at `uri`."""
        return self.file if self.staged else self.uri


class StoredImage(NamedTuple):
    """An image as a record holds it.

    Attributes:
        data: the encoded bytes.
        format: "jpeg" or "png".
        height: in pixels.
        width: in pixels.
        channels: 1, 2, 3 or 4.
        sha256: hex digest of `data`.
        source_format: what the file was.
        mode: Pillow's name for the kind of its pixels.
        bit_depth: of its samples.
        frames: of an animation, or pages; the first is stored.
        orientation: EXIF's, 1 to 8, of the file.
        transcoded: 1 if the image was transcoded, 0 if it passed through.
        treatment: what was done, in words, to be counted by.
        source_size: width and height as the file stored the image, before it was turned.
    """

    data: bytes
    format: str
    height: int
    width: int
    channels: int
    sha256: str
    source_format: str = ""
    mode: str = ""
    bit_depth: int = 8
    frames: int = 1
    orientation: int = 1
    transcoded: int = 0
    treatment: str = ""
    source_size: tuple[int, int] = (0, 0)


class ImageShape(NamedTuple):
    """What is counted of an image that a record holds.

    Attributes:
        format: as stored.
        width: in pixels.
        height: in pixels.
        channels: 1 to 4.
        bytes: of the encoded image.
    """

    format: str
    width: int
    height: int
    channels: int
    bytes: int


class BuiltFrame(NamedTuple):
    """A frame that waits for the others of its sequence.

    Attributes:
        ref: the reference that it was made from.
        values: one value for each feature of the schema, in order, those of the image included.
        image_sha256: hex digest of the image as stored, or "" without one.
        treatment: what was done to the image, or "" without one.
        remarks: what was done to its boxes, if anything was.
        shape: what is counted of the image; None without one.
    """

    ref: ImageRef
    values: tuple[FeatureValue, ...]
    image_sha256: str = ""
    treatment: str = ""
    remarks: tuple[str, ...] = ()
    shape: ImageShape | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes in a record, at most."""
        return sum(_FIELD_BYTES + _size_of(value) for value in self.values)


def _size_of(value: FeatureValue) -> int:
    items = value if isinstance(value, list) else [value]
    return sum(
        _FIELD_BYTES + len(item) if isinstance(item, bytes) else _NUMBER_BYTES for item in items
    )


class SerializedExample(NamedTuple):
    """A `tf.train.Example` or `SequenceExample` on the wire, with what the row counts keep of it.

    Attributes:
        ref: the reference that it was made from; of a sequence, of its first frame.
        data: the serialized message.
        image_sha256: hex digest of the image as stored, or "" without one; of a sequence, of the
            digests of all its images.
        treatment: what was done to the image, or "" without one.
        remarks: what was done to its boxes, if anything was.
        shape: what is counted of the image; None without one.
        frames: of a sequence, without their values; () otherwise.
    """

    ref: ImageRef
    data: bytes
    image_sha256: str = ""
    treatment: str = ""
    remarks: tuple[str, ...] = ()
    shape: ImageShape | None = None
    frames: tuple[BuiltFrame, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows it was made from."""
        return len(self.frames) or 1

    @property
    def size(self) -> int:
        """Bytes of the message."""
        return len(self.data)
