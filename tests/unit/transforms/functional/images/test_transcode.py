"""Tests that images are stored unchanged, transcoded, or rejected with a reason.

The results are compared with Pillow's full decode and with TensorFlow.
"""

from __future__ import annotations

import hashlib
import io
import random
import re
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, PngImagePlugin

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images import png as png_parser
from recordmill.transforms.functional.images.masks import _read_ids, examine_mask_in_process
from recordmill.transforms.functional.images.pixels import thumbnail_of
from recordmill.transforms.functional.images.transcode import _keep, _pass_through_source, transcode
from tests.corpus import corpus
from tests.images import (
    image,
    image_bytes,
    jpeg,
    jpeg_header,
    jpeg_segment,
    png,
    png_16_bit,
    png_chunk,
    png_header,
)

SETTINGS = ImageSettings()


def reason(data, settings=SETTINGS, decode="full"):
    """Returns the rejection reason of an image, or None."""
    rejected = None
    try:
        transcode(data, settings, decode)
    except RecordError as error:
        rejected = error
    assert rejected is None or rejected.detail, "a reject needs a message"
    return rejected and rejected.reason


PASSED = [
    pytest.param(jpeg(40, 30), "jpeg", 3, id="JPEG"),
    pytest.param(jpeg(40, 30, progressive=True), "jpeg", 3, id="progressive JPEG"),
    pytest.param(jpeg(40, 30, mode="L"), "jpeg", 1, id="gray JPEG"),
    pytest.param(jpeg(40, 30, mode="L", progressive=True), "jpeg", 1, id="gray progressive JPEG"),
    pytest.param(jpeg(40, 30, subsampling="4:4:4"), "jpeg", 3, id="JPEG 4:4:4"),
    pytest.param(jpeg(40, 30, subsampling="4:2:2"), "jpeg", 3, id="JPEG 4:2:2"),
    pytest.param(jpeg(40, 30, restart_marker_blocks=2), "jpeg", 3, id="JPEG with restarts"),
    pytest.param(jpeg(40, 30, keep_rgb=True), "jpeg", 3, id="JPEG that stores RGB"),
    pytest.param(jpeg(40, 30, icc_profile=b"x" * 70_000), "jpeg", 3, id="JPEG with a profile"),
    pytest.param(jpeg(40, 30) + b"trailing bytes", "jpeg", 3, id="JPEG with bytes after it"),
    pytest.param(png(40, 30), "png", 3, id="PNG"),
    pytest.param(png(40, 30, mode="L"), "png", 1, id="gray PNG"),
    pytest.param(png(40, 30, mode="1"), "png", 1, id="1-bit PNG"),
    pytest.param(png(40, 30, mode="LA"), "png", 2, id="gray PNG with alpha"),
    pytest.param(png(40, 30, mode="RGBA"), "png", 4, id="PNG with alpha"),
    pytest.param(png(40, 30, mode="P"), "png", 3, id="palette PNG"),
    pytest.param(png(40, 30, mode="P", bits=2), "png", 3, id="2-bit palette PNG"),
    pytest.param(png(40, 30, mode="P", transparency=3), "png", 4, id="palette PNG with alpha"),
    pytest.param(png(40, 30, mode="L", transparency=3), "png", 1, id="gray PNG, one clear"),
    pytest.param(png(40, 30, transparency=(1, 2, 3)), "png", 3, id="PNG, one color clear"),
    pytest.param(png_16_bit(40, 30, channels=1), "png", 1, id="16-bit gray PNG"),
    pytest.param(png_16_bit(40, 30, channels=2), "png", 2, id="16-bit gray PNG with alpha"),
    pytest.param(png_16_bit(40, 30, channels=3), "png", 3, id="16-bit PNG"),
    pytest.param(png_16_bit(40, 30, channels=4), "png", 4, id="16-bit PNG with alpha"),
]


@pytest.mark.parametrize("decode", ["full", "header"])
@pytest.mark.parametrize(("data", "format_", "channels"), PASSED)
def test_images_pass_through_byte_for_byte(data, format_, channels, decode):
    stored = transcode(data, SETTINGS, decode)
    assert (stored.data, stored.format) == (data, format_)
    assert (stored.height, stored.width, stored.channels) == (30, 40, channels)
    assert stored.sha256 == hashlib.sha256(data).hexdigest()
    assert (stored.source_format, stored.orientation, stored.transcoded) == (format_, 1, 0)
    assert stored.treatment == f"{format_} kept"


