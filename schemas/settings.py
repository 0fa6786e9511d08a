"""The blocks of a schema that state how images, boxes, masks and sequences are read and stored."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_RESIZE = re.compile(
    r"([0-9]+)x([0-9]+)(?: (fit|pad|crop|exact))?(?: (nearest|bilinear|bicubic|lanczos))?"
)
_ALPHA = re.compile(r"keep|drop|composite #([0-9a-fA-F]{6})")
MAX_SIDE = 65_500
"""The longest side that a JPEG can have."""

MAX_PIXELS = 178_956_970
"""Where Pillow takes an image for a bomb."""

Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]


class Resize(BaseModel):
    """A size that every image gets, written "640x480 pad lanczos".

    Attributes:
        width: in pixels.
        height: in pixels.
        mode: "fit" within, keeping the aspect ratio; "pad" to the size with black; "crop" what
            stands over, centered; "exact", whatever becomes of the aspect ratio.
        filter: how pixels are resampled.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: Side
    height: Side
    mode: Literal["fit", "pad", "crop", "exact"] = "fit"
    filter: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "lanczos"

    @model_validator(mode="after")
    def _check(self) -> Resize:
        if (pixels := self.width * self.height) > MAX_PIXELS:
            raise ValueError(
                f"{self.width}x{self.height} are {pixels:,} pixels; "
                f"expected up to {MAX_PIXELS:,}, which every reader takes"
            )
        return self


