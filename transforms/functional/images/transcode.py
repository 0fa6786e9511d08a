"""What happens to an image on its way into a record.

JPEG (8 bits, baseline or progressive, one or three components) and PNG that already are as the
settings want them pass through byte for byte, once every coded bit of them was read, and if both
TensorFlow and Pillow's `Image.open` read them; all else that decodes is encoded again. Only these
two may reach a record: TensorFlow 2.21 misreads, rejects, or even dies of, some files of every
other format.
"""

from __future__ import annotations

import hashlib

from PIL import Image, ImageFile

from recordmill.schemas.config import Decode
from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images import jpeg, pixels, png
from recordmill.transforms.functional.images.geometry import geometry_of, oriented_size, target_size
from recordmill.transforms.functional.images.source_image import (
    MAX_WORK,
    SourceImage,
    examine,
    examine_in_process,
    loads,
    open_with_pillow,
    opened,
    reject_damage,
)

_MAX_SIDE = 1_000_000  # libpng's limit, and so that of every reader
_DRAFT_SCALE = 8
_MOST_PIXELS = 2**29 - 1  # TensorFlow's limit
_CHANNELS = {"L": 1, "I;16": 1, "LA": 2, "RGB": 3, "RGBA": 4}


def transcode(data: bytes, settings: ImageSettings, decode: Decode = "full") -> StoredImage:
    """Returns the image as the record will hold it.

    Args:
        data: the file's bytes.
        settings: limits and options.
        decode: "full" reads every coded bit, "header" only as far as the size, of images that pass
            through.

    Raises:
        RecordError: if it is no image, damaged, beyond the limits, or of a form that is not stored.
    """
    source = examine(data)
    check_limits(source, settings)
    if passes_through(source, settings):
        kept = keep(data, source, settings, decode)
        if kept is not None:
            return kept
        source = source._replace(common=False)
    if settings.unsupported == "reject":
        raise RecordError(Reason.UNSUPPORTED_FORMAT, _why_not(source, settings))
    return _encoded_again(data, source, settings)


def pass_through_source(data: bytes, settings: ImageSettings) -> SourceImage | None:
    """Returns what the header says of an image that is to be kept and is harmless; None otherwise.

    Harmless ones take little time and memory, by their pixels, bytes and parts, and only
    well-trodden code. All others are for a process of their own: what decodes them can crash, or
    take for ever.

    Raises:
        RecordError: if the header is damaged, or beyond the limits.
    """
    source = examine_in_process(data)
    if source is None:
        return None
    check_limits(source, settings)
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        return None  # the program that this is part of has Pillow pass over damage
    return source if passes_through(source, settings) and source.work <= MAX_WORK else None


def check_limits(source: SourceImage, settings: ImageSettings) -> None:
    """Rejects images by what their headers say.

    Raises:
        RecordError: invalid_dimensions, too_many_pixels or animated.
    """
    width, height = source.width, source.height
    if not 1 <= width <= _MAX_SIDE or not 1 <= height <= _MAX_SIDE:
        raise RecordError(Reason.INVALID_DIMENSIONS, f"{width} x {height} pixels")
    if width * height > _MOST_PIXELS:
        detail = f"{width} x {height} pixels; TensorFlow reads up to {_MOST_PIXELS}"
        raise RecordError(Reason.TOO_MANY_PIXELS, detail)
    if width * height > settings.max_pixels:
        detail = f"{width} x {height} pixels; the limit is {settings.max_pixels} (max_pixels)"
        raise RecordError(Reason.TOO_MANY_PIXELS, detail)
    if min(width, height) < settings.min_side:
        detail = f"{width} x {height} pixels; the least is {settings.min_side} (min_side)"
        raise RecordError(Reason.INVALID_DIMENSIONS, detail)
    if source.frames > 1 and settings.animated == "reject":
        raise RecordError(Reason.ANIMATED, f"{source.format} of {source.frames} frames")


def passes_through(source: SourceImage, settings: ImageSettings) -> bool:
    """Returns whether a file already is as the settings want it."""
    return source.common and not any(asked for _, asked in _wishes(source, settings))


def _changes(source: SourceImage, settings: ImageSettings) -> list[str]:
    """Returns what the settings ask to change in an image, in words."""
    return [change for change, asked in _wishes(source, settings) if asked]


def _wishes(source: SourceImage, settings: ImageSettings) -> tuple[tuple[str, bool], ...]:
    gray = source.channels <= 2
    size = _upright_size(source, settings)
    return (
        ("upright", settings.orientation == "apply" and source.orientation != 1),
        ("opaque", source.has_alpha and (settings.alpha != "keep" or settings.format == "jpeg")),
        ("8 bits", source.bit_depth > 8 and settings.bit_depth == 8),
        ("in colour", settings.color == "rgb" and gray),
        ("in gray", settings.color == "gray" and not gray),
        ("resized", target_size(size, settings) != size),
        (settings.format, settings.format not in ("keep", _family(source))),
    )


def _upright_size(source: SourceImage, settings: ImageSettings) -> tuple[int, int]:
    size = (source.width, source.height)
    return oriented_size(size, source.orientation) if settings.orientation == "apply" else size


