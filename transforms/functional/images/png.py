"""Reads PNG headers, and verifies chunks, checksums and row filters without decoding pixels.

Pillow ignores some damage that TensorFlow rejects; these checks are as strict as the strictest
reader. Section numbers refer to the Portable Network Graphics (PNG) Specification of the W3C, third
edition.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.jpeg import UPRIGHT, orientation_of
from recordmill.transforms.functional.images.sniffing import PNG_SIGNATURE, WorkLimitError

SIGNATURE = PNG_SIGNATURE
# Section 11.2.1, table 12: the bit depths and the number of samples of each color type.
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_PALETTE = 3
_MAX_FILTER = 4  # section 9.2: None, Sub, Up, Average, Paeth
_OUTPUT_BYTES = 2**20  # decompressed bytes per call of zlib
_INPUT_BYTES = 2**16  # compressed bytes per call of zlib
_BLOCK_BYTES = 2**16 - 1  # RFC 1951, 3.2.4: a stored block
_TRAILING_BYTES = 2**14  # decompressed after the last row
_LARGEST_WINDOW = 2**15  # RFC 1950: a window size of 32 KiB
_LENGTH_AND_TYPE = struct.Struct(">I4s")
_CRITICAL = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
_END = b"\0\0\0\0IEND\xaeB`\x82"  # length 0, type, CRC
_METADATA = frozenset({b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME"})

# Transfer functions of cICP chunks (ITU-T H.273) that readers ignore, so that colors are wrong.
_HIGH_DYNAMIC_RANGE = {16: "PQ", 18: "HLG"}

# Limit of chunks for parsing in the worker process; some encoders write 8 KiB per IDAT chunk.
MAX_CHUNKS = 2**14

# Limit of chunks other than IDAT, each of which Pillow may decompress to 1 MiB.
MAX_OTHER_CHUNKS = 128

# Section 8.2, Adam7: x and y of the first pixel of each pass, and the steps to the next pixel.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
_LAST_PASS = (0, 1, 1, 2)


class Chunk(NamedTuple):
    """A chunk."""

    name: bytes
    # The bytes in the file. Section 5.3: length of the content (4 bytes), type (4), content, CRC-32
    # of type and content (4).
    whole: memoryview

    @property
    def data(self) -> memoryview:
        """The content."""
        return self.whole[8:-4]

    @property
    def intact(self) -> bool:
        """Whether the checksum matches the content."""
        return zlib.crc32(self.whole[4:-4]) == int.from_bytes(self.whole[-4:], "big")

    @property
    def critical(self) -> bool:
        """Whether readers need the chunk. Section 5.4: bit 5 of the first byte of the type is 0."""
        return not self.name[0] & 0x20


@dataclass
class PngHeader:
    """The header of a PNG: the fields of IHDR and of other chunks."""

    width: int  # the width in pixels
    height: int  # the height in pixels
    depth: int
    color_type: int  # 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGBA
    interlaced: bool  # whether rows are stored in the seven passes of Adam7
    # Whether a valid tRNS chunk makes a color or palette entries transparent.
    transparency: bool = False
    frames: int = 1  # the number of animation frames; 1 without an animation
    orientation: int = UPRIGHT  # the EXIF orientation, from 1 to 8
    readable_by_all: bool = True  # whether all readers interpret the chunks in the same way
    ends_with_pixels: bool = True  # whether the image data is followed only by IEND
    only_pixels: bool = True  # whether all chunks are IHDR, IDAT or IEND

    @property
    def channels(self) -> int:
        """The number of channels after decoding; a palette is decoded to RGB or RGBA."""
        if self.color_type == _PALETTE:
            return 3 + self.transparency
        return _SAMPLES[self.color_type]

    @property
    def mode(self) -> str:
        """The mode in which Pillow opens the image."""
        if self.color_type == 0 and self.depth in (1, 16):
            return "1" if self.depth == 1 else "I;16"
        return {0: "L", 2: "RGB", _PALETTE: "P", 4: "LA", 6: "RGBA"}[self.color_type]

    @property
    def has_alpha(self) -> bool:
        """Whether any pixel can be transparent."""
        return self.transparency or self.color_type in (4, 6)

    @property
    def inflated_bytes(self) -> int:
        """The size of the uncompressed rows in bytes, including their filter bytes."""
        return sum(rows * stride for rows, stride in _row_layout(self))


def examine(data: bytes, bounded: bool = False) -> PngHeader:
    """Reads the header of a PNG; raises WorkLimitError above the limits if `bounded`."""
    chunks = _bounded(_chunks(data)) if bounded else _chunks(data)
    header = _header(next(chunks))
    palette: bytes | None = None
    name, transparent = b"IHDR", False
    runs = 0  # of consecutive IDAT chunks; a valid file has one
    for chunk in chunks:
        _check_chunk(chunk)
        if chunk.name == b"IEND":
            break
        previous, name = name, chunk.name
        if name == b"IDAT":
            runs += previous != b"IDAT"
            continue
        header.only_pixels = False
        if not chunk.critical and not chunk.intact:
            # Some readers ignore a damaged ancillary chunk, others fail.
            header.readable_by_all = False
        elif name == b"PLTE":
            if palette is not None:
                raise RecordError(Reason.CORRUPT, "chunk PLTE occurs twice")
            # Section 5.6: a palette after the image data is not used.
            palette = b"" if runs else bytes(chunk.data)
            header.readable_by_all &= _palette_fits(chunk.data)
        elif name == b"tRNS":
            # libpng ignores one after the image data or of the wrong length.
            fits = not runs and _transparency_fits(chunk.data, header.color_type, palette)
            header.readable_by_all &= fits and not transparent
            header.transparency = header.transparency if transparent else fits
            transparent = True
        elif name in _ANCILLARY:
            _ANCILLARY[name](header, bytes(chunk.data))
    if not runs:
        raise RecordError(Reason.TRUNCATED, "has no image data")
    # Section 5.6: there can be many IDAT chunks, but they must be consecutive.
    if runs > 1:
        raise RecordError(Reason.CORRUPT, "its IDAT chunks are not consecutive")
    if header.color_type == _PALETTE and not _palette_fits(palette or b""):
        raise RecordError(Reason.CORRUPT, "has no valid PLTE chunk before its image data")
    header.ends_with_pixels = name == b"IDAT"
    return header


def _add_orientation(header: PngHeader, data: bytes) -> None:
    header.orientation = orientation_of(data)


def _add_frames(header: PngHeader, data: bytes) -> None:
    header.frames = max(1, int.from_bytes(data[:4], "big"))


def _check_colors(_: PngHeader, data: bytes) -> None:
    if len(data) == 4 and (name := _HIGH_DYNAMIC_RANGE.get(data[1])):
        detail = f"PNG with high dynamic range: transfer function {name} in its cICP chunk"
        raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)


_ANCILLARY = {b"eXIf": _add_orientation, b"acTL": _add_frames, b"cICP": _check_colors}


def _header(chunk: Chunk) -> PngHeader:
    """Returns the fields of IHDR (section 11.2.1)."""
    if chunk.name == b"CgBI":
        raise RecordError(
            Reason.UNSUPPORTED_FEATURE,
            "PNG that Xcode has optimized for iOS (CgBI). Convert it with pngcrush "
            "-revert-iphone-optimizations.",
        )
    if chunk.name != b"IHDR" or len(chunk.data) != 13:
        raise RecordError(Reason.CORRUPT, "does not begin with an IHDR chunk of 13 bytes")
    if not chunk.intact:
        raise RecordError(Reason.CORRUPT, "checksum mismatch in chunk IHDR")
    header = struct.unpack(">IIBBBBB", chunk.data)
    width, height, depth, color_type, compression, filtering, interlace = header
    if depth not in _DEPTHS.get(color_type, ()) or compression or filtering or interlace > 1:
        raise RecordError(Reason.CORRUPT, f"invalid values in chunk IHDR: {header}")
    return PngHeader(width, height, depth, color_type, bool(interlace))


def _check_chunk(chunk: Chunk) -> None:
    if chunk.name == b"IHDR":
        raise RecordError(Reason.CORRUPT, "chunk IHDR occurs twice")
    if chunk.name in _CRITICAL:
        if not chunk.intact:
            raise RecordError(Reason.CORRUPT, f"checksum mismatch in chunk {chunk.name.decode()}")
    elif chunk.critical or not chunk.name.isalpha():
        name = chunk.name.decode("latin-1")
        raise RecordError(Reason.CORRUPT, f"unknown critical chunk {name!r}")


def check_rows(data: bytes, header: PngHeader) -> None:
    """Checks the image data like `checked_rows`, without keeping it."""
    for _ in checked_rows(data, header):
        pass


def checked_rows(data: bytes, header: PngHeader) -> Iterator[bytes]:
    """Yields the decompressed image data in parts whose filter types are checked, none empty."""
    try:
        is_complete = yield from _inflate(data, header)
    except zlib.error as error:
        raise RecordError(Reason.CORRUPT, f"the compressed data is damaged: {error}") from error
    if not is_complete:
        raise RecordError(Reason.TRUNCATED, "the image data ends before the last row")


def stored(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yields a zlib stream that contains data without compression (RFC 1950, RFC 1951)."""
    adler = 1
    yield b"\x78\x01"
    for part in parts:
        adler = zlib.adler32(part, adler)
        for at in range(0, len(part), _BLOCK_BYTES):
            block = part[at : at + _BLOCK_BYTES]
            yield struct.pack("<BHH", 0, len(block), len(block) ^ _BLOCK_BYTES) + block
    yield struct.pack("<BHH", 1, 0, _BLOCK_BYTES) + adler.to_bytes(4, "big")


