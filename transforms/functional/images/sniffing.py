"""Identifies the format and the stated size of an image file from its bytes, without opening it.

The bytes may be text in a table: data URIs (RFC 2397), `data:image/png;base64,iVBORw0K…`, or
base64, which may have the characters of URLs, line breaks, and no padding, as tools write it.

File names are unreliable, and just opening a decompression bomb can exhaust memory: Pillow decodes
an ICO when it opens it, libwebp allocates two canvases, and libavif and libwebp report a bomb as
damage.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from recordmill.schemas.input_formats import UNREAD_TOOLS
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_PIXELS
from recordmill.schemas.yaml_files import shortened

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

# The remarks by which the manifest counts stored images of 16 bits, those of files with others, and
# those with pixels outside the window.
SIXTEEN_BITS, FIRST_FRAME = "16 bits per sample", "first of several frames"
OUTSIDE_WINDOW = "pixels outside the window"


class Foreign(NamedTuple):
    """A kind of file that is not decoded."""

    name: str
    remedy: str  # what to do with such a file
    is_image: bool = True  # whether it holds images, in a format that is not supported

    @property
    def files(self) -> str:
        """The kind of skipped input that such files are."""
        return f"{self.name} files"


_FRAMES = "Extract the frames as JPEG or PNG."
_UNPACK = "Unpack it, and name the folder."
_DEVELOP = "Develop it to JPEG, PNG or TIFF, for example with rawpy or darktable."
_DOWNLOAD = "Download the file again: this is the answer of a server."

FOREIGN = {
    "heic": Foreign("HEIC", "Convert it to JPEG or PNG, for example with heif-convert."),
    "jpegxl": Foreign("JPEG XL", "Convert it to JPEG or PNG, for example with djxl."),
    "jpegxr": Foreign("JPEG XR", "Convert it to JPEG or PNG."),
    "psd": Foreign("PSD", "Export it as PNG."),
    "eps": Foreign("EPS", "Render it as PNG."),
    "pdf": Foreign("PDF", "Render its pages as PNG, for example with pdftoppm."),
    "svg": Foreign("SVG", "Render it as PNG, for example with rsvg-convert."),
    "dicom": Foreign("DICOM", "Convert it to TIFF or 16-bit PNG, for example with pydicom."),
    "nifti": Foreign(
        "NIfTI", "Convert its slices to TIFF or 16-bit PNG, for example with nibabel."
    ),
    "nrrd": Foreign("NRRD", "Convert its slices to TIFF or 16-bit PNG."),
    "fits": Foreign("FITS", "Convert it to TIFF, for example with astropy."),
    "exr": Foreign("OpenEXR", "Convert it to float TIFF, and set --image window=LOW:HIGH."),
    "hdr": Foreign("Radiance HDR", "Convert it to float TIFF, and set --image window=LOW:HIGH."),
    "dds": Foreign("DDS", "Convert it to PNG."),
    "raw": Foreign("camera RAW", _DEVELOP),
    "numpy": Foreign("NumPy array", "Save it as PNG or TIFF.", False),
    "hdf5": Foreign("HDF5", "Export its images as PNG or TIFF.", False),
    "mp4": Foreign("MP4 video", _FRAMES, False),
    "matroska": Foreign("Matroska video", _FRAMES, False),
    "avi": Foreign("AVI video", _FRAMES, False),
    "zip": Foreign("ZIP archive", _UNPACK, False),
    "gzip": Foreign("gzip archive", _UNPACK, False),
    "appledouble": Foreign("AppleDouble", "Delete it: it is metadata of macOS.", False),
    "lfs": Foreign("Git LFS pointer", "Fetch the file with git lfs pull.", False),
    "annex": Foreign("git-annex pointer", "Fetch the file with git annex get.", False),
    "html": Foreign("HTML", _DOWNLOAD, False),
    "xml": Foreign("XML", "Replace it by the image; object stores answer errors in XML.", False),
}

# (offset, bytes, format). Sources: the specifications of the formats, file(1)'s magic, and the list
# of https://www.garykessler.net/library/file_sigs.html; of DICOM, PS3.10, 7.1; of NIfTI, the
# headers nifti1.h and nifti2.h; of HEIF, ISO/IEC 23008-12, annex B; of RAW, ExifTool's magic.
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"II*\0\x10\0\0\0CR\2\0", "raw"),  # CR2, before TIFF
    (4, b"ftypcrx ", "raw"),  # CR3
    # of Fujifilm, Olympus, Panasonic, Sigma and Minolta
    *((0, magic, "raw") for magic in (b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"MMOR", b"IIU\0")),
    *((0, magic, "raw") for magic in (b"FOVb", b"\0MRM")),
    (0, b"\xff\xd8\xff", "jpeg"),
    (0, PNG_SIGNATURE, "png"),
    *((0, magic, "gif") for magic in (b"GIF87a", b"GIF89a")),
    (0, b"BM", "bmp"),
    *((0, magic, "tiff") for magic in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    (8, b"WEBP", "webp"),
    *((4, b"ftyp" + brand, "avif") for brand in (b"avif", b"avis")),
    *((4, b"ftyp" + brand, "heic") for brand in (b"heic", b"heix", b"hevc", b"hevx", b"heim")),
    *((4, b"ftyp" + brand, "heic") for brand in (b"heis", b"mif1", b"msf1")),
    *((0, magic, "jpeg2000") for magic in (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51")),
    *((0, magic, "jpegxl") for magic in (b"\0\0\0\x0cJXL ", b"\xff\x0a")),
    (0, b"\0\0\1\0", "ico"),
    (0, b"8BPS", "psd"),
    *((0, magic, "eps") for magic in (b"%!PS", b"\xc5\xd0\xd3\xc6")),
    (0, b"%PDF", "pdf"),
    (128, b"DICM", "dicom"),
    *((344, magic, "nifti") for magic in (b"n+1\0", b"ni1\0")),
    *((4, magic, "nifti") for magic in (b"n+2\0\r\n\x1a\n", b"ni2\0\r\n\x1a\n")),
    (0, b"NRRD000", "nrrd"),
    (0, b"SIMPLE  =", "fits"),
    (0, b"\x76\x2f\x31\x01", "exr"),
    *((0, magic, "hdr") for magic in (b"#?RADIANCE", b"#?RGBE")),
    (0, b"DDS \x7c\0\0\0", "dds"),
    (0, b"II\xbc", "jpegxr"),
    (0, b"\x93NUMPY", "numpy"),
    (0, b"\x89HDF\r\n\x1a\n", "hdf5"),
    *((4, b"ftyp" + brand, "mp4") for brand in (b"isom", b"iso2", b"mp4", b"M4V", b"avc1")),
    (4, b"ftypqt  ", "mp4"),
    (0, b"\x1aE\xdf\xa3", "matroska"),
    (8, b"AVI LIST", "avi"),
    (0, b"PK\3\4", "zip"),
    (0, b"\x1f\x8b\x08", "gzip"),
    (0, b"\0\5\x16\7", "appledouble"),
    (0, b"version https://git-lfs.github.com/spec/", "lfs"),
    (0, b"/annex/objects/", "annex"),
)
_PNM = tuple(b"P%c%c" % (kind, c) for kind in b"1234567fF" for c in b" \t\r\n")

# The first element of texts, in lower case.
_ELEMENTS = {
    b"<svg": "svg",
    b"<svg:svg": "svg",
    b"<!doctype svg": "svg",
    b"<!doctype html": "html",
    b"<html": "html",
    b"<head": "html",
    b"<body": "html",
    b"<error>": "xml",
}
_BEFORE_ELEMENT = {b"<?": b"?>", b"<!--": b"-->"}

# Number of bytes for `sniff` and `foreign`: they contain the signature of a NIfTI, the compatible
# brands of an AVIF, and the comments before an SVG.
HEAD_BYTES = 1024


class WorkLimitError(Exception):
    """The error for an image that takes more work than is allowed in the worker process."""


def sniff(head: bytes) -> str | None:
    """Returns the format of an image file from its first bytes; None for other files.

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
    found = _signed(head)
    return None if found in _NOT_SNIFFED else found


