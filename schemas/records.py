"""Elements of the pipeline: rows, image references, images, frames and serialized examples."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from recordmill.schemas.masking import masked_json, masked_source

# The value of a feature; None for an empty list, and for a value that comes from the image.
FeatureValue: TypeAlias = int | float | bytes | list[int] | list[float] | list[bytes] | None


# The gray pixels of an image's thumbnail, by which it is measured; b"" if it was not decoded.
Thumbnail: TypeAlias = bytes

# Kinds of skipped inputs that findings and lists of the dataset name.
UNMATCHED_LABELS = "label rows without an image"
UNUSED_IMAGES = "images that no row names"
UNMATCHED_FILES = "label files without an image"
SAME_FILE = "Use images and annotations of the same file."
UNMATCHED_ANNOTATIONS = f"annotations whose image_id does not match an image. {SAME_FILE}"
LOST = (UNMATCHED_FILES, UNMATCHED_ANNOTATIONS)
MORE_BOXES = "rows with another box, mask or caption of an image, added to its record"
KEYPOINTS = "images with keypoints that the schema leaves out; --schema keypoints has them"
ORIENTED = (
    "images with four corners per object, as of oriented boxes, read as upright boxes; "
    "--schema oriented_boxes has the corners"
)
ROTATED = "images with rotated boxes, read as the upright boxes around them"
RECTANGLES = "images with boxes without an outline, whose outline is the box"
UNANNOTATED = "images without an annotation"
OTHER_SHAPES = "shapes and attributes that are not read"
OTHER_NAMES = "annotations of a missing image, read for the image with their own name"
OTHER_LABELS = "samples with another label in their JSON than in their .cls, which is read"
OUTSIDE_SAMPLE = "rows outside of --sample"
OUTSIDE_CLASSES = "rows beyond --per_class"
OUTSIDE_WHERE = "rows outside of --where"
RENAMED = "--rename {}={}"  # rows with the first name, which have the second one now
UNLABELED = "images without a label file, read as images without objects"
# What was read, if not as it is.
NOTED = (MORE_BOXES, KEYPOINTS, ORIENTED, ROTATED, RECTANGLES, UNLABELED, OTHER_NAMES)
WARNED = (UNANNOTATED, OTHER_SHAPES, OTHER_LABELS)

# Maximum length of a key, a path or an address; common servers accept about as many characters. A
# small table may have a text of millions of characters in every row.
MAX_CHARACTERS = 8192

# Skipped inputs of one kind that are named.
_SHOWN_NAMES = 3

# Maximum bytes in a protobuf message: of a varint, and of tags and lengths around a value.
_NUMBER_BYTES, _FIELD_BYTES = 10, 24


class Location(NamedTuple):
    """The location of an image: a file, or a byte range of a file."""

    uri: str  # the path or URL of the file
    start: int | None = None  # first byte of the image, or None for the whole file
    stop: int | None = None
    # Digest of the image, if the run has copied it to a staging file; b"" otherwise.
    staged: bytes = b""


# The fields of a `Location`, which are cheaper to shuffle.
Place: TypeAlias = tuple[str, "int | None", "int | None", bytes]


class Items(list[Any]):
    """The items of a repeated value, in which a single value and a list of one are the same.

    Features of an Example, and the values of joined rows, do not distinguish them.
    """


class Cluster(NamedTuple):
    """Rows with similar images, which are kept in one split."""

    name: str = ""
    # Their split, if that of a row is fixed: by a column, or by the base version; or "".
    split: str = ""


NO_CLUSTER = Cluster()


class Row(NamedTuple):
    """One row of a table, before it is bound to a schema.

    It is a tuple, because a frozen dataclass takes three times as long to create.
    """

    values: Mapping[str, Any]  # values by table column; a missing value is absent or None
    file: str  # the table; for sources without tables, the file of the image or its annotation
    # The first line of the row from 1, or in Parquet its number; 0 if the file is the row; a
    # negative number that only distinguishes rows if there is no file.
    line: int
    # Whether values are untyped text, as in CSV; or the columns with such values.
    is_text: bool | frozenset[str] = False
    # The image, if the source determines it: its location, or its bytes, which the worker stages
    # that reads them; None if a column does.
    image: Location | bytes | None = None
    cluster: Cluster = NO_CLUSTER
    # The key of the record that the row was read from; "" if it has none, so that a path in the row
    # is not a key; None for other sources.
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
        image = self.image
        return image.uri if isinstance(image, Location) and not image.staged else ""


class SkippedInput(NamedTuple):
    """Inputs in a source that are not rows, such as files of other types."""

    kind: str
    number: int = 1
    names: tuple[str, ...] = ()  # the first of their names, sorted; () for kinds that have no names

    @classmethod
    def named(cls, kind: str, names: Iterable[str]) -> SkippedInput:
        """Returns skipped inputs with names; none for an input without a part that could be named.

        >>> SkippedInput.named("files", ["b", "a"]), SkippedInput.named("files", []).number
        (SkippedInput(kind='files', number=2, names=('a', 'b')), 0)
        """
        found = list(names)
        return cls(kind, len(found), tuple(heapq.nsmallest(_SHOWN_NAMES, set(found))))

    @classmethod
    def sum_of(cls, parts: Iterable[SkippedInput]) -> SkippedInput:
        """Returns the sum of skipped inputs of one kind, one at least.

        >>> SkippedInput.sum_of([SkippedInput("files", 2, ("b", "c")), SkippedInput("files")])
        SkippedInput(kind='files', number=3, names=('b', 'c'))
        """
        found = list(parts)
        named = cls.named(found[0].kind, (name for part in found for name in part.names))
        return named._replace(number=sum(part.number for part in found))


class Unmatched(NamedTuple):
    """A label without an image, or an image without a label."""

    key: str  # the value of the column that the tables are joined on; "" if there is no join
    uri: str
    source: str

    def to_json(self) -> str:
        """Returns a line of JSON, with secrets masked."""
        return masked_json({"key": self.key, "uri": self.uri, "source": masked_source(self.source)})


# The file that holds the rows of a program's memory during a conversion.
MEMORY_ROWS = "rows.parquet"
_MEMORY_ROWS = re.compile(rf"\.rows-[0-9a-f]{{16}}/{re.escape(MEMORY_ROWS)}$")


def source_of(file: str, line: int) -> str:
    """Returns the source location of a row, for messages.

    >>> source_of("labels.csv", 17), source_of("cats/1.jpg", 0)
    ('labels.csv:17', 'cats/1.jpg')
    """
    if _MEMORY_ROWS.search(file):
        return f"row {line}" if line > 0 else "rows"
    return f"{file}:{line}" if line > 0 else file


def table_of(file: str, line: int) -> str:
    """Returns the table of a row, for paths relative to its folder; "" for a dict of a pipeline."""
    return file if line >= 0 else ""


class RowBoxes(NamedTuple):
    """The annotated boxes of a row."""

    units: str  # "pixel", or "normalized" for fractions of width and height
    corners: list[float]  # xmin, ymin, xmax and ymax of the first box, then of the second, …
    size: tuple[float, float] | None = None  # the stated width and height of the annotated image
    # The keypoints, oriented boxes or names of each object, by column.
    shapes: dict[str, list[list[Any]]] | None = None

    @property
    def number(self) -> int:
        """The number of objects, which may have keypoints without boxes."""
        return max(len(self.corners) // 4, *map(len, (self.shapes or {}).values()), 0)

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

    @property
    def number(self) -> int:
        """The number of objects."""
        return len(self.objects)


class FrameLocation(NamedTuple):
    """The sequence of a frame, and the frame's order in it."""

    sequence: str
    order: str  # the value of the order column
    # The rejection reason if the row cannot be bound, which breaks its sequence; or "".
    reason: str = ""
    detail: str = ""


