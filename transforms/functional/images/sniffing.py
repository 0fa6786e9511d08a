"""Identifies the format and the stated size of an image file from its bytes, without opening it.

File names are unreliable, and just opening a decompression bomb can exhaust memory: Pillow decodes
an ICO when it opens it, libwebp allocates two canvases, and libavif and libwebp report a bomb as
damage.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_PIXELS

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

# The remark by which the manifest counts stored images of 16 bits.
SIXTEEN_BITS = "16 bits per sample"

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", "jpeg"),
    (0, PNG_SIGNATURE, "png"),
    (0, b"GIF87a", "gif"),
    (0, b"GIF89a", "gif"),
    (0, b"BM", "bmp"),
    (0, b"II*\0", "tiff"),
    (0, b"MM\0*", "tiff"),
    (0, b"II+\0", "tiff"),
    (0, b"MM\0+", "tiff"),
    (8, b"WEBP", "webp"),
    (4, b"ftypavif", "avif"),
    (4, b"ftypavis", "avif"),
    (4, b"ftypheic", "heic"),
    (4, b"ftypheix", "heic"),
    (4, b"ftypmif1", "heic"),
    (4, b"ftypmsf1", "heic"),
    (0, b"\0\0\0\x0cjP  ", "jpeg2000"),
    (0, b"\xff\x4f\xff\x51", "jpeg2000"),
    (0, b"\0\0\0\x0cJXL ", "jpegxl"),
    (0, b"\xff\x0a", "jpegxl"),
    (0, b"\0\0\1\0", "ico"),
    (0, b"8BPS", "psd"),
    (0, b"%!PS", "eps"),
    (0, b"\xc5\xd0\xd3\xc6", "eps"),
    (0, b"%PDF", "pdf"),
)
_PNM = tuple(b"P%c%c" % (kind, c) for kind in b"1234567fF" for c in b" \t\r\n")

# Number of bytes for `sniff`, which contain the signature and the compatible brands of an AVIF.
HEAD_BYTES = 64


class WorkLimitError(Exception):
    """The error for an image that takes more work than is allowed in the worker process."""


def sniff(head: bytes) -> str | None:
    """Returns the format of a file from its first bytes; None for an unknown format.

    >>> sniff(b"GIF89a")
    'gif'
    """
    if head.startswith(_PNM):
        return "pnm"
    # ISO/IEC 23008-12: the major brand of an AVIF may be one of HEIF, with avif only among the
    # compatible brands.
    if head.startswith((b"ftypmif1", b"ftypmsf1"), 4) and _is_compatible(head, b"avif"):
        return "avif"
    if _is_bare_bitmap(head):
        return "bmp"
    return next((f for at, magic, f in _SIGNATURES if head.startswith(magic, at)), None)


def is_16_bit(data: bytes) -> bool:
    """Returns whether a JPEG or PNG has 16 bits per sample, by the header of the PNG."""
    return data.startswith(PNG_SIGNATURE) and data[24:25] == b"\x10"


def _is_bare_bitmap(head: bytes) -> bool:
    """Returns whether a file is a `.dib`, a Windows bitmap without a file header."""
    length = int.from_bytes(head[:4], "little")  # identifies the header
    if length not in _BMP_HEADERS:
        return False
    # BITMAPCOREHEADER (12 bytes) has sides of 16 bits, so planes and bits per pixel are 4 bytes
    # earlier.
    at = 8 if length == 12 else 12
    planes, bits = (int.from_bytes(head[i : i + 2], "little") for i in (at, at + 2))
    return planes == 1 and bits in _BMP_BITS


def _is_compatible(head: bytes, brand: bytes) -> bool:
    """Returns whether an ISO base media file lists a compatible brand (ISO/IEC 14496-12, ftyp)."""
    stop = int.from_bytes(head[:4], "big")
    return brand in (head[i : i + 4] for i in range(16, min(stop, len(head)), 4))


# File name suffixes of images in lower case; files with such names are rejected if damaged.
IMAGE_SUFFIXES = frozenset(
    f".{suffix}"
    for suffixes in (
        ("jpg", "jpeg", "jpe", "jfif", "mpo", "jp2", "j2k", "jpf", "jpx", "j2c", "jxl"),
        ("png", "gif", "webp", "avif", "heic", "heif", "tif", "tiff", "bmp", "dib", "ico"),
        ("pnm", "pbm", "pgm", "ppm", "pam"),
    )
    for suffix in suffixes
)

_NO_IMAGES = (None, "eps", "pdf", "psd")
_BMP_HEADERS = (12, 16, 40, 52, 56, 64, 108, 124)
_BMP_BITS = (1, 4, 8, 16, 24, 32)


def has_image_suffix(name: str) -> bool:
    """Returns whether a file name has the suffix of an image.

    >>> has_image_suffix("IMG 1.JPG"), has_image_suffix("jpg")
    (True, False)
    """
    stem, dot, suffix = name.rpartition(".")
    return bool(stem and dot) and f".{suffix.lower()}" in IMAGE_SUFFIXES


def is_image(head: bytes) -> bool:
    """Returns whether a file without an image suffix is an image, by its first bytes.

    Unlike `sniff`, it checks more than the signature for formats whose signature has two letters,
    with which a text can begin.
    """
    found = sniff(head)
    # The size of the header follows the file header of 14 bytes.
    if found == "bmp" and head.startswith(b"BM"):
        return int.from_bytes(head[14:18], "little") in _BMP_HEADERS
    if found == "pnm":
        return head[3:].lstrip()[:1].isdigit() or head[3:4] == b"#"
    return found not in _NO_IMAGES


_BITMAP = b"\x28\0\0\0"  # the length field of a BITMAPINFOHEADER
_AVIF_SIZE = re.compile(rb"ispe\0\0\0\0(.{8})", re.DOTALL)


def check_stated_size(data: bytes, format_: str) -> None:
    """Checks the stated size of an image whose decoder allocates pixels when it opens the file.

    Args:
        data: the content of the file.
        format_: the format, as returned by `sniff`.

    Raises:
        RecordError: too_many_pixels if the image is too large.
    """
    sizes = {"avif": _avif_sizes, "ico": _icon_sizes, "webp": _webp_sizes}
    for width, height in sizes[format_](data) if format_ in sizes else ():
        if width * height > MAX_PIXELS:
            raise RecordError(Reason.TOO_MANY_PIXELS, f"{width} x {height} pixels")


def _avif_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the sizes in all `ispe` properties of an AVIF (ISO/IEC 23008-12, section 6.5.3)."""
    return (struct.unpack(">II", stated[1]) for stated in _AVIF_SIZE.finditer(data))


