"""Elements of the pipeline: rows, image references, images, frames and serialized examples."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from recordmill.schemas.masking import masked_json, masked_source

# The value of a feature; None for an empty list, and for a value that comes from the image.
FeatureValue: TypeAlias = int | float | bytes | list[int] | list[float] | list[bytes] | None


# The gray pixels of an image's thumbnail, by which it is measured; b"" if it was not decoded.
Thumbnail: TypeAlias = bytes

# Kinds of skipped inputs that are listed in a file of the dataset.
UNMATCHED_LABELS = "label rows without an image"
UNUSED_IMAGES = "images that no row names"

# Maximum length of a key, a path or an address; common servers accept about as many characters. A
# small table may have a text of millions of characters in every row.
MAX_CHARACTERS = 8192

# Skipped inputs of one kind that are named.
_SHOWN_NAMES = 3

# Maximum bytes in a protobuf message: of a varint, and of tags and lengths around a value.
_NUMBER_BYTES, _FIELD_BYTES = 10, 24


class Location(NamedTuple):
    """The location of an image: a file, or a byte range of a file.

    Attributes:
        uri: the path or URL of the file.
        start: first byte of the image, or None for the whole file.
        stop: the byte after its last.
        staged: digest of the image, if the run has copied it to a staging file; b"" otherwise.
    """

    uri: str
    start: int | None = None
    stop: int | None = None
    staged: bytes = b""


class Items(list[Any]):
    """The items of a repeated value, in which a single value and a list of one are the same.

    Features of an Example, and the values of joined rows, do not distinguish them.
    """


class Cluster(NamedTuple):
    """Rows with similar images, which are kept in one split.

    Attributes:
        name: their name, which replaces that of a group.
        split: their split, if that of a row is fixed: by a column, or by the base version; or "".
    """

    name: str = ""
    split: str = ""


NO_CLUSTER = Cluster()


class Row(NamedTuple):
    """One row of a table, before it is bound to a schema.

    It is a tuple, because a frozen dataclass takes three times as long to create.

    Attributes:
        values: values by table column; a missing value is absent or None.
        file: the table; for sources without tables, the file of the image or its annotation.
        line: the first line of the row from 1, or in Parquet its number; 0 if the file is the row;
            a negative number that only distinguishes rows if there is no file.
        is_text: whether values are untyped text, as in CSV; or the columns with such values.
        image: the location of the image, if the source determines it; None if a column does.
        cluster: the rows with which it is kept together.
        key: the key of the record that the row was read from; "" if it has none, so that a path in
            the row is not a key; None for other sources.
    """

    values: Mapping[str, Any]
    file: str
    line: int
    is_text: bool | frozenset[str] = False
    image: Location | None = None
    cluster: Cluster = NO_CLUSTER
    key: str | None = None

    def untyped(self, column: str) -> bool:
        """Returns whether the values of a column are untyped text."""
        return self.is_text if isinstance(self.is_text, bool) else column in self.is_text

    @property
    def source(self) -> str:
        """The source location of the row, for messages."""
        return source_of(self.file, self.line)

    @property
    def own_uri(self) -> str:
        """The file of the row's image, if the source determines it and it is not staged; or ""."""
        return self.image.uri if self.image and not self.image.staged else ""


class Embedded(NamedTuple):
    """A row with embedded image bytes, which are staged on the worker that reads them.

    Attributes:
        row: the row, without the location of an image.
        data: the encoded image.
    """

    row: Row
    data: bytes


class SkippedInput(NamedTuple):
    """Inputs in a source that are not rows, such as files of other types.

    Attributes:
        kind: their kind, as in the row counts.
        number: their number; negative to correct an earlier count.
        names: the first of their names, sorted; () for kinds that have no names.
    """

    kind: str
    number: int = 1
    names: tuple[str, ...] = ()

    @classmethod
    def named(cls, kind: str, names: Iterable[str]) -> SkippedInput:
        """Returns skipped inputs with names.

        Args:
            kind: their kind.
            names: all of their names; none for an input without a part that could be named.

        >>> SkippedInput.named("files", ["b", "a"]), SkippedInput.named("files", []).number
        (SkippedInput(kind='files', number=2, names=('a', 'b')), 0)
        """
        found = list(names)
        return cls(kind, len(found), tuple(heapq.nsmallest(_SHOWN_NAMES, set(found))))


