"""The blocks of a schema with the settings of images, boxes, masks and sequences."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, model_validator

from recordmill.schemas.document import Document, unwritten_if_empty

_RESIZE = re.compile(
    r"([0-9]+)x([0-9]+)(?: (fit|pad|crop|exact))?(?: (nearest|bilinear|bicubic|lanczos))?"
)
_ALPHA = re.compile(r"keep|drop|composite #([0-9a-fA-F]{6})")

# The longest side that libjpeg supports (JPEG_MAX_DIMENSION).
MAX_SIDE = 65_500

# Pixels above which Pillow raises DecompressionBombError: twice `Image.MAX_IMAGE_PIXELS`.
MAX_PIXELS = 178_956_970

Decode = Literal["full", "header"]
Filter = Literal["nearest", "bilinear", "bicubic", "lanczos"]

Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]


class Resize(Document):
    """The size to which all images are resized, written as in "640x480 pad lanczos".

    Attributes:
        width: the width in pixels.
        height: the height in pixels.
        mode: "fit" scales the image to fit within the size; "pad" also pads it with black; "crop"
            scales it to cover the size, and crops the center; "exact" ignores the aspect ratio.
        filter: the resampling filter.
    """

    width: Side
    height: Side
    mode: Literal["fit", "pad", "crop", "exact"] = "fit"
    filter: Filter = "lanczos"

    @model_validator(mode="after")
    def _check(self) -> Resize:
        if (pixels := self.width * self.height) > MAX_PIXELS:
            raise ValueError(
                f"{self.width}x{self.height} has {pixels:,} pixels; "
                f"expected at most {MAX_PIXELS:,}, the limit of readers"
            )
        return self


def _parse_resize(value: Any) -> Any:
    if not isinstance(value, (str, int)):
        return value
    match = _RESIZE.fullmatch(str(value))
    if not match:
        raise ValueError("expected WIDTHxHEIGHT [fit|pad|crop|exact] [filter], as in 224x224")
    names = ("width", "height", "mode", "filter")
    return {k: v for k, v in zip(names, match.groups(), strict=True) if v is not None}


# The formats of encoded images: "raw" is a uint8 tensor.
Encoding = Literal["jpeg", "png", "raw"]

_QUALITY = 95


def _parse_window(value: Any) -> Any:
    """Returns the pair of a window in a flag, such as "-1000:3000": commas separate settings."""
    if not isinstance(value, (str, int)):
        return value
    low, found, high = str(value).partition(":")
    if not found:
        raise ValueError("expected LOW:HIGH, as in -1000:3000")
    return low, high


class ImageSettings(Document):
    """How images are read, checked and stored.

    An image that already meets all settings is stored without changing a byte. Any other image is
    decoded, changed and transcoded.

    Attributes:
        column: the schema column with the path of the image.
        orientation: "apply" the EXIF orientation to the pixels, only "record" it, or "ignore" it.
        color: "keep" the colors, or convert all images to "rgb" or "gray".
        alpha: "keep" or "drop" the alpha channel, or "composite #rrggbb" on a background color;
            JPEGs have no alpha channel, and are composited on white.
        bit_depth: "keep" the bit depth, or scale samples with more bits to 8; 16 requires gray of
            16 bits, such as depth, which readers then get as uint16. It is resized to the nearest
            pixel: others mix what is unknown, often 0, and what is behind an object, into values.
        window: the values that become black and white, the same in all images: gray of more than 8
            bits, signed or float is mapped linearly, and clipped at them. Without `window` and
            `rescale`, signed, 32-bit and float images are rejected.
        rescale: "per_image" maps the smallest value of each signed, 32-bit or float image to black,
            and its largest to white, so that equal values differ between images.
        format: "keep" JPEG and PNG, also when resized, and convert others to PNG; or convert all
            images to "jpeg", "png" or "raw", a uint8 tensor of shape (height, width, channels).
        quality: quality of the JPEGs that are encoded.
        max_side: length in pixels to which longer sides are scaled down.
        resize: the size to which all images are resized.
        animated: store the "first" of several frames, or "reject" the file.
        max_pixels: limit for height times width, which is checked in the header.
        min_side: minimum length of each side, in pixels.
        strip_metadata: whether to remove EXIF, GPS, XMP and comments from files not transcoded.
        unsupported: "transcode" or "reject" images that some readers cannot decode.
        timeout: time limit for one image, in seconds.
    """

    column: str = "image"
    orientation: Literal["apply", "record", "ignore"] = "apply"
    color: Literal["keep", "rgb", "gray"] = "keep"
    alpha: Annotated[str, Field(pattern=f"^(?:{_ALPHA.pattern})$")] = "keep"
    bit_depth: Literal["keep", 8, 16] = "keep"
    window: Annotated[tuple[FiniteFloat, FiniteFloat] | None, BeforeValidator(_parse_window)] = (
        unwritten_if_empty(None)
    )
    rescale: Literal["per_image"] | None = unwritten_if_empty(None)
    format: Literal["keep", "jpeg", "png", "raw"] = "keep"
    quality: Annotated[int, Field(ge=1, le=100)] = _QUALITY
    max_side: Side | None = None
    resize: Annotated[Resize, BeforeValidator(_parse_resize)] | None = None
    animated: Literal["first", "reject"] = "first"
    max_pixels: int = Field(default=MAX_PIXELS, gt=0)
    min_side: int = Field(default=1, ge=1)
    strip_metadata: bool = False
    unsupported: Literal["transcode", "reject"] = "transcode"
    timeout: float = Field(default=60, gt=0)

    @model_validator(mode="after")
    def _check(self) -> ImageSettings:
        if self.max_side is not None and self.resize is not None:
            raise ValueError("max_side cannot be combined with resize. Remove one of them.")
        if self.window is not None and self.rescale is not None:
            raise ValueError("window cannot be combined with rescale. Remove one of them.")
        if self.window is not None and not self.window[0] < self.window[1]:
            raise ValueError(f"window: expected LOW below HIGH, got {list(self.window)}")
        encodes_jpeg = self.format == "jpeg" or (self.format == "keep" and self.changes_size)
        if self.bit_depth == 16 and self.format in ("jpeg", "raw"):
            raise ValueError(f"bit_depth: 16 needs PNG. Remove format: {self.format}.")
        if self.bit_depth == 16 and self.resize and self.resize.filter in ("bilinear", "bicubic"):
            raise ValueError(f"bit_depth: 16 needs nearest. Replace {self.resize.filter}.")
        if self.quality != _QUALITY and not encodes_jpeg:
            raise ValueError("quality applies only to JPEGs that are encoded. Add format: jpeg.")
        if self.unsupported == "reject" and self.changes_all:
            raise ValueError(
                "unsupported: reject stores files unchanged, and cannot be combined with "
                "format, resize or max_side"
            )
        return self

    @property
    def changes_all(self) -> bool:
        """Whether a setting changes nearly all images."""
        return self.format != "keep" or self.changes_size

    @property
    def changes_size(self) -> bool:
        """Whether images are scaled, cropped or padded."""
        return self.resize is not None or self.max_side is not None

    @property
    def filter(self) -> Filter:
        """The resampling filter."""
        if self.bit_depth == 16:
            return "nearest"
        return self.resize.filter if self.resize else "lanczos"

    @property
    def background(self) -> tuple[int, int, int] | None:
        """The color on which transparent images are composited, or None."""
        match = _ALPHA.fullmatch(self.alpha)
        if match and match[1]:
            red, green, blue = bytes.fromhex(match[1])
            return red, green, blue
        return (255, 255, 255) if self.format == "jpeg" and self.alpha == "keep" else None


# The coordinate frame of annotations: the image with EXIF orientation applied, or as stored.
CoordinateFrame = Literal["displayed", "stored"]

Order = Literal["xyxy", "xywh", "yxyx", "cxcywh"]


# What coordinates are measured in: pixels, or fractions of width and height.
Units = Literal["pixel", "normalized"]

# The columns with the width and height of the annotated image, if a schema names no others.
SIZE_COLUMNS = ("width", "height")


def _parse_none(value: Any) -> Any:
    return None if value == "none" else value


class AnnotationSettings(Document):
    """What the coordinates of boxes or outlines in a table refer to.

    Attributes:
        units: "pixel", or "normalized" for fractions of width and height. If it is not set,
            coordinates are pixels, and a table whose coordinates are all fractions is an error.
        units_column: an optional column with the units of each row, which override `units`.
        size_columns: optional columns with the width and height of the image that was annotated. If
            the image in the file has another size of the same aspect ratio, coordinates are scaled;
            with another aspect ratio, the row is rejected. "none" ignores such columns.
        frame: the annotated image: "displayed", with EXIF orientation applied, or "stored".
    """

    units: Units | None = None
    units_column: str | None = "box_units"
    size_columns: Annotated[tuple[str, str] | None, BeforeValidator(_parse_none)] = SIZE_COLUMNS
    frame: CoordinateFrame = "displayed"

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """The schema columns that a table may lack."""
        units = () if self.units_column is None else (self.units_column,)
        return (*units, *(self.size_columns or ()))


class BoxSettings(AnnotationSettings):
    """The format of boxes in a table, and the treatment of invalid boxes.

    Attributes:
        columns: four columns with a list of numbers each, in the order of `order`.
        column: a single column with a list of boxes, each a list of four numbers; used if the
            table lacks the four columns.
        order: "xyxy" for two corners; "yxyx" for two corners, y first; "xywh" for left, top, width
            and height; "cxcywh" for center, width and height.
        out_of_bounds: "clip" a box at the edge of the image, "reject" the row, or "drop" the box.
            Up to a millionth of the side is a rounding error, and is always clipped.
        invalid: "reject" a row with an empty, inverted or non-numeric box, or "drop" the box.
    """

    columns: tuple[str, str, str, str] | None = ("xmin", "ymin", "xmax", "ymax")
    column: str | None = "bbox"
    order: Order = "xyxy"
    out_of_bounds: Literal["clip", "reject", "drop"] = "clip"
    invalid: Literal["reject", "drop"] = "reject"

    @model_validator(mode="before")
    @classmethod
    def _disable_other_columns(cls, values: Any) -> Any:
        """Disables the default of `columns` if only `column` is set, and the other way around."""
        if isinstance(values, dict) and ("columns" in values) != ("column" in values):
            return {"columns": None, "column": None, **values}
        return values

    @model_validator(mode="after")
    def _check(self) -> BoxSettings:
        if self.columns is None and self.column is None:
            raise ValueError("boxes need columns: set columns, or column")
        return self

    @property
    def states_order(self) -> bool:
        """Whether a schema, or an option, states the order of the numbers of a box."""
        return "order" in self.model_fields_set

    @property
    def all_columns(self) -> tuple[str, ...]:
        """All schema columns of boxes, with those of their units and of the annotated size."""
        single = () if self.column is None else (self.column,)
        return (*(self.columns or ()), *single, *self.optional_columns)


# The order in which the pixels of an image are numbered.
RunOrder = Literal["columns", "rows"]


class MaskSettings(AnnotationSettings):
    """The format of masks; units and the annotated size are those of outlines.

    Attributes:
        labels: the column with the class of each object in a `segmentation:` column.
        bit_depth: bits per pixel: 8 for ids up to 255, 16 for ids up to 65535.
        padding: the id of pixels that `resize: … pad` adds.
        run_order: how the pixels of run lengths as text, `START LENGTH …` with starts from 1, are
            numbered: by "columns", from top to bottom, as in most competitions of Kaggle, or by
            "rows". Such run lengths are rejected if it is not set.
    """

    labels: str = "labels"
    bit_depth: Literal[8, 16] = 8
    padding: int = Field(default=0, ge=0, le=65_535)
    run_order: RunOrder | None = unwritten_if_empty(None)

    @model_validator(mode="after")
    def _check(self) -> MaskSettings:
        if self.padding > self.max_id:
            raise ValueError(f"padding: expected at most {self.max_id}, got {self.padding}")
        return self

    @property
    def max_id(self) -> int:
        """The largest class id that fits into the bit depth."""
        return 255 if self.bit_depth == 8 else 65_535


class SequenceSettings(Document):
    """The columns that combine rows into sequences.

    Attributes:
        group: the column with the key of the sequence.
        order: the column by which frames are sorted: as numbers if all values in the sequence are
            numbers; otherwise as text, in which numbers are compared by value.
        record: "example" for a `tf.train.Example`, in which each feature has the values of all
            frames, as `tfds.features.Dataset` and RLDS have them; else a `SequenceExample`.
    """

    group: str = Field(min_length=1)
    order: str = Field(min_length=1)
    record: Literal["example"] | None = unwritten_if_empty(None)


_INTEGER = re.compile(r"-?[0-9]{1,4000}")


def is_integer(text: str) -> bool:
    """Returns whether a text is an integer: ASCII digits with an optional minus.

    int() also accepts digits of other scripts, `1_000` and spaces, and isdigit() accepts "²".

    >>> is_integer("-12"), is_integer("²"), is_integer("1_000"), is_integer(" 1"), is_integer("٣")
    (True, False, False, False, False)
    """
    return bool(_INTEGER.fullmatch(text))


def parse_integer(text: str) -> int:
    """Parses an integer; raises ValueError for other texts."""
    if not is_integer(text):
        raise ValueError(f"expected an integer, got {text!r}")
    return int(text)