def foreign(head: bytes) -> Foreign | None:
    """Returns the kind of a file that is not decoded; None for images, and for unknown files.

    >>> foreign(b"%PDF-1.7").name, foreign(b"<!DOCTYPE html>").name, foreign(b"GIF89a")
    ('PDF', 'HTML', None)
    """
    found = sniff(head) or _signed(head) or _format_of_text(head)
    if found == "gzip":
        with suppress(zlib.error):
            inner = sniff(zlib.decompressobj(31).decompress(head, HEAD_BYTES))
            found = inner if inner in FOREIGN else found
    return FOREIGN.get(found or "")


def _format_of_text(head: bytes) -> str | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    otherwise = "xml" if text.startswith(b"<?xml") else None
    for _ in range(len(text)):
        end = next((e for start, e in _BEFORE_ELEMENT.items() if text.startswith(start)), None)
        if end is None or end not in text:
            break
        text = text.partition(end)[2].lstrip()
    return next((kind for start, kind in _ELEMENTS.items() if text.startswith(start)), otherwise)


def _signed(head: bytes) -> str | None:
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

# Those that are tried where a name of an image has none: each is a request to a store.
TRIED_SUFFIXES = (
    ".jpg", ".jpeg", ".JPG", ".JPEG", ".png", ".PNG",
    ".bmp", ".gif", ".tif", ".tiff", ".webp",
)  # fmt: skip

