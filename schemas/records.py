"""What travels through the pipeline: a row, a reference to an image, an example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

FeatureValue: TypeAlias = int | float | bytes | list[int] | list[float] | list[bytes] | None
"""The value of one feature: None where an image has yet to give it, or for an empty list."""


@dataclass(frozen=True)
class Row:
    """One row of a table, as it was read.

    Attributes:
        values: table column to value; a column that the row lacks is absent or None.
        file: the table's file.
        line: where the row begins, counted from 1: a line, or in Parquet a row.
        is_text: whether values are untyped text, as in CSV.
    """

    values: Mapping[str, Any]
    file: str
    line: int
    is_text: bool = False

    @property
    def source(self) -> str:
        """File and line, as messages write them."""
        return f"{self.file}:{self.line}"


class ImageRef(NamedTuple):
    """A row that is ready to become an example, but for its image: this is what is shuffled.

    A tuple, because a shard's references are all in memory at once. They sort by key and source.

    Attributes:
        key: the row's stable identity.
        file: the table that the row stands in.
        line: and its line there.
        uri: where the image is; "" if the schema needs none.
        start: first byte of the image within the file, or None for the whole file.
        stop: the byte after its last.
        values: one value for each feature of the schema, in order; None for facts of the image.
        split: the row's own split, or "".
        group: the value that keeps rows together in one split, or "" for the key.
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

    @property
    def source(self) -> str:
        """File and line, as messages write them."""
        return f"{self.file}:{self.line}"


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
        transcoded: 1 if the picture was encoded anew, 0 if it passed through.
        treatment: what was done, in words, to be counted by.
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


class SerializedExample(NamedTuple):
    """A `tf.train.Example` on the wire, with what the books keep of it.

    Attributes:
        ref: the reference that it was made from.
        data: the serialized message.
        image_sha256: hex digest of the image as stored, or "" without one.
        treatment: what was done to the image, or "" without one.
    """

    ref: ImageRef
    data: bytes
    image_sha256: str = ""
    treatment: str = ""
