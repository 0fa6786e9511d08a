"""What is done to images on their way into records: a schema's `image:` block."""

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
"""Where Pillow takes a picture for a bomb."""

Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]


class Resize(BaseModel):
    """A size that every picture gets, written "640x480 pad lanczos".

    Attributes:
        width: in pixels.
        height: in pixels.
        mode: "fit" within, keeping the aspect ratio; "pad" to the size with black; "crop" what
            stands over, centred; "exact", whatever becomes of the aspect ratio.
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
    decoded, changed, and encoded anew.

    Attributes:
        column: the schema column that holds the image's path.
        orientation: "apply" EXIF's orientation to the pixels, "record" it only, or "ignore" it.
        color: "keep", or make all images "rgb" or "gray".
        alpha: "keep", "drop", or "composite #rrggbb": on a background of that colour; a JPEG keeps
            none, and is composited on white.
        bit_depth: "keep", or 8: deeper ones are scaled.
        format: "keep" JPEG and PNG, and make all others PNG; or "jpeg", "png" or "raw" for all: raw
            is the uint8 tensor, (height, width, channels).
        quality: of JPEGs that are encoded anew; 95 if not said.
        max_side: longer images are scaled down to it, in pixels.
        resize: a size that every picture gets.
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
        """The colour that transparent pictures are put on; None if they are not."""
        match = _ALPHA.fullmatch(self.alpha)
        if match and match[1]:
            red, green, blue = bytes.fromhex(match[1])
            return red, green, blue
        return (255, 255, 255) if self.format == "jpeg" and self.alpha == "keep" else None