# Signatures without images in themselves: `sniff` does not return them.
_NOT_SNIFFED = frozenset(name for name, kind in FOREIGN.items() if not kind.is_image)

# Foreign formats whose files are rejected in folders, not skipped, because cameras and phones
# write them as images.
_REJECTED = ("heic", "jpegxl")
_BMP_HEADERS = (12, 16, 40, 52, 56, 64, 108, 124)
_BMP_BITS = (1, 4, 8, 16, 24, 32)


def tool_of(head: bytes) -> tuple[str, str]:
    """Returns the tool or dataset of annotations that are not read, and a remedy, or twice ""."""
    found = (one for one in UNREAD_TOOLS.items() if all(re.search(s, head) for s in one[1].signs))
    return next(((tool, unread.remedy) for tool, unread in found), ("", ""))


def not_a_table(head: bytes) -> str:
    """Returns the kind of a file that is no table, by its first bytes, and a remedy, or ""."""
    tool, remedy = tool_of(head)
    if tool:
        return f"annotations of {tool}. {remedy}."
    kind = foreign(head)
    return f"{kind.name}. {kind.remedy}" if kind not in (None, FOREIGN["gzip"]) else ""


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
    return found is not None and (found not in FOREIGN or found in _REJECTED)


_BITMAP = b"\x28\0\0\0"  # the length field of a BITMAPINFOHEADER
_AVIF_SIZE = re.compile(rb"ispe\0\0\0\0(.{8})", re.DOTALL)


def check_stated_size(data: bytes, format_: str) -> None:
    """Checks the stated size of an image whose decoder allocates pixels when it opens the file."""
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


_DATA = re.compile(r"data:[^,]{0,200},", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]+=*")
# Paths are shorter, and no image is.
_MIN_CHARACTERS = 48
_SHOWN = 80
_HEAD_CHARACTERS = 4 * HEAD_BYTES // 3


def text_of(value: Any) -> str:
    """Returns the text of an image in a column, or in the `bytes` of an object; "" if none is."""
    if isinstance(value, dict):
        value = value.get("bytes")
    return value if isinstance(value, str) else ""


def is_encoded(text: str) -> bool:
    """Returns whether a text is a data URI, or base64 that begins with the signature of an image.

    >>> is_encoded("data:image/png;base64,"), is_encoded("iVBORw0KGgo.png")
    (True, False)
    """
    if _DATA.match(text):
        return True
    head = text[:_HEAD_CHARACTERS].strip()
    if len(head) < _MIN_CHARACTERS or not _BASE64.fullmatch(head):
        return False
    head = "".join(head.split())
    return is_image(_decoded(head[: len(head) // 4 * 4]))


def image_of(text: str) -> bytes:
    """Returns the bytes of a data URI, or of base64; raises RecordError if it is not valid."""
    start = _DATA.match(text)
    header, data = (start[0].lower(), text[start.end() :]) if start else (";base64,", text)
    if not header.endswith(";base64,"):
        return unquote_to_bytes(data)
    if "%" in data:
        data = unquote_to_bytes(data).decode("latin-1")
    try:
        return _decoded("".join(data.split()))
    except (binascii.Error, ValueError) as error:
        detail = f"the base64 {shortened(text, _SHOWN)} is not valid: {error}"
        raise RecordError(Reason.MALFORMED_ROW, detail) from error


def _decoded(text: str) -> bytes:
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
