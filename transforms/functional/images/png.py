"""PNG: headers, and verification of chunks, checksums and row filters without decoding pixels.

Pillow ignores damage that TensorFlow rejects; these checks are as strict as the strictest reader.
Source: W3C, Portable Network Graphics (PNG) Specification, third edition.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.sniffing import PNG_SIGNATURE, WorkLimitError

SIGNATURE = PNG_SIGNATURE
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_PALETTE = 3
_MAX_FILTER = 4
_PIECE_BYTES = 2**20
_INPUT_BYTES = 2**16
_BEYOND_BYTES = 2**14
_LARGEST_WINDOW = 2**15
_CRITICAL = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
_END = b"\0\0\0\0IEND\xaeB`\x82"
_METADATA = frozenset({b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME"})
_HIGH_DYNAMIC_RANGE = {16: "PQ", 18: "HLG"}
"""cICP transfer functions that readers ignore, with wrong colors as the result."""

MAX_CHUNKS = 2**14
"""Chunks that are parsed in the run's own process; some encoders write 8 KiB to an IDAT chunk."""

MAX_OTHER_CHUNKS = 128
"""Of these, chunks other than IDAT: Pillow may inflate each to 1 MiB."""

# Adam7 (section 8.2): x and y of the first pixel of each pass, and the steps to the next.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
_LAST_PASS = (0, 1, 1, 2)


class Chunk(NamedTuple):
    """A chunk.

    Attributes:
        name: the chunk type, four letters.
        start: offset of the chunk.
        data: its content.
        crc: its stored checksum.
    """

    name: bytes
    start: int
    data: memoryview
    crc: int

    @property
    def intact(self) -> bool:
        """Whether the checksum matches the content."""
        return zlib.crc32(self.data, zlib.crc32(self.name)) == self.crc

    @property
    def critical(self) -> bool:
        """Whether readers need it: bit 5 of the first letter is 0 (section 5.4)."""
        return not self.name[0] & 0x20


class PngHeader(NamedTuple):
    """The header of a PNG: the image header and what other chunks add to it.

    Attributes:
        width: in pixels.
        height: in pixels.
        depth: bits per sample.
        color_type: 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGBA.
        interlaced: whether rows are stored in the seven passes of Adam7.
        transparency: whether a valid tRNS chunk makes a color or palette entries transparent.
        frames: number of animation frames; 1 without an animation.
        exif: the EXIF block, or None.
        readable_by_all: whether all chunks are intact and every reader treats them the same.
        ends_with_pixels: whether only IEND follows the image data.
    """

    width: int
    height: int
    depth: int
    color_type: int
    interlaced: bool
    transparency: bool = False
    frames: int = 1
    exif: bytes | None = None
    readable_by_all: bool = True
    ends_with_pixels: bool = True

    @property
    def channels(self) -> int:
        """Number of channels after decoding; a palette counts as RGB or RGBA."""
        if self.color_type == _PALETTE:
            return 3 + self.transparency
        return _SAMPLES[self.color_type]

    @property
    def mode(self) -> str:
        """Pillow's mode of its pixels."""
        if self.color_type == 0 and self.depth in (1, 16):
            return "1" if self.depth == 1 else "I;16"
        return {0: "L", 2: "RGB", _PALETTE: "P", 4: "LA", 6: "RGBA"}[self.color_type]

    @property
    def has_alpha(self) -> bool:
        """Whether any pixel can be transparent."""
        return self.transparency or self.color_type in (4, 6)

    @property
    def inflated_bytes(self) -> int:
        """Size of the uncompressed rows in bytes, including filter bytes."""
        return sum(rows * stride for rows, stride in _row_layout(self))

    @property
    def work(self) -> int:
        """Decoding work, in units of two bytes of memory."""
        return self.inflated_bytes // 2


