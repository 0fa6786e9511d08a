"""Tests of JPEG headers, located as by libjpeg, also in damaged files."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.functional.images.jpeg import examine, strip_metadata
from tests.images import image, image_bytes, jpeg, jpeg_header, jpeg_segment

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
BASELINE = jpeg_segment(0xC0, b"\x08\0\x20\0\x10\x01\x01\x11\0")
LOSSLESS = jpeg_segment(0xC3, b"\x08\0\x08\0\x08\x01\x01\x11\0")
SCAN = jpeg_segment(0xDA, b"\x01\x01\0\0\x3f\0")


@pytest.mark.parametrize(
    ("data", "process"),
    [
        pytest.param(jpeg(), 0, id="baseline"),
        pytest.param(jpeg(progressive=True), 2, id="progressive"),
        pytest.param(SOI + jpeg_segment(0xE1, b"x" * 65_533) + BASELINE, 0, id="longest segment"),
        pytest.param(SOI + jpeg_segment(0xC4, b"t") + BASELINE, 0, id="a table is no frame"),
        pytest.param(SOI + jpeg_segment(0xC8, b"t") + BASELINE, 0, id="nor an extension"),
        pytest.param(SOI + jpeg_segment(0xCC, b"t") + LOSSLESS, 3, id="nor arithmetic conditions"),
        pytest.param(SOI + b"\xff\xff\xff" + BASELINE, 0, id="fill bytes"),
        pytest.param(SOI + b"\xff\xd0\xff\x01" + BASELINE, 0, id="markers without a length"),
        pytest.param(SOI + BASELINE + LOSSLESS, 0, id="the first of two"),
        pytest.param(SOI + jpeg_segment(0xFE, LOSSLESS) + BASELINE, 0, id="one within a comment"),
        # Decoders skip a stuffed zero and see the lossless frame: whoever takes it for a segment
        # hands such a file to the decode that it corrupts.
        pytest.param(
            SOI + b"\xff\x00" + LOSSLESS + bytes(0xFFC3 - len(LOSSLESS)) + BASELINE,
            3,
            id="a stuffed zero is no segment that hides a frame",
        ),
        pytest.param(SOI + EOI, None, id="no segments"),
        pytest.param(SOI, None, id="a start alone"),
        pytest.param(b"", None, id="no bytes"),
        pytest.param(SOI + BASELINE[:2], None, id="cut within the marker"),
        pytest.param(SOI + BASELINE[:-1], None, id="cut within the frame header"),
    ],
)
def test_process(data, process):
    assert examine(data).process == process


@pytest.mark.parametrize("process", [0, 1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15])
def test_every_process(process):
    header = examine(jpeg_header(640, 480, process=process, precision=12))
    assert (header.process, header.precision) == (process, 12)
    assert (header.width, header.height, header.components) == (640, 480, 3)
    assert not header.readable_by_all


@pytest.mark.parametrize(
    ("data", "components", "scans", "common"),
    [
        pytest.param(jpeg(40, 30), 3, 1, True, id="baseline"),
        pytest.param(jpeg(40, 30, mode="L"), 1, 1, True, id="gray"),
        pytest.param(jpeg(40, 30, mode="CMYK"), 4, 1, False, id="CMYK"),
        pytest.param(jpeg(40, 30, restart_marker_blocks=1), 3, 1, True, id="restarts"),
        pytest.param(jpeg(40, 30) + b"\xff\xda more", 3, 1, True, id="bytes after the end"),
        pytest.param(jpeg(40, 30)[:-2], 3, 1, False, id="no end"),
        pytest.param(jpeg(40, 30)[:-2] + b"\xff\xd0", 3, 1, False, id="another end"),
    ],
)
def test_headers_of_complete_files(data, components, scans, common):
    header = examine(data)
    assert (header.process, header.precision, header.width, header.height) == (0, 8, 40, 30)
    assert (header.components, header.scans, header.readable_by_all) == (components, scans, common)


def test_scans_of_progressive_files_are_counted():
    data = jpeg(40, 30, progressive=True)
    assert examine(data).scans == data.count(b"\xff\xda")  # stuffing keeps it out of coded data
    assert examine(data).scans > 1


@pytest.mark.parametrize("after", [b"", b"trailing", jpeg(8, 8)], ids=["nothing", "bytes", "JPEG"])
def test_the_end_is_that_of_the_first_image(after):
    data = jpeg(40, 30, exif_orientation=1)
    assert examine(data + after).end == len(data)


def test_a_preview_within_exif_does_not_end_the_image():
    preview = b"Exif\0\0" + jpeg(8, 8)
    data = jpeg(40, 30)
    data = data[:2] + jpeg_segment(0xE1, preview) + data[2:]
    header = examine(data)
    assert (header.width, header.height, header.end, header.exif) == (40, 30, len(data), preview)


def test_exif_is_distinguished_from_xmp():
    data = jpeg()
    xmp, exif = b"http://ns.adobe.com/xap/1.0/\0<x/>", b"Exif\0\0II*\0"
    data = data[:2] + jpeg_segment(0xE1, xmp) + jpeg_segment(0xE1, exif) + data[2:]
    assert examine(data).exif == exif
    assert examine(jpeg()).exif is None


def test_multi_image_files_are_detected():
    mpo = image_bytes("MPO", 40, 30, save_all=True, append_images=[image(40, 30, 1)])
    assert examine(mpo).multi_image
    assert not examine(jpeg()).multi_image


def test_only_metadata_is_stripped():
    icc = b"a profile" * 10_000
    rich = jpeg(40, 30, exif_orientation=6, comment=b"secret", xmp=b"<secret/>", icc_profile=icc)
    bare = strip_metadata(rich)
    assert b"secret" not in bare
    assert examine(bare).exif is None
    opened, before = Image.open(io.BytesIO(bare)), Image.open(io.BytesIO(rich))
    assert opened.info["icc_profile"] == icc
    np.testing.assert_array_equal(np.asarray(opened), np.asarray(before))
    assert strip_metadata(bare) == bare
    assert bare[bare.index(b"\xff\xda") :] == rich[rich.index(b"\xff\xda") :]


def test_a_file_without_metadata_is_unchanged():
    assert strip_metadata(jpeg()) == jpeg()


@given(st.binary(max_size=200))
def test_any_bytes_can_be_examined(data):
    header = examine(SOI + data)
    assert header.process in {None, *range(16)} - {4, 8, 12}
    assert header.end is None or (SOI + data)[: header.end][-2:] in (EOI, SOI)
