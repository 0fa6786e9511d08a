"""Tests of format detection, with images written by Pillow and with similar files."""

from __future__ import annotations

import pytest
from PIL import features

from recordmill.transforms.functional.images.sniffing import HEAD_BYTES, sniff
from tests.images import image_bytes, jpeg, jpeg_header, png, png_16_bit


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(jpeg(), "jpeg", id="JPEG"),
        pytest.param(jpeg(exif_orientation=6), "jpeg", id="JPEG with EXIF"),
        pytest.param(jpeg_header(8, 8, process=3), "jpeg", id="lossless JPEG"),
        pytest.param(png(), "png", id="PNG"),
        pytest.param(png_16_bit(), "png", id="16-bit PNG"),
        pytest.param(image_bytes("GIF", mode="P"), "gif", id="GIF"),
        pytest.param(image_bytes("BMP"), "bmp", id="BMP"),
        pytest.param(image_bytes("TIFF"), "tiff", id="TIFF"),
        pytest.param(image_bytes("PPM"), "pnm", id="PPM"),
        pytest.param(image_bytes("PPM", mode="L"), "pnm", id="PGM"),
        pytest.param(image_bytes("PPM", mode="1"), "pnm", id="PBM"),
        pytest.param(image_bytes("ICO"), "ico", id="ICO"),
        pytest.param(image_bytes("EPS"), "eps", id="EPS"),
        pytest.param(image_bytes("PDF"), "pdf", id="PDF"),
        pytest.param(image_bytes("MPO"), "jpeg", id="MPO begins as a JPEG"),
    ],
)
def test_formats_written_by_pillow(data, expected):
    assert sniff(data[:HEAD_BYTES]) == expected
    assert sniff(data) == expected


@pytest.mark.parametrize(
    ("feature", "format_", "expected"),
    [("webp", "WEBP", "webp"), ("jpg_2000", "JPEG2000", "jpeg2000"), ("avif", "AVIF", "avif")],
)
def test_optional_formats_written_by_pillow(feature, format_, expected):
    if not features.check(feature):
        pytest.skip(f"this Pillow has no {feature}")
    assert sniff(image_bytes(format_, 64, 64)[:HEAD_BYTES]) == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GIF87a", "gif"),
        (b"MM\0*", "tiff"),
        (b"MM\0+", "tiff"),
        (b"II+\0", "tiff"),
        (b"\0\0\0\x1cftypheic", "heic"),
        (b"\0\0\0\x1cftypmif1", "heic"),
        (b"\xff\x4f\xff\x51", "jpeg2000"),
        (b"8BPS", "psd"),
        (b"\xc5\xd0\xd3\xc6", "eps"),
        (b"P6\n", "pnm"),
        (b"P7 ", "pnm"),
        (b"P9\n", None),
        (b"P6x", None),
        (b"", None),
        (b"\xff\xd8", None),
        (b"\x89PNG\r\n\x1a", None),
        (b"\x89PNG\n\x1a\n", None),  # what a transfer as text leaves of a PNG
        (b" \xff\xd8\xff", None),
        (b"<svg>", None),
        (b"<!DOCTYPE html>", None),
        (b"\0" * 16, None),
        (b"hello, world", None),
    ],
    ids=repr,
)
def test_heads(head, expected):
    assert sniff(head) == expected
