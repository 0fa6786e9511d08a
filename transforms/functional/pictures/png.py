"""PNG, checked bit by bit without making pixels of it: chunks, checksums, and every row's filter.

Pillow reads past damage that TensorFlow refuses; this is as strict as the strictest reader.
Source: W3C, Portable Network Graphics, third edition.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from schemas.rejects import Reason, RecordError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_PALETTE = 3
_MAX_FILTER = 4
_PIECE_BYTES = 2**20
_CRITICAL = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
_METADATA = frozenset({b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME"})

# Adam7: x and y of the first pixel of each pass, and the steps to the next.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
_LAST_PASS = (0, 1, 1, 2)


class Chunk(NamedTuple):
    """One chunk.

    Attributes:
        name: its four letters.
        start: where it begins.
        data: its content.
        crc: the checksum that stands behind it.
    """

    name: bytes
    start: int
    data: memoryview
    crc: int

    @property
    def intact(self) -> bool:
        """Whether the checksum fits."""
        return zlib.crc32(self.data, zlib.crc32(self.name)) == self.crc

    @property
    def critical(self) -> bool:
        """Whether no reader can do without it."""
        return not self.name[0] & 0x20


class PngFacts(NamedTuple):
    """What the chunks of a PNG say.

    Attributes:
        width: in pixels.
        height: in pixels.
        depth: bits a sample.
        color_type: 0 gray, 2 colour, 3 palette, 4 gray and alpha, 6 colour and alpha.
        interlaced: whether rows come in Adam7's seven passes.
        transparency: whether a colour, or palette entries, are transparent.
        frames: of the animation; 1 without one.
        exif: the EXIF block, or None.
    """

    width: int
    height: int
    depth: int
    color_type: int
    interlaced: bool
    transparency: bool
    frames: int
    exif: bytes | None

    @property
    def channels(self) -> int:
        """How many channels its pixels have once decoded; a palette counts as its colours."""
        if self.color_type == _PALETTE:
            return 3 + self.transparency
        return _SAMPLES[self.color_type]

    @property
    def mode(self) -> str:
        """Pillow's name for the kind of its pixels."""
        if self.color_type == 0 and self.depth in (1, 16):
            return "1" if self.depth == 1 else "I;16"
        return {0: "L", 2: "RGB", _PALETTE: "P", 4: "LA", 6: "RGBA"}[self.color_type]

    @property
    def has_alpha(self) -> bool:
        """Whether any pixel can be transparent."""
        return self.transparency or self.color_type in (4, 6)


def examine(data: bytes) -> PngFacts:
    """Returns what the chunks of a PNG say.

    Raises:
        RecordError: corrupt or truncated, if the header or a critical chunk is damaged.
    """
    chunks = list(_chunks(data))
    if not chunks or chunks[0].name != b"IHDR" or len(chunks[0].data) != 13:
        raise RecordError(Reason.CORRUPT, "does not begin with an IHDR chunk of 13 bytes")
    for chunk in chunks:
        _check_chunk(chunk)
    intact = (chunk for chunk in chunks if chunk.name != b"IDAT" and chunk.intact)
    names = {chunk.name: bytes(chunk.data) for chunk in intact}  # readers skip damaged ones
    facts = _facts(names)
    if b"IDAT" not in {chunk.name for chunk in chunks}:
        raise RecordError(Reason.TRUNCATED, "has no image data")
    if facts.color_type == _PALETTE and not _palette_fits(names.get(b"PLTE", b"")):
        raise RecordError(Reason.CORRUPT, "has colours by number, but no palette")
    return facts


def _check_chunk(chunk: Chunk) -> None:
    name = chunk.name.decode("latin-1")
    if not chunk.name.isalpha() or (chunk.critical and chunk.name not in _CRITICAL):
        raise RecordError(Reason.CORRUPT, f"chunk {name!r} is none that readers know")
    if chunk.critical and not chunk.intact:
        raise RecordError(Reason.CORRUPT, f"the checksum of chunk {name} does not fit")


