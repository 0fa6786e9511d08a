"""Mutated images: every chunk and segment damaged, truncated, duplicated, moved and removed.

    png_mutants(), jpeg_mutants()     (name, bytes) of each, the same in every run

There is no expected outcome: each must be rejected, or become a record that all readers read.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

from tests.corpus import IEND, PNG_SIGNATURE, flipped, patched, png_of, samples_of
from tests.images import SRGB, image, image_bytes, jpeg, jpeg_segment, png_chunk

Mutant = tuple[str, bytes]

_EXIF = b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"
_FRAME = struct.pack(">IIIIIHHBB", 0, 40, 30, 0, 0, 1, 10, 0, 0)
CHUNKS = {
    b"IHDR": struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0),
    b"PLTE": bytes(range(48)),
    b"IDAT": b"",
    b"IEND": b"",
    b"tRNS": b"\0\1",
    b"gAMA": struct.pack(">I", 45455),
    b"cHRM": struct.pack(">8I", *range(1, 9)),
    b"sRGB": b"\0",
    b"iCCP": b"name\0\0" + zlib.compress(SRGB),
    b"sBIT": b"\x08\x08\x08",
    b"bKGD": bytes(6),
    b"hIST": bytes(32),
    b"pHYs": struct.pack(">IIB", 2835, 2835, 1),
    b"sPLT": b"name\0\x08" + bytes(6),
    b"tIME": struct.pack(">HBBBBB", 2026, 1, 1, 0, 0, 0),
    b"tEXt": b"key\0value",
    b"zTXt": b"key\0\0" + zlib.compress(b"value"),
    b"iTXt": b"key\0\1\0en\0key\0" + zlib.compress(b"value"),
    b"eXIf": _EXIF,
    b"cICP": b"\1\x0d\0\1",
    b"mDCV": bytes(24),
    b"cLLI": bytes(8),
    b"acTL": struct.pack(">II", 2, 0),
    b"fcTL": _FRAME,
    b"fdAT": b"\0\0\0\1" + zlib.compress(bytes(30 * 121)),
    b"oFFs": bytes(9),
    b"pCAL": b"name\0" + bytes(10),
    b"sCAL": b"\0011.0\0001.0",
    b"sTER": b"\0",
    b"vpAg": b"?",
    b"VPAG": b"?",
    b"v1Ag": b"?",
}
_HEAD = len(PNG_SIGNATURE) + 25


def png_mutants() -> Iterator[Mutant]:
    """Yields PNGs of every color type, with each chunk in every invalid form and position."""
    for color_type, depth in ((0, 8), (0, 1), (2, 8), (2, 16), (3, 4), (4, 8), (6, 8)):
        palette = png_chunk(b"PLTE", CHUNKS[b"PLTE"]) if color_type == 3 else b""
        base = png_of(samples_of(color_type, depth), color_type, depth, before=palette)
        for name, content in CHUNKS.items():
            for form, chunk in _forms(name, content):
                for place, data in _places(base, palette, chunk):
                    yield f"PNG {color_type}/{depth}, {form} {place}", data
        yield from ((f"PNG {color_type}/{depth}, {form}", m) for form, m in _streams(base))


def _forms(name: bytes, content: bytes) -> Iterator[Mutant]:
    text = name.decode()
    whole = png_chunk(name, content)
    yield text, whole
    yield f"{text} twice", whole * 2
    yield f"{text} with a wrong CRC", flipped(whole, -1)
    yield f"{text} empty", png_chunk(name, b"")
    yield f"{text} cut", png_chunk(name, content[:-1])
    yield f"{text} extended", png_chunk(name, content + b"\0")
    yield f"{text} of FF", png_chunk(name, b"\xff" * len(content))
    if name in (b"iCCP", b"zTXt"):
        at = content.index(b"\0") + 1
        yield f"{text} of method 9", png_chunk(name, patched(content, at, b"\x09"))
        yield f"{text} without zlib", png_chunk(name, content[: at + 1] + b"\xff" * 9)
    if name == b"cICP":
        yield f"{text} of PQ", png_chunk(name, b"\x09\x10\0\1")
    if name == b"tRNS":
        for length in (1, 3, 6, 16, 17, 256, 257):
            yield f"{text} of {length}", png_chunk(name, bytes(length))
    if name == b"PLTE":
        for length in (3, 6, 768, 771):
            yield f"{text} of {length}", png_chunk(name, bytes(length))


def _places(base: bytes, palette: bytes, chunk: bytes) -> Iterator[Mutant]:
    start = _HEAD + len(palette)
    stream = base[start + 8 : -16]
    half = len(stream) // 2
    parts = [png_chunk(b"IDAT", stream[:half]), png_chunk(b"IDAT", stream[half:])]
    yield "before PLTE", base[:_HEAD] + chunk + base[_HEAD:]
    yield "before IDAT", base[:start] + chunk + base[start:]
    yield "between IDATs", base[:start] + parts[0] + chunk + parts[1] + IEND
    yield "after IDAT", base[: -len(IEND)] + chunk + IEND
    yield "after IEND", base + chunk


def _streams(base: bytes) -> Iterator[Mutant]:
    """Yields a PNG with its compressed data split, damaged, or encoded differently."""
    start = base.index(b"IDAT") - 4
    head, stream = base[:start], base[start + 8 : -16]
    rows = zlib.decompress(stream)

    def of(*parts: bytes) -> bytes:
        return head + b"".join(png_chunk(b"IDAT", part) for part in parts) + IEND

    yield "in bytes", of(*(stream[i : i + 1] for i in range(len(stream))))
    yield "with empty IDATs", of(b"", stream[:9], b"", stream[9:], b"")
    yield "of stored blocks", of(zlib.compress(rows, 0))
    yield "with a row too many", of(zlib.compress(rows + bytes(200)))
    yield "with a byte too few", of(zlib.compress(rows[:-1]))
    yield "with bytes after its stream", of(stream + b"junk")
    yield "with a stream after its stream", of(stream, stream)
    yield "raw", of(stream[2:-4])
    for wrong in (b"\0\0\0\0", b""):
        yield f"with checksum {wrong!r}", of(stream[:-4] + wrong)
    for bits in range(8, 16):
        cmf = bits - 8 << 4 | 8
        yield f"of a window of {bits} bits", of(bytes([cmf, 31 - cmf * 256 % 31]) + stream[2:])
        far = zlib.compress(rows[: len(rows) // 2] * 2)
        yield f"far, of {bits} bits", of(bytes([cmf, 31 - cmf * 256 % 31]) + far[2:])
    yield "with a dictionary", of(bytes([0x78, 0x20 | 31 - 0x7820 % 31]) + stream[2:])
    for at in range(16, 29):
        for value in (0, 1, 2, 3, 5, 16, 0x80, 0xFF):
            header = patched(base[8:29], at - 8, bytes([value]))[8:]
            yield f"IHDR {at}={value}", PNG_SIGNATURE + png_chunk(b"IHDR", header) + base[33:]
    for cut in range(1, 40):
        yield f"cut by {cut}", base[:-cut]
    for junk in (b"\0", b"junk" * 9, base):
        yield f"with {len(junk)} after it", base + junk


_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7\x01]", re.DOTALL)
SEGMENTS = {
    "an empty JFIF": jpeg_segment(0xE0, b"JFIF\0"),
    "JFIF of 7": jpeg_segment(0xE0, b"JFIF\0\1\2"),
    "JFIF": jpeg_segment(0xE0, b"JFIF\0\1\2\1\0\x48\0\x48\0\0"),
    "JFXX": jpeg_segment(0xE0, b"JFXX\0\x10"),
    "an empty APP0": jpeg_segment(0xE0, b""),
    "MPF alone": jpeg_segment(0xE2, b"MPF\0"),
    "MPF of nothing": jpeg_segment(0xE2, b"MPF\0II*\0\x08\0\0\0\0\0\0\0\0\0"),
    "MPF of a number": jpeg_segment(
        0xE2, b"MPF\0II*\0\x08\0\0\0\1\0\x01\xb0\4\0\1\0\0\0\2\0\0\0\0\0\0\0"
    ),
    "MPF of FF": jpeg_segment(0xE2, b"MPF\0" + b"\xff" * 60),
    "EXIF": jpeg_segment(0xE1, b"Exif\0\0" + _EXIF),
    "EXIF alone": jpeg_segment(0xE1, b"Exif\0\0"),
    "EXIF cut": jpeg_segment(0xE1, b"Exif\0\0" + _EXIF[:-9]),
    "EXIF of FF": jpeg_segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0" + b"\xff" * 30),
    "EXIF beyond": jpeg_segment(0xE1, b"Exif\0\0MM\0*\xff\xff\xff\xff"),
    "a profile": jpeg_segment(0xE2, b"ICC_PROFILE\0\1\1" + SRGB),
    "a profile without number": jpeg_segment(0xE2, b"ICC_PROFILE\0"),
    "a profile of 3, of which one": jpeg_segment(0xE2, b"ICC_PROFILE\0\1\3" + SRGB),
    "Photoshop": jpeg_segment(0xED, b"Photoshop 3.0\x008BIM\3\xed\0\0\0\0\0\2\0\1"),
    "Photoshop cut": jpeg_segment(0xED, b"Photoshop 3.0\x008BIM\3"),
    "FlashPix": jpeg_segment(0xE2, b"FPXR\0"),
    "Adobe alone": jpeg_segment(0xEE, b"Adobe"),
    **{
        f"Adobe {transform}": jpeg_segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))
        for transform in (0, 1, 2, 9)
    },
    "XMP": jpeg_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>"),
    "a comment": jpeg_segment(0xFE, b"c"),
    "DRI 1": jpeg_segment(0xDD, b"\0\1"),
    "DRI 0": jpeg_segment(0xDD, b"\0\0"),
    "DRI of 3 bytes": jpeg_segment(0xDD, b"\0\1\0"),
    "DNL": jpeg_segment(0xDC, b"\0\x1e"),
    "DAC": jpeg_segment(0xCC, b"\0\1"),
    "DHP": jpeg_segment(0xDE, b"\x08\0\x1e\0\x28\1\1\x11\0"),
    "EXP": jpeg_segment(0xDF, b"\0"),
    "JPG": jpeg_segment(0xC8, b"\0"),
    "JPG5": jpeg_segment(0xF5, b"\0"),
    "a reserved marker": jpeg_segment(0x02, b"\0"),
    "a start": b"\xff\xd8",
    "an end": b"\xff\xd9",
    "a restart": b"\xff\xd0",
    "TEM": b"\xff\x01",
    "fill bytes": b"\xff" * 5,
    "junk": b"junk",
    "a stuffed byte": b"\xff\0",
    "a length of 0": b"\xff\xe5\0\0",
    "a length of 1": b"\xff\xe5\0\1",
    "a length beyond the end": b"\xff\xe5\xff\xff",
}


def jpeg_mutants() -> Iterator[Mutant]:
    """Yields JPEGs of many kinds, with each segment in every invalid form and position."""
    second = [image(40, 30, 1)]
    for name, base in {
        "baseline": jpeg(40, 30),
        "gray": jpeg(40, 30, mode="L"),
        "progressive": jpeg(40, 30, progressive=True),
        "of restarts": jpeg(40, 30, restart_marker_blocks=1),
        "4:4:4": jpeg(40, 30, subsampling="4:4:4"),
        "RGB": jpeg(40, 30, keep_rgb=True),
        "CMYK": jpeg(40, 30, mode="CMYK"),
        "MPO": image_bytes("MPO", 40, 30, save_all=True, append_images=second),
    }.items():
        marks = list(_segments(base))
        for start, stop in marks:
            for form, data in _changed(base, start, stop):
                yield f"JPEG {name}, {form}", data
        scan = next(start for start, _ in marks if base[start + 1] == 0xDA)
        for form, segment in SEGMENTS.items():
            for place, at in (("first", 2), ("before the scan", scan), ("last", len(base) - 2)):
                yield f"JPEG {name} with {form} {place}", base[:at] + segment + base[at:]
        yield from ((f"JPEG {name}, {form}", data) for form, data in _coded(base, marks[-1][0]))


def _segments(data: bytes) -> Iterator[tuple[int, int]]:
    position = 2
    while (match := _MARKER.search(data, position)) and match[0] != b"\xff\xd9":
        position = match.end() + int.from_bytes(data[match.end() : match.end() + 2], "big")
        yield match.start(), position


def _changed(base: bytes, start: int, stop: int) -> Iterator[Mutant]:
    """Yields a JPEG with one segment changed."""
    marker, body = base[start + 1], base[start + 4 : stop]
    name = f"{marker:X} at {start}"

    def of(new: bytes) -> bytes:
        return base[:start] + new + base[stop:]

    yield f"without {name}", of(b"")
    yield f"{name} twice", of(base[start:stop] * 2)
    yield f"{name} at the end", of(b"")[:-2] + base[start:stop] + base[-2:]
    yield f"{name} first", base[:2] + base[start:stop] + of(b"")[2:]
    yield f"{name} cut", of(jpeg_segment(marker, body[:-1]))
    yield f"{name} empty", of(jpeg_segment(marker, b""))
    yield f"{name} extended", of(jpeg_segment(marker, body + b"\0"))
    yield f"{name} of FF", of(jpeg_segment(marker, b"\xff" * len(body)))
    yield f"{name} of zeros", of(jpeg_segment(marker, bytes(len(body))))
    for more in (-1, 1, 100):
        length = struct.pack(">H", max(0, stop - start - 2 + more))
        yield f"{name} with its length {more:+}", patched(base, start + 2, length)
    for at in range(min(len(body), 24)):
        for value in (0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x31, 0x41, 0x80, 0xFF):
            yield f"{name}[{at}]={value}", patched(base, start + 4 + at, bytes([value]))
    if 0xC0 <= marker <= 0xC2:
        for process in range(16):
            yield f"SOF{process}", patched(base, start + 1, bytes([0xC0 + process]))


def _coded(base: bytes, scan: int) -> Iterator[Mutant]:
    """Yields a JPEG with its coded data changed; `scan` is the offset of its last scan."""
    start = scan + 2 + int.from_bytes(base[scan + 2 : scan + 4], "big")
    for at in range(start, len(base) - 2, max(1, (len(base) - start) // 40)):
        for wrong in (b"\xff\xd0", b"\xff\xd5", b"\xff\xd9", b"\xff\xda", b"\xff\0", b"\xff\xe0"):
            yield f"{wrong.hex()} at {at}", patched(base, at, wrong)
        yield f"without byte {at}", base[:at] + base[at + 1 :]
        yield f"cut at {at}", base[:at]
        yield f"ended at {at}", base[:at] + b"\xff\xd9"
    yield "ended twice", base + b"\xff\xd9"
    yield "started twice", base[:2] + base
