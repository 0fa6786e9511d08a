"""Some 475 odd, damaged and hostile image files, made by code, with their expected outcomes.

    corpus()                        all of them, as a tuple of `Specimen`
    png_of(samples, ...)            a PNG of any color type and depth from its samples
    tiff_of(samples, ...), bmp_of(samples, ...), lossless_jpeg(samples)      the same of others

An outcome is "kept" (byte for byte), "png" or "jpeg" (transcoded), or a reject's reason. Where
nobody can say whether a file was cut or damaged, as after a cut within a header, it is both:
"truncated|corrupt".
"""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from tests.images import (
    image,
    image_bytes,
    jpeg,
    jpeg_header,
    jpeg_segment,
    pixels,
    png,
    png_chunk,
    png_header,
)

WIDTH, HEIGHT = 40, 30
BROKEN = "truncated|corrupt"
REFUSED = "truncated|corrupt|unsupported_feature"
PNG_SIGNATURE, IEND = b"\x89PNG\r\n\x1a\n", png_chunk(b"IEND", b"")
_PASSES = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


@dataclass(frozen=True)
class Specimen:
    """One file.

    Attributes:
        name: its class and what is the matter with it.
        data: its bytes.
        outcome: what the policy makes of it.
        size: width and height as stored, if it is.
        format: what it is, if it is accepted.
    """

    name: str
    data: bytes
    outcome: str
    size: tuple[int, int] = (WIDTH, HEIGHT)
    format: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it becomes a record."""
        return self.outcome in ("kept", "png", "jpeg")


@functools.cache
def corpus() -> tuple[Specimen, ...]:
    """Returns all files, the same ones in every run; names are unique."""
    makers = (
        *(_jpegs, _damaged_jpegs, _pngs, _damaged_pngs, _gifs, _bmps, _webps, _tiffs),
        *(_avifs, _jpeg2000s, _pnms, _icos, _foreign, _bombs, _cuts),
    )
    return tuple(specimen for maker in makers for specimen in maker())


# --- makers of formats --------------------------------------------------------------------------


def png_of(
    samples: np.ndarray,
    color_type: int,
    depth: int = 8,
    *,
    interlaced: bool = False,
    filter_: int = 0,
    before: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """Returns a PNG of samples, (height, width, channels); `before` and `after` are chunks."""
    height, width, _ = samples.shape
    parts = _PASSES if interlaced else ((0, 0, 1, 1),)
    rows = b"".join(
        bytes([filter_]) + packed(row, depth)
        for x, y, dx, dy in parts
        for row in samples[y::dy, x::dx]
        if row.size
    )
    stated = struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, interlaced)
    head = PNG_SIGNATURE + png_chunk(b"IHDR", stated) + before
    return head + png_chunk(b"IDAT", zlib.compress(rows)) + after + IEND


def packed(row: np.ndarray, depth: int) -> bytes:
    """Returns a row's samples as a file holds them, big-endian, several to a byte or two each."""
    if depth >= 8:
        return row.astype(">u2" if depth == 16 else "u1").tobytes()
    bits = row.reshape(-1, 1) >> np.arange(depth - 1, -1, -1) & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


def samples_of(color_type: int, depth: int, seed: int = 0) -> np.ndarray:
    """Returns random samples for a PNG of some kind."""
    shape = (HEIGHT, WIDTH, _SAMPLES[color_type])
    return np.random.default_rng(seed).integers(0, 2**depth, shape)


def tiff_of(
    samples: np.ndarray,
    *,
    order: str = "<",
    photometric: int = 1,
    extra: dict[int, tuple[int, list[int]]] | None = None,
    next_directory: int = 0,
) -> bytes:
    """Returns an uncompressed TIFF of samples, (height, width, channels), of any NumPy kind.

    Args:
        samples: integers or floats; their kind is that of the file.
        order: "<" or ">".
        photometric: 0 white is zero, 1 black is zero, 2 RGB, 5 CMYK, 8 CIELab.
        extra: tag to its type and values, beside or instead of those that every file has.
        next_directory: offset of the next page.
    """
    height, width, channels = samples.shape
    kind = samples.dtype.newbyteorder(order)
    data = samples.astype(kind).tobytes()
    bits, format_ = kind.itemsize * 8, {"u": 1, "i": 2, "f": 3}[kind.kind]
    tags: dict[int, tuple[int, list[int]]] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [bits] * channels),
        259: (3, [1]),
        262: (3, [photometric]),
        273: (4, [8]),
        277: (3, [channels]),
        278: (4, [height]),
        279: (4, [len(data)]),
        339: (3, [format_] * channels),
        **(extra or {}),
    }
    mark = b"II*\0" if order == "<" else b"MM\0*"
    start = 8 + len(data) + len(data) % 2
    directory, beyond = _directory(tags, order, start, next_directory)
    return mark + struct.pack(order + "I", start) + data + bytes(len(data) % 2) + directory + beyond


def _directory(
    tags: dict[int, tuple[int, list[int]]], order: str, start: int, next_directory: int
) -> tuple[bytes, bytes]:
    entries, beyond = b"", b""
    after = start + 2 + 12 * len(tags) + 4
    for tag, (type_, values) in sorted(tags.items()):
        content = struct.pack(f"{order}{len(values)}{'HI'[type_ == 4]}", *values)
        if len(content) > 4:
            at = struct.pack(order + "I", after + len(beyond))
            beyond += content
            content = at
        entries += struct.pack(order + "HHI", tag, type_, len(values)) + content.ljust(4, b"\0")
    head = struct.pack(order + "H", len(tags))
    return head + entries + struct.pack(order + "I", next_directory), beyond


def bmp_of(
    samples: np.ndarray,
    bits: int,
    *,
    palette: bytes = b"",
    top_down: bool = False,
    compression: int = 0,
    body: bytes | None = None,
    masks: bytes = b"",
) -> bytes:
    """Returns a BMP of samples, (height, width, bytes a pixel) or, below 8 bits, one a pixel."""
    height, width = samples.shape[:2]
    rows = samples if top_down else samples[::-1]
    if body is None:
        lines = [packed(row, min(bits, 8)) for row in rows]
        body = b"".join(line + bytes(-len(line) % 4) for line in lines)
    stated = -height if top_down else height
    colors = len(palette) // 4
    header = struct.pack(
        "<IiiHHIIiiII", 40, width, stated, 1, bits, compression, len(body), 0, 0, colors, 0
    )
    offset = 14 + len(header) + len(masks) + len(palette)
    start = struct.pack("<2sIHHI", b"BM", offset + len(body), 0, 0, offset)
    return start + header + masks + palette + body


