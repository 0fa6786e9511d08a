"""Converts samples that 16 bits cannot hold: signed and 32-bit integers, and floats.

Their values are measurements (Hounsfield units, meters, degrees), which a record stores as unsigned
16-bit gray. Only the user knows the range; a range of each image would give one value another gray
in each of them.
"""

from __future__ import annotations

import io
import struct
from itertools import cycle

import numpy as np
from PIL import Image, PpmImagePlugin, TiffImagePlugin

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings

FULL = 65_535
_BITS_PER_SAMPLE, _SAMPLE_FORMAT = 258, 339  # TIFF 6.0, tags
_KINDS = {1: "unsigned", 2: "signed", 3: "float"}  # TIFF 6.0, section 19: SampleFormat
_CODESTREAM = b"\xff\x4f\xff\x51"  # JPEG 2000: markers of the start and the size
_COMPONENTS = struct.Struct(">HB")  # number of components, sign and depth of the first


def sample_type(image: Image.Image, data: bytes) -> str:
    """Returns the type of samples that are not unsigned integers of up to 16 bits, or "".

    Pillow's mode is not enough: unsigned PGM has mode I, and signed 8-bit TIFF has mode L.
    """
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = image.tag_v2.get(_BITS_PER_SAMPLE, (1,))[0]
        kind = _KINDS.get(image.tag_v2.get(_SAMPLE_FORMAT, (1,))[0], "undefined")
        return f"{kind} {bits}-bit" if kind != "unsigned" or bits > 16 else ""
    if image.format == "JPEG2000":
        bits, signed = _of_jpeg_2000(data)
        return f"signed {bits}-bit" if signed and len(image.getbands()) == 1 else ""
    return "float 32-bit" if image.mode == "F" else ""


def sample_bits(image: Image.Image, data: bytes) -> int:
    """Returns the bits per sample in the file, which Pillow's mode hides for color; at least 8."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return int(max(8, *image.tag_v2.get(_BITS_PER_SAMPLE, (1,))))
    if image.format == "JPEG2000":
        return max(8, _of_jpeg_2000(data)[0])
    if isinstance(image, PpmImagePlugin.PpmImageFile) and image.mode in ("I", "RGB"):
        args = image.tile[0].args  # "RGB", or ("RGB", largest value)
        return 16 if image.mode == "I" or (isinstance(args, tuple) and args[1] > 255) else 8
    if image.format == "AVIF":
        return _of_avif(data)
    return 8


def tiff_layout(data: bytes) -> str:
    """Describes the samples of a TIFF whose layout Pillow does not decode."""
    stream = io.BytesIO(data)
    is_big = data[2:3] == b"+" or data[3:4] == b"+"
    tags = TiffImagePlugin.ImageFileDirectory_v2(stream.read(16 if is_big else 8))
    stream.seek(tags.next)
    tags.load(stream)
    bits, kinds = tags.get(_BITS_PER_SAMPLE, (1,)), tags.get(_SAMPLE_FORMAT, (1,))
    names = [_KINDS.get(kind, "undefined") for kind in kinds]
    samples = dict.fromkeys(f"{name} {n}-bit" for n, name in zip(bits, cycle(names), strict=False))
    return f"TIFF of {len(bits)} x {', '.join(samples)} samples per pixel"


def _of_jpeg_2000(data: bytes) -> tuple[int, bool]:
    """Returns bits per sample and whether samples are signed (ISO/IEC 15444-1, A.5.1)."""
    start = data.find(_CODESTREAM)
    _, depth = _COMPONENTS.unpack_from(data.ljust(start + 43, b"\0"), start + 40)
    return (depth & 0x7F) + 1, bool(depth & 0x80)


def _of_avif(data: bytes) -> int:
    """Returns bits per sample in the first `av1C` box (AV1 in ISOBMFF, section 2.3.3)."""
    flags = data[data.find(b"av1C\x81") :][6:7]
    if not flags or not flags[0] & 0x40:  # high_bitdepth
        return 8
    return 12 if flags[0] & 0x20 else 10


def to_16_bits(image: Image.Image, samples: str, settings: ImageSettings) -> Image.Image:
    """Maps the values of a loaded gray image to 16 bits, by the window or per image.

    Raises RecordError (unsupported_feature) without either setting, or for NaN and infinite values.
    """
    values = values_of(image)
    if not samples and settings.window is None:
        return Image.fromarray(values.astype(np.uint16))
    invalid = int(np.count_nonzero(~np.isfinite(values))) if values.dtype.kind == "f" else 0
    finite = values[np.isfinite(values)] if invalid else values
    found = "without any number"
    if finite.size:
        found = f"with values from {finite.min():g} to {finite.max():g}"
    if settings.window is None and settings.rescale is None:
        raise RecordError(Reason.UNSUPPORTED_FEATURE, _unmapped(samples, found))
    if invalid:
        detail = f"{invalid:,} NaN or infinite values in {samples} samples {found}"
        remedy = "Replace them by numbers"
        raise RecordError(Reason.UNSUPPORTED_FEATURE, f"{detail}; expected numbers. {remedy}.")
    low, high = settings.window or (float(finite.min()), float(finite.max()))
    return mapped(values, low, high)


def mapped(values: np.ndarray, low: float, high: float) -> Image.Image:
    """Maps values linearly to 16-bit gray: `low` to 0 and `high` to 65535; others are clipped."""
    span = (high - low) or 1
    scaled = (np.clip(values.astype(np.float64), low, high) - low) * (FULL / span)
    return Image.fromarray(np.rint(scaled).astype(np.uint16))


def values_of(image: Image.Image) -> np.ndarray:
    """Returns the values of a loaded gray image: (height, width), in the type of the file."""
    values = np.asarray(image)
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return values
    is_signed = image.tag_v2.get(_SAMPLE_FORMAT, (1,))[0] == 2
    # Pillow reads unsigned 32-bit integers as signed ones, and signed 8-bit integers as unsigned.
    if image.mode == "I" and not is_signed:
        return values.view(np.uint32)
    return values.view(np.int8) if image.mode == "L" and is_signed else values


def _unmapped(samples: str, found: str) -> str:
    return (
        f"{samples} samples {found}; expected unsigned samples of up to 16 bits. Set the range of "
        "all images with --image window=LOW:HIGH, or map each to its own range with --image "
        "rescale=per_image."
    )
