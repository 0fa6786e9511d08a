"""PNG, checked bit by bit without making pixels of it: chunks, checksums, and every row's filter.

Pillow reads past damage that TensorFlow rejects; this is as strict as the strictest reader.
Source: W3C, Portable Network Graphics, third edition.
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
"""Transfer functions of a cICP chunk that readers pass over: they would show other colours."""

MAX_CHUNKS = 2**14
"""Chunks that are parsed in the run's own process; some encoders write 8 KiB to an IDAT chunk."""

MAX_OTHER_CHUNKS = 128
"""Of these, chunks other than IDAT: Pillow may inflate each to 1 MiB."""

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


class PngHeader(NamedTuple):
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
        readable_by_all: whether no chunk is damaged, and none is skipped by one reader and used by
            another.
        ends_with_pixels: whether nothing follows the image data.
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

    @property
    def inflated_bytes(self) -> int:
        """How many bytes its rows take."""
        return sum(rows * stride for rows, stride in _row_layout(self))

    @property
    def work(self) -> int:
        """To decode it, in two bytes of memory."""
        return self.inflated_bytes // 2


def examine(data: bytes, bounded: bool = False) -> PngHeader:
    """Returns what the chunks of a PNG say.

    Args:
        data: the file.
        bounded: whether to stop at more chunks than this process has time for.

    Raises:
        WorkLimitError: if there are more.
        RecordError: corrupt or truncated, if the header or a critical chunk is damaged;
            unsupported_feature, if its colours are of a high dynamic range.
    """
    chunks = _bounded(_chunks(data)) if bounded else _chunks(data)
    found = _Findings(_header(next(chunks)))
    for chunk in chunks:
        _check_chunk(chunk)
        found.add(chunk)
    return found.checked()


class _Findings:
    """What the chunks say, so far."""

    def __init__(self, header: PngHeader) -> None:
        self._facts = header
        self._palette: bytes | None = None
        self._previous = b"IHDR"
        self._runs = 0  # of image data
        self._clear = 0  # chunks
        self._handlers = {
            b"PLTE": self._add_palette,
            b"tRNS": self._add_transparency,
            b"eXIf": self._add_exif,
            b"acTL": self._add_animation,
            b"cICP": self._add_colors,
        }

    def add(self, chunk: Chunk) -> None:
        """Takes note of the next chunk."""
        if chunk.name == b"IDAT":
            self._runs += self._previous != b"IDAT"
        elif not chunk.critical and not chunk.intact:  # some readers skip it, and some stop
            self._facts = self._facts._replace(readable_by_all=False)
        elif handler := self._handlers.get(chunk.name):
            handler(chunk.data)
        if chunk.name != b"IEND":
            self._previous = chunk.name

    def checked(self) -> PngHeader:
        """Returns what all chunks say.

        Raises:
            RecordError: corrupt or truncated, if what every PNG needs is missing.
        """
        if not self._runs:
            raise RecordError(Reason.TRUNCATED, "has no image data")
        if self._runs > 1:
            raise RecordError(Reason.CORRUPT, "other chunks are between those of the image data")
        if self._facts.color_type == _PALETTE and not _palette_fits(self._palette or b""):
            raise RecordError(Reason.CORRUPT, "has colours by number, but no palette before them")
        return self._facts._replace(ends_with_pixels=self._previous == b"IDAT")

    def _add_palette(self, data: memoryview) -> None:
        if self._palette is not None:
            raise RecordError(Reason.CORRUPT, "chunk PLTE occurs twice")
        self._palette = b"" if self._runs else bytes(data)
        if not _palette_fits(bytes(data)):
            self._facts = self._facts._replace(readable_by_all=False)

    def _add_transparency(self, data: memoryview) -> None:
        """Takes note of which colours are clear: libpng skips what does not fit, or is too late."""
        fits = not self._runs and _transparency_fits(data, self._facts.color_type, self._palette)
        if not self._clear:
            self._facts = self._facts._replace(transparency=fits)
        if self._clear or not fits:
            self._facts = self._facts._replace(readable_by_all=False)
        self._clear += 1

    def _add_exif(self, data: memoryview) -> None:
        self._facts = self._facts._replace(exif=bytes(data))

    def _add_animation(self, data: memoryview) -> None:
        self._facts = self._facts._replace(frames=max(1, int.from_bytes(data[:4], "big")))

    def _add_colors(self, data: memoryview) -> None:
        if len(data) == 4 and (name := _HIGH_DYNAMIC_RANGE.get(data[1])):
            detail = f"a PNG of high dynamic range: its cICP chunk asks for {name}"
            raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)


def _header(chunk: Chunk) -> PngHeader:
    if chunk.name != b"IHDR" or len(chunk.data) != 13:
        raise RecordError(Reason.CORRUPT, "does not begin with an IHDR chunk of 13 bytes")
    if not chunk.intact:
        raise RecordError(Reason.CORRUPT, "the checksum of chunk IHDR does not fit")
    header = struct.unpack(">IIBBBBB", chunk.data)
    width, height, depth, color_type, compression, filtering, interlace = header
    if depth not in _DEPTHS.get(color_type, ()) or compression or filtering or interlace > 1:
        raise RecordError(Reason.CORRUPT, f"the header has values that mean nothing: {header}")
    return PngHeader(width, height, depth, color_type, bool(interlace))