def sum_skipped(parts: Iterable[SkippedInput]) -> SkippedInput:
    """Returns the sum of skipped inputs of one kind.

    Args:
        parts: at least one.

    >>> sum_skipped([SkippedInput("files", 2, ("b", "c")), SkippedInput("files", 1, ("a",))])
    SkippedInput(kind='files', number=3, names=('a', 'b', 'c'))
    """
    found = list(parts)
    names = {name for part in found for name in part.names}
    first = heapq.nsmallest(_SHOWN_NAMES, names)
    return SkippedInput(found[0].kind, sum(part.number for part in found), tuple(first))


class Unmatched(NamedTuple):
    """A label without an image, or an image without a label.

    Attributes:
        key: the value of the column that the tables are joined on; "" if there is no join.
        uri: the file of the image, or "".
        source: the source location of the row, or "".
    """

    key: str
    uri: str
    source: str

    def to_json(self) -> str:
        """Returns a line of JSON, with secrets masked."""
        return masked_json({"key": self.key, "uri": self.uri, "source": masked_source(self.source)})


def source_of(file: str, line: int) -> str:
    """Returns the source location of a row, for messages.

    Args:
        file: the table.
        line: the line of the row; 0 or less if it has none.

    >>> source_of("labels.csv", 17), source_of("cats/1.jpg", 0)
    ('labels.csv:17', 'cats/1.jpg')
    """
    return f"{file}:{line}" if line > 0 else file


class RowBoxes(NamedTuple):
    """The annotated boxes of a row."""

    units: str  # "pixel", or "normalized" for fractions of width and height
    corners: list[float]  # xmin, ymin, xmax and ymax of the first box, then of the second, …
    size: tuple[float, float] | None = None  # the stated width and height of the annotated image

    @property
    def boxes(self) -> Iterator[tuple[float, float, float, float]]:
        """The boxes as (xmin, ymin, xmax, ymax)."""
        sides = iter(self.corners)
        return zip(sides, sides, sides, sides, strict=True)


class RowOutlines(NamedTuple):
    """The annotated outlines of a row, whose units and size are those of `RowBoxes`."""

    units: str
    objects: list[tuple[int, Any]]  # (class id, outline), drawn in this order
    size: tuple[float, float] | None = None


class FrameLocation(NamedTuple):
    """The sequence of a frame, and the frame's order in it.

    Attributes:
        sequence: the key of the sequence.
        order: the value of the order column.
        reason: the rejection reason if the row cannot be bound, which breaks its sequence; or "".
        detail: the detail of that rejection.
    """

    sequence: str
    order: str
    reason: str = ""
    detail: str = ""


class ImageRef(NamedTuple):
    """A row that is bound to the schema, with a reference to its image; the shuffle moves these.

    It is a tuple, because all references of a shard are in memory. They sort by key and source.

    Attributes:
        key: the row's identity.
        file: the table of the row; "" for a removal, and for rows that are dicts.
        line: the line of the row; 0 for a removal, negative for rows that are dicts.
        uri: the file of the image; "" if the schema needs no image.
        start: first byte of the image within the file, or None for the whole file.
        stop: the byte after its last.
        values: the value of each feature of the schema; None for a value from the image.
        split: the row's own split, or "".
        group: rows with the same group are in the same split; "" if the key is the group.
        boxes: the fields of `RowBoxes`, or None for schemas without boxes.
        mask_uri: the file of the mask, or "".
        outlines: the fields of `RowOutlines`, from which a mask is drawn, or None.
        frame: the fields of `FrameLocation`, or None if records are not sequences.
        staged: as in `Location`.
        cluster: the name of the rows with which it is kept in one split, or "".
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
    boxes: tuple[str, list[float], tuple[float, float] | None] | None = None
    mask_uri: str = ""
    outlines: tuple[str, list[tuple[int, Any]], tuple[float, float] | None] | None = None
    frame: tuple[str, str, str, str] | None = None
    staged: bytes = b""
    cluster: str = ""

    @classmethod
    def removal(cls, key: str) -> ImageRef:
        """Returns the removal of a record of the base version, which travels like a reference."""
        return cls(key, "", 0, "", None, None, ())

    @property
    def is_removal(self) -> bool:
        """Whether it is no row, but removes the record with its key."""
        return not self.file and not self.line

    @property
    def record_key(self) -> str:
        """The key of the record: that of the sequence, or of the row."""
        return self.key if self.frame is None else self.frame[0]

    @property
    def source(self) -> str:
        """The source location of the row, for messages."""
        return source_of(self.file, self.line)

    @property
    def shown_uri(self) -> str:
        """The file of the image for messages: the table, if the image is only staged at `uri`."""
        return self.file if self.staged else self.uri


class StoredImage(NamedTuple):
    """An image as stored in a record.

    Attributes:
        data: the encoded image.
        format: "jpeg", "png" or "raw".
        height: the height in pixels.
        width: the width in pixels.
        channels: 1, 2, 3 or 4.
        sha256: hex digest of `data`.
        source_format: the format of the source file.
        mode: the mode of the source image in Pillow.
        bit_depth: bits per sample in the source file.
        frames: number of frames or pages in the source file; the first is stored.
        orientation: EXIF orientation of the source file, 1 to 8.
        transcoded: 1 if the image was transcoded, 0 if its bytes are those of the source file.
        treatment: a description of the changes, by which images are counted.
        source_size: width and height in the source file, before EXIF orientation is applied.
        thumbnail: the pixels by which it is measured.
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
    thumbnail: Thumbnail = b""