@pytest.mark.parametrize(("data", "format_", "channels"), PASSED)
def test_tensorflow_decodes_stored_images_to_the_recorded_shape(data, format_, channels):
    assert tf.io.decode_image(data).shape == (30, 40, channels)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", Reason.EMPTY_FILE, id="no bytes"),
        pytest.param(b"\xff\xd8", Reason.NOT_AN_IMAGE, id="two bytes of a JPEG"),
        pytest.param(b"<html>404</html>", Reason.NOT_AN_IMAGE, id="a web page"),
        pytest.param(b"\0" * 1000, Reason.NOT_AN_IMAGE, id="zeros"),
        pytest.param(b"\n" + jpeg(), Reason.NOT_AN_IMAGE, id="a JPEG with a byte before it"),
        pytest.param(
            image_bytes("EPS"), Reason.UNSUPPORTED_FORMAT, id="EPS: no Ghostscript is started"
        ),
        pytest.param(image_bytes("PDF"), Reason.UNSUPPORTED_FORMAT, id="PDF"),
        pytest.param(
            jpeg_header(8, 8, process=5), Reason.UNSUPPORTED_FEATURE, id="hierarchical JPEG"
        ),
        # Nothing is damaged in it: "corrupt" would send its owner to look for what is not there.
        pytest.param(
            jpeg_header(8, 8, process=1, precision=12), Reason.UNSUPPORTED_FEATURE, id="12-bit JPEG"
        ),
        pytest.param(jpeg_header(65_500, 65_500), Reason.TOO_MANY_PIXELS, id="huge JPEG"),
        pytest.param(
            png_header(999_999, 999_999) + png_chunk(b"IDAT", b"") + png_chunk(b"IEND", b""),
            Reason.TOO_MANY_PIXELS,
            id="huge PNG",
        ),
        pytest.param(
            png_header(2**31 - 1, 1) + png_chunk(b"IDAT", b"") + png_chunk(b"IEND", b""),
            Reason.INVALID_DIMENSIONS,
            id="wider than libpng reads",
        ),
        pytest.param(jpeg_header(0, 8), Reason.INVALID_DIMENSIONS, id="JPEG without width"),
        pytest.param(jpeg_header(8, 0), Reason.INVALID_DIMENSIONS, id="JPEG without height"),
        pytest.param(
            png_header(0, 8) + png_chunk(b"IDAT", b"") + png_chunk(b"IEND", b""),
            Reason.INVALID_DIMENSIONS,
            id="PNG without width",
        ),
        pytest.param(jpeg()[:-20], Reason.TRUNCATED, id="JPEG cut in its last block"),
        pytest.param(jpeg(progressive=True)[:-20], Reason.TRUNCATED, id="progressive JPEG cut"),
        pytest.param(jpeg()[:300], Reason.TRUNCATED, id="JPEG cut in its tables"),
        pytest.param(png()[:-50], Reason.TRUNCATED, id="PNG cut in its pixels"),
        pytest.param(image_bytes("GIF", mode="P")[:-30], Reason.TRUNCATED, id="GIF cut"),
        pytest.param(image_bytes("BMP")[:-30], Reason.TRUNCATED, id="BMP cut"),
        pytest.param(
            png_header(8, 8) + png_chunk(b"IDAT", b"no zlib stream") + png_chunk(b"IEND", b""),
            Reason.CORRUPT,
            id="PNG with pixels that are none",
        ),
    ],
)
def test_images_are_rejected_with_a_reason(data, expected):
    assert reason(data) is expected


