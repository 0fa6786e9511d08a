"""Converts an image file to the image that a record stores.

JPEG (8 bits, baseline or progressive, one or three components) and PNG files that match the
settings are stored without re-encoding, after all coded data has been checked, if both TensorFlow
and Pillow's `Image.open` read them. Other images are decoded and re-encoded to one of these two
formats, since TensorFlow 2.21 misreads, rejects or crashes on some files of every other format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

from PIL import Image, ImageFile

from recordmill.schemas.config import Decode
from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import Encoding, ImageSettings
from recordmill.transforms.functional.images import bands, deep, jpeg, pixels, png
from recordmill.transforms.functional.images.geometry import geometry_of, oriented_size, target_size
from recordmill.transforms.functional.images.measures import MIN_HASHED_SIDE, thumbnail_of
from recordmill.transforms.functional.images.source_image import (
    MAX_WORK,
    SourceImage,
    can_load,
    examine,
    examine_in_process,
    open_with_pillow,
    opened,
    reject_damage,
)

# The result of `pass_through` for a file, or its error.
Kept: TypeAlias = "StoredImage | RecordError | None"

_MAX_SIDE = 1_000_000  # PNG_USER_WIDTH_MAX of libpng
_DRAFT_SCALES = (8, 4, 2)  # libjpeg's DCT also decodes at 1/8, 1/4 and 1/2

# Limit for measuring a PNG, whose check does not need all rows in memory: 100 MB in RGB.
_MAX_MEASURED_PIXELS = 2**25

# Limit for decoding a PNG in one piece: about 1 MB in RGB and alpha.
_MAX_PLAIN_PIXELS = 2**18
_MAX_PIXELS = 2**29 - 1  # limit of TensorFlow
_CHANNELS = {"L": 1, "I;16": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_CHANNELS |= {f"{mode};16": number for mode, number in _CHANNELS.items()}


def transcode(data: bytes, settings: ImageSettings, decode: Decode = "full") -> StoredImage:
    """Converts an image file to the image that a record stores.

    `decode`: for images that are not re-encoded, "full" to check all coded data, and "header" to
    check only the header. Raises RecordError if the file is not an image, is damaged or not
    supported, or exceeds a limit.
    """
    source = examine(data)
    _check_limits(source, settings)
    if _passes_through(source, settings):
        kept = _keep(data, source, settings, decode)
        if kept is not None:
            return kept
        source = source._replace(common=False)
    if settings.unsupported == "reject":
        raise RecordError(Reason.UNSUPPORTED_FORMAT, _reencoding_reason(source, settings))
    return _reencoded(data, source, settings)


def _pass_through_source(data: bytes, settings: ImageSettings) -> SourceImage | None:
    """Reads the header of an image that passes through and is safe to decode in this process.

    Safe images are within the work limits, and use only well-tested decoders. All others are
    decoded in a separate process, since their decoders can crash or hang. Returns the header, or
    None for other images. Raises RecordError if the header is damaged, or exceeds a limit.
    """
    source = examine_in_process(data)
    if source is None:
        return None
    _check_limits(source, settings)
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        return None  # the host program lets Pillow ignore damage
    return source if _passes_through(source, settings) and source.work <= MAX_WORK else None


def _check_limits(source: SourceImage, settings: ImageSettings) -> None:
    """Checks the size and the frames of an image.

    Raises RecordError (invalid_dimensions), too_many_pixels or animated if a limit is exceeded.
    """
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


def _passes_through(source: SourceImage, settings: ImageSettings) -> bool:
    """Returns whether a file can be stored without re-encoding."""
    return source.common and not any(
        required for _, required in _required_changes(source, settings)
    )


def _changes(source: SourceImage, settings: ImageSettings) -> list[str]:
    """Returns the names of the changes to an image that the settings require."""
    return [change for change, required in _required_changes(source, settings) if required]


def _required_changes(source: SourceImage, settings: ImageSettings) -> tuple[tuple[str, bool], ...]:
    # [(name, required)]. The names are published in manifest.json, so they must not change.
    gray = source.channels <= 2
    size = _upright_size(source, settings)
    return (
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


def _is_windowed(source: SourceImage, settings: ImageSettings) -> bool:
    is_deep_gray = source.channels <= 2 and source.bit_depth > 8
    return settings.window is not None and (is_deep_gray or bool(source.samples))


def _is_cut(settings: ImageSettings) -> bool:
    """Returns whether all samples are stored in 8 bits."""
    return settings.bit_depth == 8 or settings.format in ("jpeg", "raw")


def _upright_size(source: SourceImage, settings: ImageSettings) -> tuple[int, int]:
    size = (source.width, source.height)
    return oriented_size(size, source.orientation) if settings.orientation == "apply" else size


def _reencoding_reason(source: SourceImage, settings: ImageSettings) -> str:
    """Describes why an image cannot be stored without re-encoding."""
    changes = _changes(source, settings)
    if not source.common:
        return (
            f"{source.format} with mode {source.mode or 'unknown'} is not supported by every reader"
        )
    return f"{source.format}: requires re-encoding ({', '.join(changes)})"


def _keep(
    data: bytes, source: SourceImage, settings: ImageSettings, decode: Decode
) -> StoredImage | None:
    """Stores a file without re-encoding; only metadata may be removed.

    Returns the stored image; None if Pillow cannot open the file. `decode` is the parameter of
    `transcode`. Raises RecordError (truncated) or corrupt; too_many_pixels if there is not enough
    memory.
    """
    if source.format == "mpo":
        # An MPO is a JPEG followed by further images, of which only the first is stored.
        data = data[: jpeg.examine(data).end]
    if settings.strip_metadata:
        data = (png if source.format == "png" else jpeg).strip_metadata(data)
        source = source._replace(png=png.examine(data) if source.png else None)
    try:
        thumbnail = _check(data, source, decode)
    except MemoryError as error:
        raise RecordError(Reason.TOO_MANY_PIXELS, "not enough memory to decode it") from error
    if thumbnail is None:
        return None
    size = (source.width, source.height)
    return _stored(data, source.family, size, source.channels, source, "", thumbnail)


def pass_through(data: bytes, settings: ImageSettings, decode: Decode) -> StoredImage | None:
    """Stores a file without re-encoding, if it passes through and may be decoded in this process.

    Returns the stored image; None for all others. `decode` is the parameter of `transcode`. Raises
    RecordError if the image has to be rejected.
    """
    source = _pass_through_source(data, settings)
    return _keep(data, source, settings, decode) if source else None


def keep_all(files: Sequence[bytes], settings: ImageSettings, decode: Decode) -> list[Kept]:
    """Stores files without re-encoding, for another process.

    Returns for each file, the stored image, without bytes that are those of the file; the error of
    an image that has to be rejected; None for an image that does not pass through. `decode` is the
    parameter of `transcode`.
    """
    return [_kept(data, settings, decode) for data in files]


def _kept(data: bytes, settings: ImageSettings, decode: Decode) -> Kept:
    try:
        kept = pass_through(data, settings, decode)
    except RecordError as error:
        return error
    return kept._replace(data=b"") if kept and kept.data == data else kept


def _reencoded(data: bytes, source: SourceImage, settings: ImageSettings) -> StoredImage:
    """Decodes an image, applies the changes that the settings require, and encodes it again."""
    if source.png:
        # Pillow fails on some damaged metadata although the pixels are intact: remove it first.
        data = png.keep_pixel_data(data, source.png)
    elif source.family == "jpeg":
        data = jpeg.keep_pixel_data(data)
    with reject_damage():
        decoded = _oriented(_decoded(data, source, settings), source, settings)
        if _is_cut(settings):
            decoded = pixels.to_8_bits(decoded)
        if settings.alpha != "keep" or settings.format == "jpeg":
            decoded = pixels.without_alpha(decoded, settings.background)
        decoded = pixels.in_color(decoded, settings.color)
        decoded = _resized(decoded, source, settings)
        format_ = _stored_format(source, decoded, settings)
        encoded = pixels.encode(decoded, format_, settings.quality)
    how = ", ".join([f"{source.format} to {format_}", *_changes(source, settings)])
    channels = _CHANNELS[decoded.mode]
    return _stored(encoded, format_, decoded.size, channels, source, how, thumbnail_of(decoded))


def _decoded(data: bytes, source: SourceImage, settings: ImageSettings) -> pixels.Pixels:
    """Decodes an image; samples of more than 8 bits only to those that are stored."""
    is_windowed = _is_windowed(source, settings)
    with opened(data, source.family) as image, opened(data, source.family) as reopened:
        if source.samples:
            image.load()
            return deep.to_16_bits(image, source.samples, settings)
        if source.bit_depth <= 8 or (_is_cut(settings) and not is_windowed):
            image.load()
            return pixels.canonical(image, source.bit_depth)
        decoded = bands.decode(image, reopened)
    if not is_windowed:
        return decoded
    if isinstance(decoded, bands.Bands):
        return bands.Bands((deep.to_16_bits(decoded.bands[0], "", settings), *decoded.alpha))
    return deep.to_16_bits(decoded, "", settings)


def _stored_format(
    source: SourceImage, decoded: pixels.Pixels, settings: ImageSettings
) -> Encoding:
    """Returns the format of a re-encoded image.

    Pixels that were scaled have lost what a lossless copy of a JPEG would preserve, and as a PNG
    they would take more bytes than the JPEG did. Other changes to a JPEG are stored without loss.
    `decoded` is its pixels with all changes.
    """
    if settings.format != "keep":
        return settings.format
    is_resized = "resized" in _changes(source, settings)
    is_jpeg = source.family == "jpeg" and decoded.mode in ("L", "RGB")  # 8 bits
    return "jpeg" if is_resized and is_jpeg else "png"


def _oriented(image: pixels.Pixels, source: SourceImage, settings: ImageSettings) -> pixels.Pixels:
    """Returns an image upright or in its stored orientation, as the settings require."""
    # Pillow applies the orientation of a TIFF when it loads the pixels, but not that of a JPEG.
    if settings.orientation == "apply":
        return image if source.format == "tiff" else pixels.upright(image, source.orientation)
    return (
        pixels.to_stored_orientation(image, source.orientation)
        if source.format == "tiff"
        else image
    )


def _resized(image: pixels.Pixels, source: SourceImage, settings: ImageSettings) -> pixels.Pixels:
    """Crops, scales and pads an image to the size that the settings require."""
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
    thumbnail: bytes,
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
        thumbnail=thumbnail,
    )


def _check(data: bytes, source: SourceImage, decode: Decode) -> bytes | None:
    """Checks the coded data of a file.

    Returns a thumbnail, or b"" if the pixels were not decoded; None if Pillow cannot open the file.
    Raises RecordError (truncated) or corrupt if the coded data is damaged.
    """
    if source.png and _is_plain(source.png):
        return _plain_thumbnail(data, source.png) if decode == "full" else b""
    image = open_with_pillow(data, source.family)
    if image is None or image.size != (source.width, source.height):
        return None
    with image:
        if decode == "header":
            return b""
        if source.png is None:
            return _read_coded_data(image, data)
        if source.png.ends_with_pixels:
            return _read_rows(image, data, source.png)
        png.check_rows(data, source.png)
        return thumbnail_of(image) if can_load(image) else None


def _is_plain(header: png.PngHeader) -> bool:
    """Returns whether a PNG is small and consists of pixels that Pillow stores as they are."""
    return (
        header.only_pixels
        and header.depth == 8
        and header.mode != "P"
        and not header.interlaced
        and header.width * header.height <= _MAX_PLAIN_PIXELS
    )


def _plain_thumbnail(data: bytes, header: png.PngHeader) -> bytes:
    """Checks the image data of a plain PNG, and returns a thumbnail.

    Pillow's plugin would parse the same chunks again. All of them have been checked, so that it
    cannot fail, and calling its decoder takes a third less time. Raises RecordError (truncated) or
    corrupt if the image data is damaged.
    """
    rows = b"".join(png.stored(png.checked_rows(data, header)))
    size = (header.width, header.height)
    return thumbnail_of(Image.frombytes(header.mode, size, rows, "zip", header.mode))


def _read_rows(image: ImageFile.ImageFile, data: bytes, header: png.PngHeader) -> bytes:
    """Checks the image data of a PNG whose pixels are at its end, and decodes it for the measures.

    Returns a thumbnail; b"" if the image is too large, or if Pillow fails on it. Raises RecordError
    (truncated) or corrupt if the image data is damaged.
    """
    if header.width * header.height > _MAX_MEASURED_PIXELS:
        png.check_rows(data, header)
        return b""
    # Pillow gets the rows that have been decompressed for the check, so this is not done twice.
    rows = png.stored(png.checked_rows(data, header))
    image.load_read = lambda _: next(rows, b"")  # type: ignore[attr-defined]
    if not can_load(image):
        png.check_rows(data, header)
        return b""
    for _ in rows:  # Pillow stops at the last row, but readers fail on damage after it
        pass
    return thumbnail_of(image)


def _read_coded_data(image: ImageFile.ImageFile, data: bytes) -> bytes:
    """Checks the coded data of a JPEG by decoding it in gray at an eighth of its size.

    This reads all entropy-coded data but skips most of the inverse DCT, which takes a third less
    time than a full decode and detects the same damage. Only for SOF0, SOF1 and SOF2: for the
    lossless process, the scaled decode of Pillow 12.3 corrupts the heap. Returns a thumbnail.
    Raises RecordError (truncated) or corrupt if the coded data is damaged.
    """
    size = image.size
    # Small images are scaled down less, so that enough pixels remain for the thumbnail.
    scale = next((s for s in _DRAFT_SCALES if min(size) // s >= MIN_HASHED_SIDE), 1)
    with reject_damage():
        # Pillow decodes in blocks, and stops after the block with the last row: damage after it, on
        # which TensorFlow fails, would be missed. So the whole file is one block.
        image.decodermaxblock = len(data)
        drafted = image.draft("L", (size[0] // scale, size[1] // scale))
        image.load()
    return thumbnail_of(image, drafted[1] if drafted else None)
