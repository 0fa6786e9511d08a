"""Color and alpha of 16 bits per sample, which Pillow holds only in gray: one image per band.

Pillow decodes such a file to the high bytes of its samples. With the other byte order, the same
decoder returns the low bytes.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageCms, ImageFile, PngImagePlugin, PpmImagePlugin

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.deep import FULL, mapped
from recordmill.transforms.functional.images.png import join_chunks, new_chunk

_MODES = {2: "LA;16", 3: "RGB;16", 4: "RGBA;16"}
_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG, table 12, by number of channels
_OTHER_ORDER = {"L": "B", "B": "L", "N": "B" if sys.byteorder == "little" else "L"}
_PAETH = 4  # PNG, section 9.2


class Bands(NamedTuple):
    """An image of 2 to 4 channels of 16 bits."""

    # The channels, gray or red, green and blue, then alpha; each of mode I;16.
    bands: tuple[Image.Image, ...]

    @property
    def mode(self) -> str:
        """The mode, such as "RGBA;16"."""
        return _MODES[len(self.bands)]

    @property
    def size(self) -> tuple[int, int]:
        """The width and height in pixels."""
        return self.bands[0].size

    @property
    def has_alpha(self) -> bool:
        """Whether the last band is alpha."""
        return len(self.bands) in (2, 4)

    @property
    def colors(self) -> tuple[Image.Image, ...]:
        """The bands without alpha."""
        return self.bands[:-1] if self.has_alpha else self.bands

    @property
    def alpha(self) -> tuple[Image.Image, ...]:
        """The band of alpha, or none."""
        return self.bands[len(self.colors) :]

    def map(self, change: Callable[..., Image.Image], *args: Any) -> Bands:
        """Returns the image with a change to each band."""
        return Bands(tuple(change(band, *args) for band in self.bands))

    def without_alpha(self, background: tuple[int, int, int] | None) -> Image.Image | Bands:
        """Returns the colors, blended with a background of 8 bits unless it is None."""
        if background is None or not self.has_alpha:
            return _joined(self.colors)
        # Gray on a gray background remains gray; on another color, the result has three channels.
        gray = len(self.colors) == 1 and len(set(background)) == 1
        colors = self.colors if gray or len(self.colors) == 3 else self.colors * 3
        share = np.asarray(self.alpha[0]) / FULL
        return _joined(
            tuple(
                mapped(np.asarray(color) * share + 257 * level * (1 - share), 0, FULL)
                for color, level in zip(colors, background, strict=False)
            )
        )

    def in_gray(self) -> Image.Image | Bands:
        """Returns the luma of color, by Pillow's weights, with alpha."""
        if len(self.colors) == 1:
            return self
        red, green, blue = (np.asarray(band, np.int64) for band in self.colors)
        luma = (red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16
        return _joined((Image.fromarray(luma.astype(np.uint16)), *self.alpha))

    def encoded(self) -> bytes:
        """Returns the image as a PNG."""
        width, height = self.size
        samples = np.stack([np.asarray(band) for band in self.bands], axis=2).astype(">u2")
        rows = samples.reshape(height, -1).view(np.uint8)
        filtered = np.insert(_paeth(rows, 2 * len(self.bands)), 0, _PAETH, axis=1)
        header = struct.pack(">IIBBBBB", width, height, 16, _COLOR_TYPES[len(self.bands)], 0, 0, 0)
        chunks = {b"IHDR": header, b"IDAT": zlib.compress(filtered.tobytes()), b"IEND": b""}
        return join_chunks(new_chunk(name, data) for name, data in chunks.items())


def _joined(bands: tuple[Image.Image, ...]) -> Image.Image | Bands:
    """Returns the image of bands: a Pillow image if there is only one."""
    return bands[0] if len(bands) == 1 else Bands(bands)


def in_rgb(image: Image.Image | Bands) -> Bands:
    """Returns gray of 16 bits as three equal bands, with alpha; color as it is."""
    if isinstance(image, Bands):
        return image if len(image.colors) == 3 else Bands((*image.colors * 3, *image.alpha))
    return Bands((image, image, image))


def decode(image: ImageFile.ImageFile, reopened: ImageFile.ImageFile) -> Image.Image | Bands:
    """Decodes an opened image of 16 bits per sample.

    `image` is the image, whose pixels are not loaded. Raises RecordError (unsupported_feature) if
    16 bits cannot be kept.
    """
    is_gray = image.mode.startswith("I")
    if not is_gray and "icc_profile" in image.info and not _is_srgb(image.info["icc_profile"]):
        raise _not_kept("a color profile other than sRGB")
    clear = image.info.get("transparency")
    samples = read_samples(image, reopened)
    if clear is not None:  # PNG, section 11.3.1.1: the transparent color, in 16 bits
        opaque = (samples != np.atleast_1d(clear)).any(axis=2, keepdims=True)
        samples = np.concatenate([samples, np.where(opaque, FULL, 0)], axis=2)
    channels = np.moveaxis(samples.astype(np.uint16), 2, 0)
    return _joined(tuple(Image.fromarray(np.ascontiguousarray(band)) for band in channels))


def read_samples(image: ImageFile.ImageFile, reopened: ImageFile.ImageFile) -> np.ndarray:
    """Returns the 16-bit samples of an image that was opened twice: (height, width, channels)."""
    if image.mode.startswith("I"):
        return _loaded(image)[:, :, None]
    if isinstance(image, PpmImagePlugin.PpmImageFile):
        return _ppm(image)
    raw = {_raw_mode(tile.args) for tile in image.tile}
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


def _raw_mode(args: Any) -> str:
    return str(args[0] if isinstance(args, tuple) else args)


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