class ImageRef(NamedTuple):
    """A row that is bound to the schema, with a reference to its image; the shuffle moves these.

    It is a tuple, because all references of a shard are in memory. They sort by key and source.
    """

    key: str
    file: str  # the table of the row; "" for a removal, and for rows that are dicts
    line: int  # the line of the row; 0 for a removal, negative for rows that are dicts
    uri: str  # the file of the image; "" if the schema needs no image
    start: int | None  # first byte of the image within the file, or None for the whole file
    stop: int | None
    # The value of each feature of the schema; None for a value from the image.
    values: tuple[FeatureValue, ...]
    split: str = ""
    group: str = ""  # rows with the same group are in the same split; "" if the key is the group
    # The fields of `RowBoxes`, the last one only if it is set; None for schemas without boxes.
    boxes: tuple[Any, ...] | None = None
    # The location of each other file of the record, in the order of `Schema.other_columns`; None if
    # there are none.
    others: tuple[Place, ...] | None = None
    # The fields of `RowOutlines`, from which a mask is drawn, or None.
    outlines: tuple[str, list[tuple[int, Any]], tuple[float, float] | None] | None = None
    # The fields of `FrameLocation`, or None if records are not sequences.
    frame: tuple[str, str, str, str] | None = None
    staged: bytes = b""  # as in `Location`
    cluster: str = ""  # the name of the rows with which it is kept in one split, or ""

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
    def entity(self) -> str:
        """The unit that must be in one split: the cluster or group of the row, or its record."""
        return self.cluster or self.group or self.record_key

    @property
    def source(self) -> str:
        """The source location of the row, for messages."""
        return source_of(self.file, self.line)

    @property
    def shown_uri(self) -> str:
        """The file of the image for messages: the table, if the image is only staged at `uri`."""
        return self.file if self.staged else self.uri


