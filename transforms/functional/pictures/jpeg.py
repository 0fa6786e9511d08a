"""What a JPEG's markers say, found as libjpeg finds them. Source: ITU-T T.81, annex B."""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from typing import NamedTuple

_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7\x01]", re.DOTALL)
"""The next marker, as libjpeg's next_marker skips to it; restarts belong to the coded data.

It begins with a literal, which the search can jump to: 40 µs for 110 kB, else 20 times that.
"""

SIGNATURE = b"\xff\xd8\xff"
_SOI, _EOI, _SOS, _APP1, _COM = 0xD8, 0xD9, 0xDA, 0xE1, 0xFE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_APPLICATIONS = frozenset(range(0xE0, 0xF0))  # EXIF, XMP, IPTC, and makers' own
_COLOURS = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}
"""Applications' segments that tell what the colours are."""
_MULTI_PICTURE = b"MPF\0"
_EXIF = b"Exif\0"

DECODABLE = frozenset({0, 1, 2, 3, 9, 10})
"""The processes that libjpeg-turbo decodes: the lossless and the arithmetic ones, too."""

DCT_HUFFMAN = frozenset({0, 1, 2})
"""SOF0, SOF1, SOF2: baseline, extended and progressive, the processes that every reader has."""


class Segment(NamedTuple):
    """A marker and what belongs to it.

    Attributes:
        marker: its second byte.
        start: of the marker.
        body: where its content begins.
        stop: the byte after its content.
    """

    marker: int
    start: int
    body: int
    stop: int


class JpegFacts(NamedTuple):
    """What the markers of a JPEG say.

    Attributes:
        process: n of the first SOFn: how it is coded; None if there is no frame.
        precision: bits a sample.
        height: in pixels.
        width: in pixels.
        components: 1 for gray, 3 for colour, 4 for print.
        scans: how many passes over the picture it takes.
        end: the byte after the end-of-image marker; None if reading on never meets one.
        multi_picture: whether other pictures follow the first.
        exif: the EXIF block, or None.
    """

    process: int | None
    precision: int
    height: int
    width: int
    components: int
    scans: int
    end: int | None
    multi_picture: bool
    exif: bytes | None

    @property
    def readable_by_all(self) -> bool:
        """Whether every reader decodes it, and to the same picture."""
        common = self.process in DCT_HUFFMAN and self.precision == 8 and self.components in (1, 3)
        return common and self.end is not None


def segments(data: bytes) -> list[Segment]:
    """Returns all segments up to the end of the image, or as far as they go."""
    found: list[Segment] = []
    position = 2
    while match := _MARKER.search(data, position):
        marker, body = data[match.end() - 1], match.end()
        if marker in (_EOI, _SOI):
            return [*found, Segment(marker, body - 2, body, body)]
        position = body + int.from_bytes(data[body : body + 2], "big")
        if position < body + 2 or position > len(data):
            return found
        found.append(Segment(marker, body - 2, body + 2, position))
    return found


def examine(data: bytes) -> JpegFacts:
    """Returns what the markers of a JPEG say, however damaged it is."""
    found = segments(data)
    frame = next((s for s in found if s.marker in _FRAMES and s.stop - s.body >= 6), None)
    header = data[frame.body : frame.body + 6] if frame else bytes(6)
    precision, height, width, components = struct.unpack(">BHHB", header)
    whole = bool(found) and found[-1].marker == _EOI
    exif = (data[s.body : s.stop] for s in found if s.marker == _APP1)
    return JpegFacts(
        process=frame.marker - 0xC0 if frame else None,
        precision=precision,
        height=height,
        width=width,
        components=components,
        scans=sum(s.marker == _SOS for s in found),
        end=found[-1].stop if whole else None,
        multi_picture=any(data.startswith(_MULTI_PICTURE, s.body) for s in found),
        exif=next((block for block in exif if block.startswith(_EXIF)), None),
    )


def strip_metadata(data: bytes) -> bytes:
    """Returns a JPEG without EXIF, GPS, XMP, IPTC and comments; its coded data is untouched.

    What tells the colours stays: JFIF, Adobe's transform, ICC profiles. What is after its end goes,
    too: phones put further pictures there, with their own EXIF.
    """
    found = segments(data)
    stop = found[-1].stop if found and found[-1].marker == _EOI else len(data)
    kept, position = [], 0
    for segment, after in pairwise(found):
        if _is_metadata(data, segment):
            kept.append(data[position : segment.start])
            position = after.start  # and not what is skipped before it: a start needs a marker next
    return b"".join([*kept, data[position:stop]])


def _is_metadata(data: bytes, segment: Segment) -> bool:
    """Returns whether a segment has nothing to do with the picture's pixels and colours."""
    if segment.marker in _COLOURS:
        return not data.startswith(_COLOURS[segment.marker], segment.body)
    return segment.marker == _COM or segment.marker in _APPLICATIONS