TRANSCODED = [
    pytest.param(image_bytes("BMP", 40, 30, 5), image(40, 30, 5), "bmp", id="BMP"),
    pytest.param(
        image_bytes("BMP", 40, 30, 5, "P"), image(40, 30, 5, "L"), "bmp", id="palette BMP"
    ),
    pytest.param(image_bytes("GIF", 40, 30, 5, "L"), image(40, 30, 5, "L"), "gif", id="GIF"),
    pytest.param(image_bytes("TIFF", 40, 30, 5), image(40, 30, 5), "tiff", id="TIFF"),
    pytest.param(
        image_bytes("TIFF", 40, 30, 5, "RGBA"),
        image(40, 30, 5, "RGBA"),
        "tiff",
        id="TIFF with alpha",
    ),
    pytest.param(image_bytes("PPM", 40, 30, 5), image(40, 30, 5), "pnm", id="PPM"),
    pytest.param(image_bytes("PPM", 40, 30, 5, "1"), image(40, 30, 5, "1"), "pnm", id="PBM"),
    pytest.param(
        image_bytes("GIF", 40, 30, 5, "L", save_all=True, append_images=[image(40, 30, 6, "L")]),
        image(40, 30, 5, "L"),
        "gif",
        id="the first frame of an animation",
    ),
]


@pytest.mark.parametrize(("data", "drawn", "format_"), TRANSCODED)
def test_other_formats_become_a_png_of_the_same_pixels(data, drawn, format_):
    stored = transcode(data, SETTINGS)
    assert (stored.format, stored.source_format, stored.transcoded) == ("png", format_, 1)
    assert (stored.height, stored.width) == (30, 40)
    assert stored.treatment == f"{format_} to png"
    assert stored.sha256 == hashlib.sha256(stored.data).hexdigest()
    found = tf.io.decode_png(stored.data).numpy()
    assert found.shape == (30, 40, stored.channels)
    color = "RGBA" if drawn.mode == "RGBA" else "RGB"
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[stored.channels]
    shown = Image.fromarray(found.squeeze(), mode).convert(color)
    np.testing.assert_array_equal(np.asarray(shown), np.asarray(drawn.convert(color)))


@pytest.mark.parametrize(("data", "drawn", "format_"), TRANSCODED)
def test_other_formats_are_rejected_on_demand(data, drawn, format_):
    expected = Reason.ANIMATED if b"NETSCAPE" in data else Reason.UNSUPPORTED_FORMAT
    rejecting = ImageSettings(unsupported="reject", animated="reject")
    assert reason(data, rejecting) in (expected, Reason.ANIMATED)
    assert reason(data, ImageSettings(unsupported="reject")) is Reason.UNSUPPORTED_FORMAT


@pytest.mark.parametrize(
    ("format_", "options"),
    [("WEBP", {"lossless": True}), ("JPEG2000", {"irreversible": False}), ("ICO", {})],
)
def test_other_formats_that_this_pillow_can_write(format_, options):
    try:
        data = image_bytes(format_, 64, 64, 5, **options)
    except (OSError, KeyError):
        pytest.skip(f"this Pillow writes no {format_}")
    stored = transcode(data, SETTINGS)
    found = tf.io.decode_png(stored.data, channels=3).numpy()
    np.testing.assert_array_equal(found, np.asarray(image(64, 64, 5)))


def test_cmyk_becomes_rgb():
    stored = transcode(jpeg(40, 30, mode="CMYK"), SETTINGS)
    assert (stored.format, stored.channels, stored.mode) == ("png", 3, "CMYK")
    assert tf.io.decode_png(stored.data).shape == (30, 40, 3)
    assert reason(jpeg(mode="CMYK"), ImageSettings(unsupported="reject")) is (
        Reason.UNSUPPORTED_FORMAT
    )


def test_the_first_of_several_images_is_kept_without_the_others():
    mpo = image_bytes("MPO", 40, 30, 5, save_all=True, append_images=[image(40, 30, 1)])
    stored = transcode(mpo, SETTINGS)
    assert (stored.format, stored.source_format) == ("jpeg", "mpo")
    assert mpo.startswith(stored.data)
    assert stored.data.count(b"\xff\xd8\xff") == 1
    with Image.open(io.BytesIO(mpo)) as opened:
        expected = np.asarray(opened.convert("RGB"))
    with Image.open(io.BytesIO(stored.data)) as opened:
        assert opened.format in ("JPEG", "MPO")
        np.testing.assert_array_equal(np.asarray(opened), expected)