def examine(data: bytes, bounded: bool = False) -> PngHeader:
    """Returns the header of a PNG.

    Args:
        data: the file.
        bounded: whether to stop at the limits on chunks.

    Raises:
        WorkLimitError: beyond the limits.
        RecordError: corrupt or truncated, if the header or a critical chunk is damaged;
            unsupported_feature, if it has a high dynamic range.
    """
    chunks = _bounded(_chunks(data)) if bounded else _chunks(data)
    builder = _HeaderBuilder(_header(next(chunks)))
    for chunk in chunks:
        _check_chunk(chunk)
        builder.add(chunk)
    return builder.build()


class _HeaderBuilder:
    """Collects the header from the chunks."""

    def __init__(self, header: PngHeader) -> None:
        self._header = header
        self._palette: bytes | None = None
        self._previous = b"IHDR"
        self._image_data_runs = 0  # of IDAT chunks that follow each other
        self._transparency_chunks = 0
        self._handlers = {
            b"PLTE": self._add_palette,
            b"tRNS": self._add_transparency,
            b"eXIf": self._add_exif,
            b"acTL": self._add_animation,
            b"cICP": self._add_colors,
        }

    def add(self, chunk: Chunk) -> None:
        """Adds the next chunk."""
        if chunk.name == b"IDAT":
            self._image_data_runs += self._previous != b"IDAT"
        elif not chunk.critical and not chunk.intact:
            # Some readers ignore a damaged ancillary chunk, others stop at it.
            self._header = self._header._replace(readable_by_all=False)
        elif handler := self._handlers.get(chunk.name):
            handler(chunk.data)
        if chunk.name != b"IEND":
            self._previous = chunk.name

    def build(self) -> PngHeader:
        """Returns the header, after the last chunk.

        Raises:
            RecordError: corrupt or truncated, if a required chunk is missing.
        """
        if not self._image_data_runs:
            raise RecordError(Reason.TRUNCATED, "has no image data")
        if self._image_data_runs > 1:
            raise RecordError(Reason.CORRUPT, "its IDAT chunks are not consecutive")
        if self._header.color_type == _PALETTE and not _palette_fits(self._palette or b""):
            raise RecordError(Reason.CORRUPT, "has no valid PLTE chunk before its image data")
        return self._header._replace(ends_with_pixels=self._previous == b"IDAT")

    def _add_palette(self, data: memoryview) -> None:
        if self._palette is not None:
            raise RecordError(Reason.CORRUPT, "chunk PLTE occurs twice")
        self._palette = b"" if self._image_data_runs else bytes(data)
        if not _palette_fits(bytes(data)):
            self._header = self._header._replace(readable_by_all=False)

    def _add_transparency(self, data: memoryview) -> None:
        """Adds a tRNS chunk, which libpng ignores if it is too late or of the wrong length."""
        fits = not self._image_data_runs and _transparency_fits(
            data, self._header.color_type, self._palette
        )
        if not self._transparency_chunks:
            self._header = self._header._replace(transparency=fits)
        if self._transparency_chunks or not fits:
            self._header = self._header._replace(readable_by_all=False)
        self._transparency_chunks += 1

    def _add_exif(self, data: memoryview) -> None:
        self._header = self._header._replace(exif=bytes(data))

    def _add_animation(self, data: memoryview) -> None:
        self._header = self._header._replace(frames=max(1, int.from_bytes(data[:4], "big")))

    def _add_colors(self, data: memoryview) -> None:
        if len(data) == 4 and (name := _HIGH_DYNAMIC_RANGE.get(data[1])):
            detail = f"PNG with high dynamic range: transfer function {name} in its cICP chunk"
            raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)


def _header(chunk: Chunk) -> PngHeader:
    if chunk.name != b"IHDR" or len(chunk.data) != 13:
        raise RecordError(Reason.CORRUPT, "does not start with an IHDR chunk of 13 bytes")
    if not chunk.intact:
        raise RecordError(Reason.CORRUPT, "checksum mismatch in chunk IHDR")
    header = struct.unpack(">IIBBBBB", chunk.data)
    width, height, depth, color_type, compression, filtering, interlace = header
    if depth not in _DEPTHS.get(color_type, ()) or compression or filtering or interlace > 1:
        raise RecordError(Reason.CORRUPT, f"invalid values in chunk IHDR: {header}")
    return PngHeader(width, height, depth, color_type, bool(interlace))


