"""Compares the checks of PNG files with TensorFlow, whose libpng is the strictest reader."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, PngImagePlugin

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.png import (
    SIGNATURE,
    check_rows,
    examine,
    stored,
    strip_metadata,
)
from tests.images import image, image_bytes, pixels, png, png_16_bit, png_chunk, png_header

IEND = png_chunk(b"IEND", b"")


def reason(data):
    """Returns the rejection reason of a PNG, or None."""
    reject = None
    try:
        check_rows(data, examine(data))
    except RecordError as error:
        reject = error
    assert reject is None or reject.detail
    return reject and reject.reason


def by_hand(width, height, rows, bit_depth=8, color_type=0, before=b""):
    """Returns a PNG of rows with their filter bytes, in two IDAT chunks."""
    data = zlib.compress(rows)
    header = png_header(width, height, bit_depth, color_type)
    half = len(data) // 2
    return (
        header + before + png_chunk(b"IDAT", data[:half]) + png_chunk(b"IDAT", data[half:]) + IEND
    )


def interlaced(drawn):
    """Returns a gray PNG in the seven passes of Adam7, which Pillow cannot write."""
    height, width = drawn.shape
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
    rows = b"".join(
        b"\0" + row.tobytes()
        for x, y, dx, dy in [*passes, (0, 1, 1, 2)]
        for row in drawn[y::dy, x::dx]
        if row.size
    )
    stated = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\0\0\0\x01"
    data = png_chunk(b"IHDR", stated) + png_chunk(b"IDAT", zlib.compress(rows)) + IEND
    return SIGNATURE + data, rows


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(b"", b"", (True, True), id="none"),
        pytest.param(png_chunk(b"tEXt", b"a\0b"), b"", (False, True), id="before the pixels"),
        pytest.param(b"", png_chunk(b"tEXt", b"a\0b"), (False, False), id="after the pixels"),
    ],
)
def test_chunks_without_pixels_are_noticed(before, after, expected):
    image_data = png_chunk(b"IDAT", zlib.compress(bytes(2)))
    header = examine(png_header(1, 1, color_type=0) + before + image_data + after + IEND)
    assert (header.only_pixels, header.ends_with_pixels) == expected


@pytest.mark.parametrize(
    ("data", "depth", "channels", "mode", "alpha"),
    [
        pytest.param(png(40, 30), 8, 3, "RGB", False, id="RGB"),
        pytest.param(png(40, 30, mode="L"), 8, 1, "L", False, id="gray"),
        pytest.param(png(40, 30, mode="1"), 1, 1, "1", False, id="1 bit"),
        pytest.param(png(40, 30, mode="LA"), 8, 2, "LA", True, id="gray and alpha"),
        pytest.param(png(40, 30, mode="RGBA"), 8, 4, "RGBA", True, id="RGBA"),
        pytest.param(png(40, 30, mode="P"), 8, 3, "P", False, id="palette"),
        pytest.param(png(40, 30, mode="P", bits=4), 4, 3, "P", False, id="4-bit palette"),
        pytest.param(png(40, 30, mode="P", transparency=1), 8, 4, "P", True, id="clear palette"),
        pytest.param(png_16_bit(40, 30, channels=1), 16, 1, "I;16", False, id="16-bit gray"),
        pytest.param(png_16_bit(40, 30, channels=2), 16, 2, "LA", True, id="16-bit gray, alpha"),
        pytest.param(png_16_bit(40, 30, channels=3), 16, 3, "RGB", False, id="16-bit RGB"),
        pytest.param(png_16_bit(40, 30, channels=4), 16, 4, "RGBA", True, id="16-bit RGBA"),
    ],
)
def test_headers(data, depth, channels, mode, alpha):
    header = examine(data)
    assert (header.width, header.height, header.depth) == (40, 30, depth)
    assert (header.channels, header.mode, header.has_alpha) == (channels, mode, alpha)
    assert (header.frames, header.orientation, header.interlaced) == (1, 1, False)
    assert reason(data) is None
    assert tf.io.decode_png(data).shape == (30, 40, channels)


def test_animation_and_exif():
    apng = image_bytes(
        "PNG", 40, 30, save_all=True, append_images=[image(40, 30, n) for n in (1, 2)]
    )
    assert examine(apng).frames == 3
    assert Image.open(io.BytesIO(apng)).n_frames == 3
    assert examine(png(exif_orientation=6)).orientation == 6


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (5, 3), (8, 8), (9, 17), (33, 2), (64, 40)])
def test_interlaced_rows_are_counted_as_by_libpng(size):
    drawn = pixels(*size, seed=1, channels=1)[:, :, 0]
    data, rows = interlaced(drawn)
    assert reason(data) is None
    np.testing.assert_array_equal(tf.io.decode_png(data)[:, :, 0], drawn)
    short = zlib.compress(rows[:-1])
    at = data.index(b"IDAT") - 4
    assert reason(data[:at] + png_chunk(b"IDAT", short) + IEND) is Reason.TRUNCATED


GRAY_ROWS = b"".join(b"%c" % (i % 5) + bytes([i] * 4) for i in range(6))  # every filter there is


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(by_hand(4, 6, GRAY_ROWS), None, id="every filter"),
        pytest.param(by_hand(4, 6, GRAY_ROWS + b"more"), None, id="bytes after the last row"),
        pytest.param(by_hand(4, 6, GRAY_ROWS[:-1]), Reason.TRUNCATED, id="a byte short"),
        pytest.param(by_hand(4, 6, GRAY_ROWS[:-5]), Reason.TRUNCATED, id="a row short"),
        pytest.param(
            by_hand(4, 6, GRAY_ROWS[:5] + b"\x05" + GRAY_ROWS[6:]), Reason.CORRUPT, id="filter 5"
        ),
        pytest.param(by_hand(4, 6, b"", bit_depth=3), Reason.CORRUPT, id="3 bits"),
        pytest.param(by_hand(4, 6, b"", color_type=5), Reason.CORRUPT, id="color type 5"),
        pytest.param(by_hand(4, 6, GRAY_ROWS, color_type=3), Reason.CORRUPT, id="no palette"),
        pytest.param(png_header(4, 6) + IEND, Reason.TRUNCATED, id="no image data"),
        pytest.param(SIGNATURE + IEND, Reason.CORRUPT, id="no header"),
        pytest.param(SIGNATURE, Reason.TRUNCATED, id="a signature alone"),
        pytest.param(png()[:-12], Reason.TRUNCATED, id="no last chunk"),
        pytest.param(
            png_header(4, 6) + png_chunk(b"IDAT", b"no zlib") + IEND, Reason.CORRUPT, id="no zlib"
        ),
        pytest.param(png() + b"trailing", None, id="bytes after the last chunk"),
    ],
)
def test_damage_is_detected(data, expected):
    assert reason(data) is expected


def test_filter_types_are_checked_across_pieces():
    width, height = 700, 3000  # more than one piece of 1 MiB
    rows = bytearray(b"".join(b"\0" + bytes(width) for _ in range(height)))
    assert reason(by_hand(width, height, bytes(rows))) is None
    for row in (0, 1, 1495, 1496, 1497, height - 1):
        damaged = bytearray(rows)
        damaged[row * (width + 1)] = 9
        assert reason(by_hand(width, height, bytes(damaged))) is Reason.CORRUPT


def test_a_damaged_ancillary_chunk_is_ignored():
    text = bytearray(png_chunk(b"tEXt", b"a\0b"))
    text[-1] ^= 1
    data = by_hand(4, 6, GRAY_ROWS, before=bytes(text))
    assert reason(data) is None
    assert tf.io.decode_png(data).shape == (6, 4, 1)


def test_only_metadata_is_stripped():
    text = PngImagePlugin.PngInfo()
    text.add_text("a", "secret")
    text.add_itxt("b", "secret")
    rich = png(40, 30, exif_orientation=6, pnginfo=text, icc_profile=b"a profile", dpi=(72, 72))
    bare = strip_metadata(rich)
    assert b"secret" not in bare
    assert examine(bare).orientation == 1
    assert b"eXIf" not in bare
    opened, before = Image.open(io.BytesIO(bare)), Image.open(io.BytesIO(rich))
    assert opened.info["icc_profile"] == b"a profile"
    np.testing.assert_array_equal(np.asarray(opened), np.asarray(before))
    assert strip_metadata(bare) == bare
    assert reason(bare) is None


@pytest.mark.parametrize("sizes", [(), (1,), (65_535,), (65_536, 3), (200_000, 131_070)])
def test_a_stored_stream_decompresses_to_its_data(sizes):
    parts = [np.random.default_rng(size).bytes(size) for size in sizes]
    assert zlib.decompress(b"".join(stored(parts))) == b"".join(parts)