def _webp_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the canvas size in the first chunk of a WebP (RFC 9649, section 2)."""
    chunk = data[12:30].ljust(18, b"\0")
    if chunk.startswith(b"VP8X"):
        # Section 2.7: flags and reserved bytes, then width - 1 and height - 1 in 24 bits each.
        canvas = int.from_bytes(chunk[12:18], "little")
        yield (canvas & 0xFFFFFF) + 1, (canvas >> 24) + 1
    elif chunk.startswith(b"VP8L"):
        # Section 3.4: a signature byte, then width - 1 and height - 1 in 14 bits each.
        bits = int.from_bytes(chunk[9:13], "little")
        yield (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif chunk.startswith(b"VP8 "):
        # RFC 6386, section 9.1: 14 bits each, below two bits of scaling.
        width, height = struct.unpack_from("<HH", chunk, 14)
        yield width & 0x3FFF, height & 0x3FFF


def _icon_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the sizes of the images in an ICO from their headers; its directory may be wrong."""
    # A header of 6 bytes, then 16 bytes per image, with its offset in the last 4.
    for entry in range(int.from_bytes(data[4:6], "little")):
        start = int.from_bytes(data[18 + 16 * entry : 22 + 16 * entry], "little")
        head = data[start : start + 24]
        if head.startswith(PNG_SIGNATURE) and len(head) == 24:
            yield struct.unpack_from(">II", head, 16)
        elif head.startswith(_BITMAP) and len(head) == 24:
            width, height = struct.unpack_from("<ii", head, 4)
            yield abs(width), abs(height) // 2  # the height includes the transparency mask