def lossless_jpeg(samples: np.ndarray) -> bytes:
    """Returns a JPEG of process SOF3 of samples, (height, width, 1 or 3), coded by hand.

    Each sample is what it differs by from its left neighbour (T.81, annex H, predictor 1), and the
    nine categories of difference have codes of four bits each.
    """
    height, width, channels = samples.shape
    values = samples.astype(int)
    expected = np.empty_like(values)
    expected[:, 1:] = values[:, :-1]
    expected[1:, 0] = values[:-1, 0]
    expected[0, 0] = 128
    bits = "".join(map(_coded, (values - expected).ravel().tolist()))
    coded = bytes(int(bits[i : i + 8].ljust(8, "1"), 2) for i in range(0, len(bits), 8))
    names = [ord("R"), ord("G"), ord("B")][:channels]
    frame = struct.pack(">BHHB", 8, height, width, channels)
    frame += b"".join(bytes([name, 0x11, 0]) for name in names)
    table = bytes([0, 0, 0, 0, 9, *[0] * 12, *range(9)])
    scan = bytes([channels]) + b"".join(bytes([name, 0]) for name in names) + b"\x01\0\0"
    head = jpeg_segment(0xC3, frame) + jpeg_segment(0xC4, table) + jpeg_segment(0xDA, scan)
    return b"\xff\xd8" + head + coded.replace(b"\xff", b"\xff\0") + b"\xff\xd9"


def _coded(difference: int) -> str:
    size = abs(difference).bit_length()
    if not size:
        return "0000"
    value = difference if difference > 0 else difference + (1 << size) - 1
    return f"{size:04b}{value:0{size}b}"


def on_canvas(gif: bytes, canvas: tuple[int, int], left: int, top: int) -> bytes:
    """Returns a GIF whose first frame is placed on a larger canvas."""
    at = gif.index(b"\x2c" + bytes(4), 13)
    placed = gif[: at + 1] + struct.pack("<HH", left, top) + gif[at + 5 :]
    return placed[:6] + struct.pack("<HH", *canvas) + placed[10:]


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """Returns data with other bytes at some place."""
    at = at if at >= 0 else len(data) + at
    return data[:at] + new + data[at + len(new) :]


def flipped(data: bytes, at: int) -> bytes:
    """Returns data with one byte's bits turned."""
    return patched(data, at, bytes([data[at] ^ 0xFF]))


def adobe(data: bytes, transform: int) -> bytes:
    """Returns a CMYK JPEG whose Adobe segment names a transform: 2 makes it YCCK."""
    return patched(data, data.index(b"Adobe") + 11, bytes([transform]))


def ico_of(*entries: tuple[int, int, bytes]) -> bytes:
    """Returns an ICO of (width, height, PNG or DIB), whatever is stated there."""
    offset = 6 + 16 * len(entries)
    table, bodies = struct.pack("<HHH", 0, 1, len(entries)), b""
    for width, height, body in entries:
        stated = (width % 256, height % 256, 0, 0, 1, 32, len(body), offset + len(bodies))
        table += struct.pack("<BBBBHHII", *stated)
        bodies += body
    return table + bodies


def _frames(format_: str, number: int, mode: str = "RGB", **options: Any) -> bytes:
    more = [image(WIDTH, HEIGHT, seed, mode) for seed in range(1, number)]
    return image_bytes(
        format_, WIDTH, HEIGHT, 0, mode, save_all=True, append_images=more, **options
    )


