"""Tests that decompression bombs are rejected by their headers, before a library opens them."""

from __future__ import annotations

import struct

import pytest

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_PIXELS
from recordmill.transforms.functional.images.sniffing import check_stated_size
from tests.images import image_bytes, png_header

SIDE = 15_000
MOST = MAX_PIXELS // SIDE  # high: as many pixels as there may be


def webp(chunk: bytes, content: bytes) -> bytes:
    """Returns a WebP file of one chunk. Source: RFC 9649."""
    return b"RIFF....WEBP" + chunk + struct.pack("<I", len(content)) + content


def extended(width: int, height: int) -> bytes:
    canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", bytes(4) + canvas)


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))


def avif(width: int, height: int) -> bytes:
    return b"....ftypavif" + b"ispe" + bytes(4) + struct.pack(">II", width, height)


def icon(*entries: bytes) -> bytes:
    """Returns an ICO of some images, with wrong sizes in its directory."""
    start = 6 + 16 * len(entries)
    directory = b""
    for entry in entries:
        directory += struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(entry), start)
        start += len(entry)
    return struct.pack("<HHH", 0, 1, len(entries)) + directory + b"".join(entries)


def icon_of_bitmap(width: int, height: int) -> bytes:
    """Returns an ICO of one bitmap, whose stated height includes the mask."""
    return icon(struct.pack("<IiiHHIIiiII", 40, width, 2 * height, 1, 32, 0, 0, 0, 0, 0, 0))


def icon_of_png(width: int, height: int) -> bytes:
    return icon(png_header(1, 1), png_header(width, height))


FORMS = [
    ("webp", extended),
    ("webp", lossless),
    ("webp", lossy),
    ("avif", avif),
    ("ico", icon_of_bitmap),
    ("ico", icon_of_png),
]


@pytest.mark.parametrize(("format_", "form"), FORMS)
def test_the_pixel_limit_is_inclusive_to_the_row(format_, form) -> None:
    check_stated_size(form(SIDE, MOST), format_)

    with pytest.raises(RecordError) as rejected:
        check_stated_size(form(SIDE, MOST + 1), format_)

    assert rejected.value.reason is Reason.TOO_MANY_PIXELS
    assert rejected.value.detail == f"{SIDE} x {MOST + 1} pixels"


@pytest.mark.parametrize(("format_", "form"), FORMS)
def test_truncated_files_raise_no_other_error(format_, form) -> None:
    data = form(8, 8)
    for end in range(len(data)):
        check_stated_size(data[:end], format_)


@pytest.mark.parametrize("format_", ["webp", "avif", "ico"])
def test_files_written_by_pillow_pass(format_: str) -> None:
    check_stated_size(image_bytes(format_.upper()), format_)


def test_other_formats_are_not_checked() -> None:
    check_stated_size(extended(SIDE, SIDE), "jpeg")