class ImageShape(NamedTuple):
    """The properties of a stored image that statistics are computed from.

    Attributes:
        format: the stored format.
        width: the width in pixels.
        height: the height in pixels.
        channels: 1 to 4.
        bytes: size of the encoded image.
        thumbnail: the pixels by which it is measured.
    """

    format: str
    width: int
    height: int
    channels: int
    bytes: int
    thumbnail: Thumbnail = b""


class BuiltFrame(NamedTuple):
    """A frame whose sequence is not complete yet.

    Attributes:
        ref: the reference of the row.
        values: the value of each feature of the schema, with those from the image.
        image_sha256: hex digest of the stored image, or "" if there is none.
        treatment: the changes to the image, or "" if there is none.
        remarks: the changes to the boxes.
        shape: properties of the stored image; None if there is none.
    """

    ref: ImageRef
    values: tuple[FeatureValue, ...]
    image_sha256: str = ""
    treatment: str = ""
    remarks: tuple[str, ...] = ()
    shape: ImageShape | None = None

    @property
    def size(self) -> int:
        """Maximum size of the frame in a record, in bytes."""
        return sum(_FIELD_BYTES + _size_of(value) for value in self.values)


def _size_of(value: FeatureValue) -> int:
    items = value if isinstance(value, list) else [value]
    return sum(
        _FIELD_BYTES + len(item) if isinstance(item, bytes) else _NUMBER_BYTES for item in items
    )


class SerializedExample(NamedTuple):
    """A serialized `tf.train.Example` or `SequenceExample`, with metadata for counts.

    Attributes:
        ref: the reference of the row; for a sequence, of its first frame.
        data: the serialized message.
        image_sha256: hex digest of the stored image, or ""; for a sequence, the digest
            of the digests of its images.
        treatment: the changes to the image, or "" if there is none.
        remarks: the changes to the boxes.
        shape: properties of the stored image; None if there is none.
        frames: the frames of a sequence, without their values; () otherwise.
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
        """Number of rows from which the record was built."""
        return len(self.frames) or 1

    @property
    def size(self) -> int:
        """Size of the message in bytes."""
        return len(self.data)


class CopiedRecord(NamedTuple):
    """A record of the base version, which a rewritten shard copies without decoding it.

    Attributes:
        key: its key.
        data: the serialized message.
        row: its row in the index of the base's shard, by column.
        is_removed: whether the rewritten shard leaves it out.
    """

    key: str
    data: bytes
    row: Mapping[str, Any]
    is_removed: bool = False

    @property
    def rows(self) -> int:
        """Number of rows from which the record was built."""
        return int(self.row.get("frames", 1))


class Unchanged(NamedTuple):
    """Rows that are not written, because the base version has a record with their key.

    Attributes:
        rows: their number; several if they are the frames of one sequence.
    """

    rows: int