def _check_chunk(chunk: Chunk) -> None:
    name = chunk.name.decode("latin-1")
    if not chunk.name.isalpha() or (chunk.critical and chunk.name not in _CRITICAL):
        raise RecordError(Reason.CORRUPT, f"chunk {name!r} is none that readers know")
    if chunk.name == b"IHDR":
        raise RecordError(Reason.CORRUPT, "chunk IHDR occurs twice")
    if chunk.critical and not chunk.intact:
        raise RecordError(Reason.CORRUPT, f"the checksum of chunk {name} does not fit")


def check_rows(data: bytes, facts: PngHeader) -> None:
    """Inflates the image data up to the last row, a piece at a time, and checks every filter.

    Raises:
        RecordError: corrupt or truncated.
    """
    rows = RowChecker(facts)
    try:
        whole = _inflate(data, rows, by_row=_states_small_window(data, facts))
    except zlib.error as error:
        raise RecordError(Reason.CORRUPT, f"the compressed data is damaged: {error}") from error
    if not whole:
        raise RecordError(Reason.TRUNCATED, "the image data ends before the last row")


def _inflate(data: bytes, rows: RowChecker, by_row: bool) -> bool:
    """Inflates image data; returns whether it has all rows, and its end or more data after them.

    libpng looks for the end of the data up to 1 KiB after the last row, and stops if the file ends
    before; more than is needed to be as strict is not inflated.
    """
    inflate = zlib.decompressobj(0)  # with a window as large as the data states, as libpng
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
    """Yields all image data, in pieces: of each, what is left after a call is copied."""
    for chunk in _chunks(data):
        if chunk.name == b"IDAT":
            for start in range(0, len(chunk.data), _INPUT_BYTES):
                yield chunk.data[start : start + _INPUT_BYTES]


def _states_small_window(data: bytes, facts: PngHeader) -> bool:
    """Returns whether the data states a smaller window than it could use.

    If it uses more than it states, libpng finds that out between two rows, but not within one.
    """
    first = next((piece[0] for piece in _image_data(data) if piece), 0)
    return 1 << (first >> 4) + 8 < min(_LARGEST_WINDOW, facts.inflated_bytes)


class RowChecker:
    """Checks the filter byte of every row of inflated image data, however it is cut up."""

    def __init__(self, facts: PngHeader) -> None:
        self._passes = list(_row_layout(facts))
        self._done = 0

    @property
    def missing(self) -> bool:
        """Whether rows are still to come."""
        return bool(self._passes)

    @property
    def rest_of_row(self) -> int:
        """How many bytes the row that is begun still lacks; of a whole one, if none is."""
        stride = self._passes[0][1]
        return stride - self._done % stride

    def feed(self, piece: bytes) -> None:
        """Checks the next bytes; what comes after the last row is of no account.

        Raises:
            RecordError: corrupt, if a row's filter is none.
        """
        start = 0
        while self._passes and start < len(piece):
            rows, stride = self._passes[0]
            # The rest of this pass, as far as the piece goes. Every row begins with its filter: a
            # slice from the next row's first byte on, one a stride, has them all without a loop.
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


def keep_pixel_data(data: bytes, facts: PngHeader) -> bytes:
    """Returns a PNG with what its pixels depend on, and nothing that a decoder may balk at.

    Args:
        data: the file.
        facts: what its chunks say.
    """
    kept = {b"IHDR", b"IDAT", b"iCCP"}
    kept |= {b"PLTE"} if facts.color_type == _PALETTE else set()
    kept |= {b"tRNS"} if facts.transparency else set()
    return _of_chunks(data, _first_of_each(c for c in _chunks(data) if c.name in kept)) + _END


def _is_usable(chunk: Chunk) -> bool:
    """Returns whether a chunk is intact and, if it holds a profile, compressed as PNG knows it."""
    _, found, profile = bytes(chunk.data[:81]).partition(b"\0")
    return chunk.intact and (chunk.name != b"iCCP" or (bool(found) and profile[:1] == b"\0"))


def _first_of_each(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yields all image data, and the first intact chunk of every other name."""
    seen: set[bytes] = set()
    for chunk in chunks:
        if chunk.name == b"IDAT" or (chunk.name not in seen and _is_usable(chunk)):
            seen.add(chunk.name)
            yield chunk


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


def _bounded(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yields chunks.

    Raises:
        WorkLimitError: at one too many.
    """
    others = 0
    for number, chunk in enumerate(chunks):
        others += chunk.name != b"IDAT"
        if number >= MAX_CHUNKS or others > MAX_OTHER_CHUNKS:
            raise WorkLimitError
        yield chunk


def _transparency_fits(data: memoryview, color_type: int, palette: bytes | None) -> bool:
    if color_type == _PALETTE:
        return palette is not None and 1 <= len(data) <= len(palette) // 3
    return len(data) == {0: 2, 2: 6}.get(color_type)


def _palette_fits(palette: bytes) -> bool:
    return 3 <= len(palette) <= 768 and len(palette) % 3 == 0


def _row_layout(facts: PngHeader) -> Iterator[tuple[int, int]]:
    """Yields rows and bytes a row, the filter byte included, of each pass that has pixels."""
    bits = _SAMPLES[facts.color_type] * facts.depth
    for x, y, dx, dy in (*_PASSES, _LAST_PASS) if facts.interlaced else ((0, 0, 1, 1),):
        width, height = -(-(facts.width - x) // dx), -(-(facts.height - y) // dy)
        if width > 0 and height > 0:
            yield height, 1 + -(-width * bits // 8)