TURNED = {
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("draw", [jpeg, png], ids=["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [0, 1, 9])
def test_images_with_an_invalid_orientation_pass_through(draw, orientation):
    data = draw(exif_orientation=orientation)  # 0 is what cameras write that do not know
    assert transcode(data, SETTINGS).data == data


@pytest.mark.parametrize("draw", [jpeg, png], ids=["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", TURNED)
def test_images_are_stored_upright(draw, orientation):
    data = draw(40, 30, 5, exif_orientation=orientation)
    with Image.open(io.BytesIO(data)) as opened:
        expected = TURNED[orientation](np.asarray(opened))
    stored = transcode(data, SETTINGS)
    assert (stored.orientation, stored.transcoded) == (orientation, 1)
    assert (stored.height, stored.width) == expected.shape[:2]
    found = tf.io.decode_png(stored.data).numpy()
    np.testing.assert_array_equal(found, expected)
    with Image.open(io.BytesIO(stored.data)) as opened:
        assert opened.getexif().get(0x112, 1) == 1  # or a reader would turn it once more


@pytest.mark.parametrize("setting", ["record", "ignore"])
def test_orientation_can_be_left_to_readers(setting):
    data = jpeg(exif_orientation=6)
    assert transcode(data, ImageSettings(orientation=setting)).data == data


@pytest.mark.parametrize(
    ("data", "options", "shape"),
    [
        pytest.param(png(40, 30), {"color": "gray"}, (30, 40, 1), id="gray"),
        pytest.param(png(40, 30, mode="L"), {"color": "rgb"}, (30, 40, 3), id="color"),
        pytest.param(png(40, 30, mode="RGBA"), {"alpha": "drop"}, (30, 40, 3), id="no alpha"),
        pytest.param(png_16_bit(40, 30), {"bit_depth": 8}, (30, 40, 3), id="8 bits"),
        pytest.param(png(40, 30), {"max_side": 20}, (15, 20, 3), id="at most 20"),
        pytest.param(png(40, 30), {"resize": "8x8 crop"}, (8, 8, 3), id="8 x 8"),
        pytest.param(png(40, 30), {"format": "jpeg"}, (30, 40, 3), id="as JPEG"),
        pytest.param(jpeg(40, 30), {"format": "png"}, (30, 40, 3), id="as PNG"),
    ],
)
def test_settings_are_applied(data, options, shape):
    stored = transcode(data, ImageSettings(**options))
    assert stored.transcoded == 1
    assert (stored.height, stored.width, stored.channels) == shape
    decoded = tf.io.decode_image(stored.data)
    assert (decoded.shape, decoded.dtype) == (shape, tf.uint8)


@pytest.mark.parametrize(
    ("data", "options", "format_", "treatment"),
    [
        (jpeg(40, 30), {"max_side": 20}, "jpeg", "jpeg to jpeg, resized"),
        (jpeg(40, 30), {"resize": "50x50 pad"}, "jpeg", "jpeg to jpeg, resized"),
        (jpeg(40, 30, mode="L"), {"max_side": 20}, "jpeg", "jpeg to jpeg, resized"),
        (jpeg(40, 30), {"max_side": 20, "format": "png"}, "png", "jpeg to png, resized, png"),
        (jpeg(40, 30), {"max_side": 40}, "jpeg", "jpeg kept"),
        (jpeg(40, 30), {"max_side": 40, "color": "gray"}, "png", "jpeg to png, in gray"),
        (png(40, 30), {"max_side": 20}, "png", "png to png, resized"),
        (image_bytes("WEBP", 40, 30), {"max_side": 20}, "png", "webp to png, resized"),
    ],
)
def test_only_resized_jpegs_are_encoded_as_jpegs(data, options, format_, treatment):
    stored = transcode(data, ImageSettings(**options))
    assert (stored.format, stored.treatment) == (format_, treatment)
    assert data == stored.data if treatment == "jpeg kept" else stored.transcoded == 1


def test_a_resized_jpeg_has_the_stated_quality_and_fewer_bytes():
    data = jpeg(640, 480, 3, quality=90)
    resized = Image.open(io.BytesIO(data)).resize((320, 240), Image.Resampling.LANCZOS)
    expected = np.asarray(resized).astype(int)
    sizes = []
    for quality, difference in ((95, 3), (50, 12)):
        stored = transcode(data, ImageSettings(max_side=320, quality=quality)).data
        found = np.asarray(Image.open(io.BytesIO(stored))).astype(int)
        assert np.abs(found - expected).mean() < difference
        sizes.append(len(stored))
    assert sizes[1] < sizes[0] < len(data)


def test_raw_images_are_the_samples():
    stored = transcode(png(40, 30, 5), ImageSettings(format="raw"))
    assert stored.format == "raw"
    assert stored.data == np.asarray(image(40, 30, 5)).tobytes()


@pytest.mark.parametrize("draw", [jpeg, png], ids=["JPEG", "PNG"])
def test_metadata_is_stripped_on_demand(draw):
    stored = transcode(draw(exif_orientation=1), ImageSettings(strip_metadata=True))
    assert stored.transcoded == 0
    with Image.open(io.BytesIO(stored.data)) as opened:
        assert dict(opened.getexif()) == {}


def test_small_and_animated_images_are_rejected_on_demand():
    assert reason(png(40, 30), ImageSettings(min_side=30)) is None
    assert reason(png(40, 30), ImageSettings(min_side=31)) is Reason.INVALID_DIMENSIONS
    apng = image_bytes("PNG", 40, 30, save_all=True, append_images=[image(40, 30, 1)])
    assert reason(apng, ImageSettings(animated="reject")) is Reason.ANIMATED
    assert reason(apng) is None


@pytest.mark.parametrize("data", [jpeg(40, 30), png(40, 30)], ids=["JPEG", "PNG"])
@pytest.mark.parametrize(
    ("limit", "expected"), [(40 * 30, None), (40 * 30 - 1, Reason.TOO_MANY_PIXELS)]
)
def test_the_pixel_limit_is_inclusive(data, limit, expected):
    assert reason(data, ImageSettings(max_pixels=limit)) is expected


def test_the_default_pixel_limit():
    assert reason(jpeg_header(65_000, 2_754)) is Reason.TOO_MANY_PIXELS  # 179,010,000
    assert reason(jpeg_header(65_000, 2_753), decode="header") is None  # 178,945,000


@pytest.mark.parametrize(
    "data",
    [
        jpeg_header(40, 30),
        png_header(40, 30) + png_chunk(b"IDAT", b"no zlib stream") + png_chunk(b"IEND", b""),
    ],
    ids=["JPEG", "PNG"],
)
def test_header_mode_reads_no_pixels(data):
    assert reason(data) in (Reason.TRUNCATED, Reason.CORRUPT)
    assert reason(data, decode="header") is None


@pytest.mark.parametrize(
    "data",
    [
        jpeg(16, 12),
        jpeg(16, 12, progressive=True),
        jpeg(16, 12, mode="L", restart_marker_blocks=1),
        png(16, 12),
        png(16, 12, mode="P", transparency=1),
        png_16_bit(16, 12),
    ],
    ids=["JPEG", "progressive", "gray", "PNG", "palette", "16-bit"],
)
def test_an_image_cut_at_any_byte_is_rejected(data):
    assert reason(data) is None
    passed = [length for length in range(len(data)) if reason(data[:length]) is None]
    assert passed == []


@pytest.mark.parametrize(
    "data",
    [png(16, 12), png(16, 12, mode="P", transparency=1), png_16_bit(16, 12, channels=2)],
    ids=["RGB", "palette", "16-bit"],
)
def test_any_changed_byte_that_readers_need_in_a_png_is_detected(data):
    # Every chunk has a checksum: a wrong one makes TensorFlow reject the file, or skip the chunk.
    unlike = []
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        try:
            stored = transcode(bytes(damaged), SETTINGS)
        except RecordError:
            continue
        try:
            shape = tuple(tf.io.decode_png(stored.data).shape)
        except tf.errors.InvalidArgumentError:
            shape = "cannot be decoded"
        if shape != (stored.height, stored.width, stored.channels):
            unlike.append((at, shape))
    assert unlike == []


@pytest.mark.parametrize("end", [b"", b"\0\0", b"\xff\0", b"\xff\xd0"], ids=repr)
def test_a_jpeg_without_its_end_never_passes_through(end):
    # Every pixel is there, and Pillow is content; TensorFlow reads on for the end, and fails.
    for data in (jpeg(17, 9), jpeg(3, 5, subsampling="4:2:2"), jpeg(17, 9, mode="L")):
        try:
            stored = transcode(data[:-2] + end, SETTINGS)
        except RecordError:
            continue
        assert stored.transcoded == 1
        assert tf.io.decode_png(stored.data).shape[:2] == (stored.height, stored.width)


FORMS = {
    "baseline": {},
    "progressive": {"progressive": True},
    "gray": {"mode": "L"},
    "gray progressive": {"mode": "L", "progressive": True},
    "4:4:4": {"subsampling": "4:4:4"},
    "4:2:2": {"subsampling": "4:2:2"},
    "4:2:0": {"subsampling": "4:2:0"},
    "progressive 4:4:4": {"subsampling": "4:4:4", "progressive": True},
    "restarts": {"restart_marker_blocks": 2},
    "progressive with restarts": {"restart_marker_rows": 1, "progressive": True},
    "strong": {"quality": 20, "optimize": True},
}
SIZES = ((64, 48), (17, 9), (3, 5), (120, 72))


def damaged_jpegs(form, a_kind):
    """Yields damaged JPEGs, mostly with damage in their coded data; the same in every run."""
    chance = random.Random(f"damage {form}")
    for width, height in SIZES:
        data = jpeg(width, height, seed=width, **FORMS[form])
        scan = data.index(b"\xff\xda")
        for _ in range(a_kind):
            yield data[: chance.randrange(scan, len(data))]
            for start in (2, scan, scan):
                changed = bytearray(data)
                changed[chance.randrange(start, len(data))] ^= 1 << chance.randrange(8)
                yield bytes(changed)
            changed = bytearray(data)
            for _ in range(4):
                changed[chance.randrange(scan, len(data))] = chance.randrange(256)
            yield bytes(changed)
            at, length = chance.randrange(scan, len(data)), chance.randrange(1, 20)
            yield data[:at] + data[at + length :]
            yield data[:at] + bytes(len(data[at : at + length])) + data[at + length :]
            yield data[:at] + data[at : at + length] + data[at:]


def fully_decodes(data):
    """Returns whether Pillow decodes a JPEG at full size and in color."""
    try:
        with Image.open(io.BytesIO(data), formats=["JPEG"]) as opened:
            opened.load()
    except (OSError, SyntaxError, ValueError, IndexError, struct.error):
        return False
    return True


def reaches_its_end(data):
    """Returns whether the markers lead to the end-of-image marker (T.81, annex B)."""
    position = 2
    while marker := re.compile(rb"\xff[^\x00\xd0-\xd7\xff]").search(data, position):
        if marker[0] == b"\xff\xd9":
            return True
        position = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
    return False


@pytest.mark.parametrize("form", FORMS)
def test_the_scaled_decode_of_damaged_jpegs_agrees_with_the_full_decode(form):
    damaged = [d for d in damaged_jpegs(form, a_kind=10) if reason(d, decode="header") is None]
    full = [fully_decodes(data) for data in damaged]
    scaled = [reason(data) is None for data in damaged]
    assert [d for d, f, s in zip(damaged, full, scaled, strict=True) if s and not f] == []
    # Pillow is content with a file whose end is lost; `transcode` need not be.
    missed = [d for d, f, s in zip(damaged, full, scaled, strict=True) if f and not s]
    assert [data for data in missed if reaches_its_end(data)] == []
    assert len(damaged) >= 200  # of 11 forms: more than 2,000 files
    assert full.count(True) >= 40, "the corpus must hold files that decode"
    assert full.count(False) >= 10, "and files that do not"


@pytest.mark.parametrize("form", FORMS)
def test_tensorflow_decodes_every_damaged_jpeg_that_passes(form):
    rejected = []
    for data in damaged_jpegs(form, a_kind=3):
        try:
            stored = transcode(data, SETTINGS)
        except RecordError:
            continue
        try:
            shape = tf.io.decode_image(stored.data).shape
        except tf.errors.InvalidArgumentError:
            rejected.append(data)
        else:
            assert shape == (stored.height, stored.width, stored.channels)
    assert rejected == []


def bases():
    """Returns images with many kinds of metadata."""
    text = PngImagePlugin.PngInfo()
    text.add_text("a", "b" * 50, zip=True)
    text.add_itxt("c", "d")
    second = [image(16, 12, 2)]
    return [
        jpeg(exif_orientation=1),
        jpeg(icc_profile=b"y" * 100, comment=b"hi", xmp=b'<x tiff:Orientation="1"/>'),
        png(exif_orientation=1),
        png(mode="P", transparency=b"\0\1"),
        png(pnginfo=text, icc_profile=b"x" * 200, dpi=(72, 72)),
        image_bytes("MPO", save_all=True, append_images=second),
        image_bytes("PNG", save_all=True, append_images=second),
    ]


@pytest.mark.filterwarnings("ignore")  # Pillow's, on metadata that it skips
@pytest.mark.parametrize("decode", ["full", "header"])
def test_any_bytes_are_read_or_rejected(decode):
    chance = random.Random(7)
    for base in bases():
        for _ in range(300):
            changed = bytearray(base)
            for _ in range(chance.randrange(1, 4)):
                value = chance.choice([0, 255, chance.randrange(256)])
                changed[chance.randrange(2, len(base))] = value
            reason(bytes(changed), decode=decode)


@pytest.mark.filterwarnings("ignore")  # Pillow's, on metadata that it skips
def test_invalid_exif_does_not_end_the_run():
    chance = random.Random(8)
    for _ in range(300):
        exif = b"Exif\0\0" + chance.choice([b"II*\0", b"MM\0*"]) + chance.randbytes(60)
        data = jpeg()
        reason(data[:2] + jpeg_segment(0xE1, exif) + data[2:])


def test_stored_images_have_the_original_pixels():
    drawn = np.asarray(image(40, 30, 5))
    stored = transcode(png(40, 30, 5), SETTINGS)
    np.testing.assert_array_equal(tf.io.decode_png(stored.data).numpy(), drawn)


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each PNG whose chunks have been checked."""
    lengths: list[int] = []
    examine = png_parser.examine

    def counted(data: bytes, bounded: bool = False) -> png_parser.PngHeader:
        lengths.append(len(data))
        return examine(data, bounded)

    monkeypatch.setattr(png_parser, "examine", counted)
    return lengths


def test_the_chunks_of_a_png_are_checked_once(examined):
    kept = png(40, 30)
    assert _keep(kept, _pass_through_source(kept, SETTINGS), SETTINGS, "full").data == kept
    encoded = png(41, 30)
    assert transcode(encoded, ImageSettings(max_side=20)).width == 20
    mask = png(42, 30, mode="L")
    assert _read_ids(mask, (42, 30), "displayed", examine_mask_in_process(mask)).shape == (30, 42)
    assert examined == [len(kept), len(encoded), len(mask)]


def test_a_png_without_its_metadata_is_checked_again(examined):
    """Stripping creates another file, without chunks after the pixels."""
    text = PngImagePlugin.PngInfo()
    text.add(b"tEXt", b"a\0b", after_idat=True)
    data = png(pnginfo=text)
    settings = ImageSettings(strip_metadata=True)
    stored = _keep(data, _pass_through_source(data, settings), settings, "full")
    assert examined == [len(data), len(stored.data)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(specimen.data, id=specimen.name)
        for specimen in corpus()
        if specimen.format == "png" and specimen.outcome == "kept"
    ],
)
def test_the_thumbnail_of_a_png_is_that_of_its_pixels(data):
    with Image.open(io.BytesIO(data)) as decoded:
        expected = thumbnail_of(decoded)
    found = transcode(data, SETTINGS)
    assert found.data == data
    assert found.thumbnail == expected


@pytest.mark.parametrize("size", [(32, 32), (1200, 900)])
def test_a_png_is_decompressed_once(monkeypatch, size):
    checked = png_parser.checked_rows
    parts = []

    def black(*arguments):
        parts.extend(checked(*arguments))
        return (bytes(len(part)) for part in parts)

    monkeypatch.setattr(png_parser, "checked_rows", black)
    data = png(*size)
    assert set(transcode(data, SETTINGS).thumbnail) == {0}  # of the rows that the check returned
    assert sum(map(len, parts)) == png_parser.examine(data).inflated_bytes