def _family(source: SourceImage) -> str:
    return "jpeg" if source.format == "mpo" else source.format


def _why_not(source: SourceImage, settings: ImageSettings) -> str:
    changes = _changes(source, settings)
    if not source.common:
        return f"{source.format} of mode {source.mode or 'unknown'}; not every reader takes it"
    return f"{source.format}: would have to be made {', '.join(changes)}"


def keep(
    data: bytes, source: SourceImage, settings: ImageSettings, decode: Decode
) -> StoredImage | None:
    """Returns a file that passes through as it is, except for its metadata; None if Pillow balks.

    Raises:
        RecordError: truncated or corrupt; too_many_pixels for want of memory.
    """
    if source.format == "mpo":
        data = data[: jpeg.examine(data).end]
    if settings.strip_metadata:
        data = (png if source.format == "png" else jpeg).strip_metadata(data)
        source = source._replace(png=png.examine(data) if source.png else None)
    try:
        if not _is_read_by_pillow(data, source, decode):
            return None
    except MemoryError as error:
        raise RecordError(Reason.TOO_MANY_PIXELS, "there is not the memory for it") from error
    size = (source.width, source.height)
    return _stored(data, _family(source), size, source.channels, source, "")


def _encoded_again(data: bytes, source: SourceImage, settings: ImageSettings) -> StoredImage:
    """Returns an image decoded, changed as the settings ask, and encoded."""
    if source.png:
        data = png.keep_pixel_data(data, source.png)
    elif _family(source) == "jpeg":
        data = jpeg.keep_pixel_data(data)
    with opened(data, _family(source)) as image:
        image.load()
        decoded = _turned(pixels.canonical(image, source.bit_depth), source, settings)
        if settings.bit_depth == 8 or settings.format in ("jpeg", "raw"):
            decoded = pixels.to_8_bits(decoded)
        if settings.alpha != "keep" or settings.format == "jpeg":
            decoded = pixels.without_alpha(decoded, settings.background)
        decoded = pixels.in_color(decoded, settings.color)
        decoded = _resized(decoded, source, settings)
        made, format_ = pixels.encode(decoded, settings)
    how = ", ".join([f"{source.format} to {format_}", *_changes(source, settings)])
    return _stored(made, format_, decoded.size, _CHANNELS[decoded.mode], source, how)


def _turned(image: Image.Image, source: SourceImage, settings: ImageSettings) -> Image.Image:
    """Returns an image upright, or as the file has it. TIFFs come upright from Pillow."""
    if settings.orientation == "apply":
        return image if source.format == "tiff" else pixels.upright(image, source.orientation)
    return (
        pixels.to_stored_orientation(image, source.orientation)
        if source.format == "tiff"
        else image
    )


def _resized(image: Image.Image, source: SourceImage, settings: ImageSettings) -> Image.Image:
    """Returns an upright image in the size that the settings ask for."""
    geometry = geometry_of((source.width, source.height), source.orientation, settings)
    method = settings.resize.filter if settings.resize else "lanczos"
    return pixels.resized(image, geometry, method)


def _stored(
    data: bytes,
    format_: str,
    size: tuple[int, int],
    channels: int,
    source: SourceImage,
    how: str,
) -> StoredImage:
    return StoredImage(
        data=data,
        format=format_,
        height=size[1],
        width=size[0],
        channels=channels,
        sha256=hashlib.sha256(data).hexdigest(),
        source_format=source.format,
        mode=source.mode,
        bit_depth=source.bit_depth,
        frames=source.frames,
        orientation=source.orientation,
        treatment=how or f"{source.format} kept",
        transcoded=int(bool(how)),
        source_size=(source.width, source.height),
    )


def _is_read_by_pillow(data: bytes, source: SourceImage, decode: Decode) -> bool:
    """Returns whether Pillow's default open takes a file, and reads it as far as is asked for.

    Raises:
        RecordError: truncated or corrupt, if any of its coded data is damaged.
    """
    image = open_with_pillow(data, _family(source))
    if image is None or image.size != (source.width, source.height):
        return False
    with image:
        if decode == "header":
            return True
        if source.png is None:
            read_coded_data(image, data)
            return True
        png.check_rows(data, source.png)
        return source.png.ends_with_pixels or loads(image)


def read_coded_data(image: ImageFile.ImageFile, data: bytes) -> None:
    """Decodes a JPEG at an eighth of its size, without its colours.

    That reads all entropy-coded data and skips most of the inverse transform: a third less work,
    with the full decode's verdict. Only for SOF0, 1 and 2: on the lossless process Pillow 12.3's
    scaled decode corrupts the heap.

    Args:
        image: as Pillow opens it.
        data: the whole file. The decoder gets it in one piece, so that it meets what stands behind
            the last row, as TensorFlow's does; Pillow's own pieces may end there.

    Raises:
        RecordError: truncated or corrupt.
    """
    with reject_damage():
        image.decodermaxblock = len(data)
        image.draft(
            "L", (max(1, image.width // _DRAFT_SCALE), max(1, image.height // _DRAFT_SCALE))
        )
        image.load()
