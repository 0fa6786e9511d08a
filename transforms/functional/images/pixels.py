"""Converts pixels: bit depth, color, alpha, orientation and size.

The functions take and return Pillow images in the modes of PNG: L, LA, RGB, RGBA and I;16 (16-bit
gray), and `Bands` for color and alpha of 16 bits. Samples of more bits are scaled, whereas Pillow's
`convert` clips them at 255.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageCms

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_SIDE, Encoding
from recordmill.transforms.functional.images import deep
from recordmill.transforms.functional.images.bands import Bands, in_rgb
from recordmill.transforms.functional.images.geometry import Geometry, inverse_orientation

Pixels: TypeAlias = "Image.Image | Bands"

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")


def canonical(image: Image.Image, bit_depth: int = 8) -> Image.Image:
    """Converts a decoded image to one of the five modes and to sRGB.

    `bit_depth` is the bits per sample in the file, which is the depth of a transparent color.
    """
    if image.mode in ("1", "L", "RGB", "I;16") and "transparency" in image.info:
        image = _with_alpha(image, image.info["transparency"], bit_depth)
    if image.mode in _DEEP:
        return _gray16(image)
    if image.mode in ("1", "HSV", "La", "RGBa", "RGBX", "YCbCr", "P", "PA"):
        image = image.convert(_plain_mode(image))
    return _to_srgb(image)


def upright(image: Pixels, orientation: int) -> Pixels:
    """Applies an EXIF orientation to an image.

    `orientation` is the orientation, from 1 to 8; other values are ignored.
    """
    method = _TRANSPOSE.get(orientation)
    if method is None:
        return image
    if isinstance(image, Bands):
        return image.map(Image.Image.transpose, method)
    return image.transpose(method)


def to_stored_orientation(image: Pixels, orientation: int) -> Pixels:
    """Reverts the EXIF orientation of an upright image.

    `orientation` is the orientation of the file, from 1 to 8.
    """
    return upright(image, inverse_orientation(orientation))


def to_8_bits(image: Pixels) -> Image.Image:
    """Converts samples of 16 bits to 8: 65535 becomes 255, and 257 becomes 1."""
    if isinstance(image, Bands):
        return Image.merge(image.mode.removesuffix(";16"), image.map(to_8_bits).bands)
    if image.mode != "I;16":
        return image
    # round(value * 255 / 65535), in integers.
    values = np.asarray(image, dtype=np.uint32)
    return Image.fromarray(((values * 255 + deep.FULL // 2) // deep.FULL).astype(np.uint8))


def without_alpha(image: Pixels, background: tuple[int, int, int] | None) -> Pixels:
    """Removes the alpha channel of an image.

    `image` is an image with or without alpha. `background` is the RGB color to blend with; None to
    drop alpha without blending.
    """
    if isinstance(image, Bands):
        return image.without_alpha(background)
    if image.mode not in ("LA", "RGBA"):
        return image
    if background is None:
        return image.convert(image.mode[:-1])
    plain = Image.new("RGBA", image.size, (*background, 255))
    flat = Image.alpha_composite(plain, image.convert("RGBA")).convert("RGB")
    # Gray on a gray background remains gray; on another color, the result has three channels.
    gray = image.mode == "LA" and len(set(background)) == 1
    return flat.convert("L") if gray else flat


def in_color(image: Pixels, color: str) -> Pixels:
    """Converts an image to RGB or gray, and keeps its alpha channel.

    `color`: "rgb", "gray", or "keep" for no change.
    """
    if isinstance(image, Bands) or image.mode == "I;16":
        if color == "rgb":
            return in_rgb(image)
        return image.in_gray() if color == "gray" and isinstance(image, Bands) else image
    alpha = image.mode in ("LA", "RGBA")
    if color == "rgb":
        return image.convert("RGBA" if alpha else "RGB")
    if color == "gray":
        return image.convert("LA" if alpha else "L")
    return image


def resized(image: Pixels, geometry: Geometry, method: str = "lanczos", fill: int = 0) -> Pixels:
    """Crops, scales and pads an upright image.

    `image` is an image of the size `geometry.upright`. `method` is the resampling filter, as in
    `Resize.filter`. `fill` is the value of padding; 0 is black and transparent.
    """
    if geometry.size == image.size:
        return image
    if isinstance(image, Bands):
        return _resized_bands(image, geometry, method, fill)
    # Pillow does not resample 16-bit integers, but floats.
    if image.mode == "I;16":
        return deep.mapped(
            np.asarray(_scaled(image.convert("F"), geometry, method, fill)), 0, deep.FULL
        )
    return _scaled(image, geometry, method, fill)


def _scaled(image: Image.Image, geometry: Geometry, method: str, fill: int) -> Image.Image:
    # The `box` argument resamples from the exact crop, without rounding it to pixels.
    left, top, right, bottom = map(float, geometry.crop)
    content = image.resize(geometry.content, _FILTERS[method], (left, top, right, bottom))
    if geometry.content == geometry.size:
        return content
    padded = Image.new(image.mode, geometry.size, fill)
    padded.paste(content, geometry.offset)
    return padded


def _resized_bands(image: Bands, geometry: Geometry, method: str, fill: int) -> Bands:
    """Resizes colors weighted by alpha, as Pillow does, so that hidden colors do not show."""
    weight = np.asarray(image.alpha[0]) / deep.FULL if image.has_alpha else np.ones(1)
    if method == "nearest":
        weight = np.ones(1)

    def scaled(values: np.ndarray) -> np.ndarray:
        plane = Image.fromarray(np.broadcast_to(values, image.size[::-1]).astype(np.float32))
        return np.asarray(_scaled(plane, geometry, method, fill))

    total = np.maximum(scaled(weight), 1e-6)
    colors = [scaled(np.asarray(band) * weight) / total for band in image.colors]
    planes = [*colors, *(scaled(np.asarray(band)) for band in image.alpha)]
    return Bands(tuple(deep.mapped(plane, 0, deep.FULL) for plane in planes))


def encode(image: Pixels, format_: Encoding, quality: int) -> bytes:
    """Encodes an image.

    No color profile is stored: readers assume sRGB, and profiles of lcms contain the current time.
    `format_` is the format; "raw" for the samples themselves. Raises RecordError
    (invalid_dimensions) if a side exceeds the limit of JPEG.
    """
    if isinstance(image, Bands):
        return image.encoded()
    if format_ == "raw":
        return np.asarray(image).tobytes()
    stream = io.BytesIO()
    if format_ == "jpeg":
        if max(image.size) > MAX_SIDE:
            detail = f"{image.width} x {image.height} pixels; JPEG allows up to {MAX_SIDE} per side"
            raise RecordError(Reason.INVALID_DIMENSIONS, detail)
        image.save(stream, "JPEG", quality=quality, subsampling=_subsampling(quality))
    else:
        image.save(stream, "PNG", icc_profile=None)
    return stream.getvalue()


def _subsampling(quality: int) -> str:
    """Returns the chroma subsampling of a quality: none for high quality."""
    return "4:4:4" if quality >= 90 else "4:2:0"


def _plain_mode(image: Image.Image) -> str:
    """Returns the mode of PNG that an image converts to without loss."""
    if image.mode == "1":
        return "L"
    if image.mode == "La":
        return "LA"
    transparent = image.mode in ("PA", "RGBa") or "transparency" in image.info
    return "RGBA" if transparent else "RGB"


def _with_alpha(
    image: Image.Image, clear: int | tuple[int, ...] | bytes, bit_depth: int
) -> Image.Image:
    """Converts the transparent color of an image to an alpha channel of 8 bits."""
    key = np.atleast_1d(np.asarray(clear if not isinstance(clear, bytes) else list(clear)))
    # PNG, section 11.3.1.1: tRNS has the bit depth of the file. Pillow reduces 16-bit RGB to its
    # high bytes, and scales gray of 2 and 4 bits to 0…255: do the same to the transparent color.
    if bit_depth == 16 and image.mode == "RGB":
        key = key >> 8
    elif bit_depth < 8 and image.mode == "L":
        key = key * 255 // (2**bit_depth - 1)
    plain = image.convert("L") if image.mode == "1" else image
    samples = np.asarray(plain).reshape(image.height, image.width, -1)
    alpha = Image.fromarray(np.where((samples == key).all(axis=2), 0, 255).astype(np.uint8))
    opaque = to_8_bits(plain).copy()
    opaque.info.pop("transparency", None)
    opaque.putalpha(alpha)
    return opaque


def _gray16(image: Image.Image) -> Image.Image:
    """Returns gray of 16 bits; values that are no integers from 0 to 65535 by their range."""
    values = deep.values_of(image)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if values.dtype.kind in "ui" and low >= 0 and high <= deep.FULL:
        return Image.fromarray(values.astype(np.uint16))
    return deep.mapped(np.nan_to_num(values, nan=low), low, high)


def _to_srgb(image: Image.Image) -> Image.Image:
    """Converts an image to sRGB by its color profile, or by Pillow's formulas without a profile."""
    profile = image.info.get("icc_profile")
    converted = _by_profile(image, profile) if profile else None
    if converted is not None:
        return converted
    if image.mode == "LAB":
        lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        made = ImageCms.profileToProfile(image, lab, srgb, outputMode="RGB")
        return made if made is not None else image.convert("RGB")
    return image.convert("RGB") if image.mode not in ("L", "LA", "RGB", "RGBA") else image


@lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform:
    """Returns the transform from a profile to sRGB, cached since it takes 6 ms to build."""
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")


def _by_profile(image: Image.Image, profile: bytes) -> Image.Image | None:
    """Converts an image to sRGB; returns None if its profile is damaged or for another mode."""
    alpha = image.getchannel("A") if image.mode in ("LA", "RGBA") else None
    opaque = image.convert(image.mode[:-1]) if alpha else image
    try:
        made = ImageCms.applyTransform(opaque, _transform(profile, opaque.mode))
    except (ImageCms.PyCMSError, OSError):
        return None
    if made is None:
        return None
    made = made.convert("L") if opaque.mode == "L" else made
    if alpha:
        made.putalpha(alpha)
    return made
