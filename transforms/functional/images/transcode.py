"""Converts an image file to the image that a record stores.

JPEG (8 bits, baseline or progressive, one or three components) and PNG files that match the
settings are stored without re-encoding, after all coded data has been checked, if both TensorFlow
and Pillow's `Image.open` read them. Other images are decoded and re-encoded to one of these two
formats, since TensorFlow 2.21 misreads, rejects or crashes on some files of every other format.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from PIL import ImageFile

from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import Decode, Encoding, ImageSettings
from recordmill.transforms.functional.images import codecs, pixels
from recordmill.transforms.functional.images.geometry import (
    geometry_of,
    inverse_orientation,
    oriented_size,
    target_size,
)
from recordmill.transforms.functional.images.pixels import Deep, Pixels

_MAX_SIDE = 1_000_000  # PNG_USER_WIDTH_MAX of libpng
_MAX_PIXELS = 2**29 - 1  # limit of TensorFlow


def transcode(data: bytes, settings: ImageSettings, decode: Decode = "full") -> StoredImage:
    """Converts an image file to the image that a record stores.

    `decode`: for images that are not re-encoded, "full" to check all coded data, and "header" to
    check only the header.
    """
    source = codecs.examine(data)
    _check_limits(source, settings)
    if _passes_through(source, settings):
        kept = _keep(data, source, settings, decode)
        if kept is not None:
            return kept
        source = replace(source, common=False)
    if settings.unsupported == "reject":
        raise RecordError(Reason.UNSUPPORTED_FORMAT, _reencoding_reason(source, settings))
    return _reencoded(data, source, settings)


def pass_through(data: bytes, settings: ImageSettings, decode: Decode) -> StoredImage | None:
    """Stores a file without re-encoding, if it passes through and may be decoded in this process.

    Images within the work limits use only well-tested decoders. All others are decoded in a
    separate process, since their decoders can crash or hang: for them, the result is None.
    """
    source = _pass_through_source(data, settings)
    return _keep(data, source, settings, decode) if source else None


def _pass_through_source(data: bytes, settings: ImageSettings) -> codecs.SourceImage | None:
    source = codecs.examine_in_process(data)
    if source is None:
        return None
    _check_limits(source, settings)
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        return None  # the host program lets Pillow ignore damage
    return source if _passes_through(source, settings) and source.work <= codecs.MAX_WORK else None


def _check_limits(source: codecs.SourceImage, settings: ImageSettings) -> None:
    width, height = source.width, source.height
    if not 1 <= width <= _MAX_SIDE or not 1 <= height <= _MAX_SIDE:
        raise RecordError(Reason.INVALID_DIMENSIONS, f"{width} x {height} pixels")
    if width * height > _MAX_PIXELS:
        detail = f"{width} x {height} pixels; TensorFlow reads up to {_MAX_PIXELS}"
        raise RecordError(Reason.TOO_MANY_PIXELS, detail)
    if width * height > settings.max_pixels:
        detail = f"{width} x {height} pixels; the limit is {settings.max_pixels} (max_pixels)"
        raise RecordError(Reason.TOO_MANY_PIXELS, detail)
    if min(width, height) < settings.min_side:
        detail = f"{width} x {height} pixels; the minimum is {settings.min_side} (min_side)"
        raise RecordError(Reason.INVALID_DIMENSIONS, detail)
    if source.frames > 1 and settings.animated == "reject":
        raise RecordError(Reason.ANIMATED, f"{source.format} of {source.frames} frames")


def _passes_through(source: codecs.SourceImage, settings: ImageSettings) -> bool:
    return source.common and not _changes(source, settings)


def _changes(source: codecs.SourceImage, settings: ImageSettings) -> list[str]:
    """Returns the required changes to an image; their names are in manifest.json, so keep them."""
    gray = source.channels <= 2
    size = source.size
    if settings.orientation == "apply":
        size = oriented_size(size, source.orientation)
    required = (
        ("upright", settings.orientation == "apply" and source.orientation != 1),
        ("opaque", source.has_alpha and (settings.alpha != "keep" or settings.format == "jpeg")),
        ("window", _is_windowed(source, settings)),
        ("rescaled per image", settings.rescale is not None and bool(source.samples)),
        ("8 bits", source.bit_depth > 8 and _is_cut(settings)),
        ("in colour", settings.color == "rgb" and gray),  # codespell:ignore colour
        ("in gray", settings.color == "gray" and not gray),
        ("resized", target_size(size, settings) != size),
        (settings.format, settings.format not in ("keep", source.family)),
    )
    return [change for change, is_required in required if is_required]


def _is_windowed(source: codecs.SourceImage, settings: ImageSettings) -> bool:
    is_deep_gray = source.channels <= 2 and source.bit_depth > 8
    return settings.window is not None and (is_deep_gray or bool(source.samples))


def _is_cut(settings: ImageSettings) -> bool:
    """Returns whether all samples are stored in 8 bits."""
    return settings.bit_depth == 8 or settings.format in ("jpeg", "raw")


def _reencoding_reason(source: codecs.SourceImage, settings: ImageSettings) -> str:
    if not source.common:
        return (
            f"{source.format} with mode {source.mode or 'unknown'} is not supported by every reader"
        )
    return f"{source.format}: requires re-encoding ({', '.join(_changes(source, settings))})"


def _keep(
    data: bytes, source: codecs.SourceImage, settings: ImageSettings, decode: Decode
) -> StoredImage | None:
    """Stores a file, at most without its metadata; returns None if Pillow cannot open it."""
    try:
        kept = source.keep(data, settings.strip_metadata, decode)
    except MemoryError as error:
        raise RecordError(Reason.TOO_MANY_PIXELS, "not enough memory to decode it") from error
    if kept is None:
        return None
    encoded, thumbnail = kept
    stored = _stored(encoded, source, source.family, source.size, f"{source.format} kept")
    return stored._replace(thumbnail=thumbnail)


def _stored(
    data: bytes, source: codecs.SourceImage, format_: str, size: tuple[int, int], treatment: str
) -> StoredImage:
    """Returns the image of a record, without what only its pixels show."""
    return StoredImage(
        data=data,
        format=format_,
        height=size[1],
        width=size[0],
        channels=source.channels,
        sha256=hashlib.sha256(data).hexdigest(),
        treatment=treatment,
        source_format=source.format,
        mode=source.mode,
        bit_depth=source.bit_depth,
        frames=source.frames,
        orientation=source.orientation,
        source_size=source.size,
    )


def _reencoded(data: bytes, source: codecs.SourceImage, settings: ImageSettings) -> StoredImage:
    """Decodes an image, applies the changes that the settings require, and encodes it again."""
    data = source.pixel_data(data)
    with codecs.reject_damage():
        decoded = _decoded(data, source, settings)
        is_clipped = isinstance(decoded, Deep) and decoded.is_clipped
        decoded = _oriented(decoded, source, settings)
        if _is_cut(settings):
            decoded = pixels.to_8_bits(decoded)
        if settings.alpha != "keep" or settings.format == "jpeg":
            decoded = pixels.without_alpha(decoded, settings.background)
        decoded = pixels.in_color(decoded, settings.color)
        geometry = geometry_of(source.size, source.orientation, settings)
        decoded = pixels.resized(decoded, geometry, settings.filter)
        format_ = _stored_format(source, decoded, settings)
        encoded = pixels.encode(decoded, format_, settings.quality)
    treatment = ", ".join([f"{source.format} to {format_}", *_changes(source, settings)])
    return _stored(encoded, source, format_, decoded.size, treatment)._replace(
        channels=decoded.channels if isinstance(decoded, Deep) else len(decoded.getbands()),
        transcoded=1,
        is_clipped=is_clipped,
        thumbnail=pixels.thumbnail_of(decoded),
    )


def _decoded(data: bytes, source: codecs.SourceImage, settings: ImageSettings) -> Pixels:
    """Decodes an image; samples of more than 8 bits only to those that are stored."""
    is_windowed = _is_windowed(source, settings)
    with (
        codecs.opened(data, source.family) as image,
        codecs.opened(data, source.family) as reopened,
    ):
        if source.samples:
            image.load()
            return pixels.measured(image, source.samples, settings)
        if source.bit_depth <= 8 or (_is_cut(settings) and not is_windowed):
            image.load()
            return pixels.canonical(image, source.bit_depth)
        decoded = pixels.decode_deep(image, reopened)
    if settings.window is None or not is_windowed:
        return decoded
    gray = pixels.mapped(decoded.colors, *settings.window)
    return gray._replace(samples=np.concatenate([gray.samples, decoded.alpha], axis=2))


def _stored_format(
    source: codecs.SourceImage, decoded: Pixels, settings: ImageSettings
) -> Encoding:
    """Returns the format of a re-encoded image.

    Scaled pixels have lost what a lossless copy of a JPEG would preserve, and as a PNG they would
    take more bytes. Other changes to a JPEG are stored without loss.
    """
    if settings.format != "keep":
        return settings.format
    is_resized = "resized" in _changes(source, settings)
    fits_jpeg = not isinstance(decoded, Deep) and decoded.mode in ("L", "RGB")
    return "jpeg" if is_resized and source.family == "jpeg" and fits_jpeg else "png"


def _oriented(image: Pixels, source: codecs.SourceImage, settings: ImageSettings) -> Pixels:
    # Pillow applies the orientation of a TIFF when it loads the pixels, but not that of a JPEG.
    is_upright, applied = source.format == "tiff", settings.orientation == "apply"
    if is_upright == applied:
        return image
    orientation = source.orientation
    return pixels.upright(image, orientation if applied else inverse_orientation(orientation))