def _inflate(data: bytes, header: PngHeader) -> Generator[bytes, None, bool]:
    """Yields the image data; returns whether it has all rows, and then its end or more bytes."""
    rows = RowChecker(header)
    inflate = zlib.decompressobj(0)  # takes the window size from the zlib header, like libpng
    # After the last row, libpng continues to the end of the stream; it fails if the file ends
    # before, and stops after 1 KiB of further data. This loop reads more than that, but not all: a
    # decompression bomb after the last row must not be decompressed.
    trailing, by_row = 0, False
    for number, part in enumerate(_image_data(data)):
        pending: bytes | memoryview = part
        if number == 0:  # begins with the zlib header
            by_row = _states_small_window(part[0], header)
        while True:
            after_rows = not rows.missing
            limit = rows.rest_of_row if by_row and rows.missing else _OUTPUT_BYTES
            output = inflate.decompress(pending, _TRAILING_BYTES if after_rows else limit)
            rows.feed(output)
            if output:
                yield output
            trailing += len(output) if after_rows else 0
            if inflate.eof or trailing >= _TRAILING_BYTES:
                return not rows.missing
            pending = inflate.unconsumed_tail
            # zlib may still have output buffered when all input is consumed: call it until neither
            # is left.
            if not output and not pending:
                break
    return False


