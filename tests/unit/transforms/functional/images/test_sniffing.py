"""Tests of format detection, with images written by Pillow and with similar files."""

from __future__ import annotations

import gzip

import pytest
from PIL import features

from recordmill.transforms.functional.images.sniffing import (
    FOREIGN,
    HEAD_BYTES,
    foreign,
    is_image,
    sniff,
)
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


NIFTI = b"\x5c\1\0\0" + bytes(340) + b"n+1\0"
SVG = b"""\xef\xbb\xbf<?xml version="1.0"?>
<!-- Drawn by hand --><!-- twice -->
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg"/>"""


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (bytes(128) + b"DICM\2\0\0\0UL", "DICOM"),
        (NIFTI, "NIfTI"),
        (b"\x1c\2\0\0n+2\0\r\n\x1a\n", "NIfTI"),
        (gzip.compress(NIFTI + bytes(5000), mtime=0), "NIfTI"),
        (gzip.compress(b"any text", mtime=0), "gzip archive"),
        (b"\x1f\x8b\x08damaged", "gzip archive"),
        (SVG, "SVG"),
        (b"<svg>", "SVG"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML"),
        (b"<Error><Code>NoSuchKey</Code></Error>", "XML"),
        (b"\n<!DOCTYPE html><title>404</title>", "HTML"),
        (b"<!-- cached --><html>", "HTML"),
        (b"\x76\x2f\x31\x01\2\0\0\0", "OpenEXR"),
        (b"#?RADIANCE\n", "Radiance HDR"),
        (b"II*\0\x10\0\0\0CR\2\0", "camera RAW"),
        (b"\0\0\0\x18ftypcrx ", "camera RAW"),
        (b"\0\0\0\x18ftypheix", "HEIC"),
        (b"\0\0\0\x18ftypisom", "MP4 video"),
        (b"%PDF-1.7", "PDF"),
        (b"8BPS\0\1", "PSD"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "Git LFS pointer"),
        (b"/annex/objects/SHA256E-s1--2.jpg\n", "git-annex pointer"),
        (b"\0\5\x16\7\0\2\0\0Mac OS X", "AppleDouble"),
        (b"PK\3\4", "ZIP archive"),
        (b"\x93NUMPY\1\0", "NumPy array"),
        (b"SIMPLE  =                    T", "FITS"),
    ],
)
def test_other_files_are_named(head: bytes, name: str) -> None:
    found = foreign(head)
    assert found is not None
    assert found.name == name
    assert is_image(head) == (name == "HEIC")
    assert found.is_image or sniff(head) is None


@pytest.mark.parametrize("head", [b"", b"hello", b"<a>", b"{}", jpeg(), png(), image_bytes("TIFF")])
def test_images_and_unknown_files_have_no_other_kind(head: bytes) -> None:
    assert foreign(head[:HEAD_BYTES]) is None


def test_every_kind_has_a_remedy() -> None:
    for kind in FOREIGN.values():
        assert kind.remedy.endswith(".")
        assert len(kind.remedy) < 90


@pytest.mark.parametrize("unit", [b"<!-->", b"<!---->", b"<?xml ", b"<!doctype svg ", b"<?>"])
def test_repeated_prologs_are_read_in_linear_steps(unit: bytes) -> None:
    found = foreign((unit * HEAD_BYTES)[:HEAD_BYTES])
    assert found is None or found.name in ("XML", "SVG")
