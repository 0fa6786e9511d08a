"""`strip_metadata` removes metadata of people and places, and leaves the image unchanged."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import ExifTags, Image, PngImagePlugin

from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.transcode import transcode
from tests.images import image, image_bytes, jpeg, jpeg_segment, png, png_chunk

STRIPPED = ImageSettings(strip_metadata=True)
SECRET = b"52.5163 N, 13.3777 E"
ICC = b"a profile " * 8000  # more than one segment


def exif():
    made = Image.Exif()
    made[ExifTags.Base.Artist] = SECRET.decode()
    made[ExifTags.Base.Orientation] = 1
    made.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSAreaInformation] = SECRET.decode()
    made.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = SECRET.decode()
    return made


def rich_jpeg(**options):
    data = jpeg(48, 32, 3, exif=exif(), icc_profile=ICC, comment=SECRET, xmp=SECRET, **options)
    iptc = jpeg_segment(0xED, b"Photoshop 3.0\0" + b"8BIM\4\4\0\0\0\0\0\x14" + SECRET)
    makers = b"".join(jpeg_segment(0xE0 + n, b"maker\0" + SECRET) for n in (3, 4, 6, 7, 11, 12, 15))
    thumbnail = jpeg_segment(0xE0, b"JFXX\0\x10" + SECRET)
    others = jpeg_segment(0xE2, b"FPXR\0" + SECRET) + jpeg_segment(0xE1, b"\0" + SECRET)
    return data[:20] + iptc + makers + thumbnail + others + data[20:]


def rich_png(mode="RGB", **options):
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", SECRET.decode())
    text.add_text("Zipped", SECRET.decode() * 50, zip=True)
    text.add_itxt("XML:com.adobe.xmp", SECRET.decode())
    data = png(48, 32, 3, mode, exif=exif(), icc_profile=ICC, pnginfo=text, **options)
    end = png_chunk(b"IEND", b"")
    late = png_chunk(b"tEXt", b"Late\0" + SECRET) + png_chunk(b"tIME", b"\x07\xea\1\1\1\1\1")
    return data.removesuffix(end) + late + end


FILES = [
    pytest.param(rich_jpeg(), id="JPEG"),
    pytest.param(rich_jpeg(progressive=True), id="progressive JPEG"),
    pytest.param(rich_jpeg(keep_rgb=True), id="JPEG that stores RGB"),
    pytest.param(rich_jpeg() + b"trailer " + SECRET, id="JPEG with a trailer"),
    pytest.param(rich_png(), id="PNG"),
    pytest.param(rich_png("P", transparency=3), id="palette PNG"),
    pytest.param(rich_png("LA"), id="gray PNG with alpha"),
    pytest.param(rich_png() + SECRET, id="PNG with a trailer"),
    pytest.param(
        image_bytes("MPO", 48, 32, 3, exif=exif(), save_all=True, append_images=[image(48, 32)]),
        id="MPO",
    ),
]


def coded(data):
    """Returns a JPEG's tables, frame and scans."""
    return data[data.index(b"\xff\xdb") : data.index(b"\xff\xd9", data.index(b"\xff\xda")) + 2]


@pytest.mark.parametrize("data", FILES)
def test_only_the_image_and_its_colors_are_left(data):
    assert SECRET in data
    stored = transcode(data, STRIPPED)
    assert stored.transcoded == 0
    assert SECRET not in stored.data
    for trace in (b"Exif", b"eXIf", b"GPS", b"http://", b"8BIM", b"MPF\0", b"tIME", b"Zipped"):
        assert trace not in stored.data
    opened, before = Image.open(io.BytesIO(stored.data)), Image.open(io.BytesIO(data))
    assert dict(opened.getexif()) == {}
    assert opened.info.get("icc_profile") == before.info.get("icc_profile")
    np.testing.assert_array_equal(np.asarray(opened), np.asarray(before))
    assert tf.io.decode_image(stored.data).shape == (32, 48, stored.channels)
    assert transcode(stored.data, STRIPPED).data == stored.data


@pytest.mark.parametrize("data", FILES[:3])
def test_the_coded_data_of_a_jpeg_is_the_same_to_the_byte(data):
    assert coded(transcode(data, STRIPPED).data) == coded(data)


@pytest.mark.parametrize("data", FILES[4:7])
def test_the_chunks_of_a_png_are_the_same_to_the_byte(data):
    bare = transcode(data, STRIPPED).data
    for name in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"iCCP"):
        at, before = bare.find(name), data.find(name)
        assert (at < 0) == (before < 0)
        if at >= 0:
            length = int.from_bytes(data[before - 4 : before], "big")
            assert bare[at - 4 : at + length + 8] == data[before - 4 : before + length + 8]


def test_skipped_bytes_are_not_moved_to_the_start():
    data = jpeg(48, 32)
    stuffed = data[:2] + jpeg_segment(0xE1, b"Exif\0\0" + SECRET) + b"skipped" + data[2:]
    assert tf.io.decode_image(stuffed).shape == (32, 48, 3)
    stored = transcode(stuffed, STRIPPED)
    assert stored.data == data
