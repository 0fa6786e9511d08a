"""What happens to an image on its way into a record.

Decided by content, never by name. Upright JPEG (Huffman-coded, 8 bits, one or three components) and
PNG pass through byte for byte, once they were decoded; all else is refused with its reason.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zlib

from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from schemas.config import Decode
from schemas.features import ImageSettings
from schemas.records import StoredImage
from schemas.rejects import Reason, RecordError
from transforms.functional import jpeg
from transforms.functional.sniffing import HEAD_BYTES, sniff

Image.MAX_IMAGE_PIXELS = None  # the limit is ours, from the header: a policy, not a warning
ImageFile.LOAD_TRUNCATED_IMAGES = False  # true would turn most damage into gray pixels

_PILLOW_FORMATS = {"jpeg": "JPEG", "png": "PNG"}
_CHANNELS = {"1": 1, "L": 1, "I": 1, "I;16": 1, "LA": 2, "P": 3, "RGB": 3, "RGBA": 4}
_UPRIGHT = frozenset({0, 1})  # 0 is invalid, and what some cameras write for "not known"

# What Pillow 12 raises for damage within a file of a known format.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, IndexError)


def transcode(data: bytes, settings: ImageSettings, decode: Decode = "full") -> StoredImage:
    """Returns the image as the record will hold it.

    Args:
        data: the file's bytes.
        settings: limits and options.
        decode: "full" reads every coded bit, "header" only as far as the size.

    Raises:
        RecordError: if it is no image, damaged, or of a form that is not stored.
    """
    format_ = _supported_format(data)
    try:
        with Image.open(io.BytesIO(data), formats=[_PILLOW_FORMATS[format_]]) as image:
            return _stored(image, format_, data, settings, decode)
    except _DAMAGE as error:
        raise _damage(error) from error


def _stored(
    image: Image.Image, format_: str, data: bytes, settings: ImageSettings, decode: Decode
) -> StoredImage:
    width, height = image.size
    _check_size(width, height, settings.max_pixels)
    _check_form(image, format_, data)
    channels = _CHANNELS[image.mode] + (image.mode == "P" and "transparency" in image.info)
    if decode == "full":
        _read_every_bit(image, format_, len(data))
    return StoredImage(data, format_, height, width, channels, hashlib.sha256(data).hexdigest())


def _supported_format(data: bytes) -> str:
    if not data:
        raise RecordError(Reason.EMPTY_FILE, "the file has no bytes")
    format_ = sniff(data[:HEAD_BYTES])
    if format_ is None:
        raise RecordError(Reason.NOT_AN_IMAGE, f"begins with {data[:HEAD_BYTES]!r}")
    if format_ not in _PILLOW_FORMATS:
        raise RecordError(Reason.UNSUPPORTED_FORMAT, f"{format_}; expected jpeg or png")
    return format_


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise RecordError(Reason.INVALID_DIMENSIONS, f"{width} x {height} pixels")
    if width * height > max_pixels:
        detail = f"{width} x {height} pixels; the limit is {max_pixels} (max_pixels)"
        raise RecordError(Reason.TOO_MANY_PIXELS, detail)


def _check_form(image: Image.Image, format_: str, data: bytes) -> None:
    """Refuses what readers would take for something else than it is."""
    if image.mode not in _CHANNELS or (format_ == "jpeg" and image.mode not in ("L", "RGB")):
        raise RecordError(Reason.UNSUPPORTED_FORMAT, f"{format_} with colour mode {image.mode}")
    if format_ == "jpeg" and (sof := jpeg.start_of_frame(data)) not in jpeg.DCT_HUFFMAN:
        detail = f"JPEG of process SOF{sof}; expected baseline or progressive, Huffman-coded"
        raise RecordError(Reason.UNSUPPORTED_FORMAT, detail)
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if orientation not in _UPRIGHT:
        detail = f"EXIF orientation {orientation!r}; expected an upright image"
        raise RecordError(Reason.UNSUPPORTED_FORMAT, detail)


def _read_every_bit(image: Image.Image, format_: str, size: int) -> None:
    """Decodes the image as far as it takes to see that none of its coded data is damaged.

    A JPEG at an eighth of its size, and without its colours, reads all entropy-coded data and skips
    most of the inverse transform: a third less work, with the full decode's verdict. `_check_form`
    has kept out the lossless process, on which Pillow 12.3's scaled decode corrupts the heap.
    """
    if format_ == "jpeg" and isinstance(image, ImageFile.ImageFile):
        image.draft("L", (1, 1))
        image.decodermaxblock = size  # in one piece: libjpeg then never decodes a row twice
    image.load()


def _damage(error: Exception) -> RecordError:
    """Returns the reject for what Pillow said of a damaged file."""
    if isinstance(error, UnidentifiedImageError):
        return RecordError(Reason.CORRUPT, "the header is damaged")
    cut = "truncated" in str(error).lower() or isinstance(error, EOFError)
    return RecordError(Reason.TRUNCATED if cut else Reason.CORRUPT, str(error))