def _parse_resize(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _RESIZE.fullmatch(value)
    if not match:
        raise ValueError("expected WIDTHxHEIGHT [fit|pad|crop|exact] [filter]")
    names = ("width", "height", "mode", "filter")
    return {k: v for k, v in zip(names, match.groups(), strict=True) if v is not None}


class ImageSettings(BaseModel):
    """How images are found, checked and stored.

    An image that already is as these settings want it passes through byte for byte; any other is
    decoded, changed, and transcoded.

    Attributes:
        column: the schema column that holds the image's path.
        orientation: "apply" EXIF's orientation to the pixels, "record" it only, or "ignore" it.
        color: "keep", or make all images "rgb" or "gray".
        alpha: "keep", "drop", or "composite #rrggbb": on a background of that color; a JPEG keeps
            none, and is composited on white.
        bit_depth: "keep", or 8: deeper ones are scaled.
        format: "keep" JPEG and PNG, and make all others PNG; or "jpeg", "png" or "raw" for all: raw
            is the uint8 tensor, (height, width, channels).
        quality: of JPEGs that are transcoded; 95 if not said.
        max_side: longer images are scaled down to it, in pixels.
        resize: a size that every image gets.
        animated: of several frames take the "first", or "reject" the file.
        max_pixels: height times width above which a file is rejected, from its header.
        min_side: in pixels; smaller images are rejected.
        strip_metadata: take EXIF, GPS, XMP and comments out of files that pass through.
        unsupported: "transcode" what readers cannot be trusted with, or "reject" it.
        timeout: seconds that one image may take.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str = "image"
    orientation: Literal["apply", "record", "ignore"] = "apply"
    color: Literal["keep", "rgb", "gray"] = "keep"
    alpha: Annotated[str, Field(pattern=f"^(?:{_ALPHA.pattern})$")] = "keep"
    bit_depth: Literal["keep", 8] = "keep"
    format: Literal["keep", "jpeg", "png", "raw"] = "keep"
    quality: int | None = Field(default=None, ge=1, le=100)
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
            raise ValueError("max_side and resize both set the size: choose one")
        if self.quality is not None and self.format != "jpeg":
            raise ValueError("quality is that of JPEGs: it goes with format: jpeg")
        if self.unsupported == "reject" and self.changes_all:
            raise ValueError(
                "unsupported: reject passes files through as they are; "
                "it does not go with settings that change them"
            )
        return self

    @property
    def changes_all(self) -> bool:
        """Whether settings ask for changes that a file can hardly have already."""
        return self.format != "keep" or self.resize is not None or self.max_side is not None

    @property
    def background(self) -> tuple[int, int, int] | None:
        """The color that transparent images are put on; None if they are not."""
        match = _ALPHA.fullmatch(self.alpha)
        if match and match[1]:
            red, green, blue = bytes.fromhex(match[1])
            return red, green, blue
        return (255, 255, 255) if self.format == "jpeg" and self.alpha == "keep" else None


Frame = Literal["displayed", "stored"]
"""The image that was annotated: turned by EXIF, as viewers show it, or as the file has it."""

Order = Literal["xyxy", "xywh", "yxyx", "cxcywh"]


class BoxSettings(BaseModel):
    """How a table writes boxes, and what becomes of bad ones.

    Attributes:
        columns: the four columns that hold a list of numbers each, in the order of `order`.
        column: the one column that holds a list of boxes, each a list of four; taken where the
            table does not have the four.
        order: "xyxy" two corners; "xywh" left, top, width and height; "yxyx" two corners, y first;
            "cxcywh" the middle, width and height.
        units: "pixel", or "normalized": fractions of width and height.
        units_column: the column in which rows say their own units; a table need not have it.
        frame: the image that they were drawn on: as "displayed", that is, turned by EXIF, or as
            "stored".
        out_of_bounds: "clip" what stands over the image's edge, "reject" the row, or "drop" the
            box. Less than a millionth of the image's side is rounding, and always clipped.
        invalid: boxes without extent, inverted ones, and those that hold no numbers: "reject" the
            row, or "drop" the box.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[str, str, str, str] | None = ("xmin", "ymin", "xmax", "ymax")
    column: str | None = "bbox"
    order: Order = "xyxy"
    units: Literal["pixel", "normalized"] = "pixel"
    units_column: str | None = None
    frame: Frame = "displayed"
    out_of_bounds: Literal["clip", "reject", "drop"] = "clip"
    invalid: Literal["reject", "drop"] = "reject"

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_said(cls, values: Any) -> Any:
        """Takes one way to write boxes for the only one, if it is said alone."""
        if isinstance(values, dict) and ("columns" in values) != ("column" in values):
            return {"columns": None, "column": None, **values}
        return values

    @model_validator(mode="after")
    def _check(self) -> BoxSettings:
        if self.columns is None and self.column is None:
            raise ValueError("boxes come from four columns or from one: name them")
        return self

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Every schema column that boxes may come from, that of their units included."""
        single = (self.column, self.units_column)
        return (*(self.columns or ()), *(name for name in single if name is not None))


class MaskSettings(BaseModel):
    """What masks are drawn on, and how they are stored.

    Attributes:
        labels: the column that holds the class of each object of a `segmentation:` column.
        frame: the image that they were drawn on, as for boxes.
        bit_depth: of all masks: 8 holds ids up to 255, 16 up to 65535.
        padding: the id of what `resize: … pad` adds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: str = "labels"
    frame: Frame = "displayed"
    bit_depth: Literal[8, 16] = 8
    padding: int = Field(default=0, ge=0, le=65_535)

    @model_validator(mode="after")
    def _check(self) -> MaskSettings:
        if self.padding > self.max_id:
            raise ValueError(f"padding: {self.padding} does not fit {self.bit_depth} bits")
        return self

    @property
    def max_id(self) -> int:
        """The largest class id that a mask can hold."""
        return 255 if self.bit_depth == 8 else 65_535


class SequenceSettings(BaseModel):
    """Which rows are the frames of one sequence.

    Attributes:
        group: the column whose value all frames of a sequence have in common: its key.
        order: the column that orders the frames: by number if every value in the sequence
            is one, otherwise as text, with the numbers in it by their value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str = Field(min_length=1)
    order: str = Field(min_length=1)


_INTEGER = re.compile(r"-?[0-9]{1,4000}")


def is_integer(text: str) -> bool:
    """Returns whether a text is a whole number: digits of ASCII, and perhaps a minus.

    Python takes more: other scripts' digits, `1_000`, spaces; and `isdigit` even what it rejects.

    >>> is_integer("-12"), is_integer("²"), is_integer("1_000"), is_integer(" 1"), is_integer("٣")
    (True, False, False, False, False)
    """
    return bool(_INTEGER.fullmatch(text))


def parse_integer(text: str) -> int:
    """Returns the whole number that a text is.

    Raises:
        ValueError: if it is none.
    """
    if not is_integer(text):
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(text)
