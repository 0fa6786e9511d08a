"""Tests of the headers of image files."""

from __future__ import annotations

import io
import re
import struct
from dataclasses import fields

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.codecs import (
    Jpeg,
    Png,
    SourceImage,
    examine,
    open_image,
    sniffed_format,
)
from recordmill.transforms.functional.images.masks import examine_mask_in_process
from tests.corpus import tiff_of
from tests.images import image, image_bytes, jpeg, jpeg_header, png, png_16_bit, png_chunk


def source(format_, channels=3, mode="RGB", **options):
    attributes = {"bit_depth": 8, "common": format_ in ("jpeg", "png"), **options}
    return SourceImage(
        format=format_, width=40, height=30, channels=channels, mode=mode, **attributes
    )


def two(format_):
    return image_bytes(format_, 40, 30, save_all=True, append_images=[image(40, 30, 1)])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(jpeg(40, 30), source("jpeg"), id="JPEG"),
        pytest.param(jpeg(40, 30, mode="L"), source("jpeg", 1, "L"), id="gray JPEG"),
        pytest.param(
            jpeg(40, 30, mode="CMYK"), source("jpeg", 3, "CMYK", common=False), id="CMYK JPEG"
        ),
        pytest.param(jpeg(40, 30, exif_orientation=6), source("jpeg", orientation=6), id="turned"),
        pytest.param(jpeg(40, 30, exif_orientation=0), source("jpeg"), id="orientation 0"),
        pytest.param(jpeg(40, 30, exif_orientation=9), source("jpeg"), id="orientation 9"),
        pytest.param(two("MPO"), source("mpo", common=True), id="MPO"),
        pytest.param(png(40, 30), source("png"), id="PNG"),
        pytest.param(
            png(40, 30, exif_orientation=8), source("png", orientation=8), id="turned PNG"
        ),
        pytest.param(
            png_16_bit(40, 30, channels=2),
            source("png", 2, "LA", bit_depth=16, has_alpha=True),
            id="16-bit PNG",
        ),
        pytest.param(two("PNG"), source("png", frames=2), id="APNG"),
        pytest.param(image_bytes("BMP", 40, 30), source("bmp"), id="BMP"),
        pytest.param(image_bytes("TIFF", 40, 30), source("tiff"), id="TIFF"),
        pytest.param(two("TIFF"), source("tiff", frames=2), id="two pages"),
        pytest.param(image_bytes("PPM", 40, 30, mode="L"), source("pnm", 1, "L"), id="PGM"),
        pytest.param(
            image_bytes("TIFF", 40, 30, mode="CMYK"), source("tiff", 4, "CMYK"), id="CMYK TIFF"
        ),
    ],
)
def test_examine(data, expected):
    found = examine(data)
    named = {field.name: getattr(found, field.name) for field in fields(SourceImage)}
    assert SourceImage(**{**named, "work": 0}) == expected
    assert type(found) is {"jpeg": Jpeg, "png": Png}.get(found.family, SourceImage)


def empty_pages(number):
    """Returns the first page of a TIFF, and links to empty ones."""
    data = bytearray(image_bytes("TIFF", 40, 30))
    (first,) = struct.unpack_from("<I", data, 4)
    at = first + 2 + 12 * struct.unpack_from("<H", data, first)[0]
    struct.pack_into("<I", data, at, len(data))
    for following in range(number - 1, 0, -1):
        data += struct.pack("<HI", 0, len(data) + 6 if following > 1 else 0)
    return bytes(data)


@pytest.mark.parametrize("big_tiff", [False, True])
@pytest.mark.parametrize("pages", [1, 2, 5])
def test_the_pages_of_a_tiff_are_those_of_pillow(pages, big_tiff):
    others = [image(40, 30, i) for i in range(1, pages)]
    data = image_bytes("TIFF", 40, 30, save_all=True, append_images=others, big_tiff=big_tiff)
    with Image.open(io.BytesIO(data)) as opened_again:
        assert examine(data).frames == opened_again.n_frames == pages


def test_many_pages_of_a_tiff_are_counted_in_linear_time():
    assert examine(empty_pages(200_000)).frames == 200_000  # Pillow takes minutes