def check_rows(data: bytes, facts: PngFacts) -> None:
    """Inflates all image data, a piece at a time, and checks every row's filter.

    Raises:
        RecordError: corrupt or truncated.
    """
    inflate = zlib.decompressobj()
    rows = RowChecker(facts)
    try:
        for chunk in _chunks(data):
            if chunk.name == b"IDAT" and not inflate.eof:
                pending: bytes | memoryview = chunk.data
                while pending and not inflate.eof:
                    rows.feed(inflate.decompress(pending, _PIECE_BYTES))
                    pending = inflate.unconsumed_tail
        while not inflate.eof and (piece := inflate.decompress(b"", _PIECE_BYTES)):
            rows.feed(piece)
    except zlib.error as error:
        raise RecordError(Reason.CORRUPT, f"the compressed data is damaged: {error}") from error
    if not inflate.eof or rows.missing:
        raise RecordError(Reason.TRUNCATED, "the image data ends before the last row")


class RowChecker:
    """Checks the filter byte of every row of inflated image data, however it is cut up."""

    def __init__(self, facts: PngFacts) -> None:
        self._passes = list(_row_layout(facts))
        self._done = 0

    @property
    def missing(self) -> bool:
        """Whether rows are still to come."""
        return bool(self._passes)

    def feed(self, piece: bytes) -> None:
        """Checks the next bytes; what comes after the last row is of no account.

        Raises:
            RecordError: corrupt, if a row's filter is none.
        """
        start = 0
        while self._passes and start < len(piece):
            rows, stride = self._passes[0]
            stop = min(len(piece), start + rows * stride - self._done)
            filters = piece[start + -self._done % stride : stop : stride]
            if filters and max(filters) > _MAX_FILTER:
                raise RecordError(Reason.CORRUPT, f"a row has filter {max(filters)}")
            self._done += stop - start
            start = stop
            if self._done == rows * stride:
                self._passes.pop(0)
                self._done = 0


def strip_metadata(data: bytes) -> bytes:
    """Returns a PNG without EXIF, texts and times, or anything after its end.

    All other chunks are untouched.
    """
    return _of_chunks(data, (chunk for chunk in _chunks(data) if chunk.name not in _METADATA))


def only_the_picture(data: bytes) -> bytes:
    """Returns a PNG without metadata and damaged chunks, at which a strict decoder may balk."""
    kept = (c for c in _chunks(data) if c.name not in _METADATA and (c.critical or c.intact))
    return _of_chunks(data, kept)


def _of_chunks(data: bytes, chunks: Iterable[Chunk]) -> bytes:
    return b"".join([SIGNATURE, *(data[c.start : c.start + len(c.data) + 12] for c in chunks)])


def _chunks(data: bytes) -> Iterator[Chunk]:
    """Yields every whole chunk up to the last.

    Raises:
        RecordError: truncated, if the file ends within one, or before IEND.
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


def _facts(chunks: dict[bytes, bytes]) -> PngFacts:
    header = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    width, height, depth, color_type, compression, filtering, interlace = header
    if depth not in _DEPTHS.get(color_type, ()) or compression or filtering or interlace > 1:
        raise RecordError(Reason.CORRUPT, f"the header has values that mean nothing: {header}")
    animation = chunks.get(b"acTL", b"")
    return PngFacts(
        width=width,
        height=height,
        depth=depth,
        color_type=color_type,
        interlaced=bool(interlace),
        transparency=b"tRNS" in chunks and color_type in (0, 2, _PALETTE),
        frames=max(1, int.from_bytes(animation[:4], "big")),
        exif=chunks.get(b"eXIf"),
    )


def _palette_fits(palette: bytes) -> bool:
    return 3 <= len(palette) <= 768 and len(palette) % 3 == 0


def _row_layout(facts: PngFacts) -> Iterator[tuple[int, int]]:
    """Yields rows and bytes a row, the filter byte included, of each pass that has pixels."""
    bits = _SAMPLES[facts.color_type] * facts.depth
    for x, y, dx, dy in (*_PASSES, _LAST_PASS) if facts.interlaced else ((0, 0, 1, 1),):
        width, height = -(-(facts.width - x) // dx), -(-(facts.height - y) // dy)
        if width > 0 and height > 0:
            yield height, 1 + -(-width * bits // 8)