def _check_chunk(chunk: Chunk) -> None:
    name = chunk.name.decode("latin-1")
    if not chunk.name.isalpha() or (chunk.critical and chunk.name not in _CRITICAL):
        raise RecordError(Reason.CORRUPT, f"unknown critical chunk {name!r}")
    if chunk.name == b"IHDR":
        raise RecordError(Reason.CORRUPT, "chunk IHDR occurs twice")
    if chunk.critical and not chunk.intact:
        raise RecordError(Reason.CORRUPT, f"checksum mismatch in chunk {name}")


def check_rows(data: bytes, header: PngHeader) -> None:
    """Checks the image data: decompresses it in pieces, and checks the filter type of every row.

    Args:
        data: the file.
        header: its header.

    Raises:
        RecordError: corrupt or truncated.
    """
    rows = RowChecker(header)
    try:
        complete = _inflate(data, rows, by_row=_states_small_window(data, header))
    except zlib.error as error:
        raise RecordError(Reason.CORRUPT, f"the compressed data is damaged: {error}") from error
    if not complete:
        raise RecordError(Reason.TRUNCATED, "the image data ends before the last row")


def _inflate(data: bytes, rows: RowChecker, by_row: bool) -> bool:
    """Decompresses image data; returns whether all rows, and the end or more data, were found.

    Args:
        data: the file.
        rows: receives the decompressed data.
        by_row: whether to decompress no more than one row at a time.
    """
    inflate = zlib.decompressobj(0)  # window size from the zlib header (RFC 1950, 2.2), as libpng
    # After the last row libpng reads on for the end of the stream, and fails if the file ends
    # first; it gives up after 1 KiB. The loop stops once it has been as strict as that, so that a
    # bomb behind the last row is never decompressed.
    beyond = 0
    for piece in _image_data(data):
        pending: bytes | memoryview = piece
        while True:
            after_rows = not rows.missing
            limit = rows.rest_of_row if by_row and rows.missing else _PIECE_BYTES
            made = inflate.decompress(pending, _BEYOND_BYTES if after_rows else limit)
            rows.feed(made)
            beyond += len(made) if after_rows else 0
            if inflate.eof or beyond >= _BEYOND_BYTES:
                return not rows.missing
            pending = inflate.unconsumed_tail
            if not made and not pending:
                break
    return False


def _image_data(data: bytes) -> Iterator[memoryview]:
    """Yields the image data in small pieces: each call of zlib copies the unconsumed input."""
    for chunk in _chunks(data):
        if chunk.name == b"IDAT":
            for start in range(0, len(chunk.data), _INPUT_BYTES):
                yield chunk.data[start : start + _INPUT_BYTES]


def _states_small_window(data: bytes, header: PngHeader) -> bool:
    """Returns whether the zlib header states a smaller window than the data could use.

    libpng detects a distance beyond the stated window between two rows, but not within one.
    """
    first = next((piece[0] for piece in _image_data(data) if piece), 0)
    return 1 << (first >> 4) + 8 < min(_LARGEST_WINDOW, header.inflated_bytes)