def _saved(drawn: Image.Image, format_: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    drawn.save(stream, format_, **options)
    return stream.getvalue()


def _drawn(format_: str, mode: str = "RGB", **options: Any) -> bytes:
    return image_bytes(format_, WIDTH, HEIGHT, 3, mode, **options)


def _oriented(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x112] = orientation
    return exif.tobytes()


def _turned_size(orientation: int) -> tuple[int, int]:
    return (HEIGHT, WIDTH) if 5 <= orientation <= 8 else (WIDTH, HEIGHT)


# --- classes of specimens -----------------------------------------------------------------------


def _jpegs() -> Iterator[Specimen]:
    def kept(name: str, data: bytes) -> Specimen:
        return Specimen(f"JPEG {name}", data, "kept", format="jpeg")

    for mode in ("RGB", "L"):
        for progressive in (False, True):
            for options in ({}, {"restart_marker_blocks": 1}, {"quality": 5}, {"optimize": True}):
                made = jpeg(WIDTH, HEIGHT, 1, mode, progressive=progressive, **options)
                yield kept(f"{mode} progressive={progressive} {options}", made)
    for sampling in ("4:4:4", "4:2:2", "4:2:0"):
        yield kept(sampling, jpeg(WIDTH, HEIGHT, subsampling=sampling))
    plain = jpeg(WIDTH, HEIGHT, 2)
    yield kept("that stores RGB", jpeg(WIDTH, HEIGHT, keep_rgb=True))
    yield kept("with trailing junk", plain + b"\0junk\xff\xd8\xff" * 50)
    yield kept("with trailing newline", plain + b"\r\n")
    yield kept("with a comment", jpeg(WIDTH, HEIGHT, comment=b"c" * 60_000))
    yield kept("with fill bytes", plain[:2] + b"\xff" * 7 + plain[2:])
    yield kept("with a damaged profile", jpeg(WIDTH, HEIGHT, icc_profile=b"x" * 500))
    yield kept("with garbage for EXIF", plain[:2] + jpeg_segment(0xE1, b"Exif\0\0??") + plain[2:])
    yield Specimen("JPEG 1 x 1", jpeg(1, 1), "kept", (1, 1), "jpeg")
    for orientation in range(10):
        made = jpeg(WIDTH, HEIGHT, exif_orientation=orientation)
        what = "png" if 2 <= orientation <= 8 else "kept"
        name = f"JPEG with orientation {orientation}"
        yield Specimen(name, made, what, _turned_size(orientation), "jpeg")
    cmyk = jpeg(WIDTH, HEIGHT, mode="CMYK")
    yield Specimen("JPEG CMYK", cmyk, "png", format="jpeg")
    yield Specimen("JPEG YCCK", adobe(cmyk, 2), "png", format="jpeg")
    progressive = jpeg(WIDTH, HEIGHT, mode="CMYK", progressive=True)
    yield Specimen("JPEG CMYK progressive", progressive, "png", format="jpeg")
    for channels in (1, 3):
        made = lossless_jpeg(pixels(WIDTH, HEIGHT, 4, channels))
        yield Specimen(f"JPEG lossless of {channels}", made, "png", format="jpeg")
        coded = jpeg_header(WIDTH, HEIGHT, process=9, components=channels)
        tables = jpeg_segment(0xDB, b"\0" + b"\x08" * 64)
        # An arithmetic decoder takes any bytes: each of them is the code of some image.
        made = coded[:2] + tables + coded[2:-2] + b"\x12\x34\x56" * 40 + b"\xff\xd9"
        yield Specimen(f"JPEG arithmetic of {channels}", made, "png", format="jpeg")
    for name, segment in {
        "an empty JFIF": jpeg_segment(0xE0, b"JFIF\0"),
        "an MPF of nothing": jpeg_segment(0xE2, b"MPF\0II*\0\x08" + bytes(9)),
        "an MPF of a number alone": jpeg_segment(
            0xE2, b"MPF\0II*\0\x08\0\0\0\1\0\x01\xb0\4\0\1\0\0\0\2" + bytes(7)
        ),
    }.items():
        made = plain[:2] + segment + plain[20:]  # in place of the JFIF that it has
        family, outcome = ("mpo", "kept") if b"MPF" in segment else ("jpeg", "png")
        yield Specimen(f"JPEG with {name}", made, outcome, format=family)
    frame = plain.index(b"\xff\xc0")
    made = patched(patched(plain, frame + 11, b"\x31"), frame + 14, b"\x21")
    yield Specimen("JPEG of color sampled at two thirds", made, "corrupt")
    mpo = _frames("MPO", 3)
    yield Specimen("MPO", mpo, "jpeg", format="mpo")
    yield Specimen("MPO whose second is cut", mpo[:-300], "jpeg", format="mpo")


def _damaged_jpegs() -> Iterator[Specimen]:
    plain = jpeg(WIDTH, HEIGHT, 2)
    frame = plain.index(b"\xff\xc0")
    for depth in (12, 16):
        for process in (0, 1, 2, 3):
            made = jpeg_header(WIDTH, HEIGHT, process=process, precision=depth)
            yield Specimen(f"JPEG SOF{process} of {depth} bits", made, "unsupported_feature")
    for process in (5, 6, 7, 11, 13, 14, 15):
        made = jpeg_header(WIDTH, HEIGHT, process=process)
        yield Specimen(f"JPEG SOF{process}", made, "unsupported_feature")
    yield Specimen(
        "JPEG of 2 components", jpeg_header(WIDTH, HEIGHT, components=2), "unsupported_feature"
    )
    for junk in (b"\0", b"\n", b"\xef\xbb\xbf", b"HTTP/1.1 200 OK\r\n\r\n"):
        yield Specimen(f"JPEG after {junk!r}", junk + plain, "not_an_image")
    yield Specimen("JPEG without width", patched(plain, frame + 7, b"\0\0"), "invalid_dimensions")
    yield Specimen("JPEG without height", patched(plain, frame + 5, b"\0\0"), "invalid_dimensions")
    yield Specimen("JPEG of a start and an end", b"\xff\xd8\xff\xd9", "corrupt")
    yield Specimen("JPEG without its end", plain[:-2], "truncated")
    tables = plain.index(b"\xff\xc4")
    scan = plain.index(b"\xff\xda")
    # Motion JPEG leaves out the tables that all use: decoders put in those of T.81, annex K.
    abbreviated = plain[:tables] + plain[scan:]
    yield Specimen("JPEG without Huffman tables", abbreviated, "kept", format="jpeg")
    quantization = plain.index(b"\xff\xdb")
    yield Specimen("JPEG without tables", plain[:quantization] + plain[frame:], "corrupt")
    yield Specimen(
        "JPEG with a Huffman table of FF", patched(plain, tables + 5, b"\xff" * 16), "corrupt"
    )
    yield Specimen("JPEG without a scan", plain[: plain.index(b"\xff\xda")] + b"\xff\xd9", BROKEN)
    yield Specimen("JPEG with no coded data", jpeg_header(WIDTH, HEIGHT), BROKEN)
    yield Specimen(
        "JPEG of many scans, cut", jpeg(WIDTH, HEIGHT, progressive=True)[:-2], "truncated"
    )
    for name, data in (("CMYK", jpeg(mode="CMYK")), ("lossless", lossless_jpeg(pixels(9, 9)))):
        for part in (3, 2):
            yield Specimen(f"JPEG {name} cut at 1/{part}", data[: len(data) // part], "truncated")


def _pngs() -> Iterator[Specimen]:
    def kept(name: str, data: bytes) -> Specimen:
        return Specimen(f"PNG {name}", data, "kept", format="png")

    kinds = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    for color_type, depths in kinds.items():
        for depth in depths:
            palette = png_chunk(b"PLTE", bytes(range(256)) * 3)[: 12 + 768]
            palette = png_chunk(b"PLTE", bytes(i % 256 for i in range(3 * 2**depth)))
            before = palette if color_type == 3 else b""
            drawn = samples_of(color_type, depth)
            for interlaced in (False, True):
                made = png_of(drawn, color_type, depth, interlaced=interlaced, before=before)
                yield kept(f"type {color_type}, {depth} bits, interlaced={interlaced}", made)
            clear = {0: b"\0\1", 2: b"\0\1" * 3, 3: b"\0\x80"}.get(color_type)
            if clear:
                made = png_of(drawn, color_type, depth, before=before + png_chunk(b"tRNS", clear))
                yield kept(f"type {color_type}, {depth} bits, tRNS", made)
    drawn = samples_of(2, 8)
    for filter_ in range(1, 5):
        yield kept(f"of filter {filter_}", png_of(drawn, 2, filter_=filter_))
    text = png_chunk(b"tEXt", b"key\0" + b"text " * 400_000)
    for name, chunk in {
        "a text of 2 MB": text,
        "a text that inflates to 64 MB": png_chunk(
            b"zTXt", b"key\0\0" + zlib.compress(bytes(64 << 20))
        ),
        "a profile that inflates to 64 MB": png_chunk(
            b"iCCP", b"key\0\0" + zlib.compress(bytes(64 << 20))
        ),
        "2,000 texts": png_chunk(b"tEXt", b"key\0text") * 2000,
        "a text with a wrong CRC": flipped(png_chunk(b"tEXt", b"key\0text"), -1),
        "an unknown chunk": png_chunk(b"vpAg", b"what"),
        "a gamma of nothing": png_chunk(b"gAMA", bytes(4)),
        "a header twice as ancillary": png_chunk(b"iHDR", bytes(13)),
    }.items():
        # Pillow stops at some of them, TensorFlow at none.
        unread = {b"iCCP": "corrupt"}.get(chunk[4:8], "png")
        outcome = unread if "64 MB" in name or "CRC" in name else "kept"
        made = png_of(drawn, 2, before=chunk)
        yield Specimen(f"PNG with {name}", made, outcome, format="png")
        if b"text" in chunk:
            made = png_of(drawn, 2, after=chunk)
            yield Specimen(f"PNG with {name} at its end", made, outcome, format="png")
        turned = png(WIDTH, HEIGHT, exif_orientation=6)  # so that it is transcoded
        data = turned[:33] + chunk + turned[33:]
        outcome = "corrupt" if b"iCCP" in chunk else "png"
        yield Specimen(f"PNG to be turned with {name}", data, outcome, (HEIGHT, WIDTH), "png")
    yield kept("that is animated", _frames("PNG", 3))
    yield kept("with trailing junk", png(WIDTH, HEIGHT) + b"junk" * 99)
    yield kept("with another after it", png(WIDTH, HEIGHT) + png(9, 9))
    many = zlib.compress(b"\0" * (HEIGHT * (3 * WIDTH + 1)))
    pieces = b"".join(png_chunk(b"IDAT", many[i : i + 1]) for i in range(len(many)))
    yield kept("in pieces of one byte", png_header(WIDTH, HEIGHT) + pieces + IEND)
    for orientation in range(10):
        made = png(WIDTH, HEIGHT, exif_orientation=orientation)
        what = "png" if 2 <= orientation <= 8 else "kept"
        name = f"PNG with orientation {orientation}"
        yield Specimen(name, made, what, _turned_size(orientation), "png")


def _damaged_pngs() -> Iterator[Specimen]:
    whole = png_of(samples_of(2, 8), 2)
    body = whole.index(b"IDAT") + 4
    for name, data in {
        "a wrong CRC in IHDR": flipped(whole, 29),
        "a wrong CRC in IDAT": flipped(whole, len(whole) - 13),
        "a wrong CRC in IEND": flipped(whole, len(whole) - 1),
        "a flipped byte at the start of its data": flipped(whole, body),
        "a flipped byte within its data": flipped(whole, body + 500),
        "a flipped byte in its checksum": _with_new_crc(whole, -1, flip=True),
        "a filter that is none": png_of(samples_of(2, 8), 2, filter_=5),
        "no zlib": png_header(WIDTH, HEIGHT) + png_chunk(b"IDAT", b"what" * 9) + IEND,
        "a palette missing": png_of(samples_of(3, 8), 3),
        "a palette of 4 bytes": png_of(samples_of(3, 8), 3, before=png_chunk(b"PLTE", bytes(4))),
        "3 bits": png_header(WIDTH, HEIGHT, bit_depth=3) + png_chunk(b"IDAT", b"") + IEND,
        "color type 7": png_header(WIDTH, HEIGHT, color_type=7) + png_chunk(b"IDAT", b"") + IEND,
        "an unknown critical chunk": png_of(samples_of(2, 8), 2, before=png_chunk(b"WHAT", b"")),
        "line ends turned": whole.replace(b"\r\n", b"\n"),
    }.items():
        outcome = "not_an_image" if name == "line ends turned" else "corrupt"
        yield Specimen(f"PNG with {name}", data, outcome)
    yield from _pngs_that_readers_disagree_on()
    yield Specimen("PNG without IEND", whole[:-12], "truncated")
    yield Specimen("PNG without data", png_header(WIDTH, HEIGHT) + IEND, "truncated")
    short = png_of(samples_of(2, 8)[:20], 2)
    yield Specimen(
        "PNG that states more rows",
        png_header(WIDTH, HEIGHT) + short[33:],
        "truncated",
    )
    for side in ((0, HEIGHT), (WIDTH, 0), (2**31 - 1, 1), (2**32 - 1, 2**32 - 1)):
        made = png_header(*side) + png_chunk(b"IDAT", b"") + IEND
        yield Specimen(f"PNG of {side}", made, "invalid_dimensions")


def _pngs_that_readers_disagree_on() -> Iterator[Specimen]:
    drawn = samples_of(2, 8)
    plain = png_of(drawn, 2)
    start, half = plain.index(b"IDAT") - 4, len(plain) // 2
    stream = plain[start + 8 : -16]
    parts = [png_chunk(b"IDAT", stream[:half]), png_chunk(b"IDAT", stream[half:])]
    split = plain[:start] + parts[0] + png_chunk(b"gAMA", bytes(4)) + parts[1] + IEND
    yield Specimen("PNG whose image data is interrupted", split, "corrupt")
    for name, chunk, outcome in (
        ("a text of an unknown compression", png_chunk(b"zTXt", b"key\0\x09text"), "png"),
        ("a profile of an unknown compression", png_chunk(b"iCCP", b"key\0\x09text"), "png"),
        ("a gamma of one byte", png_chunk(b"gAMA", b"\0"), "png"),
        ("a wrong CRC in its transparency", flipped(png_chunk(b"tRNS", bytes(6)), -1), "png"),
        ("a transparency of one byte", png_chunk(b"tRNS", b"\0"), "png"),
        ("an empty palette", png_chunk(b"PLTE", b""), "png"),
        ("two palettes", png_chunk(b"PLTE", bytes(6)) * 2, "corrupt"),
        ("two headers", plain[8:33], "corrupt"),
        ("the colors of PQ", png_chunk(b"cICP", b"\x09\x10\0\1"), "unsupported_feature"),
        ("the colors of sRGB", png_chunk(b"cICP", b"\1\x0d\0\1"), "kept"),
    ):
        yield Specimen(f"PNG with {name}", png_of(drawn, 2, before=chunk), outcome, format="png")
    palette = png_chunk(b"PLTE", bytes(768))
    clear = png_chunk(b"tRNS", b"\0")
    colors = samples_of(3, 8)
    for name, data in {
        "before its palette": png_of(colors, 3, before=clear + palette),
        "after its data": png_of(colors, 3, before=palette, after=clear),
        "of no entries": png_of(colors, 3, before=palette + png_chunk(b"tRNS", b"")),
    }.items():
        yield Specimen(f"PNG with a transparency {name}", data, "png", format="png")
    rows = b"".join(b"\0" + row.tobytes() for row in drawn[:10].astype(np.uint8)) * 3
    far = b"\x18\x19" + zlib.compress(rows)[2:]  # it states a window of 512 bytes, and uses 1,210
    made = png_header(WIDTH, HEIGHT) + png_chunk(b"IDAT", far) + IEND
    yield Specimen("PNG that states too small a window", made, "corrupt")


def _with_new_crc(whole: bytes, at: int, flip: bool) -> bytes:
    """Returns a PNG with a byte of its zlib stream changed, and the chunk's CRC made to fit."""
    start = whole.index(b"IDAT") + 4
    stream = whole[start : len(whole) - 16]
    return whole[: start - 8] + png_chunk(b"IDAT", flipped(stream, at)) + IEND


def _gifs() -> Iterator[Specimen]:
    def made(name: str, data: bytes, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Specimen:
        return Specimen(f"GIF {name}", data, "png", size, "gif")

    plain = _drawn("GIF", "L")
    yield made("gray", plain)
    yield made("of 256 colors", _drawn("GIF", "P"))
    yield made("of two colors", _drawn("GIF", "1"))
    yield made("interlaced", _drawn("GIF", "L", interlace=1))
    yield made("transparent", _drawn("GIF", "P", transparency=3))
    yield made("animated", _frames("GIF", 4, "L"))
    yield made("animated, transparent", _frames("GIF", 4, "P", transparency=2, disposal=2))
    yield made("with a comment", _drawn("GIF", "L", comment=b"x" * 3000))
    yield made("with trailing junk", plain + b"junk" * 9)
    yield made("on a larger canvas", on_canvas(plain, (100, 80), 10, 20), (100, 80))
    yield made(
        "animated on a larger canvas", on_canvas(_frames("GIF", 3, "L"), (64, 48), 3, 4), (64, 48)
    )
    yield made("without its trailer", plain[:-1])
    yield Specimen("GIF of a header alone", plain[:13], BROKEN)
    yield Specimen(
        "GIF without frames", plain[: plain.index(b"\x2c" + bytes(4), 13)] + b";", BROKEN
    )
    yield Specimen("GIF of no size", b"GIF89a" + bytes(7) + b";", BROKEN + "|invalid_dimensions")
    code = plain.index(b"\x2c" + bytes(4), 13) + 10
    yield Specimen("GIF with codes of 13 bits", patched(plain, code, b"\x0d"), "corrupt")
    yield Specimen("GIF whose data is 255s", plain[: code + 2] + b"\xff" * 300, BROKEN)


def _bmps() -> Iterator[Specimen]:
    def made(name: str, data: bytes) -> Specimen:
        return Specimen(f"BMP {name}", data, "png", format="bmp")

    random = np.random.default_rng(1)
    colors = {1: 2, 4: 16, 8: 256}
    for bits, number in colors.items():
        drawn = random.integers(0, number, (HEIGHT, WIDTH, 1))
        palette = random.integers(0, 256, (number, 4), np.uint8)
        palette[:, 3] = 0
        for top_down in (False, True):
            data = bmp_of(drawn, bits, palette=palette.tobytes(), top_down=top_down)
            yield made(f"of {bits} bits, top_down={top_down}", data)
    for bits in (16, 24, 32):
        drawn = random.integers(0, 256, (HEIGHT, WIDTH, bits // 8))
        for top_down in (False, True):
            yield made(
                f"of {bits} bits, top_down={top_down}", bmp_of(drawn, bits, top_down=top_down)
            )
    drawn = random.integers(0, 256, (HEIGHT, WIDTH, 2))
    masks = struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    data = bmp_of(drawn, 16, compression=3, masks=masks)
    yield made("of 565 bits", data)
    palette = bytes(range(256)) * 4
    body = b"".join(bytes([WIDTH, row, 0, 0]) for row in range(HEIGHT)) + b"\0\1"
    rle = bmp_of(drawn, 8, palette=palette, compression=1, body=body)
    yield made("RLE of 8 bits", rle)
    yield made("RLE of 4 bits", bmp_of(drawn, 4, palette=palette[:64], compression=2, body=body))
    for mode in ("1", "L", "P", "RGB"):
        yield made(f"without its file header, {mode}", _drawn("DIB", mode))
    yield made("without its file header, of 565 bits", data[14:])
    core = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, 24) + bytes(3 * WIDTH * HEIGHT)
    yield made("without its file header, of OS/2", core)
    yield Specimen("BMP without its file header, cut", _drawn("DIB")[:-30], "truncated")
    whole = _drawn("BMP")
    yield made("with trailing junk", whole + b"junk" * 9)
    yield Specimen("BMP of 7 bits", patched(whole, 28, b"\7\0"), REFUSED)
    yield Specimen("BMP of compression 9", patched(whole, 30, b"\x09"), REFUSED)
    yield Specimen("BMP with a header of 3 bytes", patched(whole, 14, b"\3\0\0\0"), REFUSED)
    yield Specimen("BMP without width", patched(whole, 18, bytes(4)), "invalid_dimensions|corrupt")
    yield Specimen("BMP without height", patched(whole, 22, bytes(4)), "invalid_dimensions|corrupt")
    yield Specimen("BMP whose data is elsewhere", patched(whole, 10, b"\xff\xff\xff\x7f"), BROKEN)
    yield Specimen("BMP RLE cut", rle[:-40], "truncated")


def _webps() -> Iterator[Specimen]:
    def made(name: str, data: bytes, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Specimen:
        return Specimen(f"WebP {name}", data, "png", size, "webp")

    lossy = _drawn("WEBP")
    yield made("lossy", lossy)
    yield made("lossless", _drawn("WEBP", lossless=True))
    yield made("lossy with alpha", _drawn("WEBP", "RGBA"))
    yield made("lossless with alpha", _drawn("WEBP", "RGBA", lossless=True))
    yield made("animated, opaque", _frames("WEBP", 3))
    yield made("animated with alpha", _frames("WEBP", 3, "RGBA", lossless=True))
    yield made("with a damaged profile", _drawn("WEBP", icc_profile=b"x" * 300))
    yield made("with trailing junk", lossy + b"junk" * 9)
    for orientation in (1, 3, 6, 8, 9):
        data = _drawn("WEBP", exif=_oriented(orientation))
        yield made(f"with orientation {orientation}", data, _turned_size(orientation))
    yield Specimen("WebP of a header alone", lossy[:12], BROKEN)
    yield Specimen("WebP with another chunk", lossy.replace(b"VP8 ", b"VP9 "), BROKEN)
    yield Specimen("WebP with a wrong start code", flipped(lossy, 24), BROKEN)
    yield Specimen(
        "WebP without width", patched(lossy, 26, b"\0\0"), BROKEN + "|invalid_dimensions"
    )


def _tiffs() -> Iterator[Specimen]:
    def made(name: str, data: bytes, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Specimen:
        return Specimen(f"TIFF {name}", data, "png", size, "tiff")

    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
        yield made(mode, _drawn("TIFF", mode))
    ycbcr = pixels(WIDTH, HEIGHT, 1)
    data = tiff_of(ycbcr, photometric=6, extra={530: (3, [1, 1])})
    # Pillow 12.3 takes it for four bytes a pixel, and shows wrong ones if there are as many.
    yield Specimen("TIFF YCbCr, uncompressed", data + bytes(5000), "unsupported_feature")
    yield made("u4", tiff_of(pixels(WIDTH, HEIGHT, 1, 1).astype("u4") << 24))
    yield made("LAB", _saved(image(WIDTH, HEIGHT, 1).convert("LAB"), "TIFF"))
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd", "lzma"):
        yield made(compression, _drawn("TIFF", compression=compression))
    for compression in ("group3", "group4", "tiff_ccitt"):
        yield made(f"bilevel {compression}", _drawn("TIFF", "1", compression=compression))
    random = np.random.default_rng(2)
    for order in "<>":
        for kind in ("u1", "u2", "i2", "i4", "f4"):
            drawn = (random.random((HEIGHT, WIDTH, 1)) * 30_000).astype(kind)
            yield made(f"gray {order}{kind}", tiff_of(drawn, order=order))
        drawn = random.integers(0, 65536, (HEIGHT, WIDTH, 3)).astype("u2")
        yield made(f"RGB of 16 bits {order}", tiff_of(drawn, order=order, photometric=2))
    whole = _drawn("TIFF")
    yield made("of 3 pages", _frames("TIFF", 3))
    yield made("with trailing junk", whole + b"junk" * 9)
    yield made("BigTIFF", _drawn("TIFF", big_tiff=True))
    gray = np.full((HEIGHT, WIDTH, 1), 7, "u1")
    yield made("whose next page is itself", tiff_of(gray, next_directory=8 + HEIGHT * WIDTH))
    yield made("whose next page is beyond its end", tiff_of(gray, next_directory=10**9))
    for orientation in range(10):
        data = tiff_of(
            random.integers(0, 256, (HEIGHT, WIDTH, 3)).astype("u1"),
            photometric=2,
            extra={274: (3, [orientation])},
        )
        yield made(f"with orientation {orientation}", data, _turned_size(orientation))
    for name, tag in {
        "compression 999": {259: (3, [999])},
        "no bits": {258: (3, [0])},
        "7 bits": {258: (3, [7])},
        "photometric 77": {262: (3, [77])},
        "double floats": {258: (3, [64]), 339: (3, [3])},
    }.items():
        yield Specimen(f"TIFF with {name}", tiff_of(gray, extra=tag), REFUSED)
    for name, tag in {"width": {256: (4, [0])}, "height": {257: (4, [0])}}.items():
        made_ = tiff_of(gray, extra=tag)
        yield Specimen(f"TIFF without {name}", made_, "invalid_dimensions|corrupt")
    for name, tag in {
        "data beyond its end": {273: (4, [10**6])},
        "more rows than it has": {257: (4, [300]), 278: (4, [300])},
    }.items():
        yield Specimen(f"TIFF with {name}", tiff_of(gray, extra=tag), BROKEN)
    yield Specimen("TIFF whose directory is beyond its end", patched(whole, 4, b"\xff" * 4), BROKEN)
    yield Specimen("TIFF of a header alone", whole[:8], BROKEN)
    lzw = _drawn("TIFF", compression="tiff_lzw")
    yield Specimen("TIFF with damaged LZW", patched(lzw, len(lzw) // 2, b"\xff" * 300), BROKEN)
    flate = _drawn("TIFF", compression="tiff_adobe_deflate")
    yield Specimen("TIFF with damaged zlib", patched(flate, len(flate) // 2, b"\xff" * 99), BROKEN)


def _avifs() -> Iterator[Specimen]:
    def made(name: str, data: bytes, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Specimen:
        return Specimen(f"AVIF {name}", data, "png", size, "avif")

    plain = _drawn("AVIF", speed=10)
    yield made("lossy", plain)
    yield made("with alpha", _drawn("AVIF", "RGBA", speed=10))
    yield made("gray", _drawn("AVIF", "L", speed=10))
    yield made("animated", _frames("AVIF", 2, speed=10))
    yield made("of another major brand", patched(plain, 8, b"mif1"))  # avif is a compatible one
    for orientation in (3, 6):
        data = _drawn("AVIF", speed=10, exif=_oriented(orientation))
        yield made(f"with orientation {orientation}", data, _turned_size(orientation))
    yield Specimen("AVIF of a header alone", plain[:32], BROKEN)
    yield Specimen("AVIF whose items are gone", plain.replace(b"meta", b"free"), BROKEN)
    data = plain.index(b"mdat") + 4
    yield Specimen("AVIF whose data is zeros", plain[:data] + bytes(len(plain) - data), BROKEN)


def _jpeg2000s() -> Iterator[Specimen]:
    def made(name: str, data: bytes) -> Specimen:
        return Specimen(f"JPEG 2000 {name}", data, "png", format="jpeg2000")

    for mode in ("L", "LA", "RGB", "RGBA"):
        yield made(mode, _drawn("JPEG2000", mode))
        yield made(f"{mode} as a bare codestream", _drawn("JPEG2000", mode, no_jp2=True))
    yield made("lossy", _drawn("JPEG2000", irreversible=True, quality_layers=[20]))
    deep = np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 50
    whole = _saved(Image.fromarray(deep), "JPEG2000")
    yield made("of 16 bits", whole)
    yield made("with trailing junk", whole + b"junk" * 9)
    yield Specimen("JPEG 2000 of a signature alone", whole[:12], BROKEN)
    yield Specimen("JPEG 2000 without a codestream", whole.replace(b"jp2c", b"free"), BROKEN)
    yield Specimen("JPEG 2000 with damaged markers", whole.replace(b"\xff\x52", b"\xff\0"), BROKEN)


def _pnms() -> Iterator[Specimen]:
    def made(name: str, data: bytes) -> Specimen:
        return Specimen(f"PNM {name}", data, "png", format="pnm")

    size, number = b"%d %d" % (WIDTH, HEIGHT), WIDTH * HEIGHT
    bits, numbers = b"0 1 " * (number // 2), b" ".join(b"%d" % (i % 256) for i in range(3 * number))
    yield made("P1", b"P1\n" + size + b"\n" + bits)
    yield made("P1 without spaces", b"P1\n" + size + b"\n" + bits.replace(b" ", b""))
    yield made("P2", b"P2\n" + size + b"\n255\n" + numbers.rsplit(b" ", 2 * number)[0])
    yield made("P3", b"P3\n# a comment\n" + size + b"\n255\n" + numbers)
    yield made("P4", b"P4\n" + size + b"\n" + bytes(HEIGHT * 5))
    for magic, samples in ((b"P5", 1), (b"P6", 3)):
        for most in (1, 100, 255, 256, 1023, 65535):
            body = bytes(number * samples * (1 + (most > 255)))
            head = magic + b"\n" + size + b"\n%d\n" % most
            yield made(f"{magic.decode()} up to {most}", head + body)
    yield made("P6 with trailing junk", _drawn("PPM") + b"junk" * 9)
    yield made(
        "PFM", b"Pf\n" + size + b"\n-1.0\n" + np.linspace(0, 1, number, dtype="<f4").tobytes()
    )
    yield Specimen("PNM P6 cut", _drawn("PPM")[:-1], "truncated")
    yield Specimen("PNM P2 cut", b"P2\n" + size + b"\n255\n1 2 3", "truncated")
    yield Specimen(
        "PNM P3 with letters", b"P3\n" + size + b"\n255\n" + b"x " * 3 * number, "corrupt"
    )
    yield Specimen("PNM P6 up to 0", b"P6\n" + size + b"\n0\n" + bytes(3 * number), "corrupt")
    yield Specimen(
        "PNM P6 up to 99999", b"P6\n" + size + b"\n99999\n" + bytes(3 * number), "corrupt"
    )
    yield Specimen("PNM P6 without width", b"P6\n0 30\n255\n", "invalid_dimensions|corrupt")
    yield Specimen("PNM P6 of negative width", b"P6\n-9 30\n255\n", "invalid_dimensions|corrupt")
    yield Specimen(
        "PNM PAM",
        b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 255\nENDHDR\n\0",
        REFUSED + "|unsupported_format",
    )


def _icos() -> Iterator[Specimen]:
    one = _drawn("ICO", sizes=[(16, 16)])
    several = image_bytes("ICO", 64, 64, sizes=[(16, 16), (32, 32), (64, 64)])
    old = image_bytes("ICO", 64, 64, mode="RGBA", sizes=[(16, 16), (32, 32)], bitmap_format="bmp")
    yield Specimen("ICO of one", one, "png", (16, 12), "ico")
    yield Specimen("ICO of several", several, "png", (64, 64), "ico")
    yield Specimen("ICO of bitmaps", old, "png", (32, 32), "ico")
    yield Specimen("ICO with trailing junk", several + b"junk" * 9, "png", (64, 64), "ico")
    yield Specimen("ICO of nothing", ico_of(), BROKEN)
    yield Specimen("ICO whose image is text", ico_of((16, 16, b"text" * 40)), BROKEN)
    yield Specimen("ICO whose image is elsewhere", ico_of((16, 16, b""))[:22], BROKEN)
    broken = flipped(png(16, 16), 60)
    yield Specimen("ICO whose PNG is damaged", ico_of((16, 16, broken)), BROKEN)


def _foreign() -> Iterator[Specimen]:
    for name, data in {
        "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200),
        "HEIC as mif1": b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + bytes(200),
        "PSD": b"8BPS\0\1" + bytes(6) + b"\0\3\0\0\0\x1e\0\0\0\x28\0\x08\0\3" + bytes(99),
        "EPS": image_bytes("EPS"),
        "EPS for DOS": b"\xc5\xd0\xd3\xc6" + bytes(60),
        "PDF": image_bytes("PDF"),
        "JPEG XL": b"\xff\x0a" + bytes(60),
        "JPEG XL in a box": b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(60),
    }.items():
        yield Specimen(name, data, "unsupported_format")
    yield Specimen("no bytes", b"", "empty_file")
    for name, data in {
        "one byte": b"\xff",
        "two bytes of a JPEG": b"\xff\xd8",
        "text": b"Lorem ipsum dolor sit amet\n" * 20,
        "SVG": b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>',
        "web page": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        "S3 error": b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
        "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "AppleDouble": b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(80),
        "zeros": bytes(1000),
        "spaces": b" " * 99,
        "ZIP": b"PK\3\4" + bytes(60),
        "gzip": b"\x1f\x8b\x08" + bytes(60),
        "JSON": b'{"error": "rate limit exceeded"}',
        "MP4": b"\0\0\0\x18ftypmp42" + bytes(60),
        "WAV": b"RIFF\x24\0\0\0WAVEfmt " + bytes(60),
    }.items():
        yield Specimen(name, data, "not_an_image")


def _bombs() -> Iterator[Specimen]:
    def bomb(name: str, data: bytes) -> Specimen:
        return Specimen(f"bomb: {name}", data, "too_many_pixels")

    for process in (0, 2, 3, 9):
        yield bomb(f"JPEG SOF{process}", jpeg_header(65_500, 65_500, process=process))
    for color_type in (0, 2, 3, 6):
        head = png_header(900_000, 900_000, color_type=color_type)
        head += png_chunk(b"PLTE", bytes(6))
        yield bomb(f"PNG of type {color_type}", head + png_chunk(b"IDAT", b"") + IEND)
    gif = _drawn("GIF", "L")
    yield bomb("GIF canvas", patched(gif, 6, b"\xff\xff\xff\xff"))
    frame = gif.index(b"\x2c" + bytes(4), 13)
    yield bomb("GIF frame", patched(gif, frame + 5, b"\xff\xff\xff\xff"))
    bmp = _drawn("BMP")
    yield bomb("BMP", patched(bmp, 18, struct.pack("<ii", 100_000, 100_000)))
    yield bomb("BMP top-down", patched(bmp, 18, struct.pack("<ii", 100_000, -100_000)))
    webp = _drawn("WEBP")
    yield bomb("WebP lossy", patched(webp, 26, b"\xff\x3f\xff\x3f"))
    lossless = _drawn("WEBP", lossless=True)
    yield bomb("WebP lossless", patched(lossless, 21, b"\xff\xff\xff\x0f"))
    animated = _frames("WEBP", 2)
    yield bomb("WebP canvas", patched(animated, animated.index(b"VP8X") + 12, b"\xff\x3f\0" * 2))
    gray = np.zeros((HEIGHT, WIDTH, 1), "u1")
    for compression in (1, 5, 8):
        wide = {256: (4, [90_000]), 257: (4, [90_000]), 259: (3, [compression])}
        yield bomb(f"TIFF of compression {compression}", tiff_of(gray, extra=wide))
    avif = _drawn("AVIF", speed=10)
    at = avif.index(b"ispe") + 8
    yield bomb("AVIF", patched(avif, at, struct.pack(">II", 60_000, 60_000)))
    jp2 = _drawn("JPEG2000")
    jp2 = patched(jp2, jp2.index(b"ihdr") + 4, struct.pack(">II", 90_000, 90_000))
    yield bomb(
        "JPEG 2000", patched(jp2, jp2.index(b"\xff\x51") + 6, struct.pack(">II", 90_000, 90_000))
    )
    bare = _drawn("JPEG2000", no_jp2=True)
    yield bomb("JPEG 2000 codestream", patched(bare, 8, struct.pack(">II", 90_000, 90_000)))
    for magic in (b"P1", b"P3", b"P4", b"P5", b"P6"):
        yield bomb(f"PNM {magic.decode()}", magic + b"\n90000 90000\n255\n" + bytes(99))
    huge = png_header(40_000, 40_000) + png_chunk(b"IDAT", zlib.compress(bytes(9))) + IEND
    yield bomb("ICO with a PNG", ico_of((16, 16, huge)))
    dib = struct.pack("<IiiHHIIiiII", 40, 40_000, 80_000, 1, 32, 0, 0, 0, 0, 0, 0)
    yield bomb("ICO with a bitmap", ico_of((16, 16, dib + bytes(4000))))
    rows = zlib.compress(bytes(HEIGHT * (3 * WIDTH + 1)) + bytes(100 << 20))
    more = png_header(WIDTH, HEIGHT) + png_chunk(b"IDAT", rows) + IEND
    # Readers stop after the last row, and so does recordmill: it decompresses nothing after it.
    yield Specimen("bomb: PNG of 100 MB after its last row", more, "kept", format="png")


def _cuts() -> Iterator[Specimen]:
    """Yields files cut in their pixels, at several places, and within their headers."""
    whole = {
        "JPEG": (jpeg(WIDTH, HEIGHT), "truncated"),
        "progressive JPEG": (jpeg(WIDTH, HEIGHT, progressive=True), "truncated"),
        "PNG": (png_of(samples_of(2, 8), 2), "truncated"),
        "interlaced PNG": (png_of(samples_of(2, 8), 2, interlaced=True), "truncated"),
        "GIF": (_drawn("GIF", "L"), "truncated"),
        "interlaced GIF": (_drawn("GIF", "L", interlace=1), "truncated"),
        "BMP": (_drawn("BMP"), "truncated"),
        "PNM": (_drawn("PPM"), "truncated"),
        "TIFF": (_drawn("TIFF"), "truncated"),
        "TIFF in LZW": (_drawn("TIFF", compression="tiff_lzw"), BROKEN),
        "TIFF in zlib": (_drawn("TIFF", compression="tiff_adobe_deflate"), BROKEN),
        "TIFF in JPEG": (_drawn("TIFF", compression="jpeg"), BROKEN),
        "WebP": (_drawn("WEBP"), BROKEN),
        "lossless WebP": (_drawn("WEBP", lossless=True), BROKEN),
        "AVIF": (_drawn("AVIF", speed=10), BROKEN),
        "JPEG 2000": (_drawn("JPEG2000"), BROKEN),
        "ICO": (image_bytes("ICO", 64, 64, sizes=[(64, 64)]), BROKEN),
    }
    for name, (data, outcome) in whole.items():
        for percent in (95, 75, 50):
            cut = data[: len(data) * percent // 100]
            yield Specimen(f"{name} cut at {percent} %", cut, outcome)
        yield Specimen(f"{name} cut at byte 20", data[:20], BROKEN)