def _image_data(data: bytes) -> Iterator[memoryview]:
    """Yields the compressed data in small parts, since each call of zlib copies unused input."""
    for chunk in _chunks(data):
        if chunk.name == b"IDAT":
            content = chunk.data
            for start in range(0, len(content), _INPUT_BYTES):
                yield content[start : start + _INPUT_BYTES]


def _states_small_window(first: int, header: PngHeader) -> bool:
    """Returns whether the zlib header states a window that is smaller than the data.

    A distance beyond the stated window is an error that libpng detects between rows, but not within
    a row: such data must be decompressed row by row to give the same result.
    """
    # RFC 1950, 2.2: the upper four bits of the first byte are log2(window size) - 8.
    window = 1 << (first >> 4) + 8
    return window < _LARGEST_WINDOW and window < header.inflated_bytes


class RowChecker:
    """Checks the filter type of each row of uncompressed image data, in parts of any size."""

    def __init__(self, header: PngHeader) -> None:
        # [(rows, bytes per row)] of the incomplete passes; without interlacing, there is one pass.
        self._passes = list(_row_layout(header))
        self._done = 0  # number of checked bytes of the first of these passes

    @property
    def missing(self) -> bool:
        """Whether rows are missing."""
        return bool(self._passes)

    @property
    def rest_of_row(self) -> int:
        """The number of bytes until the end of the current row."""
        stride = self._passes[0][1]
        return stride - self._done % stride

    def feed(self, data: bytes) -> None:
        """Checks the next bytes; bytes after the last row are ignored."""
        start = 0
        while self._passes and start < len(data):
            rows, stride = self._passes[0]
            # Section 9.2: each row begins with its filter type. The first row that begins in these
            # bytes is -done % stride bytes away; a slice with a step of one row from there has the
            # filter types of all rows, without a Python loop over rows.
            stop = min(len(data), start + rows * stride - self._done)
            filters = data[start + -self._done % stride : stop : stride]
            if filters and max(filters) > _MAX_FILTER:
                raise RecordError(Reason.CORRUPT, f"invalid filter type {max(filters)} of a row")
            self._done += stop - start
            start = stop
            if self._done == rows * stride:
                self._passes.pop(0)
                self._done = 0


