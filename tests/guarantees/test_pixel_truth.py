"""The pixels of records equal those computed with NumPy and other decoders than Pillow."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.transcode import transcode
from tests.corpus import adobe, bmp_of, lossless_jpeg, on_canvas, png_of, tiff_of
from tests.images import SRGB, SWAPPED, image, image_bytes, jpeg, pixels, png_chunk

WIDTH, HEIGHT = 40, 30
RANDOM = np.random.default_rng(11)
DEEP = RANDOM.integers(0, 65536, (HEIGHT, WIDTH, 1))
DEEP[0, :3, 0] = 0, 255, 65535
COLOR = RANDOM.integers(0, 256, (HEIGHT, WIDTH, 3))
RGBA = RANDOM.integers(0, 256, (HEIGHT, WIDTH, 4)).astype(np.uint8)


def stored_pixels(data, dtype=tf.uint8, **options):
    """Returns the pixels that TensorFlow reads from the record of a file."""
    stored = transcode(data, ImageSettings(**options))
    found = tf.io.decode_png(stored.data, dtype=dtype).numpy().astype(int)
    assert found.shape == (stored.height, stored.width, stored.channels)
    return found


def saved(drawn, format_, **options):
    stream = io.BytesIO()
    drawn.save(stream, format_, **options)
    return stream.getvalue()


def pnm(magic, most, samples):
    height, width, _ = samples.shape
    body = samples.astype(">u2" if most > 255 else "u1").tobytes()
    return b"%b\n%d %d\n%d\n" % (magic, width, height, most) + body


FLOATS = RANDOM.random((HEIGHT, WIDTH, 1)).astype("f4")
SIGNED = RANDOM.integers(-3000, 9000, (HEIGHT, WIDTH, 1))
WIDE = RANDOM.integers(0, 2**32, (HEIGHT, WIDTH, 1))


def by_range(values):
    low, high = values.min(), values.max()
    return (values.astype(float) - low) / (float(high) - low) * 65535


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(tiff_of(DEEP.astype("u2")), DEEP, id="TIFF, little-endian"),
        pytest.param(tiff_of(DEEP.astype("u2"), order=">"), DEEP, id="TIFF, big-endian"),
        pytest.param(tiff_of(SIGNED.astype("i2")), by_range(SIGNED), id="TIFF, signed"),
        pytest.param(tiff_of(SIGNED.astype("i4")), by_range(SIGNED), id="TIFF, 32 bits, signed"),
        pytest.param(tiff_of(WIDE.astype("u4")), by_range(WIDE), id="TIFF, 32 bits"),
        pytest.param(tiff_of(DEEP.astype("u4")), DEEP, id="TIFF, 16 bits in 32"),
        pytest.param(tiff_of(FLOATS), by_range(FLOATS), id="TIFF, floats"),
        pytest.param(tiff_of(FLOATS, order=">"), by_range(FLOATS), id="TIFF, big-endian floats"),
        pytest.param(tiff_of(FLOATS * 700 - 9), by_range(FLOATS), id="TIFF, floats of any range"),
        pytest.param(pnm(b"P5", 65535, DEEP), DEEP, id="PGM"),
        pytest.param(pnm(b"P5", 1023, DEEP % 1024), DEEP % 1024 * 65535 / 1023, id="PGM, 10 bits"),
        pytest.param(
            b"Pf\n%d %d\n-1.0\n" % (WIDTH, HEIGHT) + FLOATS[::-1].astype("<f4").tobytes(),
            by_range(FLOATS),
            id="PFM",
        ),
        pytest.param(
            saved(Image.fromarray(DEEP[:, :, 0].astype(np.uint16)), "JPEG2000"),
            DEEP,
            id="JPEG 2000",
        ),
        pytest.param(
            saved(Image.fromarray(DEEP[:, :, 0].astype(np.uint16)), "TIFF", compression="tiff_lzw"),
            DEEP,
            id="TIFF in LZW",
        ),
    ],
)
def test_deep_gray_keeps_its_full_range(data, expected):
    options = {"rescale": "per_image"}  # of those that are not unsigned integers of 16 bits
    found = stored_pixels(data, tf.uint16, **options)
    assert found.shape == (HEIGHT, WIDTH, 1)
    assert np.abs(found - expected).max() <= 1
    assert np.abs(stored_pixels(data, bit_depth=8, **options) - expected / 257).max() <= 1


def test_deep_colors_are_scaled():
    deep = RANDOM.integers(0, 65536, (HEIGHT, WIDTH, 3))
    for data in (
        tiff_of(deep.astype("u2"), photometric=2),
        tiff_of(deep.astype("u2"), photometric=2, order=">"),
        pnm(b"P6", 65535, deep),
        png_of(
            deep, 2, 16, before=png_chunk(b"eXIf", b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\1\0\0\0")
        ),
    ):
        assert np.abs(stored_pixels(data, bit_depth=8) - deep / 257).max() <= 1
        np.testing.assert_array_equal(stored_pixels(data, tf.uint16), deep)


PALETTE = RANDOM.integers(0, 256, (256, 4)).astype(np.uint8)
INDICES = {bits: RANDOM.integers(0, 2**bits, (HEIGHT, WIDTH, 1)) for bits in (1, 4, 8)}


@pytest.mark.parametrize("top_down", [False, True])
@pytest.mark.parametrize("bits", INDICES)
def test_bmp_of_a_palette(bits, top_down):
    palette = PALETTE[: 2**bits].copy()
    palette[:, 3] = 0
    data = bmp_of(INDICES[bits], bits, palette=palette.tobytes(), top_down=top_down)
    expected = palette[INDICES[bits][:, :, 0]][:, :, 2::-1].astype(int)  # blue comes first
    np.testing.assert_array_equal(stored_pixels(data), expected)


@pytest.mark.parametrize("top_down", [False, True])
@pytest.mark.parametrize("channels", [3, 4])
def test_bmp_of_colors(channels, top_down):
    drawn = RANDOM.integers(0, 256, (HEIGHT, WIDTH, channels))
    found = stored_pixels(bmp_of(drawn, 8 * channels, top_down=top_down))
    np.testing.assert_array_equal(found[:, :, :3], drawn[:, :, 2::-1])
    assert found.shape[2] == 3


def test_bmp_of_16_bits():
    drawn = RANDOM.integers(0, 65536, (HEIGHT, WIDTH))
    body = drawn[::-1].astype("<u2").tobytes()
    masks = struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    found = stored_pixels(bmp_of(drawn, 16, compression=3, masks=masks, body=body))
    expected = np.stack(
        [(drawn >> 11) * 255 / 31, (drawn >> 5 & 63) * 255 / 63, (drawn & 31) * 255 / 31]
    )
    assert np.abs(found - np.moveaxis(expected, 0, 2)).max() <= 1
    found = stored_pixels(bmp_of(drawn, 16, body=body))
    expected = np.stack([(drawn >> shift & 31) * 255 / 31 for shift in (10, 5, 0)], axis=2)
    assert np.abs(found - expected).max() <= 1


def test_run_lengths_of_a_bmp():
    palette = PALETTE.copy()
    palette[:, 3] = 0
    body = b"".join(bytes([WIDTH, 7 * row, 0, 0]) for row in range(HEIGHT)) + b"\0\1"
    data = bmp_of(np.zeros((HEIGHT, WIDTH)), 8, palette=palette.tobytes(), compression=1, body=body)
    rows = palette[[7 * row for row in range(HEIGHT)]][::-1, 2::-1].astype(int)
    np.testing.assert_array_equal(stored_pixels(data), np.repeat(rows[:, None], WIDTH, axis=1))


def gif(indices, **options):
    drawn = Image.fromarray(indices[:, :, 0].astype(np.uint8), "P")
    drawn.putpalette(PALETTE[:, :3].tobytes())
    return saved(drawn, "GIF", optimize=False, **options)


def test_gif():
    colors = PALETTE[INDICES[8][:, :, 0], :3].astype(int)
    np.testing.assert_array_equal(stored_pixels(gif(INDICES[8])), colors)
    np.testing.assert_array_equal(stored_pixels(gif(INDICES[8], interlace=1)), colors)
    found = stored_pixels(gif(INDICES[4], transparency=3))
    colors = PALETTE[INDICES[4][:, :, 0], :3].astype(int)
    clear = INDICES[4][:, :, 0] == 3
    np.testing.assert_array_equal(found[:, :, 3], np.where(clear, 0, 255))
    np.testing.assert_array_equal(found[~clear][:, :3], colors[~clear])


def test_the_first_frame_of_a_gif_keeps_its_position_on_the_canvas():
    found = stored_pixels(on_canvas(gif(INDICES[8]), (100, 80), 10, 20))
    assert found.shape == (80, 100, 3)
    colors = PALETTE[INDICES[8][:, :, 0], :3].astype(int)
    np.testing.assert_array_equal(found[20 : 20 + HEIGHT, 10 : 10 + WIDTH], colors)
    assert len(np.unique(found[:20].reshape(-1, 3), axis=0)) == 1
    found = stored_pixels(on_canvas(gif(INDICES[4], transparency=3), (100, 80), 10, 20))
    assert found[:20, :, 3].max() == 0  # what is not drawn on is clear, where anything can be


EIGHTHS = {"II": b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0%c\0\0\0\0\0\0\0"}


def turned(orientation):
    return png_chunk(b"eXIf", EIGHTHS["II"].replace(b"%c", bytes([orientation])))


def test_palettes_with_alpha():
    clear = RANDOM.integers(0, 256, 200).astype(np.uint8)
    chunks = png_chunk(b"PLTE", PALETTE[:, :3].tobytes()) + png_chunk(b"tRNS", clear.tobytes())
    found = stored_pixels(png_of(INDICES[8], 3, before=chunks + turned(3)))
    alpha = np.concatenate([clear, np.full(56, 255)])[INDICES[8][:, :, 0]]
    expected = np.dstack([PALETTE[INDICES[8][:, :, 0], :3], alpha])
    np.testing.assert_array_equal(found, expected[::-1, ::-1])


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_gray_with_a_transparent_value(depth):
    samples = RANDOM.integers(0, 2**depth, (HEIGHT, WIDTH, 1))
    key = int(samples[0, 0, 0])
    chunks = png_chunk(b"tRNS", struct.pack(">H", key)) + turned(3)
    found = stored_pixels(png_of(samples, 0, depth, before=chunks))
    gray = samples[:, :, 0] * 255 / (2**depth - 1)
    expected = np.dstack([gray, np.where(samples[:, :, 0] == key, 0, 255)])[::-1, ::-1]
    assert np.abs(found - expected).max() <= 1
    on_red = stored_pixels(png_of(samples, 0, depth, before=chunks), alpha="composite #ff0000")
    assert on_red[-1, -1].tolist() == [255, 0, 0]


def test_a_transparent_color_is_composited_and_never_shown():
    samples = RANDOM.integers(0, 256, (HEIGHT, WIDTH, 3))
    samples[5:10] = 10, 20, 30
    data = png_of(samples, 2, before=png_chunk(b"tRNS", struct.pack(">HHH", 10, 20, 30)))
    found = stored_pixels(data, alpha="composite #405060")
    assert np.unique(found[5:10].reshape(-1, 3), axis=0).tolist() == [[0x40, 0x50, 0x60]]
    np.testing.assert_array_equal(found[10:], samples[10:])
    np.testing.assert_array_equal(stored_pixels(data, alpha="drop"), samples)
    stored = transcode(data, ImageSettings(format="jpeg"))
    assert tf.io.decode_jpeg(stored.data).numpy()[7].mean() > 250  # white


def test_tiffs_of_other_kinds():
    drawn = pixels(WIDTH, HEIGHT, 1, 2)
    np.testing.assert_array_equal(stored_pixels(image_bytes("TIFF", WIDTH, HEIGHT, 1, "LA")), drawn)
    gray = RANDOM.integers(0, 256, (HEIGHT, WIDTH, 1)).astype("u1")
    np.testing.assert_array_equal(
        stored_pixels(tiff_of(gray, photometric=0)), 255 - gray.astype(int)
    )
    cmyk = RANDOM.integers(0, 256, (HEIGHT, WIDTH, 4)).astype("u1")
    expected = (255 - cmyk[:, :, :3].astype(float)) * (255 - cmyk[:, :, 3:].astype(float)) / 255
    assert np.abs(stored_pixels(tiff_of(cmyk, photometric=5)) - expected).max() <= 1


def test_premultiplied_alpha_is_divided_out():
    alpha = RANDOM.integers(40, 256, (HEIGHT, WIDTH, 1))
    straight = RANDOM.integers(0, 256, (HEIGHT, WIDTH, 3))
    multiplied = np.rint(straight * alpha / 255)
    samples = np.dstack([multiplied, alpha]).astype("u1")
    found = stored_pixels(tiff_of(samples, photometric=2, extra={338: (3, [1])}))
    np.testing.assert_array_equal(found[:, :, 3:], alpha)
    expected = np.minimum(255, multiplied * 255 / alpha)
    assert np.abs(found[:, :, :3] - expected).max() <= 1
    found = stored_pixels(tiff_of(samples, photometric=2, extra={338: (3, [2])}))  # straight
    np.testing.assert_array_equal(found, samples)


def test_lab_by_the_formula():
    lab = np.dstack(
        [RANDOM.integers(60, 200, (HEIGHT, WIDTH))]
        + [RANDOM.integers(-20, 20, (HEIGHT, WIDTH))] * 2
    )
    lightness = lab[:, :, 0] / 255 * 100
    fy = (lightness + 16) / 116
    f = np.stack([fy + lab[:, :, 1] / 500, fy, fy - lab[:, :, 2] / 200], axis=2)
    xyz = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * (0.9642, 1, 0.8249)  # D50
    to_linear = [[3.1338561, -1.6168667, -0.4906146], [-0.9787684, 1.9161415, 0.0334540]]
    linear = np.clip(xyz @ np.transpose([*to_linear, [0.0719453, -0.2289914, 1.4052427]]), 0, 1)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    error = np.abs(stored_pixels(tiff_of(lab.astype("i1").view("u1"), photometric=8)) - srgb * 255)
    assert error.mean() <= 1
    assert np.percentile(error, 95) <= 3  # lcms's table is coarse at the edge of what sRGB has


@pytest.mark.parametrize("channels", [1, 3])
def test_lossless_jpeg(channels):
    drawn = RANDOM.integers(0, 256, (HEIGHT, WIDTH, channels))
    np.testing.assert_array_equal(stored_pixels(lossless_jpeg(drawn)), drawn)


@pytest.mark.parametrize("transform", [0, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_cmyk_matches_tensorflow(transform, progressive):
    data = adobe(jpeg(64, 48, 3, "CMYK", progressive=progressive, quality=95), transform)
    difference = stored_pixels(data) - tf.io.decode_jpeg(data, channels=3).numpy().astype(int)
    assert np.abs(difference).mean() <= 2


LOSSLESS = {
    "WEBP": {"lossless": True},
    "JPEG2000": {},
    "BMP": {},
    "TIFF": {"compression": "tiff_adobe_deflate"},
    "PPM": {},
}


@pytest.mark.parametrize("format_", LOSSLESS)
def test_lossless_formats(format_):
    drawn = pixels(WIDTH, HEIGHT, 5).astype(int)
    data = image_bytes(format_, WIDTH, HEIGHT, 5, **LOSSLESS[format_])
    np.testing.assert_array_equal(stored_pixels(data), drawn)
    np.testing.assert_array_equal(stored_pixels(data, orientation="ignore"), drawn)
    raw = transcode(data, ImageSettings(format="raw"))
    assert raw.data == drawn.astype(np.uint8).tobytes()
    stored = transcode(data, ImageSettings(format="jpeg"))
    assert np.abs(tf.io.decode_jpeg(stored.data).numpy() - drawn).mean() <= 8


def test_avif_and_lossy_webp():
    drawn = pixels(64, 48, 5).astype(int)
    for data in (
        image_bytes("AVIF", 64, 48, 5, quality=100, subsampling="4:4:4", speed=10),
        image_bytes("WEBP", 64, 48, 5, quality=100),
    ):
        assert np.abs(stored_pixels(data) - drawn).mean() <= 8


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("color", [(0, 0, 0), (255, 255, 255), (18, 52, 86)])
def test_composite(color):
    data = saved(Image.fromarray(RGBA, "RGBA"), "PNG")
    found = stored_pixels(data, alpha=f"composite #{bytes(color).hex()}")
    share = RGBA[:, :, 3:] / 255
    assert np.abs(found - (RGBA[:, :, :3] * share + np.array(color) * (1 - share))).max() <= 1
    np.testing.assert_array_equal(stored_pixels(data, alpha="drop"), RGBA[:, :, :3])


def test_gray_is_that_of_itu_r_601():
    data = saved(Image.fromarray(COLOR.astype(np.uint8)), "PNG")
    expected = COLOR @ [0.299, 0.587, 0.114]
    assert np.abs(stored_pixels(data, color="gray")[:, :, 0] - expected).max() <= 1


def test_resizing_gives_the_stated_size():
    drawn = pixels(WIDTH, HEIGHT, 5).astype(int)
    data = image_bytes("PNG", WIDTH, HEIGHT, 5)
    twice = drawn.repeat(2, axis=0).repeat(2, axis=1)
    fit = stored_pixels(data, resize="80x80 fit nearest")
    np.testing.assert_array_equal(fit, twice)
    exact = stored_pixels(data, resize="80x30 exact nearest")
    np.testing.assert_array_equal(exact, drawn.repeat(2, axis=1))
    pad = stored_pixels(data, resize="80x80 pad nearest")
    np.testing.assert_array_equal(pad[10:70], twice)
    assert pad.shape == (80, 80, 3)
    assert pad[:10].max() == pad[70:].max() == 0
    crop = stored_pixels(data, resize="60x60 crop nearest")
    np.testing.assert_array_equal(crop, twice[:, 10:70])


@pytest.mark.parametrize("filter_", ["bilinear", "bicubic", "lanczos"])
def test_filters_preserve_brightness(filter_):
    drawn = pixels(WIDTH, HEIGHT, 5).astype(int)
    found = stored_pixels(image_bytes("PNG", WIDTH, HEIGHT, 5), resize=f"20x15 exact {filter_}")
    blocks = drawn.reshape(15, 2, 20, 2, 3).mean(axis=(1, 3))
    assert np.abs(found - blocks).mean() <= 4
    assert abs(found.mean() - drawn.mean()) <= 1


def test_clear_pixels_do_not_bleed_into_others_when_resized():
    drawn = np.zeros((20, 20, 4), np.uint8)
    drawn[:, :, 0] = 255
    drawn[:, 10:] = 0, 255, 0, 255
    found = stored_pixels(saved(Image.fromarray(drawn, "RGBA"), "PNG"), resize="7x7 exact bilinear")
    shown = found[found[:, :, 3] > 0]
    assert shown[:, 0].max() <= 1  # the clear half is red


# --- color profiles ----------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["TIFF", "WEBP", "PNG"])
def test_profiles_are_applied(format_):
    options = {"lossless": True} if format_ == "WEBP" else {}
    drawn = pixels(WIDTH, HEIGHT, 5).astype(int)
    as_png = {"resize": "80x60 exact nearest"} if format_ == "PNG" else {}  # else it passes

    def found(profile):
        data = image_bytes(format_, WIDTH, HEIGHT, 5, icc_profile=profile, **options)
        shown = stored_pixels(data, **as_png)
        return shown[::2, ::2] if as_png else shown

    assert np.abs(found(SRGB) - drawn).max() <= 1
    assert np.abs(found(SWAPPED) - drawn[:, :, [1, 0, 2]]).max() <= 2
    assert np.abs(found(b"no profile" * 30) - drawn).max() == 0


def test_records_hold_no_profile_with_the_time_in_it():
    data = image_bytes("TIFF", WIDTH, HEIGHT, 5, icc_profile=SWAPPED)
    assert b"iCCP" not in transcode(data, ImageSettings()).data


def test_profiles_leave_alpha_alone():
    data = saved(Image.fromarray(RGBA, "RGBA"), "TIFF", icc_profile=SWAPPED)
    found = stored_pixels(data)
    np.testing.assert_array_equal(found[:, :, 3], RGBA[:, :, 3])
    assert np.abs(found[:, :, :3] - RGBA[:, :, [1, 0, 2]].astype(int)).max() <= 2


# --- orientation --------------------------------------------------------------------------------

ORIENTED = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: lambda a: np.rot90(a, -1),
}
"""How a camera that was held so lays an upright image into its file."""
CODECS = {
    "PNG": {},
    "TIFF": {},
    "WEBP": {"lossless": True},
    "JPEG": {"quality": 98, "subsampling": "4:4:4"},
    "AVIF": {"quality": 100, "subsampling": "4:4:4", "speed": 10},
}


def in_orientation(format_, orientation, upright):
    exif = Image.Exif()
    exif[0x112] = orientation
    drawn = Image.fromarray(np.ascontiguousarray(ORIENTED[orientation](upright)))
    return saved(drawn, format_, exif=exif, **CODECS[format_])


@pytest.mark.parametrize("orientation", ORIENTED)
@pytest.mark.parametrize("format_", CODECS)
def test_every_orientation_becomes_upright(format_, orientation):
    upright = pixels(48, 32, 5)
    data = in_orientation(format_, orientation, upright)
    stored = transcode(data, ImageSettings())
    assert (stored.width, stored.height, stored.orientation) == (48, 32, orientation)
    found = tf.io.decode_image(stored.data, expand_animations=False).numpy().astype(int)
    error = np.abs(found - upright)
    assert error.mean() <= (3 if format_ in ("JPEG", "AVIF") else 0)
    stored = transcode(data, ImageSettings(orientation="ignore"))
    found = tf.io.decode_image(stored.data, expand_animations=False).numpy().astype(int)
    assert np.abs(found - ORIENTED[orientation](upright)).mean() <= 3


def test_a_rotated_16_bit_image_keeps_its_depth():
    found = stored_pixels(png_of(DEEP, 0, 16, before=turned(6)), tf.uint16)
    np.testing.assert_array_equal(found, np.rot90(DEEP, -1))


def test_the_reference_drawing_is_correct():
    np.testing.assert_array_equal(np.asarray(image(WIDTH, HEIGHT, 5)), pixels(WIDTH, HEIGHT, 5))
