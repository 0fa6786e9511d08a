"""Images for tests, drawn by code and encoded in memory: the same arguments give the same bytes.

    jpeg(width, height, seed)          an ordinary JPEG
    png(width, height, seed)           a PNG; `png_16_bit` for two bytes per sample
    image_bytes("GIF", width, height)  any other format that Pillow writes
    jpeg_header(width, height)         the markers of a JPEG, without pixel data
    png_header(width, height)          the same of a PNG

`pixels` returns the drawn samples. Sizes are in pixels.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageCms

_CHANNELS = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3}
_PNG_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # of so many channels, none of them a palette

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
SWAPPED = (
    SRGB.replace(b"rXYZ", b"????", 1).replace(b"gXYZ", b"rXYZ", 1).replace(b"????", b"gXYZ", 1)
)
"""An sRGB profile with red and green swapped."""


def pixels(width: int, height: int, seed: int = 0, channels: int = 3) -> np.ndarray:
    """Returns gradients with noise: uint8, (height, width, channels).

    Gradients compress well, and noise makes the image of each seed unique.
    """
    random = np.random.default_rng(seed)
    rows = np.linspace(0, 160, height)[:, None, None]
    columns = np.linspace(0, 60, width)[None, :, None]
    noise = random.integers(0, 36, (height, width, channels))
    return (
        (random.permutation(channels) * 20 % 60 // 2 + rows + columns + noise)
        .clip(0, 255)
        .astype(np.uint8)
    )


def image(width: int, height: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Returns a Pillow image of these pixels, in one of Pillow's 8-bit modes, P or 1."""
    drawn = pixels(width, height, seed, _CHANNELS[mode])
    if mode in ("1", "P"):
        return Image.fromarray(drawn[:, :, 0], "L").convert(mode)
    return Image.frombytes(mode, (width, height), drawn.tobytes())


def jpeg(
    width: int = 16,
    height: int = 12,
    seed: int = 0,
    mode: str = "RGB",
    *,
    progressive: bool = False,
    exif_orientation: int | None = None,
    **options: Any,
) -> bytes:
    """Returns a JPEG; `options` go to Pillow: quality, subsampling, restart_marker_blocks, …"""
    return image_bytes(
        "JPEG",
        width,
        height,
        seed,
        mode,
        progressive=progressive,
        **_exif(exif_orientation),
        **options,
    )


def png(
    width: int = 16,
    height: int = 12,
    seed: int = 0,
    mode: str = "RGB",
    *,
    exif_orientation: int | None = None,
    **options: Any,
) -> bytes:
    """Returns a PNG; `options` go to Pillow: transparency, compress_level, …"""
    return image_bytes("PNG", width, height, seed, mode, **_exif(exif_orientation), **options)


def image_bytes(
    format_: str,
    width: int = 16,
    height: int = 12,
    seed: int = 0,
    mode: str = "RGB",
    **options: Any,
) -> bytes:
    """Returns an image in any format that Pillow writes: "GIF", "BMP", "WEBP", "TIFF", …"""
    encoded = io.BytesIO()
    image(width, height, seed, mode).save(encoded, format_, **options)
    return encoded.getvalue()


def png_16_bit(width: int = 16, height: int = 12, seed: int = 0, channels: int = 3) -> bytes:
    """Returns a PNG of 16 bits per sample and 1 to 4 channels; Pillow cannot write most of them."""
    samples = pixels(width, height, seed, channels).astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in samples)
    header = png_header(width, height, bit_depth=16, color_type=_PNG_COLOR_TYPES[channels])
    return header + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")


def png_header(width: int, height: int, bit_depth: int = 8, color_type: int = 2) -> bytes:
    """Returns the signature and header of a PNG of any size."""
    stated = struct.pack(">IIBBBBB", width, height, bit_depth, color_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", stated)


def png_chunk(name: bytes, content: bytes) -> bytes:
    """Returns one chunk of a PNG, with its checksum."""
    checksum = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)


def jpeg_header(
    width: int, height: int, *, process: int = 0, precision: int = 8, components: int = 3
) -> bytes:
    """Returns the markers of a JPEG of any size and process (SOFn), without pixel data."""
    frame = struct.pack(">BHHB", precision, height, width, components)
    frame += b"".join(bytes([i + 1, 0x11, 0]) for i in range(components))
    scan = bytes([components]) + b"".join(bytes([i + 1, 0]) for i in range(components)) + b"\0?\0"
    segments = jpeg_segment(0xC0 + process, frame) + jpeg_segment(0xDA, scan)
    return b"\xff\xd8" + segments + b"\xff\xd9"


def jpeg_segment(marker: int, content: bytes) -> bytes:
    """Returns one segment of a JPEG: marker, length and content."""
    return bytes([0xFF, marker]) + struct.pack(">H", 2 + len(content)) + content


def _exif(orientation: int | None) -> dict[str, Any]:
    if orientation is None:
        return {}
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return {"exif": exif}