def strip_metadata(data: bytes) -> bytes:
    """Returns a PNG without EXIF, text and time chunks, and without bytes after its end."""
    return _join(chunk for chunk in _chunks(data) if chunk.name not in _METADATA)


def keep_pixel_data(data: bytes, header: PngHeader) -> bytes:
    """Returns a PNG with only those intact chunks that determine its pixels."""
    kept = {b"IHDR", b"IDAT", b"iCCP"}
    kept |= {b"PLTE"} if header.color_type == _PALETTE else set()
    kept |= {b"tRNS"} if header.transparency else set()
    return _join(_first_of_each(c for c in _chunks(data) if c.name in kept)) + _END


def _is_usable(chunk: Chunk) -> bool:
    """Returns whether a chunk is intact and, if it is an ICC profile, compressed with method 0."""
    _, found, profile = bytes(chunk.data[:81]).partition(b"\0")
    return chunk.intact and (chunk.name != b"iCCP" or (bool(found) and profile[:1] == b"\0"))


def _first_of_each(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yields all IDAT chunks, and the first usable chunk of every other type."""
    seen: set[bytes] = set()
    for chunk in chunks:
        if chunk.name == b"IDAT" or (chunk.name not in seen and _is_usable(chunk)):
            seen.add(chunk.name)
            yield chunk


def png_of_rows(width: int, height: int, depth: int, channels: int, filtered: bytes) -> bytes:
    """Returns a PNG of gray or RGB, with alpha for 2 or 4 channels, from filtered rows."""
    color_type = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, 0)
    return _join([_new_chunk(b"IHDR", header), _new_chunk(b"IDAT", zlib.compress(filtered))]) + _END


def _new_chunk(name: bytes, content: bytes) -> Chunk:
    checksum = zlib.crc32(name + content).to_bytes(4, "big")
    return Chunk(name, memoryview(len(content).to_bytes(4, "big") + name + content + checksum))


def palette_of(data: bytes) -> bytes:
    """Returns red, green and blue of each entry of the palette; none if there is no palette."""
    return next((bytes(chunk.data) for chunk in _chunks(data) if chunk.name == b"PLTE"), b"")


def _join(chunks: Iterable[Chunk]) -> bytes:
    return b"".join([SIGNATURE, *(chunk.whole for chunk in chunks)])


def _chunks(data: bytes) -> Iterator[Chunk]:
    view, position = memoryview(data), len(SIGNATURE)
    while position + 12 <= len(data):
        length, name = _LENGTH_AND_TYPE.unpack_from(data, position)
        stop = position + 12 + length
        if stop > len(data):
            break
        yield Chunk(name, view[position:stop])
        if name == b"IEND":
            return
        position = stop
    raise RecordError(Reason.TRUNCATED, "the file ends before its last chunk, IEND")


def _bounded(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yields the chunks; raises WorkLimitError if there are more than the limits."""
    others = 0
    for number, chunk in enumerate(chunks):
        others += chunk.name != b"IDAT"
        if number >= MAX_CHUNKS or others > MAX_OTHER_CHUNKS:
            raise WorkLimitError
        yield chunk


def _transparency_fits(data: memoryview, color_type: int, palette: bytes | None) -> bool:
    # Section 11.3.1.1: one alpha byte for each of the first palette entries, or the 16-bit samples
    # of one transparent color.
    if color_type == _PALETTE:
        return palette is not None and 1 <= len(data) <= len(palette) // 3
    return len(data) == {0: 2, 2: 6}.get(color_type)


def _palette_fits(palette: bytes | memoryview) -> bool:
    # Section 11.2.2: 1 to 256 entries of red, green and blue.
    return 3 <= len(palette) <= 768 and len(palette) % 3 == 0


def _row_layout(header: PngHeader) -> Iterator[tuple[int, int]]:
    """Yields (rows, bytes per row with the filter byte) of each pass with pixels (7.2 and 8.2)."""
    bits = _SAMPLES[header.color_type] * header.depth
    for x, y, dx, dy in (*_PASSES, _LAST_PASS) if header.interlaced else ((0, 0, 1, 1),):
        # Pixels of the pass: ceil((size - first) / step).
        width, height = -(-(header.width - x) // dx), -(-(header.height - y) // dy)
        if width > 0 and height > 0:
            yield height, 1 + -(-width * bits // 8)
