"""Converts pixels: bit depth, color, alpha, orientation and size.

Images of 8 bits are Pillow images in the modes of PNG: L, LA, RGB and RGBA. Those of 16 bits, which
Pillow holds only in gray, are `Deep`: uint16 samples of (height, width, channels). Samples of other
types are measurements (Hounsfield units, meters, degrees), which are mapped to gray of 16 bits.
Only the user knows their range; a range of each image would give one value another gray in each.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageCms, ImageFile, PngImagePlugin, PpmImagePlugin, TiffImagePlugin

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_SIDE, Encoding, ImageSettings
from recordmill.transforms.functional.images.geometry import Geometry
from recordmill.transforms.functional.images.png import png_of_rows

FULL = 65_535
TIFF_SAMPLE_FORMAT = 339  # TIFF 6.0, section 19

# Pixels per side of a thumbnail: PDQ has these, and cleanvision scales images to them, too.
THUMBNAIL_SIDE = 64

# The side below which the highest frequency of the perceptual hash, 16 periods, has less than two
# pixels per period.
MIN_HASHED_SIDE = 32

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

# The same for arrays of (height, width) or (height, width, channels).
_TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}
_OTHER_ORDER = {"L": "B", "B": "L", "N": "B" if sys.byteorder == "little" else "L"}
_PAETH = 4  # PNG, section 9.2


class Deep(NamedTuple):
    """An image of 16 bits per sample."""

    samples: np.ndarray  # uint16, (height, width, channels): gray or RGB, then alpha if any
    is_clipped: bool = False  # whether values were outside the range that was mapped to 16 bits

    @property
    def size(self) -> tuple[int, int]:
        """The width and height in pixels."""
        height, width, _ = self.samples.shape
        return width, height

    @property
    def channels(self) -> int:
        """The number of channels, 1 to 4."""
        return int(self.samples.shape[2])

    @property
    def colors(self) -> np.ndarray:
        """The channels without alpha, (height, width, 1 or 3)."""
        return self.samples[:, :, : 1 if self.channels < 3 else 3]

    @property
    def alpha(self) -> np.ndarray:
        """The channel of alpha, (height, width, 1), or none, (height, width, 0)."""
        return self.samples[:, :, self.colors.shape[2] :]

    @property
    def share(self) -> np.ndarray:
        """The opacity from 0 to 1, (height, width, 1)."""
        return self.alpha / FULL if self.alpha.size else np.ones((*self.samples.shape[:2], 1))


Pixels: TypeAlias = "Image.Image | Deep"


def canonical(image: Image.Image, bit_depth: int = 8) -> Pixels:
    """Converts a decoded image, with `bit_depth` bits in its file, to a mode of PNG and to sRGB."""
    if image.mode in ("1", "L", "RGB", "I;16") and "transparency" in image.info:
        image = _with_alpha(image, image.info["transparency"], bit_depth)
    if image.mode.startswith("I") or image.mode == "F":
        return _gray16(image)
    if image.mode in ("1", "HSV", "La", "RGBa", "RGBX", "YCbCr", "P", "PA"):
        image = image.convert(_plain_mode(image))
    return _to_srgb(image)


def turned(array: np.ndarray, orientation: int) -> np.ndarray:
    """Applies an EXIF orientation to an array; values other than 2 to 8 are ignored."""
    turn = _TURNS.get(orientation)
    return turn(array) if turn else array


def upright(image: Pixels, orientation: int) -> Pixels:
    """Applies an EXIF orientation to an image; values other than 2 to 8 are ignored."""
    if isinstance(image, Deep):
        return Deep(turned(image.samples, orientation))
    method = _TRANSPOSE.get(orientation)
    return image if method is None else image.transpose(method)


def to_8_bits(image: Pixels) -> Image.Image:
    """Converts samples of 16 bits to 8: 65535 becomes 255, and 257 becomes 1."""
    if not isinstance(image, Deep):
        if image.mode != "I;16":
            return image
        image = Deep(np.asarray(image)[:, :, None])
    # round(value * 255 / 65535), in integers.
    values = ((image.samples.astype(np.uint32) * 255 + FULL // 2) // FULL).astype(np.uint8)
    return Image.fromarray(values[:, :, 0] if image.channels == 1 else values)


def without_alpha(image: Pixels, background: tuple[int, int, int] | None) -> Pixels:
    """Removes the alpha channel of an image; blends with a background of 8 bits unless it is None.

    Gray on a gray background remains gray; on another color, the result has three channels.
    """
    has_alpha = image.alpha.size if isinstance(image, Deep) else image.mode in ("LA", "RGBA")
    if not has_alpha:
        return image
    if isinstance(image, Deep):
        if background is None:
            return Deep(image.colors)
        levels = 257 * np.array(background)
        if image.channels == 2 and len(set(background)) == 1:
            levels = levels[:1]
        return mapped(image.colors * image.share + levels * (1 - image.share), 0, FULL)
    if background is None:
        return image.convert(image.mode[:-1])
    plain = Image.new("RGBA", image.size, (*background, 255))
    flat = Image.alpha_composite(plain, image.convert("RGBA")).convert("RGB")
    gray = image.mode == "LA" and len(set(background)) == 1
    return flat.convert("L") if gray else flat


def in_color(image: Pixels, color: str) -> Pixels:
    """Converts an image to RGB or gray, and keeps its alpha channel; "keep" changes nothing."""
    if isinstance(image, Deep):
        colors = image.colors
        if color == "rgb" and image.channels < 3:
            colors = colors.repeat(3, axis=2)
        elif color == "gray" and image.channels >= 3:  # the luma, by Pillow's weights
            luma = colors.astype(np.int64) @ (19_595, 38_470, 7_471)
            colors = (luma[:, :, None] + 0x8000 >> 16).astype(np.uint16)
        return Deep(np.concatenate([colors, image.alpha], axis=2))
    mode = {"rgb": "RGB", "gray": "L"}.get(color)
    if mode is None:
        return image
    return image.convert(f"{mode}A" if image.mode in ("LA", "RGBA") else mode)


def resized(image: Pixels, geometry: Geometry, method: str = "lanczos") -> Pixels:
    """Crops, scales and pads an image of the size `geometry.upright`, with black or transparent."""
    if geometry.size == image.size:
        return image
    if not isinstance(image, Deep):
        return _scaled(image, geometry, method)

    def scaled(planes: np.ndarray) -> np.ndarray:
        # Pillow does not resample 16-bit integers, but floats.
        floats = (Image.fromarray(plane) for plane in np.moveaxis(planes.astype(np.float32), 2, 0))
        return np.stack([np.asarray(_scaled(plane, geometry, method)) for plane in floats], axis=2)

    # Colors are weighted by alpha, as Pillow does, so that hidden colors do not show.
    weight = np.ones_like(image.share) if method == "nearest" else image.share
    colors = scaled(image.colors * weight) / np.maximum(scaled(weight), 1e-6)
    planes = [colors, scaled(image.alpha)] if image.alpha.size else [colors]
    return mapped(np.concatenate(planes, axis=2), 0, FULL)


def _scaled(image: Image.Image, geometry: Geometry, method: str) -> Image.Image:
    # The `box` argument resamples from the exact crop, without rounding it to pixels.
    left, top, right, bottom = map(float, geometry.crop)
    content = image.resize(geometry.content, _FILTERS[method], (left, top, right, bottom))
    if geometry.content == geometry.size:
        return content
    padded = Image.new(image.mode, geometry.size, 0)
    padded.paste(content, geometry.offset)
    return padded


def reduction_factor(size: tuple[int, int], side: int) -> int:
    """Returns the whole factor that reduces an image as far as its longest side remains `side`."""
    return max(1, max(size) // side)


def reduced(image: Image.Image, side: int) -> Image.Image:
    """Returns an image of 8 bits averaged over square blocks of pixels, by `reduction_factor`."""
    factor = reduction_factor(image.size, side)
    return image.reduce(factor) if factor > 1 else image


def thumbnail_of(image: Pixels, box: tuple[float, float, float, float] | None = None) -> bytes:
    """Returns the gray pixels of a thumbnail of 64 x 64 pixels, row by row; alpha is dropped.

    `image` may be scaled down. `box` (left, top, right, bottom) is the area of it that is the
    image: the scaled decode of a JPEG has whole blocks, hence up to one pixel more.
    """
    side = (THUMBNAIL_SIDE, THUMBNAIL_SIDE)
    if not isinstance(image, Deep) and image.mode.startswith("I;16"):
        image = Deep(np.asarray(image)[:, :, None])
    if isinstance(image, Deep) and image.channels < 3:
        # 256 levels of its own range: values of 12 bits would have 16 of them.
        plane = Image.fromarray(image.colors[:, :, 0].astype(np.float32))
        small = np.asarray(plane.resize(side, Image.Resampling.BILINEAR, box))
        levels = (small - small.min()) * (255 / max(np.ptp(small), 255))
        return bytes(np.rint(levels).astype(np.uint8).tobytes())
    plain = to_8_bits(image)
    gray = plain if plain.mode == "L" else plain.convert("L")
    return gray.resize(side, Image.Resampling.BILINEAR, box).tobytes()


def encode(image: Pixels, format_: Encoding, quality: int) -> bytes:
    """Encodes an image; "raw" is the samples themselves, and 16 bits are a PNG.

    No color profile is stored: readers assume sRGB, and profiles of lcms contain the current time.
    """
    if isinstance(image, Deep):
        if image.channels > 1:
            return _encode_deep(image.samples)
        image = Image.fromarray(np.ascontiguousarray(image.samples[:, :, 0]))
    if format_ == "raw":
        return np.asarray(image).tobytes()
    stream = io.BytesIO()
    if format_ == "jpeg":
        if max(image.size) > MAX_SIDE:
            detail = f"{image.width} x {image.height} pixels; JPEG allows up to {MAX_SIDE} per side"
            raise RecordError(Reason.INVALID_DIMENSIONS, detail)
        subsampling = "4:4:4" if quality >= 90 else "4:2:0"  # of chroma: none for high quality
        image.save(stream, "JPEG", quality=quality, subsampling=subsampling)
    else:
        image.save(stream, "PNG", icc_profile=None)
    return stream.getvalue()


def _encode_deep(samples: np.ndarray) -> bytes:
    height, width, channels = samples.shape
    rows = samples.astype(">u2").reshape(height, -1).view(np.uint8)
    filtered = np.insert(_paeth(rows, 2 * channels), 0, _PAETH, axis=1)
    return png_of_rows(width, height, 16, channels, filtered.tobytes())


def _paeth(rows: np.ndarray, pixel: int) -> np.ndarray:
    """Applies the Paeth filter to rows of bytes; a pixel has a number of bytes (section 9.4)."""
    padded = np.pad(rows, ((1, 0), (pixel, 0))).astype(np.int16)
    left, above, corner = padded[1:, :-pixel], padded[:-1, pixel:], padded[:-1, :-pixel]
    estimate = left + above - corner
    by_left, by_above = abs(estimate - left), abs(estimate - above)
    by_corner = abs(estimate - corner)
    nearest = np.where(by_above <= by_corner, above, corner)
    nearest = np.where((by_left <= by_above) & (by_left <= by_corner), left, nearest)
    return (rows - nearest).astype(np.uint8)


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


def _to_srgb(image: Image.Image) -> Image.Image:
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
    """Builds the transform from a profile to sRGB, which takes 6 ms."""
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


def _gray16(image: Image.Image) -> Deep:
    """Returns gray of 16 bits; values that are no integers from 0 to 65535 by their range."""
    values = _values_of(image)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if values.dtype.kind in "ui" and low >= 0 and high <= FULL:
        return Deep(values.astype(np.uint16))
    return mapped(np.nan_to_num(values, nan=low), low, high)


def mapped(values: np.ndarray, low: float, high: float) -> Deep:
    """Maps values linearly to 16 bits: `low` to 0 and `high` to 65535; others are clipped."""
    span, is_clipped = (high - low) or 1, bool(values.min() < low or values.max() > high)
    scaled = (np.clip(values.astype(np.float64), low, high) - low) * (FULL / span)
    return Deep(np.rint(scaled).astype(np.uint16), is_clipped)


def measured(image: Image.Image, samples: str, settings: ImageSettings) -> Deep:
    """Maps the values of a loaded gray image to 16 bits, by the window or per image."""
    values = _values_of(image)
    invalid = int(np.count_nonzero(~np.isfinite(values))) if values.dtype.kind == "f" else 0
    finite = values[np.isfinite(values)] if invalid else values
    found = "without any number"
    if finite.size:
        found = f"with values from {finite.min():g} to {finite.max():g}"
    if settings.window is None and settings.rescale is None:
        raise RecordError(
            Reason.UNSUPPORTED_FEATURE,
            f"{samples} samples {found}; expected unsigned samples of up to 16 bits. Set the range "
            "of all images with --image window=LOW:HIGH, or map each to its own range with --image "
            "rescale=per_image.",
        )
    if invalid:
        detail = f"{invalid:,} NaN or infinite values in {samples} samples {found}"
        remedy = "Replace them by numbers"
        raise RecordError(Reason.UNSUPPORTED_FEATURE, f"{detail}; expected numbers. {remedy}.")
    low, high = settings.window or (float(finite.min()), float(finite.max()))
    return mapped(values, low, high)


def _values_of(image: Image.Image) -> np.ndarray:
    """Returns the values of a loaded gray image, (height, width, 1), in the type of the file."""
    values = np.asarray(image)[:, :, None]
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return values
    is_signed = image.tag_v2.get(TIFF_SAMPLE_FORMAT, (1,))[0] == 2
    # Pillow reads unsigned 32-bit integers as signed ones, and signed 8-bit integers as unsigned.
    if image.mode == "I" and not is_signed:
        return values.view(np.uint32)
    return values.view(np.int8) if image.mode == "L" and is_signed else values


def decode_deep(image: ImageFile.ImageFile, reopened: ImageFile.ImageFile) -> Deep:
    """Decodes an image of 16 bits per sample that was opened twice, and is not loaded."""
    is_gray = image.mode.startswith("I")
    if not is_gray and "icc_profile" in image.info and not _is_srgb(image.info["icc_profile"]):
        raise _not_kept("a color profile other than sRGB")
    clear = image.info.get("transparency")
    samples = read_samples(image, reopened)
    if clear is not None:  # PNG, section 11.3.1.1: the transparent color, in 16 bits
        opaque = (samples != np.atleast_1d(clear)).any(axis=2, keepdims=True)
        samples = np.concatenate([samples, np.where(opaque, FULL, 0)], axis=2)
    return Deep(samples.astype(np.uint16))


def read_samples(image: ImageFile.ImageFile, reopened: ImageFile.ImageFile) -> np.ndarray:
    """Returns the 16-bit samples of an image that was opened twice: (height, width, channels).

    Pillow decodes color to the high bytes of its samples. With the other byte order, the same
    decoder returns the low bytes.
    """
    if image.mode.startswith("I"):
        return _loaded(image)[:, :, None]
    if isinstance(image, PpmImagePlugin.PpmImageFile):
        return _ppm(image)
    raw = {str(tile.args[0] if isinstance(tile.args, tuple) else tile.args) for tile in image.tile}
    mode = raw.pop() if len(raw) == 1 else ""
    if mode == "LA;16B" and isinstance(image, PngImagePlugin.PngImageFile):
        _set_raw_mode(image, "RGBA")  # both bytes of gray, then of alpha
        both = _loaded(image).astype(np.uint16)
        return np.asarray(both[:, :, ::2] << 8 | both[:, :, 1::2])
    layout, _, order = mode.partition(";16")
    if layout not in ("RGB", "RGBX", "RGBA") or order not in _OTHER_ORDER:
        raise _not_kept(f"{image.mode} of more than 8 bits")
    _set_raw_mode(reopened, f"{layout};16{_OTHER_ORDER[order]}")
    return np.asarray(_loaded(image).astype(np.uint16) << 8 | _loaded(reopened))


def _loaded(image: ImageFile.ImageFile) -> np.ndarray:
    image.load()
    return np.asarray(image)


def _set_raw_mode(image: ImageFile.ImageFile, mode: str) -> None:
    image.tile = [
        tile._replace(args=(mode, *tile.args[1:]) if isinstance(tile.args, tuple) else mode)
        for tile in image.tile
    ]


def _ppm(image: PpmImagePlugin.PpmImageFile) -> np.ndarray:
    """Returns the samples of a binary PPM, scaled to 65535 as Pillow does for PGM."""
    (tile,) = image.tile
    if tile.codec_name != "ppm" or not isinstance(tile.args, tuple) or not image.fp:
        raise _not_kept("PPM in text")
    image.fp.seek(tile.offset)
    size = 2 * 3 * image.width * image.height
    data = image.fp.read(size)
    if len(data) < size:
        raise RecordError(Reason.TRUNCATED, "the file ends before the last row")
    samples = np.frombuffer(data, ">u2")
    scaled = np.rint(np.minimum(samples / tile.args[1], 1) * FULL)
    return np.asarray(scaled.reshape(image.height, image.width, 3))


def _not_kept(what: str) -> RecordError:
    detail = f"{what}, of which 16 bits cannot be kept. Reduce it to 8 with --image bit_depth=8."
    return RecordError(Reason.UNSUPPORTED_FEATURE, detail)


def _is_srgb(profile: bytes) -> bool:
    try:
        return "sRGB" in ImageCms.getProfileDescription(
            ImageCms.ImageCmsProfile(io.BytesIO(profile))
        )
    except (ImageCms.PyCMSError, OSError):
        return True  # as for images of 8 bits, a damaged profile is ignored