class RowChecker:
    """Checks the filter type of every row of uncompressed image data, in pieces of any size."""

    def __init__(self, header: PngHeader) -> None:
        # [(rows, bytes per row)] of the passes that are not complete; without interlacing, one.
        self._passes = list(_row_layout(header))
        self._done = 0  # bytes of the first of these passes that have been checked

    @property
    def missing(self) -> bool:
        """Whether rows are missing."""
        return bool(self._passes)

    @property
    def rest_of_row(self) -> int:
        """Number of bytes up to the end of the current row."""
        stride = self._passes[0][1]
        return stride - self._done % stride

    def feed(self, piece: bytes) -> None:
        """Checks the next bytes; bytes after the last row are ignored.

        Raises:
            RecordError: corrupt, if a row has an unknown filter type.
        """
        start = 0
        while self._passes and start < len(piece):
            rows, stride = self._passes[0]
            # Section 9.2: every row starts with its filter type. A slice with a step of one row,
            # from the next start of a row on, has all filter types of this pass in the piece
            # without a loop over rows.
            stop = min(len(piece), start + rows * stride - self._done)
            filters = piece[start + -self._done % stride : stop : stride]
            if filters and max(filters) > _MAX_FILTER:
                raise RecordError(Reason.CORRUPT, f"invalid filter type {max(filters)} of a row")
            self._done += stop - start
            start = stop
            if self._done == rows * stride:
                self._passes.pop(0)
                self._done = 0


def strip_metadata(data: bytes) -> bytes:
    """Returns a PNG without EXIF, texts, times and bytes after its end."""
    return _join_chunks(data, (chunk for chunk in _chunks(data) if chunk.name not in _METADATA))


def keep_pixel_data(data: bytes, header: PngHeader) -> bytes:
    """Returns a PNG with only the intact chunks that its pixels depend on.

    Args:
        data: the file.
        header: its header.
    """
    kept = {b"IHDR", b"IDAT", b"iCCP"}
    kept |= {b"PLTE"} if header.color_type == _PALETTE else set()
    kept |= {b"tRNS"} if header.transparency else set()
    return _join_chunks(data, _first_of_each(c for c in _chunks(data) if c.name in kept)) + _END


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


def _join_chunks(data: bytes, chunks: Iterable[Chunk]) -> bytes:
    return b"".join([SIGNATURE, *(data[c.start : c.start + len(c.data) + 12] for c in chunks)])


def _chunks(data: bytes) -> Iterator[Chunk]:
    """Yields the chunks up to IEND.

    Raises:
        RecordError: truncated, if the file ends before the end of IEND.
    """
    view, position = memoryview(data), len(SIGNATURE)
    while position + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        stop = position + 12 + length
        if stop > len(data):
            break
        body = view[position + 8 : stop - 4]
        (crc,) = struct.unpack_from(">I", data, stop - 4)
        yield Chunk(name, position, body, crc)
        if name == b"IEND":
            return
        position = stop
    raise RecordError(Reason.TRUNCATED, "the file ends before its last chunk, IEND")


def _bounded(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yields the chunks.

    Raises:
        WorkLimitError: if there are too many.
    """
    others = 0
    for number, chunk in enumerate(chunks):
        others += chunk.name != b"IDAT"
        if number >= MAX_CHUNKS or others > MAX_OTHER_CHUNKS:
            raise WorkLimitError
        yield chunk


def _transparency_fits(data: memoryview, color_type: int, palette: bytes | None) -> bool:
    # Section 11.3.1.1: an alpha for each of the first palette entries, or one 16-bit color.
    if color_type == _PALETTE:
        return palette is not None and 1 <= len(data) <= len(palette) // 3
    return len(data) == {0: 2, 2: 6}.get(color_type)


def _palette_fits(palette: bytes) -> bool:
    return 3 <= len(palette) <= 768 and len(palette) % 3 == 0


def _row_layout(header: PngHeader) -> Iterator[tuple[int, int]]:
    """Yields (rows, bytes per row including the filter byte) of each pass that has pixels.

    Sections 7.2 and 8.2: rows are padded to whole bytes, and passes without pixels are left out.
    """
    bits = _SAMPLES[header.color_type] * header.depth
    for x, y, dx, dy in (*_PASSES, _LAST_PASS) if header.interlaced else ((0, 0, 1, 1),):
        width, height = -(-(header.width - x) // dx), -(-(header.height - y) // dy)
        if width > 0 and height > 0:
            yield height, 1 + -(-width * bits // 8)
