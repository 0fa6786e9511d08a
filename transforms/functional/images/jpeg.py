"""Reads JPEG headers from their marker segments, located as by libjpeg, and the EXIF orientation.

Sources: ITU-T T.81, annex B; CIPA DC-008 (EXIF); TIFF 6.0, section 2.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from recordmill.transforms.functional.images.sniffing import WorkLimitError

# Matches the next marker as next_marker of libjpeg does, except for restart markers, which are part
# of the coded data.
#
# The literal first byte makes the search 20 times faster: 40 µs for 110 kB.
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7\x01]", re.DOTALL)

SIGNATURE = b"\xff\xd8\xff"
_SOI, _EOI, _SOS, _APP1, _APP2, _COM = 0xD8, 0xD9, 0xDA, 0xE1, 0xE2, 0xFE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn; the others are DHT, JPG, DAC
_APPLICATIONS = frozenset(range(0xE0, 0xF0))  # EXIF, XMP, IPTC, and those of manufacturers

# Prefixes of the APPn segments that define the color space.
_COLOR_SEGMENTS = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}

# Minimum lengths of these segments; decoders ignore shorter segments.
_MIN_LENGTHS = {0xE0: 14, 0xE2: 14, 0xEE: 12}
_MAX_SIDE = 65_500  # JPEG_MAX_DIMENSION of libjpeg, in pixels
_MULTI_IMAGE = b"MPF\0"
_EXIF = b"Exif\0"

# The coding processes (n of SOFn) that libjpeg-turbo decodes, including lossless and arithmetic
# coding.
DECODABLE = frozenset({0, 1, 2, 3, 9, 10})

# The coding processes that every reader supports: SOF0 baseline, SOF1 extended, and SOF2
# progressive.
DCT_HUFFMAN = frozenset({0, 1, 2})

# Limit of metadata before the coded data for parsing in the worker process, since Pillow parses
# each entry in Python.
MAX_HEADER_BYTES = 2**22

# Limit of segments for parsing in the worker process.
MAX_SEGMENTS = 1024

# Limit of tags in an EXIF or MPF directory for parsing in the worker process, since each tag may
# refer to the same large values.
MAX_TAGS = 512

_PREFIX = re.compile(rb"(?:Exif\0\0)*")
_ORDERS = {b"II": "<", b"MM": ">"}
_MAGICS = (b"*\0", b"\0*")
_ORIENTATION = 0x112
# TIFF 6.0, section 2, types: the struct format of integers, and the size of each type in bytes.
# 13 (IFD) and 16 (LONG8) come from Adobe's supplement 1 and from BigTIFF.
_INTEGERS = {3: "H", 4: "L", 8: "h", 9: "l", 13: "L", 16: "Q"}
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_ENTRY_BYTES = 12
UPRIGHT = 1


class Segment(NamedTuple):
    """A marker segment."""

    marker: int
    start: int
    body: int  # the offset of the content, after the length field
    stop: int


class JpegHeader(NamedTuple):
    """The header of a JPEG."""

    # The coding process, which is n of the first SOFn marker; None if there is no frame header.
    process: int | None
    precision: int
    height: int  # the height in pixels
    width: int  # the width in pixels
    components: int  # 1 for gray, 3 for color, 4 for CMYK
    scans: int
    end: int | None  # the offset after the end-of-image marker; None without this marker
    multi_image: bool  # whether further images follow the first
    exif: bytes | None
    whole_factors: bool  # whether all sampling factors divide the largest

    @property
    def readable_by_all(self) -> bool:
        """Whether all readers decode the image, with the same result."""
        common = self.process in DCT_HUFFMAN and self.precision == 8 and self.components in (1, 3)
        fits = max(self.width, self.height) <= _MAX_SIDE and self.whole_factors
        return common and fits and self.end is not None

    @property
    def decoded_in_one_pass(self) -> bool:
        """Whether decoders need not keep all coefficients in memory."""
        return self.scans == 1 and self.process in (0, 1)


def _segments(data: bytes) -> Iterator[Segment]:
    """Yields the segments up to the end of the image or the first damage."""
    position = 2  # after SOI
    # Like next_marker of libjpeg, skip any bytes before the next marker. These are fill bytes
    # (T.81, B.1.1.2) or, after SOS, entropy-coded data, in which a zero byte follows each 0xFF
    # (B.1.1.5). So the same loop iterates over the header and the coded data.
    while match := _MARKER.search(data, position):
        marker, body = data[match.end() - 1], match.end()
        if marker in (_EOI, _SOI):
            yield Segment(marker, body - 2, body, body)
            return
        # T.81, B.1.1.4: the length includes its own two bytes, but not the marker.
        position = body + int.from_bytes(data[body : body + 2], "big")
        if position < body + 2 or position > len(data):
            return
        yield Segment(marker, body - 2, body + 2, position)


def examine(data: bytes, bounded: bool = False) -> JpegHeader:
    """Reads the header of a JPEG, maybe damaged; WorkLimitError above the limits if `bounded`."""
    frame: Segment | None = None
    last: Segment | None = None
    exif: bytes | None = None
    scans, multi_image = 0, False
    for last in _bounded(data) if bounded else _segments(data):
        if last.marker == _SOS:
            scans += 1
        elif last.marker in _FRAMES:
            # libjpeg uses the first of several frame headers. T.81, B.2.2: precision, height,
            # width and the number of components take 6 bytes.
            frame = frame or (last if last.stop - last.body >= 6 else None)
        elif last.marker == _APP1 and exif is None and data.startswith(_EXIF, last.body):
            exif = data[last.body : last.stop]
        elif last.marker == _APP2 and data.startswith(_MULTI_IMAGE, last.body):
            multi_image = True
    process = frame.marker - 0xC0 if frame else None
    header = data[frame.body : frame.body + 6] if frame else bytes(6)
    precision, height, width, components = struct.unpack(">BHHB", header)
    end = last.stop if last and last.marker == _EOI else None
    factors = _has_whole_factors(data[frame.body + 6 : frame.stop] if frame else b"")
    frame_header = (process, precision, height, width, components)
    return JpegHeader(
        *frame_header, scans, end=end, multi_image=multi_image, exif=exif, whole_factors=factors
    )


def _bounded(data: bytes) -> Iterator[Segment]:
    """Yields segments; raises WorkLimitError for too many, or one that Pillow parses slowly."""
    parsed, scans = 0, 0
    for number, segment in enumerate(_segments(data)):
        scans += segment.marker == _SOS
        if number >= MAX_SEGMENTS or (not scans and segment.stop > MAX_HEADER_BYTES):
            raise WorkLimitError
        if segment.marker in (_APP1, _APP2):
            # An MPF directory has the same TIFF structure as EXIF, after another prefix. Pillow
            # concatenates several EXIF segments, whose tags cannot be counted one by one.
            start = segment.body + (4 if data.startswith(_MULTI_IMAGE, segment.body) else 0)
            parsed += data.startswith(_EXIF, segment.body)
            if parsed > 1 or sum(1 for _ in _tags(_tiff_of(data[start : segment.stop]))) > MAX_TAGS:
                raise WorkLimitError
        yield segment


def _has_whole_factors(components: bytes) -> bool:
    """Returns whether each sampling factor divides the largest, which libjpeg requires."""
    # T.81, B.2.2: identifier, horizontal and vertical factor of 4 bits each, quantization table.
    factors = [(byte >> 4, byte & 15) for byte in components[1::3]]
    if not factors or not all(1 <= factor <= 4 for pair in factors for factor in pair):
        return False
    across, down = max(h for h, _ in factors), max(v for _, v in factors)
    return all(across % h == 0 and down % v == 0 for h, v in factors)


def strip_metadata(data: bytes) -> bytes:
    """Returns a JPEG without EXIF, GPS, XMP, IPTC and comments; the coded data is unchanged.

    Segments that define colors are kept: JFIF, Adobe and ICC profiles. Bytes after the end are
    removed, since phones store further images with their own EXIF there.
    """
    return _without(data, lambda segment: _is_metadata(data, segment))


def keep_pixel_data(data: bytes) -> bytes:
    """Returns a JPEG with only those valid segments that determine its pixels."""
    return _without(data, lambda segment: _is_metadata(data, segment) or _is_too_short(segment))


def _without(data: bytes, dropped: Callable[[Segment], bool]) -> bytes:
    """Returns a JPEG without the dropped segments, and without bytes after its end."""
    kept: list[bytes] = []
    pending: Segment | None = None
    position, stop = 0, len(data)
    for segment in _segments(data):
        # Bytes between a dropped segment and the next marker are dropped as well, since decoders
        # expect a marker immediately after SOI.
        if pending:
            kept.append(data[position : pending.start])
            position = segment.start
        pending = segment if dropped(segment) else None
        stop = segment.stop if segment.marker == _EOI else stop
    return b"".join([*kept, data[position:stop]])


def _is_too_short(segment: Segment) -> bool:
    return segment.stop - segment.body < _MIN_LENGTHS.get(segment.marker, 0)


def _is_metadata(data: bytes, segment: Segment) -> bool:
    """Returns whether a segment affects neither pixels nor colors."""
    if segment.marker in _COLOR_SEGMENTS:
        return not data.startswith(_COLOR_SEGMENTS[segment.marker], segment.body)
    return segment.marker == _COM or segment.marker in _APPLICATIONS


class _Tag(NamedTuple):
    name: int
    kind: int
    number: int
    offset: int


def orientation_of(block: bytes | None) -> int:
    """Returns the orientation in an EXIF block, from 1 to 8; 1 if it is missing or invalid."""
    if block is None:
        return UPRIGHT
    found, tiff = UPRIGHT, _tiff_of(block)
    # TIFF 6.0 allows only one orientation tag with one value. Otherwise, use the first value, as
    # Pillow does, of the last tag, as Pillow 12 does; Pillow 13 uses the first tag.
    for tag in _tags(tiff):
        if tag.name == _ORIENTATION:
            kind, order = _INTEGERS.get(tag.kind), _order_of(tiff)
            found = struct.unpack_from(order + kind, tiff, tag.offset)[0] if kind else UPRIGHT
    return found if 1 <= found <= 8 else UPRIGHT


def _tiff_of(block: bytes) -> memoryview:
    match = _PREFIX.match(block)
    return memoryview(block)[match.end() if match else 0 :]


def _order_of(tiff: memoryview) -> str:
    """Returns the byte order, as `struct` has it; "" if the header states none."""
    return _ORDERS.get(bytes(tiff[:2]), "")


def _tags(tiff: memoryview) -> Iterator[_Tag]:
    """Yields the tags of the first directory, up to a tag whose values exceed the block.

    Reads only its entries, in linear time. Pillow copies the values of every tag, so thousands of
    tags that refer to the same megabyte take gigabytes.
    """
    # TIFF 6.0, section 2, header: byte order, 42, offset of the first directory.
    order = _order_of(tiff)
    if not order or bytes(tiff[2:4]) not in _MAGICS or len(tiff) < 8:
        return
    (start,) = struct.unpack_from(f"{order}L", tiff, 4)
    if start + 2 > len(tiff):
        return
    # Directory: number of entries, then 12 bytes per entry: tag, type, number of values, and the
    # values, if they fit in 4 bytes, or else their offset.
    (number,) = struct.unpack_from(f"{order}H", tiff, start)
    complete = min(number, (len(tiff) - start - 2) // _ENTRY_BYTES)
    for entry in range(start + 2, start + 2 + complete * _ENTRY_BYTES, _ENTRY_BYTES):
        name, kind, values = struct.unpack_from(f"{order}HHL", tiff, entry)
        size, offset = _SIZES.get(kind, 0) * values, entry + 8
        if size > 4:
            (offset,) = struct.unpack_from(f"{order}L", tiff, offset)
        if offset + size > len(tiff):
            return
        if size:
            yield _Tag(name, kind, values, offset)