@pytest.mark.parametrize("link", [0, 2**31], ids=["circle", "damaged"])
def test_pages_of_a_tiff_that_end_in_a_circle_or_nowhere(link):
    data = bytearray(image_bytes("TIFF", 40, 30))
    (first,) = struct.unpack_from("<I", data, 4)
    at = first + 2 + 12 * struct.unpack_from("<H", data, first)[0]
    struct.pack_into("<I", data, at, link or first)
    assert examine(bytes(data)).frames == 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(jpeg(40, 30), 40 * 30, id="a scan"),
        pytest.param(jpeg(40, 30, progressive=True), 40 * 30 * 10, id="ten scans"),
        pytest.param(jpeg_header(40, 30, process=2), 40 * 30 * 3, id="coefficients in memory"),
        pytest.param(png(40, 30), (40 * 3 + 1) * 30 // 2, id="rows"),
        pytest.param(png_16_bit(40, 30, channels=4), (40 * 8 + 1) * 30 // 2, id="deep rows"),
        pytest.param(image_bytes("BMP", 40, 30), 0, id="unknown"),
    ],
)
def test_work_counts_scans_and_memory(data, expected):
    assert examine(data).work == expected


def reason(data):
    with pytest.raises(RecordError) as raised:
        examine(data)
    return raised.value.reason


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", Reason.EMPTY_FILE, id="no bytes"),
        pytest.param(b"text", Reason.NOT_AN_IMAGE, id="text"),
        pytest.param(image_bytes("EPS"), Reason.UNSUPPORTED_FORMAT, id="EPS"),
        pytest.param(b"8BPS" + bytes(100), Reason.UNSUPPORTED_FORMAT, id="PSD"),
        pytest.param(jpeg_header(8, 8, precision=12), Reason.UNSUPPORTED_FEATURE, id="12 bits"),
        pytest.param(jpeg_header(8, 8, process=7), Reason.UNSUPPORTED_FEATURE, id="hierarchical"),
        pytest.param(b"\xff\xd8\xff\xd9", Reason.CORRUPT, id="JPEG without a frame"),
        pytest.param(jpeg()[:40], Reason.TRUNCATED, id="JPEG cut before its frame"),
        pytest.param(png()[:60], Reason.TRUNCATED, id="PNG cut"),
        pytest.param(b"GIF89a", Reason.CORRUPT, id="GIF that ends after its signature"),
    ],
)
def test_files_are_rejected_with_a_reason(data, expected):
    assert reason(data) is expected


def test_formats_are_detected_by_content():
    assert [sniffed_format(d) for d in (jpeg(), png(), image_bytes("BMP"))] == [
        "jpeg",
        "png",
        "bmp",
    ]


@pytest.mark.parametrize("data", [jpeg(40, 30), png(40, 30)], ids=["JPEG", "PNG"])
def test_the_size_limit_of_pillow_is_not_used(data, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(data))
    with open_image(data, ("PNG", "JPEG")) as opened:
        assert opened.size == (40, 30)


@pytest.mark.parametrize("plugins", [("GIF",), ()])
def test_a_file_that_no_plugin_accepts_is_not_identified(plugins):
    with pytest.raises(UnidentifiedImageError):
        open_image(png(40, 30), plugins)


@pytest.mark.parametrize(
    ("data", "reason", "detail"),
    [
        (
            bytes(128) + b"DICM",
            Reason.UNSUPPORTED_FORMAT,
            r"DICOM; expected one of jpeg, .*pydicom\.",
        ),
        (b"<svg/>", Reason.UNSUPPORTED_FORMAT, r"SVG; .*PNG.*\."),
        (b"%PDF-1.7", Reason.UNSUPPORTED_FORMAT, r"PDF; .*pages.*\."),
        (b"version https://git-lfs.github.com/spec/v1", Reason.NOT_AN_IMAGE, r".*git lfs pull\."),
        (b"<!doctype html>", Reason.NOT_AN_IMAGE, r"HTML; .*Download.*\."),
        (b"no image", Reason.NOT_AN_IMAGE, r"begins with b'no image'"),
        (png()[:8] + png_chunk(b"CgBI", b"P\0 \2"), Reason.UNSUPPORTED_FEATURE, r".*CgBI.*\."),
        (
            tiff_of(np.zeros((2, 2, 3), "u1"), photometric=2, extra={50706: (4, [1, 4, 0, 0])}),
            Reason.UNSUPPORTED_FORMAT,
            r"camera RAW; .*\.",
        ),
        (
            tiff_of(np.zeros((2, 2, 3), "u1"), photometric=2, extra={254: (4, [1]), 330: (4, [8])}),
            Reason.UNSUPPORTED_FORMAT,
            r"camera RAW; .*\.",
        ),
    ],
)
def test_files_of_other_formats_are_named(data: bytes, reason: Reason, detail: str) -> None:
    with pytest.raises(RecordError) as error:
        examine(data)
    assert error.value.reason == reason
    assert re.fullmatch(detail, error.value.detail)


def test_a_mask_that_is_a_jpeg_has_a_remedy_of_its_own() -> None:
    with pytest.raises(RecordError, match=r"got jpeg\. Store masks as PNG"):
        examine_mask_in_process(jpeg())