class StoredImage(NamedTuple):
    """An image as stored in a record."""

    data: bytes
    format: str  # "jpeg", "png" or "raw"
    height: int  # the height in pixels
    width: int  # the width in pixels
    channels: int  # 1, 2, 3 or 4
    sha256: str  # hex digest of `data`
    source_format: str = ""
    mode: str = ""
    bit_depth: int = 8  # bits per sample in the source file
    frames: int = 1  # number of frames or pages in the source file; the first is stored
    orientation: int = 1  # EXIF orientation of the source file, 1 to 8
    # 1 if the image was transcoded, 0 if its bytes are those of the source file.
    transcoded: int = 0
    is_clipped: bool = False  # whether pixels were outside the window
    treatment: str = ""
    # Width and height in the source file, before EXIF orientation is applied.
    source_size: tuple[int, int] = (0, 0)
    thumbnail: Thumbnail = b""  # the pixels by which it is measured

    @property
    def shape(self) -> ImageShape:
        """The properties that the image statistics count."""
        size = self.width, self.height
        return ImageShape(self.format, *size, self.channels, len(self.data), self.thumbnail)


class ImageShape(NamedTuple):
    """The properties of a stored image that statistics and the index have."""

    format: str
    width: int  # the width in pixels
    height: int  # the height in pixels
    channels: int  # 1 to 4
    bytes: int
    thumbnail: Thumbnail = b""  # the pixels by which the first image of a record is measured
    # Its hex digest and its name; "" for the first image of a record.
    sha256: str = ""
    image: str = ""


class BuiltFrame(NamedTuple):
    """A frame whose sequence is not complete yet."""

    ref: ImageRef
    values: tuple[FeatureValue, ...]
    image_sha256: str = ""  # hex digest of the stored image, or "" if there is none
    treatment: str = ""  # the changes to the image, or "" if there is none
    remarks: tuple[str, ...] = ()
    shape: ImageShape | None = None  # properties of the stored image; None if there is none
    others: tuple[ImageShape, ...] = ()

    @property
    def size(self) -> int:
        """Maximum size of the frame in a record, in bytes."""
        return sum(_FIELD_BYTES + _size_of(value) for value in self.values)


def _size_of(value: FeatureValue) -> int:
    items = value if isinstance(value, list) else [value]
    return sum(
        _FIELD_BYTES + len(item) if isinstance(item, bytes) else _NUMBER_BYTES for item in items
    )


class FrameValues(list[Any]):
    """The values of a feature in all frames of a sequence, one after the other."""

    frames = 0  # the number of frames


class SerializedExample(NamedTuple):
    """A serialized `tf.train.Example` or `SequenceExample`, with metadata for counts."""

    ref: ImageRef  # the reference of the row; for a sequence, of its first frame
    data: bytes
    # Hex digest of the stored image, or ""; for a sequence, the digest of the digests of its
    # images.
    image_sha256: str = ""
    treatment: str = ""  # the changes to the image, or "" if there is none
    remarks: tuple[str, ...] = ()
    shape: ImageShape | None = None  # properties of the stored image; None if there is none
    others: tuple[ImageShape, ...] = ()
    # The frames of a sequence, without their values; () otherwise.
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
    """A record of the base version, which a rewritten shard copies without decoding it."""

    key: str
    data: bytes
    row: Mapping[str, Any]  # its row in the index of the base's shard, by column
    is_removed: bool = False  # whether the rewritten shard leaves it out

    @property
    def rows(self) -> int:
        """Number of rows from which the record was built."""
        return int(self.row.get("frames", 1))


class Unchanged(NamedTuple):
    """Rows that are not written, because the base version has a record with their key."""

    rows: int  # their number; several if they are the frames of one sequence
