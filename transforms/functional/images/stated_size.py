"""The size that a file states, read before the file is opened: opening some bombs sets them off.

Pillow decodes an ICO at once, libwebp makes two canvases, and neither it nor libavif tells bombs
from damage.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import MAX_PIXELS
from recordmill.transforms.functional.images import png

_BITMAP = b"\x28\0\0\0"  # the size of a bitmap's header
_AVIF_SIZE = re.compile(rb"ispe\0\0\0\0(.{8})", re.DOTALL)


def check_stated_size(data: bytes, format_: str) -> None:
    """Refuses bombs that opening them alone would set off.

    Raises:
        RecordError: too_many_pixels.
    """
    sizes = {"avif": _avif_sizes, "ico": _icon_sizes, "webp": _webp_sizes}
    for width, height in sizes[format_](data) if format_ in sizes else ():
        if width * height > MAX_PIXELS:
            raise RecordError(Reason.TOO_MANY_PIXELS, f"{width} x {height} pixels")


def _avif_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    return (struct.unpack(">II", stated[1]) for stated in _AVIF_SIZE.finditer(data))


def _webp_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the canvas that a WebP's first chunk tells. Source: RFC 9649."""
    chunk = data[12:30].ljust(18, b"\0")
    if chunk.startswith(b"VP8X"):
        canvas = int.from_bytes(chunk[12:18], "little")
        yield (canvas & 0xFFFFFF) + 1, (canvas >> 24) + 1
    elif chunk.startswith(b"VP8L"):
        bits = int.from_bytes(chunk[9:13], "little")
        yield (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif chunk.startswith(b"VP8 "):
        width, height = struct.unpack_from("<HH", chunk, 14)
        yield width & 0x3FFF, height & 0x3FFF


def _icon_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the sizes of an ICO's pictures by their own headers; the ICO's may be a lie."""
    for entry in range(int.from_bytes(data[4:6], "little")):
        start = int.from_bytes(data[18 + 16 * entry : 22 + 16 * entry], "little")
        head = data[start : start + 24]
        if head.startswith(png.SIGNATURE) and len(head) == 24:
            yield struct.unpack_from(">II", head, 16)
        elif head.startswith(_BITMAP) and len(head) == 24:
            width, height = struct.unpack_from("<ii", head, 4)
            yield abs(width), abs(height) // 2  # its mask stands below it
